# SPDX-License-Identifier: GPL-2.0-or-later
"""Tables and documents of ``ovirt-rdma-host``, from data that was read before."""
