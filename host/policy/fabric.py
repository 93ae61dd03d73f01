# SPDX-License-Identifier: GPL-2.0-or-later
"""Define the ``fabric:`` part of the policy: its keys and its records. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Optional

from ovirt_rdma.host.facts.infiniband import (
    ALL,
    DEFAULT_NAME,
    DEFAULT_PARTITION,
    FIRST_VLAN,
    FULL,
    LAST_VLAN,
    LONGEST_NAME,
    MEMBERSHIPS,
    MTU_CODES,
    RATE_CODES,
    full_member,
    partition_of,
    vlan_of_pkey,
)
from ovirt_rdma.host.policy import texts
from ovirt_rdma.host.policy.forms import (
    Given,
    Key,
    Keys,
    ListOf,
    MapOf,
    Number,
    Text,
    key,
    repeated,
)
from ovirt_rdma.host.policy.texts import OFF, ON

# Of a subnet manager: 4 bits (include/iba/ib_types.h, ib_sm_info_t, pri_state).
HIGHEST_PRIORITY = 15
_ON_OFF = Text(choices=(ON, OFF), normal=lambda text: text == ON, written=True)


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
    pkey: str = key(
        Text(texts.PKEY.allowed, normal=texts.full_pkey, written=True), required=False
    )
    members: tuple[str, ...] = key(
        ListOf(
            Text(
                "a host of fabric.hosts, a GUID, ALL, ALL_CAS, ALL_SWITCHES, "
                "ALL_ROUTERS, SELF; with =full, =limited or =both",
                normal=texts.member,
                written=True,
            )
        )
    )
    membership = Key(Text(choices=MEMBERSHIPS))
    ipoib: bool = key(_ON_OFF, True)
    mtu: Optional[int] = key(Number(choices=tuple(MTU_CODES)), None)
    rate: Optional[int] = key(Number(choices=tuple(sorted(RATE_CODES))), None)
    vlan: Optional[int] = key(Number(FIRST_VLAN, LAST_VLAN), None)


def _pkey_of(partition: Mapping[str, Any]) -> Optional[str]:
    vlan = partition.get("vlan")
    return partition.get("pkey") if vlan is None else full_member(vlan)


def _partition(name: str, keys: dict[str, Any]) -> PartitionRule:
    own = keys.pop("membership", FULL)
    members = (who if "=" in who else f"{who}={own}" for who in keys.pop("members"))
    pkey = _pkey_of(keys) or ""
    return PartitionRule(name, **{**keys, "pkey": pkey, "members": tuple(members)})


PARTITION = Keys(PartitionRule, make=dict)


def _manager_port(text: str) -> Optional[str]:
    return text if text == ALL else texts.port_guid(text)


@dataclass(frozen=True)
class SubnetManagerRule:
    """A host that runs opensm with ``priority`` (0 to 15; the higher one is master).

    ``ports`` are GUIDs as ``0002:c903:00fb:1231``, or ALL: each port with a link; with
    none, the host has one. ``standby``: it stands by for a subnet manager that the
    policy does not name, such as that of a switch.
    """

    host: str
    priority: int = key(Number(0, HIGHEST_PRIORITY))
    ports: tuple[str, ...] = key(
        ListOf(
            Text(
                "a port's GUID such as 0002:c903:00fb:1231, or ALL alone",
                normal=_manager_port,
                written=True,
            )
        ),
        (),
    )
    standby: bool = key(_ON_OFF, False)


SUBNET_MANAGER = Keys(SubnetManagerRule, make=dict)
_HOST_NAME = Text("the name of a host", normal=texts.host_name)


@dataclass(frozen=True)
class FabricPolicy:
    """The ``fabric:`` part; without partitions nothing is written, and on a host
    without one of ``subnet_managers`` no opensm is started.

    ``pkeys_are_vlans``: a P_Key of 0x8000 + VLAN stands for that VLAN, also if no
    partition is described here (the switch has the subnet manager).
    """

    defaults = Key(Keys(rows={name: PARTITION.rows[name] for name in ("mtu", "rate")}))
    hosts: tuple[FabricHost, ...] = key(
        MapOf(
            _HOST_NAME, ListOf(texts.GUID), FabricHost, "host: a list of its port GUIDs"
        ),
        (),
    )
    partitions: tuple[PartitionRule, ...] = key(
        MapOf(
            Text(
                f"a letter, then letters, digits and _.-, up to {LONGEST_NAME}",
                normal=texts.partition_name,
            ),
            PARTITION,
            _partition,
            "name: keys of the table below",
        ),
        (),
    )
    pkeys_are_vlans: bool = key(_ON_OFF, False)
    subnet_managers: tuple[SubnetManagerRule, ...] = key(
        MapOf(
            _HOST_NAME,
            SUBNET_MANAGER,
            lambda host, keys: SubnetManagerRule(host, **keys),
            "host: keys of the table below",
        ),
        (),
    )

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


def _made(
    defaults: Optional[Mapping[str, Any]] = None,
    partitions: tuple[PartitionRule, ...] = (),
    **keys: Any,
) -> FabricPolicy:
    with_defaults = []
    for one in partitions:
        own = defaults or {}
        missing = {k: v for k, v in own.items() if getattr(one, k) is None}
        with_defaults.append(dataclasses.replace(one, **missing))
    return FabricPolicy(partitions=tuple(with_defaults), **keys)


def _check(fabric: Given) -> None:
    hosts = fabric.get("hosts", {})
    owned = [
        (("hosts", host, position), guid)
        for host, guids in hosts.items()
        for position, guid in enumerate(guids or ())
    ]
    used = [
        (("subnet_managers", host, "ports", position), port)
        for host, manager in fabric.get("subnet_managers", {}).items()
        for position, port in enumerate((manager or {}).get("ports", ()))
    ]
    named = [(place, port) for place, port in used if port != ALL]
    twice = [(later, first) for later, first in repeated(owned) if later[1] != first[1]]
    for later, first in (*twice, *repeated(named)):
        sentence = f"{fabric.text(*later)} is already a port of {first[1]}"
        fabric.refuse(later, "guid-repeated", sentence)
    for place, port in used:
        host = place[1]
        known = [guid for guid in hosts.get(host) or () if guid]
        if port == ALL and len(fabric["subnet_managers"][host]["ports"]) > 1:
            fabric.refuse(place, "all-not-alone", "ALL is all ports already")
        elif port not in (ALL, None) and known and port not in known:
            sentence = f"{fabric.text(*place)} is not a port of {host} in fabric.hosts"
            fabric.refuse(place, "guid-of-another-host", sentence)
    given = fabric.get("partitions", {})
    partitions = {name: keys for name, keys in given.items() if keys is not None}
    for keys in partitions.values():
        _check_members(keys, hosts)
    pkeys = [(name, _checked_pkey(name, keys)) for name, keys in partitions.items()]
    for later, first in repeated(pkeys):
        keys = partitions[later]
        sentence = f"{_pkey_of(keys)} is already the partition {first!r}"
        keys.refuse("pkey" if "pkey" in keys else "vlan", "pkey-repeated", sentence)


def _checked_pkey(name: str, keys: Given) -> Optional[str]:
    if ("pkey" in keys.written) == ("vlan" in keys.written):
        keys.refuse((), "pkey-or-vlan", "must have either pkey or vlan")
        return None
    pkey = _pkey_of(keys)
    is_default = partition_of(pkey) == DEFAULT_PARTITION
    if pkey and (name == DEFAULT_NAME) != is_default:
        keys.refuse(
            "pkey" if "pkey" in keys else "vlan",
            "pkey-default-partition",
            f"{pkey} does not go with the name {name!r}; the default partition is "
            f"{DEFAULT_NAME}, with 0x{DEFAULT_PARTITION:04x}",
        )
    return pkey


def _check_members(keys: Given, hosts: Mapping[str, Any]) -> None:
    members = keys.get("members")
    if members == []:
        sentence = "is empty; opensm removes a partition without members"
        keys.refuse("members", "partition-empty", sentence)
    # Each port with the position of the member that names it first.
    ports: dict[str, int] = {}
    for position, member in enumerate(members or ()):
        place = ("members", position)
        who = (member or "").partition("=")[0]
        named = [who] if texts.is_port(who) else hosts.get(who) or []
        if who and not texts.is_port(who) and who not in hosts:
            keys.refuse(place, "host-unknown", f"{who!r} is not one of fabric.hosts")
        elif who and hosts.get(who) == []:
            sentence = f"{who!r} has no GUID in fabric.hosts"
            keys.refuse(place, "host-without-guid", sentence)
        firsts = [ports.setdefault(port, position) for port in named if port]
        first = min(firsts, default=position)
        if first != position:
            sentence = (
                f"{keys.text(*place)} is already a member, by "
                f"{keys.text('members', first)!r}"
            )
            keys.refuse(place, "member-repeated", sentence)


FABRIC = Keys(FabricPolicy, make=_made, check=_check)
