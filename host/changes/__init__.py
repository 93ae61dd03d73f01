# SPDX-License-Identifier: GPL-2.0-or-later
"""Apply a plan, prove it, revert it. The only code here that changes a host, with
the journal from which every change can be reverted.
"""
