# SPDX-License-Identifier: GPL-2.0-or-later
"""The command ``ovirt-rdma``: its verbs, one file a noun."""
