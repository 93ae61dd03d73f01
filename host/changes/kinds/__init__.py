# SPDX-License-Identifier: GPL-2.0-or-later
"""Kinds of change: read, write and undo sysfs values, profiles, offloads, files,
modules and units.
"""
