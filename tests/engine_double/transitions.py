# SPDX-License-Identifier: GPL-2.0-or-later
"""Advance the engine's own transitions without a clock, each time they are read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Union

Stage = Callable[[], object]


@dataclass(frozen=True)
class After:
    """A stage that begins after this number of reads, not after ``reads_per_stage``."""

    reads: int
    stage: Stage


class Transitions:
    """The future stages of each object, by its id.

    An object enters its next stage after it has been read ``reads_per_stage`` times,
    or when a test says so.
    """

    def __init__(self, reads_per_stage: int = 1) -> None:
        self.reads_per_stage = reads_per_stage
        self._stages: dict[str, list[After]] = {}
        self._reads: dict[str, int] = {}

    def begin(self, name: str, *stages: Union[Stage, After]) -> None:
        """Let ``name`` go through ``stages``, instead of its earlier ones."""
        self._stages[name] = [
            one if isinstance(one, After) else After(self.reads_per_stage, one)
            for one in stages
        ]
        self._reads[name] = 0

    def stop(self, name: str) -> None:
        self._stages.pop(name, None)

    def under_way(self, name: str = "") -> bool:
        return name in self._stages if name else bool(self._stages)

    def shown(self, name: str) -> None:
        """``name`` has been read by a client."""
        if name in self._stages:
            self._reads[name] += 1
            if self._reads[name] >= self._stages[name][0].reads:
                self.advance(name)

    def advance(self, name: str = "") -> None:
        """Advance ``name`` by one stage; without a name, everything."""
        for which in [name] if name else list(self._stages):
            stages = self._stages.get(which)
            if stages is None:
                continue
            self._reads[which] = 0
            stages.pop(0).stage()
            # A stage may have begun other stages.
            if self._stages.get(which) is stages and not stages:
                del self._stages[which]
