# SPDX-License-Identifier: GPL-2.0-or-later
"""Whole hosts as facts, with policy and plan."""
