# SPDX-License-Identifier: GPL-2.0-or-later
"""Mount inside VDSM: the start of vdsmd, our connection class, and its state."""
