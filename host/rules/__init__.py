# SPDX-License-Identifier: GPL-2.0-or-later
"""What is right and wrong on a host, and what would change it: pure rules over facts
and policy, one module for each matter.
"""
