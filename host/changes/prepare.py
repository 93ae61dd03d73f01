# SPDX-License-Identifier: GPL-2.0-or-later
"""Read the host, decide its steps, and compare them with a saved plan.

This is done under the lock before a run changes anything, and again after it, to verify
it. The steps that are applied are always those that are decided now; with a plan file,
only if they are those of the file. So an edited file cannot name a target that our
rules would not change.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Optional, Union

from ovirt_rdma.host.changes.kinds.model import Refused
from ovirt_rdma.host.changes.plan import Plan, differences
from ovirt_rdma.host.collect.collector import HostReader
from ovirt_rdma.host.decision.registry import Decision, decide
from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.facts.model import Facts
from ovirt_rdma.host.paths import JOURNAL, POLICY_JSON, POLICY_YAML, under
from ovirt_rdma.host.policy.store import Signature, StoredPolicy, read, signature_of
from ovirt_rdma.host.system.commands import Runner


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


def decide_for(facts: Facts, policy: StoredPolicy) -> Decided:
    """Decide by ``policy`` for a host with these ``facts``. Pure."""
    return Decided(facts, policy, decide(facts, policy.policy))


def still_planned(
    root: Union[str, Path], run: Optional[Runner], policy: StoredPolicy
) -> Collection[str]:
    """Return the ids of the steps that ``policy`` requires now; after a run, those had
    no effect.
    """
    decided = decide_for(HostReader(root, run).facts(), policy)
    return frozenset(step.id for step in decided.decision.applicable)
