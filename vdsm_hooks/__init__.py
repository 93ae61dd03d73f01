# SPDX-License-Identifier: GPL-2.0-or-later
"""VDSM's hooks: one thin entry for each hook point, without decisions of its own."""
