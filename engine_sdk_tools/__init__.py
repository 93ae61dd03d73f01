# SPDX-License-Identifier: GPL-2.0-or-later
"""RDMA storage domains, IPoIB networks and hosts, through the oVirt engine.

A Python API for automation, and what the command ``ovirt-rdma`` is made of.
docs/engine-api.md tells which modules are meant for import.
"""
