# SPDX-License-Identifier: GPL-2.0-or-later
"""Hosts that changes are made on, and the oracle that judges them."""
