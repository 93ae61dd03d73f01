# SPDX-License-Identifier: GPL-2.0-or-later
"""Parse the output of ibnetdiscover(8): the ports of a fabric. Pure."""

from __future__ import annotations

import re

from ovirt_rdma.host.fabric.model import guid_text
from ovirt_rdma.host.fabric.review import FabricPort

# A block begins with: Ca 2 "H-0002c90300fb1230"  # "hv1 mlx4_0"
_NODE = re.compile(r'(Ca|Switch|Rt)\s+\d+\s+"[^"]*"(?:.*?#\s*"([^"]*)")?')
# A port of a Ca: [1](2c90300fb1231)  "S-..."[1]  # lid 1 lmc 0 "sw" lid 4 4xFDR
_PORT = re.compile(r"\[(\d+)\]\(([0-9a-f]{1,16})\)\s.*?(?:\s(\d+)x([A-Z]+\d*))?\s*")
# Signalling rates of a lane in Mb/s, as the kernel counts them (ib_verbs.h).
_LANES = {
    "SDR": 2500,
    "DDR": 5000,
    "QDR": 10000,
    "FDR10": 10000,
    "FDR": 14000,
    "EDR": 25000,
    "HDR": 50000,
    "NDR": 100000,
    "XDR": 200000,
}


def fabric_ports(text: str) -> tuple[FabricPort, ...]:
    """Return the ports of hosts. Raises ValueError if ``text`` is of something else."""
    ports = []
    kind, name, nodes = "", "", 0
    for line in text.splitlines():
        node = _NODE.match(line)
        if node:
            kind, name = node[1], node[2] or ""
            nodes += 1
            continue
        port = _PORT.fullmatch(line) if kind == "Ca" else None
        if port:
            number, guid, width, lane = port.groups()
            known = lane in _LANES
            rate = int(width) * _LANES[lane] if known else None
            at = f"{name} port {number}".strip()
            ports.append(FabricPort(guid_text(int(guid, 16)), at, rate))
    if not nodes:
        raise ValueError("it has no node of a fabric")
    return tuple(ports)
