# SPDX-License-Identifier: GPL-2.0-or-later
"""A host below a folder: its kernel files, and tools that answer as the real ones."""
