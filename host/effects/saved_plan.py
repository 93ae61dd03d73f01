# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether a saved plan is still the plan: what has changed since it was made. Pure.

A plan file is a promise about what will be done, and no way to have other things done:
carried out are the steps that are decided now, and only where they are those of the
file. So an edited file can name no target that our rules would not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Optional

from ovirt_rdma.host.plan_file import Plan
from ovirt_rdma.host.plan_values import values_read
from ovirt_rdma.host.rules.rule import FILE, MODULE, Change, Step
from ovirt_rdma.host.rules.view import View


def differences(
    plan: Plan, view: View, digest: str, steps: Sequence[Step]
) -> tuple[str, ...]:
    """Return how ``plan`` differs from now, a sentence each; none: it holds.

    ``view`` is the host now with the loaded policy, whose digest is ``digest``, and
    ``steps`` what is decided for it. For a plan of another host, or of another policy,
    that is the one sentence: all else would follow from it.
    """
    hostname = view.facts.hostname
    if plan.hostname != hostname:
        return (f"the plan is for {plan.hostname}, this host is {hostname}",)
    if plan.policy.digest != digest:
        return (
            f"the plan follows policy {_short(plan.policy.digest)}, "
            f"loaded is {_short(digest)}",
        )
    return tuple(dict.fromkeys([*_of_values(plan, view), *_of_steps(plan, steps)]))


def _of_values(plan: Plan, view: View) -> Iterator[str]:
    # Of the steps of the file: what they rested on then, they have to rest on now.
    present = {one.name: one.value for one in values_read(view, plan.steps)}
    for one in plan.values:
        if one.name not in present:
            if one.value is not None:
                yield f"{one.name} was {one.value}, is not there any more"
        elif present[one.name] != one.value:
            yield f"{one.name} was {_said(one.value)}, is {_said(present[one.name])}"
    known = {one.name for one in plan.values}
    for name, value in present.items():
        if name not in known and value is not None:
            yield f"{name} was not there, is {value}"


def _of_steps(plan: Plan, steps: Sequence[Step]) -> Iterator[str]:
    then, now = _to_do(plan.steps), _to_do(steps)
    for step_id, step in then.items():
        if step_id not in now:
            yield f"{step_id} is not planned any more"
        elif step.changes != now[step_id].changes:
            yield from _of_changes(step, now[step_id])
    for step_id in now:
        if step_id not in then:
            yield f"{step_id} is planned now, and was not"
    if then.keys() == now.keys() and list(then) != list(now):
        yield "the steps stand in another order"


def _to_do(steps: Iterable[Step]) -> dict[str, Step]:
    return {step.id: step for step in steps if not step.refused}


def _of_changes(then: Step, now: Step) -> Iterator[str]:
    present = {_place(change): change for change in now.changes}
    told = False
    for change in then.changes:
        found = present.get(_place(change))
        if found is None:
            continue
        for verb, was, value in (
            ("was", change.before, found.before),
            ("was to be", change.after, found.after),
        ):
            if was != value:
                told = True
                yield f"{_named(change)} {verb} {_value(change, was, value)}"
    if not told:
        yield f"{then.id} would change other things than the plan says"


def _value(change: Change, was: Optional[str], value: Optional[str]) -> str:
    if change.kind == FILE and None not in (was, value):
        return "another text than now"
    if change.kind == FILE:
        return "there, and is not" if value is None else "not there, and is"
    return f"{_said(was)}, is {_said(value)}"


def _place(change: Change) -> tuple[str, str, str]:
    return (change.kind, change.target, change.name)


def _named(change: Change) -> str:
    if change.kind == MODULE:
        return f"module {change.target}"
    return f"{change.name} of {change.target}" if change.name else change.target


def _said(value: Optional[str]) -> str:
    return "not set" if value is None else value


def _short(digest: str) -> str:
    # As long as git shows: enough to tell two policies apart.
    kind, colon, digits = digest.partition(":")
    return f"{kind}{colon}{digits[:12]}"
