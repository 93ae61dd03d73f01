# SPDX-License-Identifier: GPL-2.0-or-later
"""What the engine needs of a host: :class:`.host_effects.HostEffects`, or what stands
in for it in a test. Data.
"""

from __future__ import annotations

from typing import Optional, Protocol

from ovirt_rdma.host.effects.act import Act, Place
from ovirt_rdma.host.effects.effect import Reading
from ovirt_rdma.host.rules.rule import Change


class Door(Protocol):
    """Reads a property, does an act, takes it back; see there for each."""

    def refusal(self, change: Change) -> str:
        """Say why ``change`` is none that our rules give, or nothing."""

    def read(
        self,
        change: Change,
        uuid: Optional[str] = None,
        place: Optional[Place] = None,
    ) -> Reading:
        """Return the present value of what ``change`` changes."""

    def do(self, act: Act) -> None:
        """Carry ``act`` out. Raises EffectFailed."""

    def undo(self, act: Act) -> None:
        """Take ``act`` back, to ``act.before``. Raises EffectFailed."""

    def gone(self, act: Act) -> bool:
        """Whether what ``act`` changed is not there any more."""

    def present(self, act: Act) -> Act:
        """Return ``act`` with the names that its netdev has now."""

    def boot_id(self) -> str:
        """Return the kernel's boot id."""

    def now(self) -> float:
        """Return the time in seconds since 1970 UTC."""
