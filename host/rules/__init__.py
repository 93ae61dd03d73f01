# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules that check a host's facts against the policy and plan the changes. Pure.

Each module has the rules of one topic.
"""
