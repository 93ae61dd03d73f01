# SPDX-License-Identifier: GPL-2.0-or-later
"""The operating system: files, commands, locks, signals, JSON, printable text."""
