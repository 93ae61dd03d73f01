# SPDX-License-Identifier: GPL-2.0-or-later
"""Define what every part of the engine tools needs of one engine.

:class:`.api.session.Session` is the one that talks to an engine; a test has another,
over a world in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable, Optional, Protocol, TypeVar

from ovirt_rdma.engine_sdk_tools.api.progress import Listener
from ovirt_rdma.engine_sdk_tools.api.request import Call, Read

_T = TypeVar("_T")

# The engine refuses a change until its tasks or operations have ended: a snapshot or a
# backup may take this long.
BUSY_S = 1800.0


class EngineSession(Protocol):
    """One engine: its address, our mark in its events, its clock, and requests.

    ``listener`` gets notes for the operator, ``performed`` are the changes that the
    engine has made. Every method that sends a request raises
    EngineProblem; :class:`.api.session.Session` says when.
    """

    listener: Listener
    correlation_id: str
    performed: list[Call]

    @property
    def url(self) -> str:
        """The API's URL."""

    def clock(self) -> float:
        """Return seconds that only increase; waits are measured with them."""

    def sleep(self, seconds: float, /) -> None:
        """Wait."""

    def read(self, read: Read, *, patience_s: Optional[float] = None) -> Any:
        """Return the SDK's result of one reading."""

    def read_all(self, reads: Sequence[Read]) -> list[Any]:
        """Return the results in order; an EngineProblem stands for a missing object."""

    def perform(
        self,
        call: Call,
        *,
        patience_s: Optional[float] = None,
        before: Callable[[], None] = lambda: None,
    ) -> Any:
        """Make a change; ``before`` is called before each attempt, and may raise.

        Raises LostAnswer if the engine may have made it.
        """

    def report_progress(
        self, call: Call, *, patience_s: float = 0.0, twice: bool = False
    ) -> Any:
        """Make a change that records the run itself: a job, a step, an event."""

    def wait_until(
        self,
        read: Read,
        test: Callable[[Any], Optional[_T]],
        doing: str,
        timeout_s: float,
        every_s: float = 2.0,
    ) -> _T:
        """Read until ``test`` of the result is not None; return that. Raises
        TimeoutProblem.
        """
