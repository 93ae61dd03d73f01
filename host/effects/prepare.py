# SPDX-License-Identifier: GPL-2.0-or-later
"""What there is to do on this host now: its facts, the policy in force, and what
follows from them. Read before a run and, as the proof of it, after.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Optional, Union

from ovirt_rdma.host.commands import Runner
from ovirt_rdma.host.decide import Decision, decide
from ovirt_rdma.host.effects.saved_plan import differences
from ovirt_rdma.host.facts import Facts
from ovirt_rdma.host.paths import JOURNAL, POLICY_JSON, POLICY_YAML, under
from ovirt_rdma.host.plan_file import Plan
from ovirt_rdma.host.policy_store import Signature, StoredPolicy, read, signature_of
from ovirt_rdma.host.problem import Problem
from ovirt_rdma.host.reader import HostReader
from ovirt_rdma.host.rules.view import View


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
