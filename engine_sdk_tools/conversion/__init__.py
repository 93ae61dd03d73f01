# SPDX-License-Identifier: GPL-2.0-or-later
"""Convert storage domains between TCP and RDMA: offline, rolling, and back.

The next step is decided from the present state of the engine and the hosts. The state
file records only what was found at the start and what was started.
"""
