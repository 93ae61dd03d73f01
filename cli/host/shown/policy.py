# SPDX-License-Identifier: GPL-2.0-or-later
"""Show a policy to people."""

from __future__ import annotations

from ovirt_rdma.cli.output import Output, count
from ovirt_rdma.host.policy.difference import said_by
from ovirt_rdma.host.policy.model import Policy


def policy_counts(policy: Policy) -> str:
    """Return ``2 NFS rules, 1 interface``; without host settings that are not used."""
    host = policy.host
    parts = [count(len(policy.nfs.rules), "NFS rule")]
    for settings, noun in (
        (host.interfaces, "interface"),
        (host.modules, "module"),
        (host.module_options, "module option"),
        (host.virtual_functions, "VF rule"),
        (policy.fabric.partitions, "partition"),
        (policy.block.srp, "SRP target"),
        (policy.block.iser, "iSER target"),
    ):
        if settings:
            parts.append(count(len(settings), noun))
    return ", ".join(parts)


def show_parts(policy: Policy, output: Output) -> None:
    """Print what a policy says besides its NFS rules, in its own words."""
    for line in said_by(policy):
        if not line.startswith("nfs.rules:"):
            output.line(line)
