# SPDX-License-Identifier: GPL-2.0-or-later
"""Represent the ``fabric:`` part of the policy: its data, and the table of its keys.

Pure.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Optional

from ovirt_rdma.host.facts.ib_codes import MTU_CODES, RATE_CODES
from ovirt_rdma.host.facts.pkeys import (
    FIRST_VLAN,
    LAST_VLAN,
    MEMBERSHIPS,
    partition_of,
    vlan_of_pkey,
)
from ovirt_rdma.host.policy.forms import Field, Keys, ListOf, MapOf, Number, Text

# Each port with a link, in ``ports`` of a subnet manager.
ALL = "ALL"
# Of a subnet manager: 4 bits (include/iba/ib_types.h, ib_sm_info_t, pri_state).
HIGHEST_PRIORITY = 15


@dataclass(frozen=True)
class FabricHost:
    """The port GUIDs of a host, as ``0002:c903:00fb:1231``."""

    name: str
    guids: tuple[str, ...]


@dataclass(frozen=True)
class PartitionRule:
    """A partition of the fabric.

    ``pkey`` is that of full members (``0x8001``), ``vlan`` the VLAN that it stands for.
    ``members`` are ``WHO=MEMBERSHIP``: WHO is the name of a host, a GUID as
    ``0002:c903:00fb:1231``, or ALL, ALL_CAS, ALL_SWITCHES or SELF. ``mtu`` is in bytes
    and ``rate`` in Gb/s, of the groups that opensm creates; None is opensm's default.
    """

    name: str
    pkey: str
    members: tuple[str, ...]
    ipoib: bool = True
    mtu: Optional[int] = None
    rate: Optional[int] = None
    vlan: Optional[int] = None


@dataclass(frozen=True)
class SubnetManagerRule:
    """A host that runs opensm with ``priority`` (0 to 15; the higher one is master).

    ``ports`` are GUIDs as ``0002:c903:00fb:1231``, or ALL: each port with a link; with
    none, the host has one. ``standby``: it stands by for a subnet manager that the
    policy does not name, such as that of a switch.
    """

    host: str
    priority: int
    ports: tuple[str, ...] = ()
    standby: bool = False


@dataclass(frozen=True)
class FabricPolicy:
    """The ``fabric:`` part; without partitions nothing is written, and on a host
    without one of ``subnet_managers`` no opensm is started.

    ``pkeys_are_vlans``: a P_Key of 0x8000 + VLAN stands for that VLAN, also if no
    partition is described here (the switch has the subnet manager).
    """

    hosts: tuple[FabricHost, ...] = ()
    partitions: tuple[PartitionRule, ...] = ()
    pkeys_are_vlans: bool = False
    subnet_managers: tuple[SubnetManagerRule, ...] = ()

    def vlan_of(self, pkey: str) -> Optional[int]:
        """Return the VLAN that ``pkey`` (``0x8064``, or ``0x0064`` of a limited member)
        stands for; None if it stands for none.
        """
        own = partition_of(pkey)
        for rule in self.partitions:
            if partition_of(rule.pkey) == own and rule.vlan is not None:
                return rule.vlan
        return vlan_of_pkey(pkey) if self.pkeys_are_vlans else None

    def name_of(self, pkey: str) -> Optional[str]:
        """Return the name of the partition with ``pkey``, or None."""
        own = partition_of(pkey)
        names = (r.name for r in self.partitions if partition_of(r.pkey) == own)
        return next(names, None)

    def pkey_named(self, name: str) -> Optional[str]:
        """Return the P_Key of full members of the partition ``name``, or None."""
        return next((one.pkey for one in self.partitions if one.name == name), None)

    def guids_of(self, who: str) -> Optional[tuple[str, ...]]:
        """Return the GUIDs of the host ``who``; None if it is no host's name."""
        return next((host.guids for host in self.hosts if host.name == who), None)

    def managers_of(
        self, hostname: str, guids: Collection[str]
    ) -> tuple[SubnetManagerRule, ...]:
        """Return the subnet managers that are this host: by the GUIDs of its ports if
        ``hosts`` has the name, else by ``hostname``, with or without its domain.
        """
        names = (hostname.lower(), hostname.lower().partition(".")[0])
        found = []
        for rule in self.subnet_managers:
            known = self.guids_of(rule.host)
            if set(known) & set(guids) if known else rule.host.lower() in names:
                found.append(rule)
        return tuple(found)

    @property
    def manager_guids(self) -> frozenset[str]:
        """The GUIDs of all ports at which the policy lets opensm run, so far as it has
        them.
        """
        found: set[str] = set()
        for rule in self.subnet_managers:
            named = [port for port in rule.ports if port != ALL]
            found.update(named or self.guids_of(rule.host) or ())
        return frozenset(found)


