# SPDX-License-Identifier: GPL-2.0-or-later
"""Show people and programs what a run of ``ovirt-rdma-host`` has found or done."""
