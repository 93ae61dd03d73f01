# SPDX-License-Identifier: GPL-2.0-or-later
"""The engine's API: login, requests, errors, settings of the connection."""
