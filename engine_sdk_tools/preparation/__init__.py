# SPDX-License-Identifier: GPL-2.0-or-later
"""Prepare existing hosts, one batch after the other."""
