# SPDX-License-Identifier: GPL-2.0-or-later
"""The MTUs that ``ibv_devinfo`` prints: the kernel shows them in no file. Pure.

The text is that of rdma-core's libibverbs/examples/devinfo.c; MLNX_OFED's has more
lines, which are passed over.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Optional

# enum ib_mtu and enum opa_mtu of the kernel's include/rdma/ib_verbs.h. The number is
# read, not the word before it, which is "invalid MTU" for what a tool does not know.
_BYTES = {1: 256, 2: 512, 3: 1024, 4: 2048, 5: 4096, 6: 8192, 7: 10240}
_DEVICE = re.compile(r"hca_id:\s+(\S+)\s*")
_PORT = re.compile(r"\s+port:\s+([0-9]{1,3})\s*")
_MTU = re.compile(r"\s+(max|active)_mtu:\s+.*\(([0-9]{1,3})\)\s*")


@dataclass(frozen=True)
class PortMtus:
    """A port's IB MTUs in bytes; None where the text has none that is valid."""

    max_mtu: Optional[int] = None
    active_mtu: Optional[int] = None


def parse_port_mtus(text: str) -> dict[tuple[str, int], PortMtus]:
    """Return the MTUs by device and port number; nothing for lines that are odd."""
    found: dict[tuple[str, int], dict[str, Optional[int]]] = {}
    device: Optional[str] = None
    port: Optional[tuple[str, int]] = None
    for line in text.split("\n"):
        if match := _DEVICE.fullmatch(line):
            device, port = match.group(1), None
        elif match := _PORT.fullmatch(line):
            port = None if device is None else (device, int(match.group(1)))
        elif port is not None and (match := _MTU.fullmatch(line)):
            bytes_ = _BYTES.get(int(match.group(2)))
            found.setdefault(port, {})[f"{match.group(1)}_mtu"] = bytes_
    return {port: PortMtus(**mtus) for port, mtus in found.items()}
