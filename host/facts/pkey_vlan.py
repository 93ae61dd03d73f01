# SPDX-License-Identifier: GPL-2.0-or-later
"""Convert between the P_Key of a partition and the VLAN that it stands for. Pure.

The kernel has no such connection: P_Key = 0x8000 + VLAN is a convention (OpenStack's
networking-mlnx, NVIDIA Skyway).
"""

from __future__ import annotations

import re
from typing import Optional

from ovirt_rdma.host.facts.devices import FULL_MEMBER

# IEEE 802.1Q: 0 is no VLAN, 4095 is reserved. 0 is no P_Key either.
FIRST_VLAN, LAST_VLAN = 1, 4094

_PKEY = re.compile(r"0x[0-9a-f]{1,4}")


def partition_of(pkey: str) -> Optional[int]:
    """Return the partition of a P_Key such as ``0x8064``: the number without the bit
    of full members. None for another text, and for 0x0000 and 0x8000, which are no
    P_Keys.
    """
    if not _PKEY.fullmatch(pkey.lower()):
        return None
    return int(pkey, 16) & ~FULL_MEMBER or None


def full_member(partition: int) -> str:
    """Return the P_Key of a partition as full members have it: ``0x8064`` of 0x64."""
    return f"0x{FULL_MEMBER | partition:04x}"


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
