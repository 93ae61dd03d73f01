# SPDX-License-Identifier: GPL-2.0-or-later
"""The command ``ovirt-rdma-host``: its verbs, one file a noun."""
