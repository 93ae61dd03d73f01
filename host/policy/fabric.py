# SPDX-License-Identifier: GPL-2.0-or-later
"""Represent the ``fabric:`` part of the policy as data. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

# A VLAN's partition is 0x8000 + VLAN, by convention (OpenStack's networking-mlnx,
# NVIDIA Skyway).
FIRST_VLAN, LAST_VLAN = 1, 4094


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
    """The ``fabric:`` part; without partitions nothing is written."""

    hosts: tuple[FabricHost, ...] = ()
    partitions: tuple[PartitionRule, ...] = ()

    def guids_of(self, who: str) -> Optional[tuple[str, ...]]:
        """Return the GUIDs of the host ``who``; None if it is no host's name."""
        return next((host.guids for host in self.hosts if host.name == who), None)
