# SPDX-License-Identifier: GPL-2.0-or-later
"""P_Keys and partitions, the codes of MTUs and rates, and the constants of IPoIB. Pure.

VDSM's hooks use them and wait for each import, so this module has few.

A P_Key has 16 bits: the partition, and bit 15 of its full members (IBTA 10.9.1.2).

The kernel has no connection with VLANs: P_Key = 0x8000 + VLAN is a convention
(OpenStack's networking-mlnx, NVIDIA Skyway).

Codes of MTUs and rates: InfiniBand Architecture 1.6, PathRecord; the same as
libibverbs' ``enum ibv_mtu`` and ``enum ibv_rate``, and as opensm's
include/iba/ib_types.h.

IPoIB: drivers/infiniband/ulp/ipoib/ipoib.h and drivers/net/bonding/bond_main.c
(Linux 6.1), RFC 4391 section 6.
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

# The timeouts of an SRP session, in the policy and in /sys/class/srp_remote_ports
# (drivers/scsi/scsi_transport_srp.c).
TIMEOUTS = ("fast_io_fail_tmo", "dev_loss_tmo", "reconnect_delay")

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
    """Return the P_Key of a partition as full members have it: ``0x8064`` of 0x64, of
    0x8064, and of the VLAN 100.
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


def vlan_of_pkey(pkey: str) -> Optional[int]:
    """Return the VLAN that a partition stands for: 100 of 0x8064 and of 0x0064.

    None if it stands for none, as the default partition.
    """
    partition = partition_of(pkey)
    if partition is None or partition > LAST_VLAN:
        return None
    return partition


# Bytes of an IB MTU by its code.
MTUS = {1: 256, 2: 512, 3: 1024, 4: 2048, 5: 4096}

# Signalling rates in Mb/s by their code, from 2 on.
_RATES = (
    "2500 10000 30000 5000 20000 40000 60000 80000 120000 14000 56000 112000 168000 "
    "25000 100000 200000 300000 28000 50000 400000 600000 800000 1200000"
)
RATES = dict(enumerate(map(int, _RATES.split()), start=2))

# Codes by what they mean: bytes, and whole Gb/s. 2.5 Gb/s is left out: no fabric needs
# so slow a group.
MTU_CODES = {mtu: code for code, mtu in MTUS.items()}
RATE_CODES = {rate // 1000: code for code, rate in RATES.items() if rate % 1000 == 0}


def group_text(mtu: int, rate: int) -> str:
    """Return MTU and rate of a group, by their codes: ``MTU 2048 and 10 Gb/s``. A code
    that is in no table is named as one.
    """
    speed = f"{RATES[rate] / 1000:g} Gb/s" if rate in RATES else f"rate code {rate}"
    return f"MTU {MTUS.get(mtu, f'code {mtu}')} and {speed}"


DATAGRAM, CONNECTED = "datagram", "connected"
# The word of policies and logical networks for the best mode, and the largest MTU.
AUTO = "auto"
MODES = (AUTO, DATAGRAM, CONNECTED)
# The custom property of a network in the engine that asks for a mode.
MODE_PROPERTY = "ipoib_mode"

# IPOIB_ENCAP_LEN: bytes of IPoIB's own header, part of the IB MTU.
HEADER = 4
# The MTUs in bytes of broadcast groups, less the header: of IB, and of Omni-Path's two.
GROUP_MTUS = tuple(m - HEADER for m in (256, 512, 1024, 2048, 4096, 8192, 10240))
MOST_DATAGRAM_MTU = GROUP_MTUS[-1]
# opensm's default for a group. Every adapter supports it.
COMMON_GROUP_MTU = 2048 - HEADER
# IPOIB_CM_MTU: 64 KiB less the 16 bytes that the driver reserves.
CONNECTED_MTU = 65520

# Name and number of the only mode in which the kernel accepts IPoIB in a bond.
ACTIVE_BACKUP = ("active-backup", "1")
# A bond's mode if none is given (VDSM network/nmstate/bond.py; the kernel).
DEFAULT_BOND_MODE = "balance-rr"
