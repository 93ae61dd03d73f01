# SPDX-License-Identifier: GPL-2.0-or-later
"""A fake host below a folder: its kernel files, and tools that print like real ones."""
