# SPDX-License-Identifier: GPL-2.0-or-later
"""What every part of VDSM shares."""
