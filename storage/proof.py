# SPDX-License-Identifier: GPL-2.0-or-later
"""Over what transport a mount really runs, by the kernel's own signals. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

from ovirt_rdma.host.facts import CmId, NfsMount
from ovirt_rdma.storage.options import is_rdma

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
