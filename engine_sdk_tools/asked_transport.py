# SPDX-License-Identifier: GPL-2.0-or-later
"""Which transport is asked for a domain, by the engine's row or by a host's policy, and
which of a host's mounts is that domain's. Pure.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Optional

from ovirt_rdma.engine_sdk_tools.engine_facts import StorageConnection
from ovirt_rdma.engine_sdk_tools.host_policy import InForce
from ovirt_rdma.host.enablement_state import MODE_VDSMD
from ovirt_rdma.host.export import Export, ExportProblem
from ovirt_rdma.host.facts import Facts, NfsMount
from ovirt_rdma.host.paths import VDSM_MOUNTS
from ovirt_rdma.host.policy import PREFER_RDMA, TCP, NfsRule, rule_for
from ovirt_rdma.storage.options import MountOptions
from ovirt_rdma.storage.proof import RDMA

# All hosts mount the same few exports.
_KEPT = 1024


@dataclass(frozen=True)
class Asked:
    """What is asked for: ``rdma``, ``tcp``, or None where it cannot be told.

    ``by`` says by whom: "rule 'nas'", "the engine's row". ``preferred``: TCP will do
    for mounting, but is not what is wanted (prefer-rdma).
    """

    transport: Optional[str]
    by: str
    preferred: bool = False


def nfs_export(connection: Optional[StorageConnection]) -> Optional[Export]:
    """Return a row's NFS export; None for one that is not NFS or makes none.

    PosixFS counts where its file system is NFS.
    """
    if connection is None or connection.address is None or connection.path is None:
        return None
    posix_nfs = connection.type == "posixfs" and connection.vfs_type in ("nfs", "nfs4")
    if connection.type != "nfs" and not posix_nfs:
        return None
    try:
        return export_at(connection.address, connection.path)
    except ExportProblem:
        return None


def export_at(address: Optional[str], path: str) -> Export:
    """Return the export of a row's address and path. Raises ExportProblem.

    The engine keeps an IPv6 address in brackets, or without.
    """
    server = address or ""
    if server.count(":") > 1 and not server.startswith("["):
        server = f"[{server}]"
    return _parsed(f"{server}:{path}")


def row_transport(connection: StorageConnection) -> str:
    """Return the transport that the row's mount options give: ``rdma`` or ``tcp``,
    which is mount.nfs's own choice where they name none (nfs(5), proto=).
    """
    return RDMA if MountOptions.parse(connection.mount_options).wants_rdma else TCP


def asked_for(connection: StorageConnection, force: InForce) -> Asked:
    """Say which transport a host should use for the domain of ``connection``.

    Rules are for NFS domains only: VDSM mounts PosixFS by a class of its own, which the
    add-on leaves alone.
    """
    by_row = row_transport(connection)
    export = nfs_export(connection)
    row = Asked(by_row, "the engine's row")
    if export is None or connection.type != "nfs":
        return row
    if force.policy is None:
        # A rule could still say otherwise, but nothing less than RDMA is a promise.
        return row if by_row == RDMA else Asked(None, force.reason)
    match = rule_for(force.policy, export)
    if match is None:
        return row
    if match.rule.transport == TCP:
        return Asked(TCP, match.rule.title)
    preferred = match.rule.transport == PREFER_RDMA
    return Asked(RDMA, match.rule.title, preferred)


def passed_by(connection: StorageConnection, force: InForce) -> Optional[NfsRule]:
    """Return the rule that names the export of a PosixFS domain, wants another
    transport than its row, and does not cover it; None where there is no such.

    In mode nfsmount it covers it: mount.nfs goes by the place alone.
    """
    export = nfs_export(connection)
    if export is None or connection.type == "nfs" or force.enabled != MODE_VDSMD:
        return None
    match = rule_for(force.policy, export) if force.policy else None
    if match is None:
        return None
    wanted = TCP if match.rule.transport == TCP else RDMA
    return None if wanted == row_transport(connection) else match.rule


def mount_of(facts: Facts, export: Export) -> Optional[NfsMount]:
    """Return the host's mount of ``export``, VDSM's before anybody else's."""
    found = [mount for mount in facts.nfs_mounts if _is_of(mount, export)]
    return vdsm_mount(found, export) or (found[0] if found else None)


def vdsm_mount(mounts: Iterable[NfsMount], export: Export) -> Optional[NfsMount]:
    """Return VDSM's own mount of ``export``, or None."""
    folder = f"{VDSM_MOUNTS}/"
    ours = (m for m in mounts if m.mountpoint.startswith(folder) and _is_of(m, export))
    return next(ours, None)


def _is_of(mount: NfsMount, export: Export) -> bool:
    try:
        found = _parsed(mount.source)
    except ExportProblem:
        return False
    if found.path != export.path:
        return False
    if found.address is not None or export.address is not None:
        return found.address == export.address
    return found.server.rstrip(".").lower() == export.server.rstrip(".").lower()


@functools.lru_cache(_KEPT)
def _parsed(text: str) -> Export:
    return Export.parse(text)
