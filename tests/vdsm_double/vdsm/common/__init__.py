# SPDX-License-Identifier: GPL-2.0-or-later
"""The shared parts of VDSM."""
