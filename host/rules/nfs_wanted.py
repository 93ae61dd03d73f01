# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether this host is meant to mount over RDMA. Pure."""

from __future__ import annotations

from ovirt_rdma.host.policy import TCP
from ovirt_rdma.host.rules.view import View

_RDMA = "rdma"


def wants_nfs_over_rdma(view: View) -> bool:
    """Whether a rule of the policy says RDMA, or a mount uses it already."""
    return any(rule.transport != TCP for rule in view.policy.nfs.rules) or any(
        (mount.protocol or "").startswith(_RDMA) for mount in view.facts.nfs_mounts
    )
