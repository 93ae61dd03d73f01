# SPDX-License-Identifier: GPL-2.0-or-later
"""Run as VDSM's hooks: one small program for each hook point, without decisions."""
