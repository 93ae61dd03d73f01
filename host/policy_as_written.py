# SPDX-License-Identifier: GPL-2.0-or-later
"""Values of a policy file that count as they are written, whatever YAML makes of them.

YAML 1.1 takes ``pci: 04:00.0`` for the number 240 and ``tso: on`` for true. Where the
schema says ``as_written``, the value is the text that stands in the file. Elsewhere a
number that YAML takes for another one (``mtu: 02044`` is 1060) is a mistake.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ovirt_rdma.host.policy_remark import KeyPath

# Octal, hexadecimal and base 60 are left out, and 2_044.
_DECIMAL = re.compile(r"[-+]?(?:0|[1-9][0-9]*)?(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?")


def as_written(
    data: Any, schema: dict[str, Any], texts: dict[KeyPath, str], path: KeyPath = ()
) -> Any:
    """Return ``data`` with its texts from the file where ``schema`` wants them.

    ``texts`` says how each value is written. Nothing stays nothing: a key without a
    value is not an empty text.
    """
    if schema.get("as_written"):
        return data if data is None else texts.get(path, data)
    if isinstance(data, dict):
        known = schema.get("properties", {})
        others = schema.get("additionalProperties") or {}
        return {
            key: as_written(value, known.get(key, others), texts, (*path, key))
            for key, value in data.items()
        }
    if isinstance(data, list):
        items = schema.get("items", {})
        return [
            as_written(value, items, texts, (*path, position))
            for position, value in enumerate(data)
        ]
    return data


def misread_numbers(
    data: Any, texts: dict[KeyPath, str], path: KeyPath = ()
) -> Iterator[tuple[KeyPath, str]]:
    """Yield place and sentence of each number in ``data`` that is not written in
    decimal; ``texts`` says how each is written.
    """
    if isinstance(data, dict):
        for key, value in data.items():
            yield from misread_numbers(value, texts, (*path, key))
    elif isinstance(data, list):
        for position, value in enumerate(data):
            yield from misread_numbers(value, texts, (*path, position))
    elif isinstance(data, (int, float)) and not isinstance(data, bool):
        text = texts[path]
        if not _DECIMAL.fullmatch(text):
            yield path, f"{text} is {data} to YAML; write the number in plain decimal"
