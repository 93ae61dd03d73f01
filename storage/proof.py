# SPDX-License-Identifier: GPL-2.0-or-later
"""Prove over which transport a mount runs and since when, from kernel data. Pure.

The transport of an NFS mount never changes, so it has been the same since the mount
was made. The kernel reuses the ids of mounts as soon as they are free; the mount point
and the time of the mount therefore distinguish it from its predecessor.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Optional

from ovirt_rdma.host.facts.model import CmId, DegradedMark, NfsMount
from ovirt_rdma.host.mount_options import RDMA, transport_of

# Ages are whole seconds, and uptime is read a moment after them.
SLACK_S = 5.0

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def mounted_s(mount: NfsMount, uptime_s: float) -> Optional[float]:
    """Return when ``mount`` was made, in seconds after boot; None if unknown.

    ``uptime_s`` is 0.0 if it could not be read.
    """
    if mount.age_s is None or not uptime_s:
        return None
    return uptime_s - mount.age_s


def utc_time(booted_at: Optional[int], after_boot_s: Optional[float]) -> Optional[str]:
    """Return a time after boot as ``2026-11-21T02:51:34Z``; None if unknown."""
    if booted_at is None or after_boot_s is None:
        return None
    try:
        moment = _EPOCH + timedelta(seconds=booted_at + after_boot_s)
    except OverflowError:  # a facts file may hold any number
        return None
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def time_for_people(moment: str) -> str:
    """Return a time of :func:`utc_time` in a form for people."""
    return moment.replace("T", " ").replace("Z", " UTC")


def mark_of(
    mount: NfsMount, marks: Iterable[DegradedMark], uptime_s: float
) -> Optional[DegradedMark]:
    """Return the mark of ``mount``, not of an earlier mount at its mount point."""
    return next((mark for mark in marks if is_about(mark, mount, uptime_s)), None)


def is_about(mark: DegradedMark, mount: NfsMount, uptime_s: float) -> bool:
    """Whether ``mark`` was set on ``mount``, not on an earlier one at that point."""
    if mark.mountpoint != mount.mountpoint:
        return False
    made = mounted_s(mount, uptime_s)
    if made is None or mark.mounted_s is None:
        return True
    return abs(made - mark.mounted_s) <= SLACK_S


# Stands for the transport if the signals disagree or there is none.
UNPROVEN = "unproven"


@dataclass(frozen=True)
class Signal:
    """What one ``source`` in the kernel shows: a transport, and the text ``shown``."""

    source: str
    transport: str
    shown: str


@dataclass(frozen=True)
class Proof:
    """The signals and the transport that they prove.

    ``transport`` is None if they disagree or there is no signal.
    """

    transport: Optional[str]
    signals: tuple[Signal, ...] = ()

    def __str__(self) -> str:
        return ", ".join(f"{s.source}: {s.shown}" for s in self.signals) or "no signal"


def prove(mount: NfsMount, cm_ids: Optional[Sequence[CmId]] = None) -> Proof:
    """Compare mountinfo's ``proto=``, mountstats' ``xprt:`` lines and, if ``cm_ids``
    has one, the connected RDMA CM id to the mount's server.

    A CM id does not contradict TCP: it may belong to another mount, and a mount that
    shares a TCP connection shows the RDMA port that it requested.
    """
    signals = []
    if mount.protocol is not None:
        shown = f"proto={mount.protocol}"
        signals.append(Signal("mountinfo", transport_of(mount.protocol), shown))
    protocols = mount.protocols
    if protocols:
        kinds = {transport_of(protocol) for protocol in protocols}
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
    """Return the kernel's own CM id to the mount's server; None if there is none.

    None proves nothing: an idle RDMA transport disconnects after five minutes
    (RPCRDMA_IDLE_DISC_TO) and connects again with the next request.
    """
    address = mount.address or ""
    endpoints = {f"{address}:{mount.port}", f"[{address}]:{mount.port}"}
    for cm_id in cm_ids:
        if (cm_id.state, cm_id.owner) == ("CONNECT", "[rpcrdma]") and (
            cm_id.destination in endpoints
        ):
            return cm_id
    return None
