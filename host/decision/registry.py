# SPDX-License-Identifier: GPL-2.0-or-later
"""List all rules in order, and decide findings and plan from facts and policy. Pure.

The order of RULES is the order in which findings are shown and steps are applied.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ovirt_rdma.host.decision import policy_names
from ovirt_rdma.host.facts.model import Facts
from ovirt_rdma.host.policy.model import Policy
from ovirt_rdma.host.rules import (
    drivers,
    host,
    kernel_config,
    kernel_packages,
    metrics,
    module_options,
    modules,
    nfs_rdma,
    rdma_stack,
)
from ovirt_rdma.host.rules.base import FAIL, WARN, Finding, Rule, Step
from ovirt_rdma.host.rules.hardware import locality, pcie, port_errors
from ovirt_rdma.host.rules.infiniband import (
    bond,
    mode,
    partitions,
    port,
    profile,
    receive_buffers,
)
from ovirt_rdma.host.rules.infiniband import mtu as ipoib_mtu
from ovirt_rdma.host.rules.infiniband import tso as ipoib_tso
from ovirt_rdma.host.rules.nfs import connections, local_io, slots, versions
from ovirt_rdma.host.rules.roce import flow_control, gid
from ovirt_rdma.host.rules.roce import mtu as roce_mtu
from ovirt_rdma.host.rules.roce import tso as roce_tso
from ovirt_rdma.host.rules.sriov import port_type, virtual_functions
from ovirt_rdma.host.rules.view import View

RULES: tuple[Rule, ...] = (
    *drivers.RULES,
    *rdma_stack.RULES,
    *kernel_config.RULES,
    *kernel_packages.RULES,
    *modules.RULES,
    *modules.WANTED_RULES,
    *module_options.UNKNOWN_RULES,
    *module_options.RULES,
    *host.UNITS_RULES,
    *policy_names.RULES,
    *port.RULES,
    # First: a new type recreates all netdevs of the adapter.
    *port_type.RULES,
    # In the order in which VFs are made and set.
    *virtual_functions.RULES,
    # In the order in which steps must be applied: a new port MTU recreates all netdevs
    # of the adapter; TSO is turned off first if it must be off; a mode sets an MTU and
    # turns offloads off and on.
    *receive_buffers.RULES,
    *profile.RULES,
    *partitions.RULES,
    *ipoib_tso.A0_RULES,
    *mode.RULES,
    *ipoib_mtu.RULES,
    *ipoib_mtu.NETWORK_MTU_RULES,
    *ipoib_tso.RULES,
    # The last that changes children: the unit manages them from then on.
    *partitions.FOLLOW_RULES,
    *bond.RULES,
    *roce_mtu.RULES,
    *roce_tso.RULES,
    *gid.RULES,
    *flow_control.RULES,
    *nfs_rdma.RULES,
    *pcie.RULES,
    *port_errors.RULES,
    *locality.RULES,
    *slots.RULES,
    *connections.RULES,
    *versions.RULES,
    *local_io.RULES,
    *metrics.RULES,
    *host.VDSM_RULES,
    *host.UNREAD_RULES,
)


def rule_by_id(rule_id: str) -> Rule:
    """Return the rule; its id may be given in any case. Raises KeyError."""
    return {rule.id: rule for rule in RULES}[rule_id.upper()]


_UNREAD = (host.UNREAD_ID, WARN)


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
        return tuple(
            f.sentence for f in self.findings if (f.rule, f.verdict) == _UNREAD
        )

    @property
    def applicable(self) -> tuple[Step, ...]:
        """The steps that can be applied."""
        return tuple(step for step in self.steps if not step.refused)

    @property
    def refused(self) -> tuple[Step, ...]:
        """The steps that the hardware or the engine does not allow."""
        return tuple(step for step in self.steps if step.refused)


def decide(facts: Facts, policy: Policy, skip: Collection[str] = ()) -> Decision:
    """Check ``facts`` and ``policy`` with every rule whose id is not in ``skip``."""
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
