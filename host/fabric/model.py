# SPDX-License-Identifier: GPL-2.0-or-later
"""Represent opensm's partitions.conf as data. Pure.

:mod:`.grammar` reads the file, :mod:`.render` writes it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Optional

from ovirt_rdma.host.facts.pkeys import full_member

# What a member can be besides a GUID.
ALL, ALL_CAS, ALL_SWITCHES, ALL_ROUTERS, SELF = WORDS = (
    "ALL",
    "ALL_CAS",
    "ALL_SWITCHES",
    "ALL_ROUTERS",
    "SELF",
)

# The name of the default partition in opensm.
DEFAULT_NAME = "Default"
# osm_partition.h: char name[32].
LONGEST_NAME = 31

# OSM_DEFAULT_MGRP_MTU and OSM_DEFAULT_MGRP_RATE (osm_base.h): 2048 bytes, 10 Gb/s.
DEFAULT_MTU, DEFAULT_RATE = 4, 3


@dataclass(frozen=True)
class Member:
    """A port of a partition: one of WORDS or a GUID such as ``0x0002c90300fb1231``.

    ``membership`` is one of MEMBERSHIPS.
    """

    port: str
    membership: str

    @property
    def is_guid(self) -> bool:
        """Whether it is one port."""
        return self.port not in WORDS

    def __str__(self) -> str:
        return f"{self.port}={self.membership}"


@dataclass(frozen=True)
class GroupFlags:
    """The flags of multicast groups; None if a flag is not written.

    ``mtu`` and ``rate`` are codes (:mod:`~ovirt_rdma.host.facts.ib_codes`), ``sl`` is
    the service level, ``scopes`` are IPv6 multicast scopes.
    """

    mtu: Optional[int] = None
    rate: Optional[int] = None
    sl: Optional[int] = None
    scopes: tuple[int, ...] = ()
    q_key: Optional[int] = None
    tclass: Optional[int] = None
    flow_label: Optional[int] = None

    def over(self, other: GroupFlags) -> GroupFlags:
        """Return these flags, with those of ``other`` where there is none."""
        values = dataclasses.asdict(other)
        own = dataclasses.asdict(self)
        values.update({k: v for k, v in own.items() if v not in (None, ())})
        return GroupFlags(**values)

    @property
    def used_mtu(self) -> int:
        """The code of the MTU that opensm uses."""
        return DEFAULT_MTU if self.mtu is None else self.mtu

    @property
    def used_rate(self) -> int:
        """The code of the rate that opensm uses."""
        return DEFAULT_RATE if self.rate is None else self.rate


_NO_FLAGS = GroupFlags()


@dataclass(frozen=True)
class Group:
    """A multicast group that opensm creates: ``mgid`` as ``ff12:401b::1``."""

    mgid: str
    flags: GroupFlags = _NO_FLAGS


@dataclass(frozen=True)
class Definition:
    """One definition of the file. Several may be about one partition.

    ``pkey`` has 15 bits, ``name`` may be empty. With ``ipoib`` opensm creates the
    broadcast group, with ``flags``. ``indx0`` puts the P_Key at index 0 of the table.
    ``line`` is where it begins, 0 if it is not from a file.
    """

    name: str
    pkey: int
    ipoib: bool = False
    indx0: bool = False
    flags: GroupFlags = _NO_FLAGS
    members: tuple[Member, ...] = ()
    groups: tuple[Group, ...] = ()
    line: int = dataclasses.field(default=0, compare=False)

    @property
    def title(self) -> str:
        """The partition in sentences: ``storage (0x8001)``."""
        return f"{self.name} ({self.pkey_text})" if self.name else self.pkey_text

    @property
    def pkey_text(self) -> str:
        """The P_Key of a full member: ``0x8001``."""
        return full_member(self.pkey)


def guid_text(guid: int) -> str:
    """Return a GUID as partitions.conf has it: ``0x0002c90300fb1231``."""
    return f"0x{guid:016x}"


def by_pkey(definitions: Iterable[Definition]) -> dict[int, list[Definition]]:
    """Return the definitions of each partition, in their order."""
    found: dict[int, list[Definition]] = {}
    for definition in definitions:
        found.setdefault(definition.pkey, []).append(definition)
    return found
