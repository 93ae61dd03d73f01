# SPDX-License-Identifier: GPL-2.0-or-later
"""Move the connections of NFS over RDMA mounts between network paths to a server."""
