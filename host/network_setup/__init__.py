# SPDX-License-Identifier: GPL-2.0-or-later
"""VDSM's network setups: what a request means for IPoIB, and when to refuse it."""
