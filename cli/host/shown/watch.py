# SPDX-License-Identifier: GPL-2.0-or-later
"""Show what each NFS mount did between two samples, for ``watch``."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Optional

from ovirt_rdma.cli.host.shown.health import TONES
from ovirt_rdma.cli.output import Output, when
from ovirt_rdma.host.facts.statistics import (
    Load,
    MountStatistics,
    Statistics,
    load_between,
)
from ovirt_rdma.storage.health.state import HealthState

WATCH_KIND = "nfs-watch"
_MB = 1e6


@dataclass(frozen=True)
class Row:
    """One mount: what it did, None before there are two samples of it, and its health,
    None if nobody watches it.
    """

    mount: MountStatistics
    load: Optional[Load]
    health: Optional[str]

    @property
    def transport(self) -> str:
        """The protocol of its connections; ``mixed`` if they differ."""
        names = {one.protocol for one in self.mount.transports}
        return names.pop() if len(names) == 1 else "mixed" if names else "unknown"


def rows(
    before: Statistics, after: Statistics, state: Optional[HealthState]
) -> list[Row]:
    """Return the mounts of the second sample, in the kernel's order. Pure."""
    earlier = {mount.mountpoint: mount for mount in before.mounts}
    health = {one.mountpoint: one.state for one in state.mounts} if state else {}
    seconds = after.taken_s - before.taken_s
    return [
        Row(
            mount,
            load_between(earlier.get(mount.mountpoint), mount, seconds),
            health.get(mount.mountpoint),
        )
        for mount in after.mounts
    ]


def print_rows(found: Sequence[Row], problems: Sequence[str], output: Output) -> None:
    """Print a table; times are means of the calls that ended between the samples."""
    output.line(f"{when(time.time())}; MB/s, times in ms")
    if found:
        output.table(
            (
                "HEALTH",
                "XPRT",
                "CALLS/S",
                "READ",
                "WRITE",
                "RTT",
                "EXEC",
                "QUEUE",
                "BACKLOG",
                "CONN",
                "RETR",
                "EXPORT",
            ),
            [_cells(row) for row in found],
            TONES,
        )
    else:
        output.line("This host has no NFS mount.")
    for sentence in problems:
        output.text(f"note: {sentence}")


def _cells(row: Row) -> tuple[str, ...]:
    load, health = row.load, row.health or "-"
    if load is None:
        nothing = ("-",) * 9
        return (health, row.transport, *nothing, row.mount.source)
    calls = load.all
    idle = not load.count
    times = (calls.rtt_ms, calls.execute_ms, calls.queue_ms)
    return (
        health,
        row.transport,
        f"{load.count / load.seconds:.0f}",
        f"{load.total('bytes_received') / load.seconds / _MB:.1f}",
        f"{load.total('bytes_sent') / load.seconds / _MB:.1f}",
        *("-" if idle else f"{ms:.1f}" for ms in times),
        f"{load.backlog:.0f}",
        f"+{load.connects}" if load.connects else "0",
        f"+{load.sent_again}" if load.sent_again else "0",
        row.mount.source,
    )


def document(
    found: Sequence[Row], at: float, problems: Sequence[str]
) -> dict[str, Any]:
    """Return the same for programs; ``at`` is in seconds since 1970. Rates are per
    second, times in milliseconds; None for a mount without an earlier sample.
    """
    return {
        "at": at,
        "mounts": [
            {
                "export": row.mount.source,
                "mountpoint": row.mount.mountpoint,
                "transport": row.transport,
                "health": row.health,
                **_numbers(row.load),
            }
            for row in found
        ],
        "problems": list(problems),
    }


def _numbers(load: Optional[Load]) -> dict[str, Optional[float]]:
    names = (
        "seconds",
        "calls",
        "received_bytes",
        "sent_bytes",
        "rtt_ms",
        "execute_ms",
        "queue_ms",
        "on_wire",
        "backlog",
        "connects",
        "sent_again",
        "timeouts",
    )
    if load is None:
        return dict.fromkeys(names)
    calls = load.all
    values = (
        load.seconds,
        load.count / load.seconds,
        load.total("bytes_received") / load.seconds,
        load.total("bytes_sent") / load.seconds,
        calls.rtt_ms,
        calls.execute_ms,
        calls.queue_ms,
        load.on_wire,
        load.backlog,
        load.connects,
        load.sent_again,
        load.total("timeouts"),
    )
    return dict(zip(names, values))
