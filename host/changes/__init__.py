# SPDX-License-Identifier: GPL-2.0-or-later
"""Apply a plan, verify the result, and revert it.

Only code in this package changes the settings of a host. A journal records every
change before it is made, so that it can be reverted.
"""
