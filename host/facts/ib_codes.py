# SPDX-License-Identifier: GPL-2.0-or-later
"""Give the codes with which InfiniBand writes MTUs and rates. Pure data.

InfiniBand Architecture 1.6, PathRecord; the same as libibverbs' ``enum ibv_mtu`` and
``enum ibv_rate``, and as opensm's include/iba/ib_types.h.
"""

from __future__ import annotations

# Bytes of an IB MTU by its code.
MTUS = {1: 256, 2: 512, 3: 1024, 4: 2048, 5: 4096}

# Signalling rates in Mb/s by their code.
RATES = {
    2: 2500,
    3: 10000,
    4: 30000,
    5: 5000,
    6: 20000,
    7: 40000,
    8: 60000,
    9: 80000,
    10: 120000,
    11: 14000,
    12: 56000,
    13: 112000,
    14: 168000,
    15: 25000,
    16: 100000,
    17: 200000,
    18: 300000,
    19: 28000,
    20: 50000,
    21: 400000,
    22: 600000,
    23: 800000,
    24: 1200000,
}

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
