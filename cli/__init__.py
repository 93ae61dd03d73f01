# SPDX-License-Identifier: GPL-2.0-or-later
"""The commands: arguments, output and exit codes; no decisions."""
