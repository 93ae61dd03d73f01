# SPDX-License-Identifier: GPL-2.0-or-later
"""Fixes of the product, and what each is tried on: tests/cli/test_fixes_correct.py."""
