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
from ovirt_rdma.host.facts import NfsMount
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
    """
    export = nfs_export(connection)
    if export is None or connection.type == "nfs" or force.enabled != MODE_VDSMD:
        return None
    match = rule_for(force.policy, export) if force.policy else None
    if match is None:
        return None
    wanted = TCP if match.rule.transport == TCP else RDMA
    return None if wanted == row_transport(connection) else match.rule


class Mounts:
    """A host's NFS mounts, found by their exports: each source is read once, for a host
    may have thousands.
    """

    def __init__(self, mounts: Iterable[NfsMount]) -> None:
        self._by_export: dict[tuple[str, str], list[NfsMount]] = {}
        for mount in mounts:
            try:
                key = _key(_parsed(mount.source))
            except ExportProblem:
                continue
            self._by_export.setdefault(key, []).append(mount)

    def of(self, export: Export) -> Optional[NfsMount]:
        """Return the mount of ``export``, VDSM's before anybody else's."""
        found = self._by_export.get(_key(export), [])
        return self.vdsms(export) or (found[0] if found else None)

    def vdsms(self, export: Export) -> Optional[NfsMount]:
        """Return VDSM's own mount of ``export``, or None."""
        found = self._by_export.get(_key(export), [])
        folder = f"{VDSM_MOUNTS}/"
        return next((m for m in found if m.mountpoint.startswith(folder)), None)


def _key(export: Export) -> tuple[str, str]:
    """Return what is one for an export, however its server is written."""
    address = export.address
    server = export.server.rstrip(".").lower() if address is None else str(address)
    return server, export.path


@functools.lru_cache(_KEPT)
def _parsed(text: str) -> Export:
    return Export.parse(text)
