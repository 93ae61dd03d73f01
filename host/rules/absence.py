# SPDX-License-Identifier: GPL-2.0-or-later
"""What rules say on a host that has nothing for them to look at."""

from __future__ import annotations

from ovirt_rdma.host.rules.rule import SKIP, Finding

HOST = "host"


def no_device(rule: str) -> Finding:
    """Return the finding for a host without any RDMA device."""
    return Finding(rule, HOST, SKIP, "this host has no RDMA device")
