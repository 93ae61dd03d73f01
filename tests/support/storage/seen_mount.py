# SPDX-License-Identifier: GPL-2.0-or-later
"""Make what the health has seen of a mount, as rows of tables are written."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Optional

from ovirt_rdma.host.facts.model import NfsMount
from ovirt_rdma.host.facts.statistics import Load, OperationStatistics
from ovirt_rdma.storage.health.signs import (
    ACCEPTS,
    Answer,
    Knock,
    ServerSigns,
)
from ovirt_rdma.storage.health.verdict import Seen
from ovirt_rdma.storage.readiness import NOT_READY, READY, Step
from ovirt_rdma.storage.readiness import UNKNOWN as NOT_KNOWN

MOUNT = NfsMount("nas1:/vm", "/mnt/a", "rw", "4.2", "rdma", 20049, "10.0.0.1", 500)
ROUTE = Step("route", READY, "10.0.0.1 by ib0 from 10.0.0.9")
PORT = Step("port", READY, "mlx5_0/1 is ACTIVE and owns 10.0.0.9")
PORT_DOWN = Step("port", NOT_READY, "the RDMA port is not ACTIVE", "the cable")
ALIVE = ServerSigns(
    (ROUTE, PORT), Knock(ACCEPTS, 0.001), None, "ib0", True, (("mlx5_0", 1),)
)
LISTENS = Step("listener", READY, "10.0.0.1 accepts RDMA connections on port 20049")
REFUSED = Step("listener", NOT_READY, "it refuses RDMA", "rdma=y", refused=True)
MUTE = Step("listener", NOT_READY, "10.0.0.1 did not answer within 2 s", "check")
NO_RDMA_CM = Step("listener", NOT_KNOWN, "this host has no RDMA CM")
LATE = Answer(late=True)
FAST = Answer(seconds=0.002)


def signs(
    tcp: str = ACCEPTS,
    listener: Optional[Step] = None,
    took: float = 0.001,
    replied: Optional[bool] = None,
    **more: Any,
) -> ServerSigns:
    return replace(ALIVE, tcp=Knock(tcp, took, replied), listener=listener, **more)


def seen(
    answer: Answer = LATE,
    its: Optional[ServerSigns] = None,
    transport: str = "rdma",
    **more: Any,
) -> Seen:
    return Seen(MOUNT, transport, answer, signs=its, **more)


def load(
    seconds: float = 10.0,
    data: tuple[int, float, float] = (0, 0.0, 0.0),
    other: tuple[int, float, float] = (0, 0.0, 0.0),
    backlog: float = 0.0,
    sent_again: int = 0,
    timeouts: int = 0,
    connects: int = 0,
) -> Load:
    """Calls as number, and mean milliseconds in the queue and on the wire."""
    operations = []
    for name, (n, queue, rtt) in (("READ", data), ("LOOKUP", other)):
        sums = (int(n * queue), int(n * rtt), int(n * (queue + rtt)))
        operations.append(OperationStatistics(name, n, n, 0, 0, 0, *sums))
    again = operations[1].transmissions + sent_again
    operations[1] = operations[1]._replace(transmissions=again, timeouts=timeouts)
    sends = data[0] + other[0] + sent_again
    queued = int(backlog * sends)
    return Load(seconds, tuple(operations), connects, sends, queued)
