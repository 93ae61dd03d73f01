# SPDX-License-Identifier: GPL-2.0-or-later
"""All rules together: findings and a plan from facts and policy. Pure."""
