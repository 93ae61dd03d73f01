# SPDX-License-Identifier: GPL-2.0-or-later
"""What the ``rate`` of an RDMA port says: the kernel's figure, and the payload rate.

The text is that of rate_show() in the kernel's drivers/infiniband/core/sysfs.c:
``40 Gb/sec (4X QDR)``.
"""

from __future__ import annotations

import re
from typing import Optional

# Mb/s of one lane after encoding. SDR to QDR use 8b/10b, the others 64b/66b on
# 10.3125, 14.0625 and 25.78125 Gb/s a lane; the kernel's figure is before encoding
# up to QDR and for FDR (14 a lane), after it for FDR10 and from EDR on.
_LANE_MBPS = {
    "SDR": 2_000.0,
    "DDR": 4_000.0,
    "QDR": 8_000.0,
    "FDR10": 10_000.0,
    "FDR": 14_062.5 * 64 / 66,
    "EDR": 25_000.0,
    "HDR": 50_000.0,
    "NDR": 100_000.0,
    "XDR": 200_000.0,
}
_RATE = re.compile(
    r"([0-9]{1,6}(?:\.[0-9]{1,3})?) Gb/sec\b"
    r"(?: \(([0-9]{1,2})X ?([A-Z0-9]*)\))?.*"
)


def rate_mbps(text: str) -> Optional[int]:
    """Return 40000 for ``40 Gb/sec (4X QDR)``; None for what is no rate."""
    match = _RATE.fullmatch(text)
    return round(float(match.group(1)) * 1000) if match else None


def data_rate_mbps(text: str, link_layer: str) -> Optional[int]:
    """Return 32000 for ``40 Gb/sec (4X QDR)``; None for a generation not known here.

    Ethernet's speeds are named after encoding, so there it is the figure itself.
    """
    match = _RATE.fullmatch(text)
    if not match:
        return None
    if link_layer == "Ethernet":
        return rate_mbps(text)
    # Old kernels print no name for SDR.
    lane = _LANE_MBPS.get(match.group(3) or "SDR")
    if match.group(2) is None or lane is None:
        return None
    return round(int(match.group(2)) * lane)
