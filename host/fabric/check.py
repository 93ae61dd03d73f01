# SPDX-License-Identifier: GPL-2.0-or-later
"""Check the fabric at each port of a host: subnet manager, P_Keys, groups. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.fabric.manager import ENABLE, RULE, VERB, rules_of
from ovirt_rdma.host.fabric.partitions import cannot_join, membership, unlike
from ovirt_rdma.host.fabric.partitions_conf import Definition
from ovirt_rdma.host.fabric.subnet import MASTER, FabricFacts, Subnet
from ovirt_rdma.host.facts.infiniband import full_member, group_text, partition_of
from ovirt_rdma.host.policy.fabric import FabricPolicy
from ovirt_rdma.host.rules.base import FAIL, HOST, PASS, SKIP, WARN, Finding

PORT, MANAGER, PKEYS, GROUP = (
    "FABRIC-PORT-01",
    "FABRIC-SM-01",
    "FABRIC-PKEY-01",
    "FABRIC-GROUP-01",
)


def findings(
    fabric: FabricFacts, definitions: Sequence[Definition]
) -> Iterator[Finding]:
    """Yield what is so and what is not, port by port.

    ``definitions`` are the partitions of the policy, none if it has none: then P_Keys
    are not compared.
    """
    for subnet in fabric.subnets:
        if subnet.port.port.is_active:
            yield from _managers(subnet, fabric)
            if definitions:
                yield from _partitions(subnet, fabric, definitions)
            yield from _groups(subnet)
        else:
            yield _without_link(subnet, definitions)
    if not fabric.subnets:
        none = Sentence("no-infiniband-port", "this host has no InfiniBand port")
        yield Finding(PORT, HOST, SKIP, none)


def _without_link(subnet: Subnet, definitions: Sequence[Definition]) -> Finding:
    port = subnet.port
    text = f"the port is {port.port.state} ({port.port.physical_state})"
    if any(member.port == port.guid for one in definitions for member in one.members):
        sentence = Sentence("port-not-active", text)
        fix = "see ovirt-rdma-host check: IB-PORT-01"
        return Finding(PORT, port.title, FAIL, sentence, fix)
    sentence = Sentence("port-not-active", f"{text}, and the policy does not name it")
    return Finding(PORT, port.title, SKIP, sentence)


def _partitions(
    subnet: Subnet, fabric: FabricFacts, definitions: Sequence[Definition]
) -> Iterator[Finding]:
    guid, title = subnet.port.guid, subnet.port.title
    managers = {subnet.master.guid} if subnet.master else set()
    fix = "ovirt-rdma-host fabric partitions apply"
    if not managers & fabric.guids:
        fix = (
            "ovirt-rdma-host fabric partitions render: give that to the subnet "
            "manager's host or switch"
        )
    table = [int(one.value, 16) for one in subnet.port.port.pkeys]
    wrong = unlike(definitions, subnet.groups, {guid: table}, managers, guid)
    of_port = [one for one in wrong if one.id.startswith("port-")]
    for sentence in wrong:
        rule = PKEYS if sentence in of_port else GROUP
        yield Finding(rule, title, FAIL, sentence, fix)
    if not of_port:
        keys = membership(definitions, guid, manager=guid in managers)
        text = ", ".join(map(full_member, keys)) or "none"
        sentence = Sentence(
            "pkeys-as-policy", f"its P_Keys are as the policy says: {text}"
        )
        yield Finding(PKEYS, title, PASS, sentence)


def _managers(subnet: Subnet, fabric: FabricFacts) -> Iterator[Finding]:
    title, master = subnet.port.title, subnet.master
    if master is None:
        if any(one.id == "fabric-tool-missing" for one in subnet.problems):
            sentence = Sentence(
                "subnet-manager-unasked", f"not checked: {subnet.problems[0]}"
            )
            yield Finding(MANAGER, title, SKIP, sentence)
        else:
            sentence = Sentence(
                "subnet-manager-silent", "the subnet manager does not answer sminfo"
            )
            fix = "see the log of the subnet manager, and sminfo(8)"
            yield Finding(MANAGER, title, FAIL, sentence, fix)
        return
    where = "this host" if master.guid in fabric.guids else master.guid
    sentence = Sentence(
        "subnet-manager-answers",
        f"the subnet manager is at {where}, LID {master.lid}, priority "
        f"{master.priority}",
    )
    yield Finding(MANAGER, title, PASS, sentence)
    if subnet.several_masters:
        fix = "stop all but one; different sm_key settings keep them from agreeing"
        yield Finding(MANAGER, title, FAIL, subnet.several_masters, fix)
    standby = {one.guid for one in subnet.managers or () if one.state != MASTER}
    if standby:
        sentence = Sentence(
            "standby-managers",
            f"{len(standby)} more on standby, of these {len(standby - fabric.guids)} "
            "on other hosts or switches; all of them need the same partitions.conf",
        )
        yield Finding(MANAGER, title, WARN, sentence)


def _groups(subnet: Subnet) -> Iterator[Finding]:
    """Yield whether the port can be in the groups of its P_Keys."""
    port = subnet.port.port
    keys = {partition_of(one.value) for one in port.pkeys}
    for group in subnet.groups or ():
        if group.pkey not in keys:
            continue
        name = f"the broadcast group of {full_member(group.pkey)}"
        has = group_text(group.mtu, group.rate)
        why = cannot_join(group.mtu, group.rate, port.active_mtu, port.rate_mbps)
        if why:
            sentence = Sentence(
                "port-too-slow",
                f"{name} is not for this port, which {why}; its IPoIB netdev has no "
                "carrier there",
            )
            fix = "set mtu and rate of the partition to what the slowest port can do"
            yield Finding(GROUP, subnet.port.title, FAIL, sentence, fix)
        else:
            sentence = Sentence("group-joinable", f"{name} has {has}")
            yield Finding(GROUP, subnet.port.title, PASS, sentence)


def own_findings(policy: FabricPolicy, fabric: FabricFacts) -> Iterator[Finding]:
    """Yield whether our opensm runs if ``policy`` names this host, and only then."""
    rules = rules_of(policy, fabric)
    titles = {one.port.guid: one.port.title for one in fabric.subnets}
    if rules and not fabric.ours:
        idle = Sentence(
            "manager-not-running",
            "the policy names this host in fabric.subnet_managers, and no opensm of "
            "ovirt-rdma is running",
        )
        yield Finding(RULE, HOST, FAIL, idle, ENABLE)
    for process in fabric.ours:
        guid = process.guid or ""
        title = titles.get(guid, guid)
        runs = f"opensm of ovirt-rdma is running with priority {process.priority}"
        if not rules:
            sentence = Sentence(
                "manager-not-named", f"{runs}, and the policy does not name this host"
            )
            yield Finding(RULE, title, FAIL, sentence, f"{VERB} disable")
        elif process.priority != rules[0].priority:
            sentence = Sentence(
                "manager-priority-differs",
                f"{runs}, and the policy says {rules[0].priority}",
            )
            yield Finding(RULE, title, FAIL, sentence, ENABLE)
        else:
            yield Finding(RULE, title, PASS, Sentence("manager-running", runs))
