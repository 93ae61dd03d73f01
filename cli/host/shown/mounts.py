# SPDX-License-Identifier: GPL-2.0-or-later
"""Show the health of NFS mounts, why, and what to do; what each did between two
samples, for ``watch``; and the tables of ``facts`` about links, cables, errors and
mounts.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Callable, Optional

from ovirt_rdma.cli.host.shown.devices import Section, known, number
from ovirt_rdma.cli.output import Output, count, when
from ovirt_rdma.host.facts.devices import IrqCpus, PciLink
from ovirt_rdma.host.facts.model import Facts
from ovirt_rdma.host.facts.statistics import (
    Load,
    MountStatistics,
    Statistics,
    load_between,
)
from ovirt_rdma.storage.health.state import HealthState, MountHealth

TONES = {
    "ok": "good",
    "slow": "doubtful",
    "stalled": "bad",
    "dead": "bad",
    "unknown": "doubtful",
}


def print_health(mounts: tuple[MountHealth, ...], output: Output) -> None:
    """Print a table, one sentence in all, and for each mount that is not ok why, and
    what to do.
    """
    if not mounts:
        output.line("This host has no NFS mount.")
        return
    output.table(
        ("HEALTH", "EXPORT", "TRANSPORT", "NFS", "ANSWER", "CAUSE"),
        [
            (
                mount.state,
                mount.export,
                mount.transport or "unproven",
                mount.version or "-",
                "-"
                if mount.answered_s is None
                else f"{mount.answered_s * 1000:.1f} ms",
                _cause(mount),
            )
            for mount in mounts
        ],
        TONES,
    )
    bad = [mount for mount in mounts if mount.state != "ok"]
    if bad:
        verb = "is" if len(bad) == 1 else "are"
        output.line(f"{len(bad)} of {count(len(mounts), 'mount')} {verb} not ok.")
    elif len(mounts) == 1:
        output.line("The mount is ok.")
    else:
        output.line(f"All {len(mounts)} mounts are ok.")
    said: set[str] = set()
    for mount in bad:
        # Mounts of one server fail together: said once.
        also = f"{mount.reason} {mount.sentence} {mount.fix}"
        if also in said:
            continue
        said.add(also)
        output.text(f"{_exports(mount)} {mount.state}: {mount.sentence}.")
        output.fix(mount.fix)
        for seen in mount.evidence:
            output.text(seen, "  ", "- ")


def _exports(mount: MountHealth) -> str:
    if not mount.shared:
        return f"{mount.export} is"
    return f"{mount.export} and {', '.join(mount.shared)} (the same server) are"


def _cause(mount: MountHealth) -> str:
    if mount.cause is None:
        return "-"
    return mount.cause if mount.certain else f"{mount.cause}, probably"


WATCH_KIND = "nfs-watch"


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


def _rate(name: str) -> Callable[[Load], float]:
    return lambda load: load.total(name) / load.seconds


def _ms(load: Load, value: float) -> str:
    return f"{value:.1f}" if load.count else "-"


def _mb(load: Load, value: float) -> str:
    return f"{value / 1e6:.1f}"


def _whole(load: Load, value: float) -> str:
    return f"{value:.0f}"


def _more(load: Load, value: float) -> str:
    return f"+{value}" if value else "0"


# The name in the document, the value, and heading and text in the table of those that
# are shown there. Times are means of the calls that ended between the samples.
_Text = Callable[[Load, float], str]
_COLUMNS: tuple[tuple[str, Callable[[Load], float], str, _Text], ...] = (
    ("seconds", lambda load: load.seconds, "", _whole),
    ("calls", _rate("operations"), "CALLS/S", _whole),
    ("received_bytes", _rate("bytes_received"), "READ", _mb),
    ("sent_bytes", _rate("bytes_sent"), "WRITE", _mb),
    ("rtt_ms", lambda load: load.all.rtt_ms, "RTT", _ms),
    ("execute_ms", lambda load: load.all.execute_ms, "EXEC", _ms),
    ("queue_ms", lambda load: load.all.queue_ms, "QUEUE", _ms),
    ("on_wire", lambda load: load.on_wire, "", _whole),
    ("backlog", lambda load: load.backlog, "BACKLOG", _whole),
    ("connects", lambda load: load.connects, "CONN", _more),
    ("sent_again", lambda load: load.sent_again, "RETR", _more),
    ("timeouts", lambda load: load.total("timeouts"), "", _more),
)
_SHOWN = [one for one in _COLUMNS if one[2]]


def print_rows(found: Sequence[Row], problems: Sequence[str], output: Output) -> None:
    """Print a table."""
    output.line(f"{when(time.time())}; MB/s, times in ms")
    if found:
        headings = [heading for _, _, heading, _ in _SHOWN]
        output.table(
            ("HEALTH", "XPRT", *headings, "EXPORT"),
            [
                (row.health or "-", row.transport, *_cells(row.load), row.mount.source)
                for row in found
            ],
            TONES,
            minor=("EXPORT", "RETR", "CONN"),
        )
    else:
        output.line("This host has no NFS mount.")
    for sentence in problems:
        output.text(f"note: {sentence}")


def _cells(load: Optional[Load]) -> list[str]:
    if load is None:
        return ["-"] * len(_SHOWN)
    return [text(load, value(load)) for _, value, _, text in _SHOWN]


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
                **{
                    name: value(row.load) if row.load else None
                    for name, value, _, _ in _COLUMNS
                },
            }
            for row in found
        ],
        "problems": list(problems),
    }


# Sets of CPUs that are named.
_NAMED = 4


def links(facts: Facts) -> Section:
    """Return the PCIe links, near CPUs and interrupts of adapters."""
    return Section(
        "PCIe links",
        ("PCI ADDRESS", "LINK", "CARD", "SLOT", "NEAR CPUS", "INTERRUPTS (CPUS)"),
        [
            (
                adapter.pci.address,
                *_link(adapter.pci_link),
                adapter.local_cpus,
                _interrupts(adapter.interrupts),
            )
            for adapter in facts.adapters
            if adapter.pci_link or adapter.local_cpus or adapter.interrupts
        ],
    )


def _link(link: Optional[PciLink]) -> tuple[Optional[str], ...]:
    """Return the link as it is, and as card and slot can be."""
    if link is None:
        return (None, None, None)
    return tuple(
        known(
            None if speed_gts is None else f"{speed_gts:g} GT/s",
            None if width is None else f"x{width}",
            between=" ",
        )
        for speed_gts, width in (
            (link.speed_gts, link.width),
            (link.most_speed_gts, link.most_width),
            (link.slot_speed_gts, link.slot_width),
        )
    )


def _interrupts(found: tuple[IrqCpus, ...]) -> Optional[str]:
    more = len(found) - _NAMED
    return known(
        *(f"{one.interrupts} ({one.cpus})" for one in found[:_NAMED]),
        f"and {more} more" if more > 0 else None,
    )


def settings(facts: Facts) -> list[tuple[str, Optional[str]]]:
    """Return names and values of what concerns all adapters."""
    tuning = facts.tuning
    if tuning is None:
        return []
    return [
        ("NUMA nodes", number(tuning.numa_nodes)),
        ("CPU governor", known(*tuning.governors)),
        ("RDMA slots", number(tuning.rdma_slots)),
    ]


def cables(facts: Facts) -> Section:
    """Return what RDMA ports are cabled to, as far as that is known."""
    return Section(
        "cables of RDMA ports",
        ("DEVICE", "PORT", "NETDEV", "CABLED TO", "KIND", "ITS PORT", "ITS ID"),
        [
            (
                device.name,
                str(port.number),
                one.netdev,
                one.name,
                one.kind,
                one.port_title,
                one.id,
            )
            for device in facts.rdma_devices
            for port in device.ports
            for one in port.neighbours
        ],
    )


def errors(facts: Facts) -> Section:
    """Return the error counters of ports that are not 0."""
    activity = facts.activity
    return Section(
        "errors of RDMA ports",
        ("DEVICE", "PORT", "COUNTER", "TOTAL", "NOW"),
        [
            (
                port.device,
                str(port.port),
                error.name,
                str(error.value),
                f"+{error.grown}" if error.grown else None,
            )
            for port in (activity.ports if activity else ())
            for error in port.errors
        ],
    )


def mounts_over_rdma(facts: Facts) -> Section:
    """Return what the NFS mounts over RDMA did since they were made."""
    activity = facts.activity
    return Section(
        "NFS over RDMA",
        ("MOUNTED AT", "CONNECTIONS", "MADE", "REQUESTS", "SENT AGAIN", "WAITED FOR"),
        [
            (
                mount.mountpoint,
                str(mount.connections),
                count(mount.connects, "time"),
                str(mount.operations),
                number(mount.retransmissions or None),
                "a slot" if mount.backlog else None,
            )
            for mount in (activity.mounts if activity else ())
        ],
    )


def states(facts: Facts) -> Section:
    """Return the connections over RDMA that the kernel shows."""
    activity = facts.activity
    return Section(
        "connections over RDMA",
        ("CONNECTION", "TO", "STATE", "SLOTS", "IN USE", "WAITING"),
        [
            (
                one.name,
                one.destination,
                known(*one.state, between=" "),
                number(one.slots_max),
                number(one.requests),
                number(one.backlog),
            )
            for one in (activity.connections if activity else None) or ()
        ],
    )
