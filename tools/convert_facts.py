#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Convert dumps of facts to the present form, in place: convert_facts.py FILE...

Stays until the first release, so that dumps of users' hosts remain test cases. A file
that is no dump of facts, or has the present form, is left as it is.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def converted(facts: dict[str, Any]) -> dict[str, Any]:
    """Return the facts in the present form."""
    mounts = [_mount(mount) for mount in facts.get("nfs_mounts", ())]
    for adapter in facts.get("adapters", ()):
        adapter.pop("class_code", None)
        for vf in adapter.get("virtual_functions", ()):
            vf.pop("rdma_device", None)
    for device in facts.get("rdma_devices", ()):
        device.pop("board_id", None)
        device.pop("numa_node", None)
    for mount in (facts.get("activity") or {}).get("mounts", ()):
        for key in ("queue_ms", "rtt_ms"):
            mount.pop(key, None)
    for netdev in facts.get("netdevs", ()):
        (netdev.get("ipoib") or {}).pop("umcast", None)
    return {**facts, "nfs_mounts": mounts}


def _mount(mount: dict[str, Any]) -> dict[str, Any]:
    """Return a mount with the protocols of its connections, without their counters."""
    changed = {}
    for key, value in mount.items():
        if key == "transports":
            changed["protocols"] = [one["protocol"] for one in value]
        else:
            changed[key] = value
    return changed


def main(arguments: list[str]) -> int:
    """Convert the files."""
    for name in arguments:
        path = Path(name)
        text = path.read_text(encoding="ascii")
        facts = json.loads(text)
        if not isinstance(facts, dict) or facts.get("kind") != "facts":
            continue
        indent = 2 if "\n " in text else None
        new = json.dumps(converted(facts), indent=indent) + "\n"
        if json.loads(new) != json.loads(text):
            path.write_text(new, encoding="ascii")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
