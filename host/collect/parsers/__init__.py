# SPDX-License-Identifier: GPL-2.0-or-later
"""Parse the output of tools and the text of kernel files."""
