# SPDX-License-Identifier: GPL-2.0-or-later
"""Logical networks over RDMA netdevs: create, attach, addresses, MTU."""
