# SPDX-License-Identifier: GPL-2.0-or-later
"""Measure NFS over RDMA and TCP on this host, and say what the limit is.

``ovirt-rdma-host bench`` uses it. The top-level folder ``bench/`` is something else:
the benchmarks of ovirt-rdma itself.
"""
