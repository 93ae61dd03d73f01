# SPDX-License-Identifier: GPL-2.0-or-later
"""Manage RDMA storage domains, IPoIB networks and hosts through the oVirt engine.

This is a Python API for automation, and the base of the command ``ovirt-rdma``.
docs/engine-api.md lists the modules that are meant for import.
"""
