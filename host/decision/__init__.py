# SPDX-License-Identifier: GPL-2.0-or-later
"""Run all rules on facts and policy: findings and a plan. Pure."""
