# SPDX-License-Identifier: GPL-2.0-or-later
"""Make the tables of ``facts`` about links, cables, errors and mounts over RDMA."""

from __future__ import annotations

from typing import Optional

from ovirt_rdma.cli.host.shown.devices import Section, known, number
from ovirt_rdma.cli.output import count
from ovirt_rdma.host.facts.devices import IrqCpus, PciLink
from ovirt_rdma.host.facts.model import Facts

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
