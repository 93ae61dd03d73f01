# SPDX-License-Identifier: GPL-2.0-or-later
"""A hypervisor as facts, policy, plan, effects and proof. Uses no other room."""

__version__ = "0.1.0"
