# SPDX-License-Identifier: GPL-2.0-or-later
"""Count what a byte costs: the instructions of NFS over RDMA and over TCP."""
