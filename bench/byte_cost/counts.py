# SPDX-License-Identifier: GPL-2.0-or-later
"""Turn the counts of counter.c into costs of an operation. Pure."""

from __future__ import annotations

import statistics
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

# As in counter.c.
KERNEL = 0xFFFFFFFF80000000
PAGE_BYTES = 4096
USER = 0x80000000 // PAGE_BYTES
OTHER = USER + 1
# Names of parts that are no module.
USER_SPACE, CORE, UNNAMED = "user space", "kernel", "unnamed"
# How many times as many operations the second run of a pair has (load.c).
FACTOR = 3
_ROWS = 3


@dataclass(frozen=True)
class Module:
    """A kernel module: its ``size`` in bytes from ``address`` on."""

    name: str
    address: int
    size: int


@dataclass(frozen=True)
class Executed:
    """What a processor executed: instructions, and bytes that string instructions
    copied or filled.
    """

    instructions: float = 0
    copied: float = 0

    def __add__(self, other: Executed) -> Executed:
        return Executed(
            self.instructions + other.instructions, self.copied + other.copied
        )


def parse_modules(text: str) -> list[Module]:
    """Return the modules of /proc/modules, by address (root reads true ones)."""
    found = [
        Module(words[0], int(words[5], 16), int(words[1]))
        for words in map(str.split, text.splitlines())
    ]
    return sorted(found, key=lambda module: module.address)


def parse_counts(text: str) -> list[dict[int, Executed]]:
    """Return the counts by slot, for each mark in the text of counter.c.

    Counts after the last mark are left out. Raises ValueError.
    """
    marks: list[dict[int, Executed]] = []
    slots: dict[int, Executed] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if line == "mark":
            marks.append(slots)
            slots = {}
            continue
        words = line.split()
        if len(words) != _ROWS or not all(word.isdecimal() for word in words):
            raise ValueError(f"line {number} of the counts is {line!r}")
        slot, instructions, copied = map(int, words)
        slots[slot] = Executed(instructions, copied)
    return marks


def by_part(
    slots: Mapping[int, Executed], modules: Sequence[Module]
) -> dict[str, Executed]:
    """Sum up ``slots`` by module (``modules`` are sorted by address); the parts that
    are no module are USER_SPACE, CORE (below all modules) and UNNAMED.
    """
    starts = [module.address for module in modules]
    parts: dict[str, Executed] = {}
    for slot, executed in slots.items():
        name = _part(slot, modules, starts)
        parts[name] = parts.get(name, Executed()) + executed
    return parts


def _part(slot: int, modules: Sequence[Module], starts: Sequence[int]) -> str:
    if slot >= USER:
        return USER_SPACE if slot == USER else UNNAMED
    address = KERNEL + slot * PAGE_BYTES
    # A module begins with a page of its own.
    number = bisect_right(starts, address) - 1
    if number < 0:
        return CORE
    module = modules[number]
    inside = address < module.address + module.size
    return module.name if inside else UNNAMED


def slopes(
    runs: Sequence[Mapping[str, Executed]], operations: int
) -> list[dict[str, Executed]]:
    """Return the cost of one operation by part, for each pair of ``runs``.

    The first run of a pair has ``operations``, the second FACTOR times as many, so what
    does not depend on their number cancels out. A part can be negative by chance.
    """
    more = (FACTOR - 1) * operations
    return [
        {
            name: Executed(
                (big.instructions - small.instructions) / more,
                (big.copied - small.copied) / more,
            )
            for name in sorted({*few, *many})
            for small in (few.get(name, Executed()),)
            for big in (many.get(name, Executed()),)
        }
        for few, many in zip(runs[::2], runs[1::2], strict=True)
    ]


def total(parts: Mapping[str, Executed], names: Iterable[str]) -> Executed:
    """Return the sum of the parts ``names``, as far as they are there."""
    return sum((parts.get(name, Executed()) for name in names), Executed())


def spread(values: Sequence[float]) -> float:
    """Return the distance between the largest and the smallest, by the median; 0 if
    the median is.
    """
    middle = statistics.median(values)
    return (max(values) - min(values)) / middle if middle else 0.0
