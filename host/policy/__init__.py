# SPDX-License-Identifier: GPL-2.0-or-later
"""The policy: read, validate, store and edit it."""
