# SPDX-License-Identifier: GPL-2.0-or-later
"""List all rules in order, and decide findings and plan from facts and policy. Pure.

The order of RULES is the order in which findings are shown and steps are applied.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Optional

from ovirt_rdma.host.facts.model import Facts
from ovirt_rdma.host.policy.model import Policy
from ovirt_rdma.host.rules import (
    adapters,
    host,
    ipoib,
    ipoib_rules,
    modules,
    nfs,
    nfs_server,
    roce,
    virtual_functions,
)
from ovirt_rdma.host.rules.base import FAIL, WARN, Finding, Rule, Step, View

RULES: tuple[Rule, ...] = (
    adapters.DRIVERS,
    adapters.STACK,
    *modules.RULES,
    host.UNITS,
    host.NAMES,
    ipoib_rules.PORTS,
    # First: a new type recreates all netdevs of the adapter.
    virtual_functions.PORT_TYPE,
    *virtual_functions.RULES,
    # In the order in which steps must be applied: a new port MTU recreates all netdevs
    # of the adapter; TSO is turned off first if it must be off; a mode sets an MTU and
    # turns offloads off and on.
    ipoib_rules.BUFFERS,
    ipoib_rules.PROFILES,
    ipoib.CHILDREN,
    ipoib_rules.TSO_A0,
    ipoib_rules.MODE,
    ipoib_rules.UDEV,
    ipoib_rules.NETDEV_MTU,
    ipoib_rules.NETWORK_MTU,
    ipoib_rules.TSO_IPOIB,
    # The last that changes children: the daemon does from then on.
    ipoib.FOLLOWER,
    host.DAEMON,
    ipoib_rules.BONDS,
    roce.MTU,
    ipoib_rules.TSO_ROCE,
    roce.GIDS,
    roce.LAG,
    roce.CLASS,
    roce.TOS,
    roce.PFC,
    roce.ECN,
    *nfs.REQUIREMENTS,
    *adapters.HARDWARE,
    *nfs.MOUNTS,
    host.VDSM,
    host.UNREAD,
)

# Those of ``server check`` only.
SERVER_RULES = nfs_server.RULES


@dataclass(frozen=True)
class Decision:
    """Findings and steps, both in the order of the rules, then of the subjects.

    Steps are applied in this order.
    """

    findings: tuple[Finding, ...] = ()
    steps: tuple[Step, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether a finding is FAIL."""
        return any(finding.verdict == FAIL for finding in self.findings)

    @property
    def unread(self) -> tuple[str, ...]:
        """The facts that could not be read, as sentences; steps may be missing."""
        unread = (host.UNREAD.id, WARN)
        found = (f for f in self.findings if (f.rule, f.verdict) == unread)
        return tuple(one.sentence for one in found)

    @property
    def applicable(self) -> tuple[Step, ...]:
        """The steps that can be applied."""
        return tuple(step for step in self.steps if not step.refused)

    @property
    def refused(self) -> tuple[Step, ...]:
        """The steps that the hardware or the engine does not allow."""
        return tuple(step for step in self.steps if step.refused)


def decide(
    facts: Facts,
    policy: Policy,
    skip: Collection[str] = (),
    rules: Optional[Sequence[Rule]] = None,
) -> Decision:
    """Check ``facts`` and ``policy`` with every rule whose id is not in ``skip``: of
    ``rules``, or of RULES.
    """
    view = View(facts, policy)
    findings: list[Finding] = []
    steps: list[Step] = []
    for rule in RULES if rules is None else rules:
        if rule.id in skip:
            continue
        for outcome in rule.decide(view):
            if isinstance(outcome, Step):
                steps.append(outcome)
            else:
                findings.append(outcome)
    return Decision(tuple(findings), tuple(steps))