def _written(allowed: str, check: str) -> Text:
    return Text(allowed, written=True, may_be_empty=True, check=check)


_GROUP = (
    Field(
        "mtu",
        Number(choices=tuple(MTU_CODES)),
        "the IB MTU of the partition's groups, in bytes; a port with less cannot join",
        "opensm's default, 2048",
    ),
    Field(
        "rate",
        Number(choices=tuple(sorted(RATE_CODES))),
        "the rate of the partition's groups, in Gb/s; a slower port cannot join",
        "opensm's default, 10",
    ),
)

PARTITION = Keys(
    Field(
        "pkey",
        _written("a P_Key such as 0x8001", "pkey"),
        "of the partition; bit 15 does not count",
        "from `vlan`; one of the two must be there",
    ),
    Field(
        "vlan",
        Number(FIRST_VLAN, LAST_VLAN),
        "the VLAN that the partition stands for: its P_Key is 0x8000 + VLAN",
        "from `pkey`",
    ),
    Field(
        "members",
        ListOf(
            Text(
                "a host of fabric.hosts, a GUID, ALL, ALL_CAS, ALL_SWITCHES, "
                "ALL_ROUTERS, SELF; with =full, =limited or =both",
                written=True,
                check="member",
            )
        ).or_null(False),
        "the ports of the partition; SELF is the subnet manager's",
        required=True,
    ),
    Field(
        "membership",
        Text(choices=MEMBERSHIPS),
        "of members that do not have one; limited members reach full ones only",
        "full",
    ),
    Field(
        "ipoib",
        Text(choices=("on", "off"), written=True),
        "whether opensm creates the broadcast group, without which IPoIB has no "
        "carrier",
        "on",
    ),
    *_GROUP,
)

SUBNET_MANAGER = Keys(
    Field(
        "priority",
        Number(0, HIGHEST_PRIORITY),
        "of opensm; of several in a subnet the one with the highest is master, at an "
        "equal one that with the lowest GUID",
        required=True,
    ),
    Field(
        "ports",
        ListOf(
            Text(
                "a port's GUID such as 0002:c903:00fb:1231, or ALL alone",
                written=True,
                check="manager_port",
            )
        ),
        "the ports at which opensm runs, one process each; ALL is each InfiniBand port "
        "with a link, for devices that are cabled back to back",
        "the only port with a link",
    ),
    Field(
        "standby",
        Text(choices=("on", "off"), written=True),
        "whether it stands by for a subnet manager that this policy does not name, as "
        "that of a switch; that one needs a higher priority",
        "off: opensm is not started then",
    ),
)

FABRIC = Keys(
    Field(
        "defaults",
        Keys(*_GROUP).or_null(),
        "`mtu` and `rate` for every partition that does not have the key itself",
    ),
    Field(
        "hosts",
        MapOf(
            ListOf(_written("a port's GUID such as 0002:c903:00fb:1231", "guid")),
            "host: a list of its port GUIDs",
        ),
        "names for ports, to use in `members`",
        "none",
    ),
    Field(
        "partitions",
        MapOf(PARTITION, "name: keys of the table below"),
        "the partitions of the fabric, for the host that runs its subnet manager",
        "none is written",
    ),
    Field(
        "pkeys_are_vlans",
        Text(choices=("on", "off"), written=True),
        "whether every P_Key 0x8000 + VLAN (1 to 4094) stands for that VLAN, also "
        "without a partition here",
        "off",
    ),
    Field(
        "subnet_managers",
        MapOf(SUBNET_MANAGER, "host: keys of the table below"),
        "the hosts that run opensm, by their names in `hosts` or their host names",
        "`fabric sm enable` starts none",
    ),
)
