# SPDX-License-Identifier: GPL-2.0-or-later
"""The kinds of change: read, set and undo sysfs values, profiles, offloads, files,
modules and units.
"""
