# SPDX-License-Identifier: GPL-2.0-or-later
"""The acts of a plan: what is done in one go, with its place and its UUID. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Callable, Optional

from ovirt_rdma.host.effects.act import Act
from ovirt_rdma.host.effects.place import place_of
from ovirt_rdma.host.effects.properties import adapter_of, is_volatile
from ovirt_rdma.host.effects.targets import makes_child, netdev_of
from ovirt_rdma.host.facts import Facts
from ovirt_rdma.host.rules.ipoib_settings import NEW
from ovirt_rdma.host.rules.rule import OFFLOAD, PROFILE, Change, Step


def acts_of(
    steps: Iterable[Step], facts: Optional[Facts], new_uuid: Callable[[], str]
) -> tuple[Act, ...]:
    """Return the acts of ``steps``, in order and without ``before``.

    ``facts`` are those that the steps were decided from; without them no act has a
    place. ``new_uuid`` gives out a UUID for each new profile.
    """
    return tuple(_Acts(facts, new_uuid).of(steps))


@dataclass
class _Acts:
    facts: Optional[Facts]
    new_uuid: Callable[[], str]
    uuids: dict[str, str] = field(default_factory=dict)

    def of(self, steps: Iterable[Step]) -> Iterator[Act]:
        for step in steps:
            changes = list(step.changes)
            while changes:
                first = changes.pop(0)
                together = [first]
                new = first.kind == PROFILE and first.target.startswith(NEW)
                if new and first.target not in self.uuids:
                    self.uuids[first.target] = self.new_uuid()
                    together += [c for c in changes if c.target == first.target]
                    changes = [c for c in changes if c.target != first.target]
                yield Act(
                    step=step.id,
                    effect=step.effect,
                    reason=step.reason,
                    changes=tuple(together),
                    uuid=self.uuids.get(first.target) if new else None,
                    place=place_of(first, self.facts) if self.facts else None,
                    lasting=self._lasts(first),
                )

    def _lasts(self, change: Change) -> bool:
        """Whether something keeps the value over a boot: NetworkManager does for the
        mode and MTU of a netdev that it manages, which are in its profile. Offloads are
        kept out of profiles (:mod:`ovirt_rdma.host.rules.ipoib_tso_changes`).
        """
        if not is_volatile(change):
            return True
        if change.kind == OFFLOAD or makes_child(change) or adapter_of(change):
            return False
        manager = self.facts.network_manager if self.facts else None
        managed = manager.managed if manager and manager.running else ()
        netdev = netdev_of(change)
        return netdev in managed or f"{NEW}{netdev}" in self.uuids
