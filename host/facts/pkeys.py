# SPDX-License-Identifier: GPL-2.0-or-later
"""Convert between P_Keys, partitions and the VLANs that partitions stand for. Pure.

A P_Key has 16 bits: the partition, and bit 15 of its full members (IBTA 10.9.1.2).

The kernel has no connection with VLANs: P_Key = 0x8000 + VLAN is a convention
(OpenStack's networking-mlnx, NVIDIA Skyway).
"""

from __future__ import annotations

import re
from typing import Optional

# In a P_Key: the port is a full member of the partition.
FULL_MEMBER = 0x8000
# Of the P_Key 0xffff: every port is a member. The largest partition.
DEFAULT_PARTITION = 0x7FFF
# A port as a member of a partition, as opensm writes it. Limited members reach only
# full ones.
FULL, LIMITED, BOTH = MEMBERSHIPS = ("full", "limited", "both")

# What a member of a partition can be in opensm besides a GUID.
ALL, ALL_CAS, ALL_SWITCHES, ALL_ROUTERS, SELF = PORT_WORDS = (
    "ALL",
    "ALL_CAS",
    "ALL_SWITCHES",
    "ALL_ROUTERS",
    "SELF",
)
# The name of the default partition in opensm, and how long a name may be there
# (osm_partition.h: char name[32]).
DEFAULT_NAME = "Default"
LONGEST_NAME = 31

# IEEE 802.1Q: 0 is no VLAN, 4095 is reserved. 0 is no P_Key either.
FIRST_VLAN, LAST_VLAN = 1, 4094

_PKEY = re.compile(r"0x[0-9a-f]{1,4}", re.ASCII | re.IGNORECASE)


def partition_of(pkey: Optional[str]) -> Optional[int]:
    """Return the partition of a P_Key such as ``0x8064``: the number without the bit
    of full members. None for another text, and for 0x0000 and 0x8000, which are no
    P_Keys.
    """
    if pkey is None or not _PKEY.fullmatch(pkey):
        return None
    return partition_bits(int(pkey, 16)) or None


def partition_bits(number: int) -> int:
    """Return the partition, 15 bits, of a P_Key as number; 0 if it is none."""
    return number & DEFAULT_PARTITION


def full_member(number: int) -> str:
    """Return the P_Key of a partition as full members have it: ``0x8064`` of 0x64, and
    of 0x8064.
    """
    return f"0x{full_member_bits(number):04x}"


def full_member_bits(number: int) -> int:
    """Return the P_Key of a partition as full members have it, as number."""
    return number | FULL_MEMBER


def is_full_member(pkey: str) -> bool:
    """Whether a P_Key such as ``0x8064`` is that of a full member. Raises ValueError if
    it is no hex number.
    """
    return bool(int(pkey, 16) & FULL_MEMBER)


def pkey_of_vlan(vlan: int) -> str:
    """Return the P_Key of the partition of a VLAN, FIRST_VLAN to LAST_VLAN: ``0x8064``
    of 100.
    """
    return full_member(vlan)


def vlan_of_pkey(pkey: str) -> Optional[int]:
    """Return the VLAN that a partition stands for: 100 of 0x8064 and of 0x0064.

    None if it stands for none, as the default partition.
    """
    partition = partition_of(pkey)
    if partition is None or partition > LAST_VLAN:
        return None
    return partition
