# SPDX-License-Identifier: GPL-2.0-or-later
"""Decide which steps of a plan may be done now. Pure.

A step that the rules refuse is never done. If a step takes down a link that is in use,
the whole plan is refused, unless that is allowed. If a step is left out, the steps that
depend on it are left out too: a change of a profile or netdev that it would have made,
an MTU or offload that was decided for the mode that it would have set.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Optional

from ovirt_rdma.host.changes.kinds.model import Left, Refused
from ovirt_rdma.host.changes.kinds.netdev import MODE_FILE
from ovirt_rdma.host.changes.kinds.registry import kind_of
from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.rules.base import LINK_DOWN, Step
from ovirt_rdma.host.rules.ipoib_children import CHILDREN
from ovirt_rdma.host.rules.profiles import CONNECTION_TYPE

_ALLOW = "--allow-link-down"
_WAITS = (
    "put the host into maintenance and run this again, allow it with "
    f"{_ALLOW}, or apply only the live steps with --live-only"
)
_LIVE_ONLY = Sentence(
    "step-not-live", "it takes the link down, and only live steps were requested"
)


@dataclass(frozen=True)
class Gated:
    """``steps`` may be done, in this order; ``left`` has each other step with the
    reason.
    """

    steps: tuple[Step, ...]
    left: tuple[Left, ...]


def gate(
    steps: Sequence[Step], *, allow_link_down: bool = False, live_only: bool = False
) -> Gated:
    """Return which of ``steps`` may be done. Raises Refused, with each such step and
    its users, if one takes down a link that is in use, unless that is allowed or only
    live steps are requested.
    """
    allowed: list[Step] = []
    out: list[Step] = []
    left: list[Left] = []
    for step in steps:
        why = _why_left(step, out, live_only)
        if why:
            out.append(step)
            fix = _WAITS if why is _LIVE_ONLY else ""
            left.append(Left(step.id, "", why, fix))
        else:
            allowed.append(step)
    if not allow_link_down:
        _refuse(allowed)
    return Gated(tuple(allowed), tuple(left))


def _why_left(step: Step, out: Iterable[Step], live_only: bool) -> Optional[Sentence]:
    """Return why ``step`` is left out, given the earlier steps ``out`` that are."""
    if step.refused:
        return Sentence("step-refused", step.refused)
    if live_only and step.effect == LINK_DOWN:
        return _LIVE_ONLY
    for base in out:
        if _depends_on(step, base):
            return Sentence(
                "step-dependency-left-out",
                f"it depends on {base.id}, which is left out",
            )
    return None


def _refuse(steps: Iterable[Step]) -> None:
    reasons = [
        link_in_use(step.id, step.users)
        for step in steps
        if step.effect == LINK_DOWN and step.users
    ]
    if reasons:
        raise Refused(
            "netdevs-in-use",
            "refused: the interfaces are in use",
            _WAITS,
            reasons=reasons,
        )


def link_in_use(step_id: str, users: Iterable[str]) -> Sentence:
    """Return the sentence that a step takes the link down for ``users``."""
    return Sentence(
        "link-in-use", f"{step_id} takes the link down for {', '.join(users)}"
    )


def _depends_on(step: Step, base: Step) -> bool:
    """Whether ``step`` was decided for the state that ``base``, an earlier step,
    leaves.
    """
    made = {c.target for c in base.changes if c.name == CONNECTION_TYPE}
    child = base.subject if base.rule == CHILDREN.id else None
    # If the hardware refuses a step, the rules have decided the others without it.
    modes = [] if base.refused else [kind_of(change) for change in base.changes]
    new_mode = step.subject in {k.netdev for k in modes if k.sysfs_file == MODE_FILE}
    port_mtu = any(kind.port for kind in modes)
    return any(
        kind.change.target in made
        or (child is not None and kind.netdev == child)
        or (port_mtu and kind.is_mtu)
        or any(maker.is_maker and maker.owns(kind) for maker in modes)
        or (new_mode and kind.goes_with_mode)
        for kind in map(kind_of, step.changes)
    )
