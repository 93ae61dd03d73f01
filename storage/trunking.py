# SPDX-License-Identifier: GPL-2.0-or-later
"""Find NFS 4 mounts that share one connection to their server (trunking). Pure.

The kernel has one client for all mounts of a server with the same NFS 4 minor version,
whatever transport they request: when it mounts, the server's answer shows that the
server is already known, and the mount uses the existing connection (nfs4_match_client
and nfs41_walk_client_list in fs/nfs/nfs4client.c). ``nosharecache`` does not change
that. NFS 4.1 and later share across the server's addresses, 4.0 only with the same
address, NFS 3 never. Measured on kernel 6.1.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Optional

from ovirt_rdma.host.export import Export
from ovirt_rdma.host.facts.model import NfsMount
from ovirt_rdma.host.mount_options import RDMA, TCP
from ovirt_rdma.host.paths import VDSM_MOUNTS
from ovirt_rdma.storage.proof import prove
from ovirt_rdma.storage.readiness import NOT_READY, READY, UNKNOWN, Step
from ovirt_rdma.storage.transport import NFS_TCP_PORT

# The step of :func:`others_step`.
OTHERS = "others"
# Only a remount changes the transport, and only of all mounts of a connection at once.
REMOUNT = "put the host into maintenance and activate it again"
# The fix for a mount whose transport is unproven.
UNPROVEN_FIX = (
    f"{REMOUNT}; if that does not help, report it with the host's /proc/self/mountinfo "
    "and /proc/self/mountstats"
)
_NAMED = 3
_MINOR_VERSIONS = ("4.0", "4.1", "4.2")
_OTHER = {RDMA: TCP, TCP: RDMA}


@dataclass(frozen=True)
class ConflictingMounts:
    """Existing mounts that would force another transport than the wanted one.

    ``certain``: they have the version and the address that the new mount will have.
    Otherwise the result depends on either.
    """

    mounts: tuple[NfsMount, ...]
    certain: bool


def by_connection(
    mounts: Iterable[NfsMount],
) -> dict[Optional[tuple[str, ...]], list[NfsMount]]:
    """Return the mounts grouped by :func:`connection_of`, in their order."""
    groups: dict[Optional[tuple[str, ...]], list[NfsMount]] = {}
    for mount in mounts:
        groups.setdefault(connection_of(mount), []).append(mount)
    return groups


def sharers(mount: NfsMount, mounts: Sequence[NfsMount]) -> tuple[NfsMount, ...]:
    """Return the others of ``mounts`` that use the connection of ``mount``.

    The kernel shows the same address for all mounts of a shared connection, even if a
    mount was given another (``addr=``).
    """
    connection = connection_of(mount)
    if connection is None:
        return ()
    return others_at(mount, by_connection(mounts)[connection])


def others_at(mount: NfsMount, mounts: Iterable[NfsMount]) -> tuple[NfsMount, ...]:
    """Return ``mounts`` without those at the mount point of ``mount``."""
    place = mount.mountpoint
    return tuple([other for other in mounts if other.mountpoint != place])


def uses_earlier_connection(mount: NfsMount, rdma_port: int) -> Optional[bool]:
    """Whether ``mount`` uses a connection that existed before it.

    Then it shows the port that was requested, which does not fit its transport. None
    if the ports do not differ.
    """
    transport = prove(mount).transport
    if not _is_4(mount) or transport is None:
        return False
    if rdma_port == NFS_TCP_PORT:
        return None
    # With NFS 4 the kernel does not show port 2049.
    port = mount.port or NFS_TCP_PORT
    return port == (rdma_port if transport == TCP else NFS_TCP_PORT)


def conflicting_mounts(
    mounts: Sequence[NfsMount],
    export: Export,
    addresses: Collection[str],
    version: Optional[str],
    wanted: str,
) -> Optional[ConflictingMounts]:
    """Return the mounts that prevent the transport ``wanted`` for a new mount of
    ``export``; None if there are none.

    ``addresses`` are the server's. ``version`` is ``"3"``, ``"4.2"``, or anything else
    if mount.nfs chooses it. Mounts of the export itself do not count: they no longer
    exist when it is remounted. Other names and addresses of the server only show when
    it is mounted.
    """
    if version == "3":
        return None
    wanted_connections = _like(mounts, wanted)
    others = [
        mount
        for mount in mounts
        if _is_4(mount)
        and not export.same_as(Export.maybe(mount.source))
        and prove(mount).transport == _OTHER[wanted]
        and (mount.address in addresses or _is_of_server(mount, export))
        # With two connections the kernel uses the requested one (nfs_match_client).
        and (mount.version, mount.address) not in wanted_connections
    ]
    if version in _MINOR_VERSIONS:
        others = [mount for mount in others if mount.version == version]
        certain = tuple(mount for mount in others if mount.address in addresses)
        if certain:
            return ConflictingMounts(certain, certain=True)
    return ConflictingMounts(tuple(others), certain=False) if others else None


def conflict_clause(mounts: Sequence[NfsMount]) -> str:
    """Return a clause that explains the effect of ``mounts`` (of one transport)."""
    names = [mount.source for mount in mounts]
    if len(names) > _NAMED:
        names[_NAMED - 1 :] = [f"{len(names) - _NAMED + 1} more"]
    *most, last = names
    shown = f"{', '.join(most)} and {last}" if most else last
    versions = " and ".join(sorted({f"NFS {mount.version}" for mount in mounts}))
    return (
        f"{shown} {'are' if most else 'is'} mounted over "
        f"{(prove(mounts[0]).transport or 'another transport').upper()}, and the "
        f"kernel uses one connection for all {versions} mounts of a server"
    )


def conflict_fix(mounts: Sequence[NfsMount]) -> str:
    """Return what ends the conflict with ``mounts``, before the remount."""
    steps = []
    by_hand = [m for m in mounts if not m.mountpoint.startswith(f"{VDSM_MOUNTS}/")]
    if by_hand:
        mountpoints = " ".join(shlex.quote(mount.mountpoint) for mount in by_hand)
        steps.append(f"umount {mountpoints}")
    if len(by_hand) < len(mounts):
        steps.append(
            "choose one transport for all NFS 4 exports of the server in the policy, "
            "or another NFS version for some of them (3, or 4.1 beside 4.2)"
        )
    return "; ".join(steps)


def others_step(
    mounts: Sequence[NfsMount],
    export: Export,
    addresses: Collection[str],
    version: Optional[str],
) -> Step:
    """Check whether existing mounts prevent RDMA for a new mount of ``export``.

    The parameters are those of :func:`conflicting_mounts`.
    """
    if version == "3":
        return Step(OTHERS, READY, "NFS 3 mounts share no connection")
    conflict = conflicting_mounts(mounts, export, addresses, version, RDMA)
    if conflict is None:
        free = f"no NFS 4 mount of {export.server} forces this export to TCP"
        return Step(OTHERS, READY, free)
    return Step(
        OTHERS,
        NOT_READY if conflict.certain else UNKNOWN,
        f"{conflict_clause(conflict.mounts)}: this export "
        f"{'would' if conflict.certain else 'may'} be mounted over TCP too",
        f"{conflict_fix(conflict.mounts)}; then {REMOUNT}",
    )


def _is_of_server(mount: NfsMount, export: Export) -> bool:
    source = Export.maybe(mount.source)
    return source is not None and source.key[0] == export.key[0]


def _is_4(mount: NfsMount) -> bool:
    return mount.version is not None and mount.version.startswith("4")


def connection_of(mount: NfsMount) -> Optional[tuple[str, ...]]:
    """Return what identifies the connection of an NFS 4 mount.

    None if the mount shares no connection, or if it is unknown.
    """
    if not _is_4(mount):
        return None
    parts = (mount.version, mount.address, mount.protocol)
    known = tuple(part for part in parts if part is not None)
    return known if len(known) == len(parts) else None


def _like(
    mounts: Iterable[NfsMount], transport: str
) -> set[tuple[Optional[str], Optional[str]]]:
    """Return version and address of the mounts over ``transport``."""
    over = (mount for mount in mounts if prove(mount).transport == transport)
    return {(mount.version, mount.address) for mount in over}
