# SPDX-License-Identifier: GPL-2.0-or-later
"""Fake hosts for changes, and the oracle that checks them."""
