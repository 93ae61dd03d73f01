# SPDX-License-Identifier: GPL-2.0-or-later
"""Which steps of a plan may be done now. Pure.

A step that the rules refuse is never done. One that takes a link down which somebody
uses holds up the whole plan, unless that is allowed. What rests on a step that is left
out is left out with it: a change of a profile or netdev that the step would have made,
an MTU or offload that was decided for the mode that it would have set.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Optional

from ovirt_rdma.host.changes.kinds.model import Left, Refused
from ovirt_rdma.host.changes.kinds.properties import adapter_of, file_of, netdev_of
from ovirt_rdma.host.rules.base import LINK_DOWN, OFFLOAD, PROFILE, Change, Step
from ovirt_rdma.host.rules.infiniband.partitions import ID as PKEY_RULE
from ovirt_rdma.host.rules.infiniband.settings import CONNECTION_TYPE, MTU

_ALLOW = "--allow-link-down"
_WAITS = (
    "put the host into maintenance and run this again, allow it with "
    f"{_ALLOW}, or do the rest with --live-only"
)
_LIVE_ONLY = "it takes the link down, and only live steps were asked for"


@dataclass(frozen=True)
class Gated:
    """``steps`` are to be done, in their order; ``left`` says of each other step why it
    is not.
    """

    steps: tuple[Step, ...]
    left: tuple[Left, ...]


def gate(
    steps: Sequence[Step], *, allow_link_down: bool = False, live_only: bool = False
) -> Gated:
    """Return which of ``steps`` may be done. Raises Refused, with each such step and
    its users, where one takes a link down that somebody uses, unless that is allowed
    or only live steps are wanted.
    """
    kept: list[Step] = []
    out: list[Step] = []
    left: list[Left] = []
    for step in steps:
        why = step.refused
        if not why and live_only and step.effect == LINK_DOWN:
            why = _LIVE_ONLY
        if not why:
            base = next((one for one in out if _rests_on(step, one)), None)
            why = f"{base.id} comes first, and is left out" if base else ""
        if why:
            out.append(step)
            fix = _WAITS if why == _LIVE_ONLY else ""
            left.append(Left(step.id, "", why, fix))
        else:
            kept.append(step)
    if not allow_link_down:
        _refuse(kept)
    return Gated(tuple(kept), tuple(left))


def _refuse(steps: Iterable[Step]) -> None:
    used = [step for step in steps if step.effect == LINK_DOWN and step.users]
    if not used:
        return
    lines = [
        f"{step.id} takes the link down for {', '.join(step.users)}" for step in used
    ]
    raise Refused(
        "netdevs-in-use",
        "\n".join(["nothing was changed: there are users", *lines]),
        _WAITS,
    )


def _rests_on(step: Step, base: Step) -> bool:
    """Whether ``step`` was decided for what ``base``, an earlier step, leaves."""
    made = {c.target for c in base.changes if c.name == CONNECTION_TYPE}
    child = base.subject if base.rule == PKEY_RULE else None
    # A step that the hardware refuses is in nobody's way: the rules decided without it.
    modes = () if base.refused else base.changes
    mode_of = {netdev_of(c) for c in modes if file_of(c) == "mode"}
    port_mtu = any(adapter_of(c) for c in modes)
    return any(
        change.target in made
        or (child is not None and netdev_of(change) == child)
        or (port_mtu and _is_mtu(change))
        or _goes_with_mode(step, change, mode_of)
        for change in step.changes
    )


def _is_mtu(change: Change) -> bool:
    return file_of(change) == "mtu" or (change.kind, change.name) == (PROFILE, MTU)


def _goes_with_mode(step: Step, change: Change, mode_of: set[Optional[str]]) -> bool:
    if step.subject not in mode_of:
        return False
    return _is_mtu(change) or change.kind == OFFLOAD
