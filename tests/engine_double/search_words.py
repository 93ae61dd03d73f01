# SPDX-License-Identifier: GPL-2.0-or-later
"""The part of the engine's search language that the double knows, strictly.

``name=host1* and status=up``, ``name=a or name=b``, ``correlation_id=X``,
``type=188``, ``id>12``; text in quotes; ``sortby``/``page`` at the end.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from engine_double.answers import Mistake

T = TypeVar("T")
_ONE = re.compile(
    r"\s*(?P<field>[\w.]+)\s*(?P<sign>!=|>=|<=|=|>|<)\s*"
    r"(?:\"(?P<quoted>[^\"]*)\"|(?P<plain>[^\s\"]+))\s*"
)
_AND_OR = re.compile(r"(and|or)\b", re.IGNORECASE)
_TAIL = re.compile(r"\s+(?:sortby\s+(\w+)(?:\s+(asc|desc))?|page\s+\d+)\s*$", re.I)


def matching(
    search: str, objects: Iterable[T], fields: Mapping[str, Callable[[T], Any]]
) -> list[T]:
    """The ``objects`` that ``search`` names; ``fields`` gives each field's value."""
    text = search.strip()
    while (tail := _TAIL.search(f" {text}")) is not None:
        if tail.group(1) and tail.group(1).lower() not in (*fields, "time"):
            raise Mistake(f"the double cannot sort by {tail.group(1)}")
        text = f" {text}"[: tail.start()].strip()
    if not text:
        return list(objects)
    ways = _read(text, search, fields)
    return [
        one
        for one in objects
        if any(all(_holds(test, one, fields) for test in way) for way in ways)
    ]


def _read(
    text: str, search: str, fields: Mapping[str, Callable[[Any], Any]]
) -> list[list[tuple[str, str, str]]]:
    ways: list[list[tuple[str, str, str]]] = [[]]
    at = 0
    while True:
        found = _ONE.match(text, at)
        if not found or found["field"].lower() not in fields:
            known = ", ".join(sorted(fields))
            raise Mistake(f"the double cannot search {search!r} (it knows {known})")
        value = found["plain"] if found["quoted"] is None else found["quoted"]
        ways[-1].append((found["field"].lower(), found["sign"], value))
        at = found.end()
        if at == len(text):
            return ways
        joint = _AND_OR.match(text, at)
        if not joint:
            raise Mistake(f"the double cannot search {search!r}")
        if joint.group(1).lower() == "or":
            ways.append([])
        at = joint.end()


def _holds(
    test: tuple[str, str, str], one: Any, fields: Mapping[str, Callable[[Any], Any]]
) -> bool:
    field, sign, value = test
    actual = fields[field](one)
    if isinstance(actual, int) and not isinstance(actual, bool):
        number = int(value)
        signs = {
            "=": actual == number,
            "!=": actual != number,
            ">": actual > number,
            "<": actual < number,
            ">=": actual >= number,
            "<=": actual <= number,
        }
        return signs[sign]
    if sign not in ("=", "!="):
        raise Mistake(f"the double compares {field} with = and != only")
    # ILIKE: case is ignored, and "*" is SQL's "%" (SyntaxChecker.java:1142-1176).
    wild = re.escape(value).replace(r"\*", ".*").replace("%", ".*")
    alike = re.fullmatch(wild, str(actual or ""), re.IGNORECASE | re.DOTALL)
    return bool(alike) == (sign == "=")
