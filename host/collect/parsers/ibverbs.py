# SPDX-License-Identifier: GPL-2.0-or-later
"""Parse the rates of RDMA ports, and the MTUs that ``ibv_devinfo`` prints. Pure.

Rates have the form ``40 Gb/sec (4X QDR)`` (rate_show() in the kernel's
drivers/infiniband/core/sysfs.c). The kernel has no file with the MTUs; the output of
``ibv_devinfo`` is that of rdma-core's libibverbs/examples/devinfo.c. MLNX_OFED's has
more lines, which are ignored.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Optional

# Mb/s of one lane after encoding. SDR to QDR use 8b/10b, the others 64b/66b on
# 10.3125, 14.0625 and 25.78125 Gb/s per lane. The kernel's figure is before encoding up
# to QDR and for FDR (14 per lane), and after it for FDR10 and from EDR on.
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
    """Return 40000 for ``40 Gb/sec (4X QDR)``; None if the text is not a rate."""
    match = _RATE.fullmatch(text)
    return round(float(match.group(1)) * 1000) if match else None


def data_rate_mbps(text: str, link_layer: str) -> Optional[int]:
    """Return 32000 for ``40 Gb/sec (4X QDR)``; None for an unknown generation.

    Ethernet's speeds are those after encoding, so they are returned unchanged.
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


# enum ib_mtu and enum opa_mtu of the kernel's include/rdma/ib_verbs.h. The number is
# read, not the text before it, which is "invalid MTU" for values unknown to the tool.
_BYTES = {1: 256, 2: 512, 3: 1024, 4: 2048, 5: 4096, 6: 8192, 7: 10240}
_DEVICE = re.compile(r"hca_id:\s+(\S+)\s*")
_PORT = re.compile(r"\s+port:\s+([0-9]{1,3})\s*")
_MTU = re.compile(r"\s+(max|active)_mtu:\s+.*\(([0-9]{1,3})\)\s*")


@dataclass(frozen=True)
class PortMtus:
    """A port's IB MTUs in bytes; None if the text has no valid one."""

    max_mtu: Optional[int] = None
    active_mtu: Optional[int] = None


def parse_port_mtus(text: str) -> dict[tuple[str, int], PortMtus]:
    """Return the MTUs by device and port number; other lines are ignored."""
    mtus_of: dict[tuple[str, int], dict[str, Optional[int]]] = {}
    device: Optional[str] = None
    port: Optional[tuple[str, int]] = None
    for line in text.split("\n"):
        if match := _DEVICE.fullmatch(line):
            device, port = match.group(1), None
        elif match := _PORT.fullmatch(line):
            port = None if device is None else (device, int(match.group(1)))
        elif port is not None and (match := _MTU.fullmatch(line)):
            bytes_ = _BYTES.get(int(match.group(2)))
            mtus_of.setdefault(port, {})[f"{match.group(1)}_mtu"] = bytes_
    return {port: PortMtus(**mtus) for port, mtus in mtus_of.items()}
