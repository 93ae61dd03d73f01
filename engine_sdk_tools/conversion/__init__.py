# SPDX-License-Identifier: GPL-2.0-or-later
"""Converting storage domains between TCP and RDMA: offline, rolling, and back.

What to do next is decided anew before each act, from what the engine and the hosts say
now; the state file says only what was found at the start and what was begun.
"""
