#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Convert dumps of facts to the present form, in place: convert_facts.py FILE...

Stays until the first release, so that dumps of users' hosts remain test cases. A file
that is no dump of facts, or has the present form, is left as it is. Keys that the
present form does not have go; those that a dump lacks are unknown there.
"""

from __future__ import annotations

import json
import sys
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

from ovirt_rdma.host.facts.devices import TSO_FEATURES
from ovirt_rdma.host.facts.model import Facts, to_json
from ovirt_rdma.host.system.json_codec import plain


def converted(facts: dict[str, Any]) -> dict[str, Any]:
    """Return the facts in the present form."""
    for mount in facts["nfs_mounts"]:
        if "transports" in mount:
            mount["protocols"] = [one["protocol"] for one in mount["transports"]]
    for netdev in facts["netdevs"]:
        offloads = netdev["offloads"]
        netdev["offloads"] = [one for one in offloads if one["name"] in TSO_FEATURES]
    if "tuning" in facts:
        facts["rdma_slots"] = (facts["tuning"] or {}).get("rdma_slots")
    head = json.loads(to_json(Facts()))
    return {**head, **_of(Facts, facts)}


def _of(hint: Any, value: Any) -> Any:
    """Return a value of a dump as one of the type ``hint``."""
    if is_dataclass(hint):
        hints = get_type_hints(hint)
        return {
            one.name: _of(hints[one.name], value[one.name])
            if one.name in value
            else plain(one.default)
            for one in fields(hint)
        }
    if isinstance(value, list):
        inner, *_ = (arg for arg in _arguments(hint) if arg is not ...)
        return [_of(inner, one) for one in value]
    inner = [arg for arg in get_args(hint) if is_dataclass(arg)]
    return _of(inner[0], value) if inner and value is not None else value


def _arguments(hint: Any) -> tuple[Any, ...]:
    """Return what is in a tuple, also in one that may be None."""
    optional = [arg for arg in get_args(hint) if get_args(arg)]
    is_optional = type(None) in get_args(hint)
    return get_args(optional[0]) if is_optional and optional else get_args(hint)


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
        if new != text:
            path.write_text(new, encoding="ascii")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
