# SPDX-License-Identifier: GPL-2.0-or-later
"""All rules, in the order in which they are shown."""

from __future__ import annotations

from ovirt_rdma.host.rules import (
    dead_options,
    drivers,
    ib_port,
    ipoib_bond,
    ipoib_buffers,
    ipoib_mode,
    ipoib_mtu,
    ipoib_mtu_engine,
    ipoib_partitions,
    ipoib_pkey,
    ipoib_profile,
    ipoib_tso,
    ipoib_tso_a0,
    kernel,
    module_options,
    module_policy,
    modules,
    nfs_rdma,
    policy_names,
    roce_flow,
    roce_gid,
    roce_mtu,
    roce_tso,
    stack,
    units,
    unread,
    vdsm,
)
from ovirt_rdma.host.rules.rule import Rule

RULES: tuple[Rule, ...] = (
    *drivers.RULES,
    *stack.RULES,
    *kernel.RULES,
    *modules.RULES,
    *module_policy.RULES,
    *dead_options.RULES,
    *module_options.RULES,
    *units.RULES,
    *policy_names.RULES,
    *ib_port.RULES,
    # In the order in which steps have to be carried out: a new port MTU makes all
    # netdevs of the adapter anew, TSO goes off first where it must be off, a mode sets
    # an MTU and turns offloads off and on.
    *ipoib_buffers.RULES,
    *ipoib_profile.RULES,
    *ipoib_pkey.RULES,
    *ipoib_tso_a0.RULES,
    *ipoib_mode.RULES,
    *ipoib_mtu.RULES,
    *ipoib_mtu_engine.RULES,
    *ipoib_tso.RULES,
    # Last of what changes children: it sees to them from then on.
    *ipoib_partitions.RULES,
    *ipoib_bond.RULES,
    *roce_mtu.RULES,
    *roce_tso.RULES,
    *roce_gid.RULES,
    *roce_flow.RULES,
    *nfs_rdma.RULES,
    *vdsm.RULES,
    *unread.RULES,
)


def rule_by_id(rule_id: str) -> Rule:
    """Return the rule; its id may be given in any case. Raises KeyError."""
    return {rule.id: rule for rule in RULES}[rule_id.upper()]
