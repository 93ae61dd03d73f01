# SPDX-License-Identifier: GPL-2.0-or-later
"""``decide(facts, policy)``: what is right and wrong, and what would change. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ovirt_rdma.host.facts import Facts
from ovirt_rdma.host.policy import Policy
from ovirt_rdma.host.rules.rule import FAIL, WARN, Finding, Step
from ovirt_rdma.host.rules.table import RULES
from ovirt_rdma.host.rules.unread import ID as UNREAD
from ovirt_rdma.host.rules.view import View

_ODD = (UNREAD, WARN)


@dataclass(frozen=True)
class Decision:
    """Findings and steps, both in the order of the rules, then of the subjects.

    Steps are in the order in which they have to be carried out.
    """

    findings: tuple[Finding, ...] = ()
    steps: tuple[Step, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether a finding is FAIL."""
        return any(finding.verdict == FAIL for finding in self.findings)

    @property
    def unread(self) -> tuple[str, ...]:
        """Sentences on what could not be read; a step may be missing for that."""
        return tuple(f.sentence for f in self.findings if (f.rule, f.verdict) == _ODD)

    @property
    def to_do(self) -> tuple[Step, ...]:
        """The steps that can be done."""
        return tuple(step for step in self.steps if not step.refused)

    @property
    def refused(self) -> tuple[Step, ...]:
        """The steps that hardware or engine do not allow."""
        return tuple(step for step in self.steps if step.refused)


def decide(facts: Facts, policy: Policy, skip: Collection[str] = ()) -> Decision:
    """Hold ``facts`` against ``policy`` with every rule whose id is not in ``skip``."""
    view = View(facts, policy)
    findings: list[Finding] = []
    steps: list[Step] = []
    for rule in RULES:
        if rule.id in skip:
            continue
        for outcome in rule.decide(view):
            if isinstance(outcome, Step):
                steps.append(outcome)
            else:
                findings.append(outcome)
    return Decision(tuple(findings), tuple(steps))
