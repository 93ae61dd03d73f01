# SPDX-License-Identifier: GPL-2.0-or-later
"""Prove over which transport a mount runs, and since when. Pure.

When a mount was made, and which mark is about it. Pure.

The transport of an NFS mount never changes, so it has run over it since it was
made. The kernel gives ids of mounts out again, as soon as they are free, so that
place and time tell a mount from its predecessor.

Over what transport a mount really runs, by the kernel's own signals. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Optional

from ovirt_rdma.host.facts.model import CmId, DegradedMark, NfsMount
from ovirt_rdma.storage.mount_options import is_rdma

# Ages are whole seconds, and uptime is read a moment later than they are.
SLACK_S = 5.0

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def mounted_s(mount: NfsMount, uptime_s: float) -> Optional[float]:
    """Return when ``mount`` was made, in seconds after boot; None if not known.

    ``uptime_s`` is 0.0 where it could not be read.
    """
    if mount.age_s is None or not uptime_s:
        return None
    return uptime_s - mount.age_s


def utc(booted_at: Optional[int], after_boot_s: Optional[float]) -> Optional[str]:
    """Return a time after boot as ``2026-11-21T02:51:34Z``; None if not known."""
    if booted_at is None or after_boot_s is None:
        return None
    try:
        moment = _EPOCH + timedelta(seconds=booted_at + after_boot_s)
    except OverflowError:  # a facts file may hold any number
        return None
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def shown(moment: str) -> str:
    """Return a time of :func:`utc` for people."""
    return moment.replace("T", " ").replace("Z", " UTC")


def mark_of(
    mount: NfsMount, marks: Iterable[DegradedMark], uptime_s: float
) -> Optional[DegradedMark]:
    """Return the mark that is about ``mount``, not about an earlier one there."""
    return next((mark for mark in marks if is_about(mark, mount, uptime_s)), None)


def is_about(mark: DegradedMark, mount: NfsMount, uptime_s: float) -> bool:
    """Whether ``mark`` was set on ``mount``, not on an earlier mount in its place."""
    if mark.mountpoint != mount.mountpoint:
        return False
    made = mounted_s(mount, uptime_s)
    if made is None or mark.mounted_s is None:
        return True
    return abs(made - mark.mounted_s) <= SLACK_S


RDMA = "rdma"
TCP = "tcp"
# In place of a transport, where the witnesses disagree or are none.
UNPROVEN = "unproven"


@dataclass(frozen=True)
class Signal:
    """One independent witness: its ``source`` and the transport that it names."""

    source: str
    transport: str
    shown: str


@dataclass(frozen=True)
class Proof:
    """What the witnesses say; ``transport`` is None where they disagree or are none."""

    transport: Optional[str]
    signals: tuple[Signal, ...] = ()

    def __str__(self) -> str:
        return ", ".join(f"{s.source}: {s.shown}" for s in self.signals) or "no signal"


def prove(mount: NfsMount, cm_ids: Optional[Sequence[CmId]] = None) -> Proof:
    """Weigh mountinfo's ``proto=``, mountstats' ``xprt:`` lines and, where there is
    one in ``cm_ids``, the connected RDMA CM id of the mount's server.

    That one does not contradict TCP: it may be another mount's, and a mount that took
    over a TCP connection shows the RDMA port for which it asked.
    """
    signals = []
    if mount.protocol is not None:
        shown = f"proto={mount.protocol}"
        signals.append(Signal("mountinfo", _kind(mount.protocol), shown))
    protocols = [transport.protocol for transport in mount.transports]
    if protocols:
        kinds = {_kind(protocol) for protocol in protocols}
        kind = kinds.pop() if len(kinds) == 1 else "mixed"
        shown = f"xprt: {' '.join(protocols)}"
        signals.append(Signal("mountstats", kind, shown))
    cm_id = _connected(mount, cm_ids or ())
    if cm_id is not None and any(signal.transport == RDMA for signal in signals):
        shown = f"{cm_id.device} to {cm_id.destination}"
        signals.append(Signal("rdma cm_id", RDMA, shown))
    named = {signal.transport for signal in signals}
    return Proof(named.pop() if len(named) == 1 else None, tuple(signals))


def _connected(mount: NfsMount, cm_ids: Sequence[CmId]) -> Optional[CmId]:
    """Find the kernel's own CM id to the mount's server.

    That there is none says nothing: an idle RDMA transport disconnects after five
    minutes (RPCRDMA_IDLE_DISC_TO) and connects again with the next request.
    """
    address = mount.address or ""
    endpoints = {f"{address}:{mount.port}", f"[{address}]:{mount.port}"}
    for cm_id in cm_ids:
        if (cm_id.state, cm_id.owner) == ("CONNECT", "[rpcrdma]") and (
            cm_id.destination in endpoints
        ):
            return cm_id
    return None


def _kind(protocol: str) -> str:
    if is_rdma(protocol):
        return RDMA
    return TCP if protocol in ("tcp", "tcp6") else protocol
