# SPDX-License-Identifier: GPL-2.0-or-later
"""What ovirt-rdma costs and saves, measured against named rivals (``make bench``)."""
