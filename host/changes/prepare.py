# SPDX-License-Identifier: GPL-2.0-or-later
"""Read the host, decide its steps, and compare them with a saved plan.

This is done under the lock before a run changes anything, and again after it, to verify
it. The steps that are applied are always those that are decided now; with a plan file,
only if they are those of the file. So an edited file cannot name a target that our
rules would not change.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Optional, Union

from ovirt_rdma.host.changes.kinds.model import Refused
from ovirt_rdma.host.changes.kinds.registry import kind_of
from ovirt_rdma.host.changes.plan_file import Plan
from ovirt_rdma.host.collect.collector import HostReader
from ovirt_rdma.host.decision.registry import Decision, decide
from ovirt_rdma.host.errors import Problem, Sentence
from ovirt_rdma.host.facts.model import Facts
from ovirt_rdma.host.paths import JOURNAL, POLICY_JSON, POLICY_YAML, under
from ovirt_rdma.host.policy.store import Signature, StoredPolicy, read, signature_of
from ovirt_rdma.host.rules.base import Change, Step
from ovirt_rdma.host.system.commands import Runner


def differences(
    plan: Plan, hostname: str, digest: str, steps: Sequence[Step]
) -> tuple[Sentence, ...]:
    """Return the differences between ``plan`` and now, one sentence each; none if the
    plan is up to date. Pure.

    ``steps`` are decided now for the host ``hostname`` and the loaded policy, whose
    digest is ``digest``. If the plan is for another host or another policy, that is the
    only sentence, because all else would follow from it.
    """
    if plan.hostname != hostname:
        return (
            Sentence(
                "plan-host-differs",
                f"the plan is for {plan.hostname}, this host is {hostname}",
            ),
        )
    if plan.policy.digest != digest:
        return (
            Sentence(
                "plan-policy-differs",
                f"the plan is for policy {_short(plan.policy.digest)}, "
                f"loaded is {_short(digest)}",
            ),
        )
    return tuple(dict.fromkeys(_of_steps(plan, steps)))


def _of_steps(plan: Plan, steps: Sequence[Step]) -> Iterator[Sentence]:
    then, now = _to_do(plan.steps), _to_do(steps)
    for step_id, step in then.items():
        if step_id not in now:
            yield Sentence("step-no-longer-planned", f"{step_id} is no longer planned")
        elif step.changes != now[step_id].changes:
            yield from _of_changes(step, now[step_id])
    for step_id in now:
        if step_id not in then:
            yield Sentence("step-not-in-plan", f"{step_id} is planned now, and was not")
    if then.keys() == now.keys() and list(then) != list(now):
        yield Sentence("step-order-differs", "the order of the steps has changed")


def _to_do(steps: Iterable[Step]) -> dict[str, Step]:
    return {step.id: step for step in steps if not step.refused}


def _of_changes(then: Step, now: Step) -> Iterator[Sentence]:
    present = {_place(change): change for change in now.changes}
    reported = False
    for change in then.changes:
        change_now = present.get(_place(change))
        if change_now is None:
            continue
        for verb, was, value in (
            ("was", change.before, change_now.before),
            ("would become", change.after, change_now.after),
        ):
            if was != value:
                reported = True
                values = _value(change, was, value)
                yield Sentence(
                    "value-changed-since-plan", f"{_named(change)} {verb} {values}"
                )
    if not reported:
        yield Sentence(
            "step-changes-differ",
            f"{then.id} would make other changes than the plan says",
        )


def _value(change: Change, was: Optional[str], value: Optional[str]) -> str:
    is_text = kind_of(change).is_text
    if is_text and None not in (was, value):
        return "another text than now"
    if is_text:
        return "present, and is not" if value is None else "not present, and is"
    return f"{_text(was)}, is {_text(value)}"


def _place(change: Change) -> tuple[str, str, str]:
    return (change.kind, change.target, change.name)


def _named(change: Change) -> str:
    if change.name:
        return f"{change.name} of {change.target}"
    return kind_of(change).title.format(change.target)


def _text(value: Optional[str]) -> str:
    return "not set" if value is None else value


def _short(digest: str) -> str:
    # As long as git's: enough to distinguish two policies.
    kind, colon, digits = digest.partition(":")
    return f"{kind}{colon}{digits[:12]}"


class NoPolicy(Problem):
    """No policy is loaded, so there is nothing to apply."""


class StalePlan(Refused):
    """The plan file is outdated; nothing was changed. The reasons are differences."""


@dataclass(frozen=True)
class Decided:
    """The facts of a host, the policy in force, and the decision for it."""

    facts: Facts
    policy: StoredPolicy
    decision: Decision

    def hold_against(self, plan: Plan, path: str) -> None:
        """Raise StalePlan, with each difference on a line, if ``plan``, which was saved
        in ``path``, differs from what would be done now.
        """
        reasons = differences(
            plan, self.facts.hostname, self.policy.digest, self.decision.applicable
        )
        if reasons:
            raise StalePlan(
                "plan-outdated",
                "the plan is outdated",
                f"review a new plan: ovirt-rdma-host plan --out {shlex.quote(path)}",
                reasons=reasons,
            )


class EarlyFacts:
    """Reads the facts of the host below ``root``, tools through ``run``, before the
    lock is taken: reading a slow host then delays no other run. Called again under the
    lock, it returns the same facts, unless the journal shows that a run has changed the
    host since; then it reads again. The lock does not keep others from changing the
    host in any case.
    """

    def __init__(self, root: Union[str, Path], run: Optional[Runner]) -> None:
        self._reader = HostReader(root, run)
        self._journal = under(root, JOURNAL)
        self._facts: Optional[Facts] = None
        self._seen: Optional[Signature] = None

    def __call__(self) -> Facts:
        """Return the facts, read at the first call or since."""
        seen = signature_of(self._journal)
        if self._facts is None or seen != self._seen:
            # The signature from before the reading: a change meanwhile counts as later.
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


def read_and_decide(
    root: Union[str, Path], run: Optional[Runner], policy: StoredPolicy
) -> Decided:
    """Read the host below ``root``, tools through ``run``, and decide by ``policy``."""
    return decide_for(HostReader(root, run).facts(), policy)


def decide_for(facts: Facts, policy: StoredPolicy) -> Decided:
    """Decide by ``policy`` for a host with these ``facts``. Pure."""
    return Decided(facts, policy, decide(facts, policy.policy))


def still_planned(
    root: Union[str, Path], run: Optional[Runner], policy: StoredPolicy
) -> Collection[str]:
    """Return the ids of the steps that ``policy`` requires now; after a run, those had
    no effect.
    """
    steps = read_and_decide(root, run, policy).decision.applicable
    return frozenset(step.id for step in steps)
