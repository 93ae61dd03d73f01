# SPDX-License-Identifier: GPL-2.0-or-later
"""Which NFS 4 mounts share one connection to their server. Pure.

The kernel has one client for all mounts of a server that have the same NFS 4 minor
version, whatever transport they ask for: at mounting, the server's answer tells that
it is known already, and the mount takes the connection that is there (server
trunking; nfs4_match_client and nfs41_walk_client_list in fs/nfs/nfs4client.c).
``nosharecache`` does not change that. With 4.1 and later it is so by the server's
other addresses too, with 4.0 by the same address only, with NFS 3 not at all. Seen on
kernel 6.1.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Optional

from ovirt_rdma.host.export import Export, ExportProblem
from ovirt_rdma.host.facts.model import NfsMount
from ovirt_rdma.host.paths import VDSM_MOUNTS
from ovirt_rdma.storage.proof import RDMA, TCP, prove
from ovirt_rdma.storage.readiness import NOT_READY, READY, UNKNOWN, Step
from ovirt_rdma.storage.transport import NFS_TCP_PORT

# The step of :func:`others_step`.
OTHERS = "others"
# Only mounts that are made anew change their transport, and only all of them at once.
REMOUNT = "put the host into maintenance and activate it again"
# What to do where the kernel's signals do not tell a mount's transport.
UNTOLD = (
    f"{REMOUNT}; if it is so again, report it with the host's /proc/self/mountinfo and "
    "/proc/self/mountstats"
)
_NAMED = 3
_MINOR_VERSIONS = ("4.0", "4.1", "4.2")
_OTHER = {RDMA: TCP, TCP: RDMA}


@dataclass(frozen=True)
class InTheWay:
    """Standing mounts with another transport than the one wanted.

    ``certain``: they have the version and the address that the new mount will have.
    Otherwise it depends on either.
    """

    mounts: tuple[NfsMount, ...]
    certain: bool


def by_connection(
    mounts: Iterable[NfsMount],
) -> dict[Optional[tuple[str, ...]], list[NfsMount]]:
    """Return the mounts by what :func:`connection_of` says of them, in their order."""
    found: dict[Optional[tuple[str, ...]], list[NfsMount]] = {}
    for mount in mounts:
        found.setdefault(connection_of(mount), []).append(mount)
    return found


def sharers(mount: NfsMount, mounts: Sequence[NfsMount]) -> tuple[NfsMount, ...]:
    """Return the others of ``mounts`` that use the connection of ``mount``.

    Of a shared connection the kernel shows one address with every mount, also where
    a mount named another (``addr=``).
    """
    connection = connection_of(mount)
    if connection is None:
        return ()
    return tuple(
        other
        for other in mounts
        if other.mountpoint != mount.mountpoint and connection_of(other) == connection
    )


def took_over(mount: NfsMount, rdma_port: int) -> Optional[bool]:
    """Whether ``mount`` took a connection that was there: it shows the port that it
    asked for, and that is none of its transport's. None where ports do not tell.
    """
    transport = prove(mount).transport
    if not _is_4(mount) or transport is None:
        return False
    if rdma_port == NFS_TCP_PORT:
        return None
    # The kernel does not show 2049, with NFS 4.
    port = mount.port or NFS_TCP_PORT
    return port == (rdma_port if transport == TCP else NFS_TCP_PORT)


def in_the_way(
    mounts: Sequence[NfsMount],
    export: Export,
    addresses: Collection[str],
    version: Optional[str],
    wanted: str,
) -> Optional[InTheWay]:
    """Return the mounts that keep a new mount of ``export`` off the transport
    ``wanted``; None where there are none.

    ``addresses`` are the server's; ``version`` is ``"3"``, ``"4.2"``, or anything
    else where mount.nfs finds out. Mounts of the export itself do not count: they are
    gone when it is mounted anew. A server that has other names and addresses too is
    found out at mounting only.
    """
    if version == "3":
        return None
    there = _like(mounts, wanted)
    found = [
        mount
        for mount in mounts
        if _is_4(mount)
        and _source(mount) != export
        and prove(mount).transport == _OTHER[wanted]
        and (mount.address in addresses or _server(mount) == export.server.lower())
        # Then there are two connections, and the kernel takes the one that is asked
        # for (nfs_match_client).
        and (mount.version, mount.address) not in there
    ]
    if version in _MINOR_VERSIONS:
        found = [mount for mount in found if mount.version == version]
        certain = tuple(mount for mount in found if mount.address in addresses)
        if certain:
            return InTheWay(certain, certain=True)
    return InTheWay(tuple(found), certain=False) if found else None


def because(mounts: Sequence[NfsMount]) -> str:
    """Say of mounts with one transport what follows from them for others."""
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


def remedy(mounts: Sequence[NfsMount]) -> str:
    """Say what ends the clash with ``mounts``, before all is mounted anew."""
    words = []
    by_hand = [m for m in mounts if not m.mountpoint.startswith(f"{VDSM_MOUNTS}/")]
    if by_hand:
        places = " ".join(shlex.quote(mount.mountpoint) for mount in by_hand)
        words.append(f"umount {places}")
    if len(by_hand) < len(mounts):
        words.append(
            "let the policy want one transport for all NFS 4 exports of the server, or "
            "give some of them another NFS version (3, or 4.1 beside 4.2)"
        )
    return "; ".join(words)


def others_step(
    mounts: Sequence[NfsMount],
    export: Export,
    addresses: Collection[str],
    version: Optional[str],
) -> Step:
    """Say whether standing mounts keep a new mount of ``export`` off RDMA; the words
    are those of :func:`in_the_way`.
    """
    if version == "3":
        return Step(OTHERS, READY, "NFS 3 mounts share no connection")
    found = in_the_way(mounts, export, addresses, version, RDMA)
    if found is None:
        free = f"no NFS 4 mount of {export.server} over TCP is in the way"
        return Step(OTHERS, READY, free)
    return Step(
        OTHERS,
        NOT_READY if found.certain else UNKNOWN,
        f"{because(found.mounts)}: this one {'comes' if found.certain else 'may come'} "
        "up over TCP too",
        f"{remedy(found.mounts)}; then {REMOUNT}",
    )


def _is_4(mount: NfsMount) -> bool:
    return mount.version is not None and mount.version.startswith("4")


def connection_of(mount: NfsMount) -> Optional[tuple[str, ...]]:
    """Return what is one for all NFS 4 mounts on a connection; None where it shares
    none, or that is not known.
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


def _source(mount: NfsMount) -> Optional[Export]:
    try:
        return Export.parse(mount.source)
    except ExportProblem:
        return None


def _server(mount: NfsMount) -> Optional[str]:
    source = _source(mount)
    return source.server.lower() if source else None
