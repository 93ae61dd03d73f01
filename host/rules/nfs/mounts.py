# SPDX-License-Identifier: GPL-2.0-or-later
"""Find the NFS mounts over RDMA, for the rules of this package. Pure.

A finding's subject is the export: mounts of one export, which are rare, count once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from ovirt_rdma.host.export import Export
from ovirt_rdma.host.facts.activity import MountActivity
from ovirt_rdma.host.facts.model import NfsMount
from ovirt_rdma.host.mount_options import MountOptions
from ovirt_rdma.host.policy.model import rule_for
from ovirt_rdma.host.rules.base import HOST, SKIP, Finding
from ovirt_rdma.host.rules.view import View, once_per_view

RDMA = "rdma"


@dataclass(frozen=True)
class RdmaMount:
    """A mount whose connections are over RDMA, what it did, and what was asked for.

    activity: None if the counters were not read
    asked: the extra options of the policy's rule for this export
    """

    mount: NfsMount
    activity: Optional[MountActivity]
    asked: MountOptions

    @property
    def export(self) -> str:
        """The subject of its findings."""
        return self.mount.source

    @property
    def is_v4_2(self) -> bool:
        """Whether it uses NFS 4.2."""
        return self.mount.version == "4.2"

    def shown(self, name: str) -> Optional[int]:
        """Return the number of an option that the kernel shows, or None."""
        return MountOptions.parse(self.mount.options).number(name)

    def asked_for(self, name: str) -> Optional[int]:
        """Return the number that the policy asks for, or None."""
        return self.asked.number(name)


@once_per_view
def rdma_mounts(view: View) -> tuple[RdmaMount, ...]:
    """Return the mounts over RDMA, the first one of each export."""
    activity = view.facts.activity
    done = {one.mountpoint: one for one in activity.mounts} if activity else {}
    found: dict[str, RdmaMount] = {}
    for mount in view.facts.nfs_mounts:
        if mount.source in found or not is_over_rdma(mount):
            continue
        export = Export.maybe(mount.source)
        match = rule_for(view.policy, export) if export else None
        asked = MountOptions.parse(match.rule.options if match else "")
        found[mount.source] = RdmaMount(mount, done.get(mount.mountpoint), asked)
    return tuple(found.values())


def is_over_rdma(mount: NfsMount) -> bool:
    """Whether mountstats shows connections over RDMA, or mountinfo alone says so."""
    if mount.protocols:
        return RDMA in mount.protocols
    return (mount.protocol or "").startswith(RDMA)


def no_mount(rule: str) -> Finding:
    """Return the finding for a host without a mount over RDMA."""
    return Finding(rule, HOST, SKIP, "this host has no NFS mount over RDMA")


def not_read(rule: str, subject: str) -> Finding:
    """Return the finding for a mount whose counters are not in the facts."""
    return Finding(rule, subject, SKIP, "the counters of this mount are unknown")
