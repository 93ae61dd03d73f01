# SPDX-License-Identifier: GPL-2.0-or-later
"""Represent the ``fabric:`` part of the policy as data. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from ovirt_rdma.host.facts.pkeys import (
    FIRST_VLAN,
    LAST_VLAN,
    partition_of,
    pkey_of_vlan,
    vlan_of_pkey,
)


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
class FabricPolicy:
    """The ``fabric:`` part; without partitions nothing is written.

    ``pkeys_are_vlans``: a P_Key of 0x8000 + VLAN stands for that VLAN, also if no
    partition is described here (the switch has the subnet manager).
    """

    hosts: tuple[FabricHost, ...] = ()
    partitions: tuple[PartitionRule, ...] = ()
    pkeys_are_vlans: bool = False

    def vlan_of(self, pkey: str) -> Optional[int]:
        """Return the VLAN that ``pkey`` (``0x8064``, or ``0x0064`` of a limited member)
        stands for; None if it stands for none.
        """
        own = partition_of(pkey)
        for rule in self.partitions:
            if partition_of(rule.pkey) == own and rule.vlan is not None:
                return rule.vlan
        return vlan_of_pkey(pkey) if self.pkeys_are_vlans else None

    def pkey_of(self, vlan: int) -> Optional[str]:
        """Return the P_Key of full members that stands for ``vlan``, or None."""
        if not FIRST_VLAN <= vlan <= LAST_VLAN:
            return None
        pkey = pkey_of_vlan(vlan)
        return pkey if self.vlan_of(pkey) == vlan else None

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
