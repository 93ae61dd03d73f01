# SPDX-License-Identifier: GPL-2.0-or-later
"""Find what is valid in partitions.conf and may still not be meant. Pure.

Ports are those of a recorded topology, or of this host.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Optional

from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.fabric.model import (
    ALL,
    ALL_CAS,
    DEFAULT_NAME,
    Definition,
    by_pkey,
    guid_text,
)
from ovirt_rdma.host.facts.ib_codes import MTUS, RATES
from ovirt_rdma.host.facts.model import Facts
from ovirt_rdma.host.facts.pkeys import BOTH, DEFAULT_PARTITION, FULL

# include/iba/ib_types.h: opensm 3.3.23 ends at 600 Gb/s; tried there.
_NEWEST_OLD_RATE = 22


@dataclass(frozen=True)
class FabricPort:
    """A port of a host: its GUID as partitions.conf has it, and where it is.

    ``rate_mbps`` is the signalling rate and ``mtu`` the IB MTU in bytes that it can
    do; None if that is unknown.
    """

    guid: str
    name: str
    rate_mbps: Optional[int] = None
    mtu: Optional[int] = None


def ports_of(facts: Facts) -> tuple[FabricPort, ...]:
    """Return the InfiniBand ports of this host; without a rate if the link is down."""
    return tuple(
        FabricPort(
            guid_text(int(port.guid.replace(":", ""), 16)),
            f"{facts.hostname} {device.name}/{port.number}",
            port.rate_mbps if port.is_active else None,
            port.active_mtu if port.is_active else port.max_mtu,
        )
        for device in facts.rdma_devices
        for port in device.ports
        if port.is_infiniband and port.guid
    )


def remarks(
    definitions: Sequence[Definition],
    ports: Iterable[FabricPort] = (),
    *,
    whole: bool = False,
) -> tuple[Sentence, ...]:
    """Return a sentence for each thing that may not be meant.

    ``whole``: ``ports`` are all ports of the fabric, so that a GUID that is not among
    them is unknown.
    """
    # Of a port of this host more is known than of one in a topology.
    known = {port.guid: port for port in ports}
    found = [*_default(definitions), *_needing_settings(definitions)]
    for one in definitions:
        if whole:
            found += _unknown(one, known)
        found += _too_slow(one, known)
    return tuple(found)


def _default(definitions: Sequence[Definition]) -> Iterator[Sentence]:
    default = by_pkey(definitions).get(DEFAULT_PARTITION, [])
    if not default:
        yield Sentence(
            "default-partition-undefined",
            "there is no default partition (0x7fff): all ports but the subnet "
            "manager's become limited members, which do not reach each other, and it "
            f"has no broadcast group; write {DEFAULT_NAME}=0x7fff,ipoib : ALL=full ;",
        )
    elif not any(one.ipoib for one in default):
        yield Sentence(
            "default-partition-without-ipoib",
            "the default partition has no broadcast group, so the base netdevs of "
            "IPoIB have no carrier; write ipoib in its definition, unless no host uses "
            "them",
        )
    if default and not any(
        member.membership in (FULL, BOTH) for one in default for member in one.members
    ):
        yield Sentence(
            "default-partition-limited",
            "the default partition has no full member, so that no port reaches "
            "another there",
        )


def _needing_settings(definitions: Sequence[Definition]) -> Iterator[Sentence]:
    both = [
        one for one in definitions if any(m.membership == BOTH for m in one.members)
    ]
    if both:
        yield Sentence(
            "both-needs-setting",
            f"{both[0].title} has members with =both, which opensm takes for full "
            "unless allow_both_pkeys is TRUE in opensm.conf",
        )
    with_sl = [one for one in definitions if one.flags.sl]
    if with_sl:
        yield Sentence(
            "sl-needs-setting",
            f"{with_sl[0].title} has a service level, which opensm sets to 0 unless "
            "qos is TRUE in opensm.conf",
        )
    for one in definitions:
        if one.ipoib and one.flags.used_rate > _NEWEST_OLD_RATE:
            yield Sentence(
                "rate-needs-opensm",
                f"{one.title} has rate={one.flags.used_rate}, which opensm before "
                "3.3.24 does not know, so that the broadcast group is missing",
            )


def _unknown(one: Definition, known: dict[str, FabricPort]) -> Iterator[Sentence]:
    for member in one.members:
        if member.is_guid and member.port not in known:
            yield Sentence(
                "guid-unknown",
                f"{member.port} of {one.title} is no port of this fabric; opensm "
                "ignores it until such a port appears",
            )


def _too_slow(one: Definition, known: dict[str, FabricPort]) -> Iterator[Sentence]:
    if not one.ipoib:
        return
    rate, mtu = RATES[one.flags.used_rate], MTUS[one.flags.used_mtu]
    everyone = any(member.port in (ALL, ALL_CAS) for member in one.members)
    named = {member.port for member in one.members}
    slow: dict[str, list[FabricPort]] = {}
    for port in known.values():
        if not everyone and port.guid not in named:
            continue
        if port.rate_mbps is not None and port.rate_mbps < rate:
            has = f"has {port.rate_mbps / 1000:g} Gb/s, not {rate / 1000:g}"
            slow.setdefault(has, []).append(port)
        elif port.mtu is not None and port.mtu < mtu:
            slow.setdefault(f"has MTU {port.mtu}, not {mtu}", []).append(port)
    # One slow group may be a mistake for each port of a fabric.
    for has, (first, *others) in slow.items():
        more = f", nor can {len(others)} more with that" if others else ""
        yield Sentence(
            "port-cannot-join",
            f"{first.name} ({first.guid}) {has}, and cannot join the broadcast group "
            f"of {one.title}{more}; IPoIB has no carrier there",
        )
