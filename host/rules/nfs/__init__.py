# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules about NFS mounts over RDMA that exist: known defects and traps."""
