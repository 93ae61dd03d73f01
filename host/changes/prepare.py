# SPDX-License-Identifier: GPL-2.0-or-later
"""Read, decide and check under the lock, before a run changes anything.

Whether a saved plan is still the plan: what has changed since it was made. Pure.

A plan file is a promise about what will be done, and no way to have other things done:
carried out are the steps that are decided now, and only where they are those of the
file. So an edited file can name no target that our rules would not.

What there is to do on this host now: its facts, the policy in force, and what
follows from them. Read before a run and, as the proof of it, after.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Optional, Union

from ovirt_rdma.host.changes.plan_file import Plan, values_read
from ovirt_rdma.host.collect.collector import HostReader
from ovirt_rdma.host.decision.registry import Decision, decide
from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.facts.model import Facts
from ovirt_rdma.host.paths import JOURNAL, POLICY_JSON, POLICY_YAML, under
from ovirt_rdma.host.policy.store import Signature, StoredPolicy, read, signature_of
from ovirt_rdma.host.rules.base import FILE, MODULE, Change, Step
from ovirt_rdma.host.rules.view import View
from ovirt_rdma.host.system.commands import Runner


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


class NoPolicy(Problem):
    """No policy is in force, so there is nothing to follow."""


class StalePlan(Problem):
    """The plan file is not what would be done now; nothing was changed."""

    exit_code = 4


@dataclass(frozen=True)
class Prepared:
    """A host, the policy in force, and what was decided."""

    facts: Facts
    policy: StoredPolicy
    decision: Decision

    def hold_against(self, plan: Plan) -> None:
        """Raise StalePlan, with each difference on a line, where ``plan`` is not what
        would be done now.
        """
        view = View(self.facts, self.policy.policy)
        found = differences(plan, view, self.policy.digest, self.decision.to_do)
        if found:
            first = "the plan does not hold any more; nothing was changed"
            raise StalePlan(
                "plan-outdated",
                "\n".join([first, *found]),
                "look at it again: ovirt-rdma-host plan --out FILE",
            )


class FactsBefore:
    """The facts of the host below ``root``, tools through ``run``: read before the lock
    is taken, so that a host that is slow to tell holds up no other run. Called again
    under the lock, it gives the same, or reads anew where a run of ours has changed
    something since, as the journal tells; of what others change the lock knows nothing
    in any case.
    """

    def __init__(self, root: Union[str, Path], run: Optional[Runner]) -> None:
        self._reader = HostReader(root, run)
        self._journal = under(root, JOURNAL)
        self._facts: Optional[Facts] = None
        self._seen: Optional[Signature] = None

    def __call__(self) -> Facts:
        """Return them, read at the first call or since."""
        seen = signature_of(self._journal)
        if self._facts is None or seen != self._seen:
            # As it was before the reading: what comes meanwhile counts as later.
            self._facts, self._seen = self._reader.facts(), seen
        return self._facts


def loaded_policy(root: Union[str, Path]) -> StoredPolicy:
    """Return the policy in force. Raises NoPolicy, or StoredPolicyProblem."""
    stored = read(under(root, POLICY_JSON))
    if stored is None:
        raise NoPolicy(
            "policy-not-loaded",
            "no policy is loaded",
            f"write {POLICY_YAML}, then: ovirt-rdma-host policy load",
        )
    return stored


def prepare(
    root: Union[str, Path], run: Optional[Runner], policy: StoredPolicy
) -> Prepared:
    """Read the host below ``root``, tools through ``run``, and decide by ``policy``."""
    return decided_by(HostReader(root, run).facts(), policy)


def decided_by(facts: Facts, policy: StoredPolicy) -> Prepared:
    """Decide by ``policy`` for a host that was read. Pure."""
    return Prepared(facts, policy, decide(facts, policy.policy))


def still_planned(
    root: Union[str, Path], run: Optional[Runner], policy: StoredPolicy
) -> Collection[str]:
    """Return the ids of the steps that ``policy`` asks for now: after a run, of those
    that did not come true.
    """
    found = prepare(root, run, policy).decision.to_do
    return frozenset(step.id for step in found)
