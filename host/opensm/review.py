# SPDX-License-Identifier: GPL-2.0-or-later
"""Check the fabric at each port of a host: subnet manager, P_Keys, groups. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Optional

from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.fabric.model import Definition
from ovirt_rdma.host.facts.ib_codes import MTUS, RATES, group_text
from ovirt_rdma.host.facts.pkeys import full_member, partition_of
from ovirt_rdma.host.opensm.manager import RULE, rule_of
from ovirt_rdma.host.opensm.partitions import membership, unlike
from ovirt_rdma.host.opensm.read import FabricFacts, LocalPort, Subnet
from ovirt_rdma.host.opensm.replies import BroadcastGroup
from ovirt_rdma.host.policy.fabric import FabricPolicy
from ovirt_rdma.host.rules.base import FAIL, HOST, PASS, SKIP, WARN, Finding

PORT, MANAGER, PKEYS, GROUP = (
    "FABRIC-PORT-01",
    "FABRIC-SM-01",
    "FABRIC-PKEY-01",
    "FABRIC-GROUP-01",
)
_ENABLE = "ovirt-rdma-host fabric sm enable"
_DISABLE = "ovirt-rdma-host fabric sm disable"


def findings(
    fabric: FabricFacts, definitions: Sequence[Definition]
) -> tuple[Finding, ...]:
    """Return what is so and what is not, port by port.

    ``definitions`` are the partitions of the policy, none if it has none: then P_Keys
    are not compared.
    """
    found: list[Finding] = []
    for subnet in fabric.subnets:
        found += _of_port(subnet, fabric, definitions)
    if not fabric.subnets:
        none = Sentence("no-infiniband-port", "this host has no InfiniBand port")
        found.append(Finding(PORT, "host", SKIP, none))
    return tuple(found)


def _of_port(
    subnet: Subnet, fabric: FabricFacts, definitions: Sequence[Definition]
) -> Iterator[Finding]:
    port = subnet.port
    guid = port.guid
    named = any(m.port == guid for one in definitions for m in one.members)
    if not port.port.is_active:
        state = Sentence(
            "port-not-active",
            f"the port is {port.port.state} ({port.port.physical_state})"
            + ("" if named else ", and the policy does not name it"),
        )
        fix = "see ovirt-rdma-host check: IB-PORT-01" if named else ""
        yield Finding(PORT, port.title, FAIL if named else SKIP, state, fix)
        return
    yield from _managers(subnet, fabric)
    manager = subnet.master is not None and subnet.master.guid == guid
    if definitions:
        table = [int(one.value, 16) for one in port.port.pkeys]
        managers = {guid} if manager else set()
        wrong = unlike(definitions, subnet.groups, {guid: table}, managers, guid)
        for sentence in wrong:
            of_port = sentence.id.startswith("port-")
            rule = PKEYS if of_port else GROUP
            yield Finding(rule, port.title, FAIL, sentence, _fix(subnet, fabric))
        if not any(sentence.id.startswith("port-") for sentence in wrong):
            wanted = membership(definitions, guid, manager=manager)
            keys = ", ".join(map(full_member, wanted)) or "none"
            ok = Sentence(
                "pkeys-as-policy", f"its P_Keys are as the policy says: {keys}"
            )
            yield Finding(PKEYS, port.title, PASS, ok)
    yield from _groups(subnet)


def _fix(subnet: Subnet, fabric: FabricFacts) -> str:
    if subnet.master is not None and subnet.master.guid in fabric.guids:
        return "ovirt-rdma-host fabric partitions apply"
    return (
        "ovirt-rdma-host fabric partitions render: give that to the subnet manager's "
        "host or switch"
    )


def _managers(subnet: Subnet, fabric: FabricFacts) -> Iterator[Finding]:
    title, master = subnet.port.title, subnet.master
    if master is None:
        missing = any(one.id == "fabric-tool-missing" for one in subnet.problems)
        why = subnet.problems[0] if subnet.problems else "it was not asked"
        unasked = Sentence("subnet-manager-unasked", f"not checked: {why}")
        silent = Sentence(
            "subnet-manager-silent", "the subnet manager does not answer sminfo"
        )
        fix = "see the log of the subnet manager, and sminfo(8)"
        if missing:
            yield Finding(MANAGER, title, SKIP, unasked)
        else:
            yield Finding(MANAGER, title, FAIL, silent, fix)
        return
    where = "this host" if master.guid in fabric.guids else master.guid
    is_at = Sentence(
        "subnet-manager-answers",
        f"the subnet manager is at {where}, LID {master.lid}, priority "
        f"{master.priority}",
    )
    yield Finding(MANAGER, title, PASS, is_at)
    two = several_masters(subnet)
    if two is not None:
        fix = "stop all but one; different sm_key settings keep them from agreeing"
        yield Finding(MANAGER, title, FAIL, two, fix)
    standby = [one.guid for one in subnet.managers or () if not one.is_master]
    others = [guid for guid in standby if guid not in fabric.guids]
    if standby:
        spare = Sentence(
            "standby-managers",
            f"{len(standby)} more on standby, of these {len(others)} on other hosts or "
            "switches; all of them need the same partitions.conf",
        )
        yield Finding(MANAGER, title, WARN, spare)


def several_masters(subnet: Subnet) -> Optional[Sentence]:
    """Return which subnet managers are master, if that is more than one."""
    masters = [one.guid for one in subnet.managers or () if one.is_master]
    if len(masters) < 2:
        return None
    return Sentence(
        "several-masters", f"several subnet managers are master: {', '.join(masters)}"
    )


def _groups(subnet: Subnet) -> Iterator[Finding]:
    """Yield whether the port can be in the groups of its P_Keys."""
    if subnet.groups is None:
        return
    keys = {partition_of(one.value) for one in subnet.port.port.pkeys}
    for group in subnet.groups:
        if group.pkey not in keys:
            continue
        name = f"the broadcast group of {full_member(group.pkey)}"
        why = _too_slow(subnet, group)
        if why:
            slow = Sentence(
                "port-too-slow",
                f"{name} is not for this port: {why}; its IPoIB netdev has no carrier "
                "there",
            )
            fix = "set mtu and rate of the partition to what the slowest port can do"
            yield Finding(GROUP, subnet.port.title, FAIL, slow, fix)
            continue
        has = group_text(group.mtu, group.rate)
        ok = Sentence("group-joinable", f"{name} has {has}")
        yield Finding(GROUP, subnet.port.title, PASS, ok)


def _too_slow(subnet: Subnet, group: BroadcastGroup) -> Optional[str]:
    port = subnet.port.port
    mtu, rate = MTUS.get(group.mtu), RATES.get(group.rate)
    if mtu and port.active_mtu and port.active_mtu < mtu:
        return f"the group has MTU {mtu}, the port {port.active_mtu}"
    if rate and port.rate_mbps and port.rate_mbps < rate:
        return f"the group has {rate / 1000:g} Gb/s, the port {port.rate_mbps / 1000:g}"
    return None


def own_findings(policy: FabricPolicy, fabric: FabricFacts) -> Iterator[Finding]:
    """Yield whether our opensm runs if ``policy`` names this host, and only then."""
    rules = rule_of(policy, fabric)
    titles = {one.port.guid: one.port.title for one in fabric.subnets}
    ours = [one for one in fabric.processes if one.is_ours]
    if rules and not ours:
        idle = Sentence(
            "manager-not-running",
            "the policy names this host in fabric.subnet_managers, and no opensm of "
            "ovirt-rdma is running",
        )
        yield Finding(RULE, HOST, FAIL, idle, _ENABLE)
    for process in ours:
        title = titles.get(process.guid or "", process.guid or "")
        runs = f"opensm of ovirt-rdma is running with priority {process.priority}"
        if not rules:
            sentence = Sentence(
                "manager-not-named", f"{runs}, and the policy does not name this host"
            )
            yield Finding(RULE, title, FAIL, sentence, _DISABLE)
        elif process.priority != rules[0].priority:
            sentence = Sentence(
                "manager-priority-differs",
                f"{runs}, and the policy says {rules[0].priority}",
            )
            yield Finding(RULE, title, FAIL, sentence, _ENABLE)
        else:
            yield Finding(RULE, title, PASS, Sentence("manager-running", runs))


def unmanaged(fabric: FabricFacts) -> tuple[LocalPort, ...]:
    """Return the ports behind which our opensm is the only subnet manager known."""
    ours = {one.guid for one in fabric.processes if one.is_ours}
    return tuple(
        one.port
        for one in fabric.subnets
        if one.master is not None
        and one.master.guid in ours
        and len(one.managers or ()) < 2
    )
