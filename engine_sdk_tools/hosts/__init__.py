# SPDX-License-Identifier: GPL-2.0-or-later
"""Hosts as they report themselves, over SSH or from facts dumps."""
