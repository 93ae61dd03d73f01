# SPDX-License-Identifier: GPL-2.0-or-later
"""The report: all that is known of hosts, domains and their fabric, on one page."""
