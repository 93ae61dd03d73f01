# SPDX-License-Identifier: GPL-2.0-or-later
"""Export what the kernel and the add-on know of RDMA mounts, for Prometheus."""
