# SPDX-License-Identifier: GPL-2.0-or-later
"""Check VDSM's network setup requests for IPoIB, and find the modes they ask for."""
