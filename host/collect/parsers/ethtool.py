# SPDX-License-Identifier: GPL-2.0-or-later
"""Parse the output of ``ethtool -k`` and ``ethtool -a``. Pure.

The forms are those of ethtool 6.1 (netlink/features.c, netlink/pause.c).
"""

from __future__ import annotations

import re
from typing import Optional

from ovirt_rdma.host.facts.devices import Offload

# ethtool prints some features by old names of its own. The values are the kernel's
# names, which ``ethtool -K`` accepts too.
KEPT = {
    "rx-checksumming": "rx-checksum",
    "generic-receive-offload": "rx-gro",
    "large-receive-offload": "rx-lro",
    "generic-segmentation-offload": "tx-generic-segmentation",
    "tx-checksum-ipv4": "tx-checksum-ipv4",
    "tx-checksum-ip-generic": "tx-checksum-ip-generic",
    "tx-checksum-ipv6": "tx-checksum-ipv6",
    "tx-scatter-gather": "tx-scatter-gather",
    "tx-tcp-segmentation": "tx-tcp-segmentation",
    "tx-tcp6-segmentation": "tx-tcp6-segmentation",
}

_OF = "Features for "
_STATE = re.compile(r"(on|off)(?: \[(?:(fixed)|requested (on|off))\])?")
_PAUSE = re.compile(r"^(RX|TX):\s+(on|off)$", re.MULTILINE)


def features(text: str) -> dict[str, tuple[Offload, ...]]:
    """Return the offloads of each netdev that ``ethtool -k '*'`` shows.

    Only those in KEPT are returned, by the kernel's names. Lines of another form are
    ignored.
    """
    offloads_of: dict[str, tuple[Offload, ...]] = {}
    for block in f"\n{text}".split(f"\n{_OF}")[1:]:
        head, *lines = block.split("\n")
        if head.endswith(":"):
            offloads = (_offload(line) for line in lines)
            offloads_of[head[:-1]] = tuple(offload for offload in offloads if offload)
    return offloads_of


def pause(text: str) -> tuple[Optional[bool], Optional[bool]]:
    """Return if pause frames are enabled, received and sent, from ``ethtool -a``; None
    for a value that is missing.
    """
    shown = {side: state == "on" for side, state in _PAUSE.findall(text)}
    return shown.get("RX"), shown.get("TX")


def _offload(line: str) -> Optional[Offload]:
    name, _, state = line.strip().partition(": ")
    kernel_name = KEPT.get(name)
    match = _STATE.fullmatch(state) if kernel_name else None
    if not kernel_name or not match:
        return None
    on, fixed, requested = match.groups()
    return Offload(
        name=kernel_name,
        on=on == "on",
        fixed=fixed is not None,
        requested=None if requested is None else requested == "on",
    )
