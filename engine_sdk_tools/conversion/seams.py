# SPDX-License-Identifier: GPL-2.0-or-later
"""What carrying a conversion out needs: the engine, and where the state is kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable, Optional, Protocol

from ovirt_rdma.engine_sdk_tools.call import Call, Read
from ovirt_rdma.engine_sdk_tools.conversion.state import ConversionState


class ChangesEngine(Protocol):
    """What carrying out needs of a session."""

    @property
    def correlation_id(self) -> str:
        """See Session."""

    def clock(self) -> float:
        """See Session."""

    def sleep(self, seconds: float) -> None:
        """See Session."""

    def read(self, read: Read) -> Any:
        """See Session."""

    def read_all(self, reads: Sequence[Read]) -> list[Any]:
        """See Session."""

    def perform(self, call: Call, *, before: Callable[[], None]) -> Any:
        """See Session."""

    def wait_until(
        self,
        read: Read,
        test: Callable[[Any], Optional[Any]],
        doing: str,
        timeout_s: float,
    ) -> Any:
        """See Session."""


class HoldsLock(Protocol):
    """What keeps other runs off."""

    def check(self) -> None:
        """See DataCenterLock."""


class KeepsState(Protocol):
    """Where the state is written."""

    def write(self, state: ConversionState) -> None:
        """See StateFile."""
