# SPDX-License-Identifier: GPL-2.0-or-later
"""Prepare a hypervisor: facts, policy, plan, changes and proof."""

__version__ = "0.2.0"
