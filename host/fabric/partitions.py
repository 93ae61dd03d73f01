# SPDX-License-Identifier: GPL-2.0-or-later
"""Decide which partitions a fabric should have, and whether it has them. Pure.

The policy's partitions become definitions of partitions.conf and the step that writes
them; what the file says is compared with what the fabric has, and reviewed. The fabric
is checked at each port of a host: subnet manager, P_Keys, groups.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Optional

from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.fabric.manager import ENABLE, RULE, VERB, rules_of
from ovirt_rdma.host.fabric.partitions_conf import (
    Definition,
    Member,
    by_pkey,
    guid_text,
    render,
)
from ovirt_rdma.host.fabric.subnet import MASTER, BroadcastGroup, FabricFacts, Subnet
from ovirt_rdma.host.facts.infiniband import (
    ALL,
    ALL_CAS,
    DEFAULT_NAME,
    DEFAULT_PARTITION,
    FULL,
    LIMITED,
    MTU_CODES,
    MTUS,
    PORT_WORDS,
    RATE_CODES,
    RATES,
    SELF,
    full_member,
    full_member_bits,
    group_text,
    partition_bits,
    partition_of,
)
from ovirt_rdma.host.policy.fabric import FabricPolicy, PartitionRule
from ovirt_rdma.host.rules.base import (
    HOST,
    LIVE,
    OPENSM_FILE,
    About,
    Change,
    Finding,
    Step,
)

PARTITIONS_RULE = "FABRIC-PARTITIONS-01"
_HEAD = (
    "Partitions of the InfiniBand fabric, for opensm.",
    "Made from the policy of ovirt-rdma by: ovirt-rdma-host fabric partitions render",
    "To keep the file as it is, add a line that reads: # mine",
)


def definitions_of(fabric: FabricPolicy) -> tuple[Definition, ...]:
    """Return the definitions that the policy describes; none without partitions.

    The default partition is always the first: without a definition, opensm makes all
    ports but its own limited members, and no broadcast group.
    """
    found = [_definition(rule, fabric) for rule in fabric.partitions]
    if found and all(one.pkey != DEFAULT_PARTITION for one in found):
        everyone = (Member(ALL, FULL),)
        found.append(
            Definition(DEFAULT_NAME, DEFAULT_PARTITION, True, members=everyone)
        )
    return tuple(sorted(found, key=lambda one: one.pkey != DEFAULT_PARTITION))


def _definition(rule: PartitionRule, fabric: FabricPolicy) -> Definition:
    members: list[Member] = []
    for text in rule.members:
        who, _, membership = text.rpartition("=")
        for port in fabric.guids_of(who) or (who,):
            name = port
            if port not in PORT_WORDS:
                name = guid_text(int(port.replace(":", ""), 16))
            members.append(Member(name, membership))
    # The last membership of a port counts in opensm: what names many comes first.
    # PORT_WORDS are in that order.
    order = {word: number for number, word in enumerate(PORT_WORDS)}
    members.sort(key=lambda one: order.get(one.port, len(order)))
    flags = {}
    if rule.mtu is not None:
        flags["mtu"] = MTU_CODES[rule.mtu]
    if rule.rate is not None:
        flags["rate"] = RATE_CODES[rule.rate]
    pkey = partition_bits(int(rule.pkey, 16))
    return Definition(rule.name, pkey, rule.ipoib, flags=flags, members=tuple(members))


def text_of(definitions: Sequence[Definition]) -> str:
    """Return partitions.conf with ``definitions``, below a comment on its origin."""
    return render(definitions, _HEAD)


def step_of(
    path: str, before: Optional[str], definitions: Sequence[Definition]
) -> Optional[Step]:
    """Return the step that writes ``definitions`` to ``path``; None if ``before``, its
    present text, is that already.
    """
    after = text_of(definitions)
    if before == after:
        return None
    number = len({one.pkey for one in definitions})
    return Step(
        rule=PARTITIONS_RULE,
        subject=HOST,
        sentence=f"write {path}",
        before="no file" if before is None else "another text",
        after=f"{number} partition{'' if number == 1 else 's'}",
        effect=LIVE,
        reason=f"the policy describes the partitions of the fabric; {path} differs",
        source="opensm(8), PARTITION CONFIGURATION",
        undo="the earlier text is written again",
        changes=(Change(OPENSM_FILE, path, before, after),),
    )


def membership(
    definitions: Iterable[Definition], guid: str, *, manager: bool
) -> dict[int, str]:
    """Return the partitions of the host's port ``guid`` by P_Key (15 bits), as FULL or
    LIMITED. ``manager``: opensm runs at it.

    The last definition that names the port counts (osm_prtn_add_port, opensm 3.3.23).
    """
    names = {ALL, ALL_CAS, guid, *([SELF] if manager else [])}
    return {
        one.pkey: LIMITED if member.membership == LIMITED else FULL
        for one in definitions
        for member in one.members
        if member.port in names
    }


def unlike(
    definitions: Sequence[Definition],
    groups: Optional[Sequence[BroadcastGroup]],
    tables: Mapping[str, Optional[Collection[int]]],
    managers: Collection[str],
    asked_by: str,
) -> tuple[Sentence, ...]:
    """Return how the fabric differs from ``definitions``, one sentence each.

    ``groups`` are the broadcast groups that the port ``asked_by`` can see, None if they
    are unknown: opensm shows a port only those of its own partitions. ``tables`` has
    the P_Key tables of ports, None for one that is not in the fabric. ``managers`` are
    the GUIDs of the ports with opensm.
    """
    own = membership(definitions, asked_by, manager=asked_by in managers)
    found: list[Sentence] = []
    if groups is not None:
        found += _of_groups([one for one in definitions if one.pkey in own], groups)
    for guid, table in tables.items():
        if table is not None:
            desired = membership(definitions, guid, manager=guid in managers)
            found += _of_table(guid, desired, table)
    return tuple(found)


def _of_groups(
    definitions: Sequence[Definition], groups: Sequence[BroadcastGroup]
) -> Iterator[Sentence]:
    present = {group.pkey: group for group in groups}
    for pkey, same in by_pkey(definitions).items():
        one = next((one for one in same if one.ipoib), None)
        if one is None:
            continue
        group = present.get(pkey)
        if group is None:
            text = f"{one.title} has no broadcast group"
            yield Sentence("broadcast-group-missing", text)
        elif (group.mtu, group.rate) != (one.mtu, one.rate):
            # osm_mcmr_rcv_find_or_create_new_mgrp() returns the group that exists.
            yield Sentence(
                "broadcast-group-differs",
                f"the broadcast group of {one.title} has "
                f"{group_text(group.mtu, group.rate)}, not "
                f"{group_text(one.mtu, one.rate)}; opensm keeps the MTU and rate of a "
                "group as long as a port is in it",
            )


def _of_table(
    guid: str, desired: Mapping[int, str], table: Collection[int]
) -> Iterator[Sentence]:
    for pkey, kind in desired.items():
        full = full_member_bits(pkey)
        if (full if kind == FULL else pkey) not in table:
            other = "is no member" if not {pkey, full} & set(table) else "is not that"
            text = f"{guid} should be a {kind} member of {full_member(pkey)}, and"
            yield Sentence("port-not-member", f"{text} {other}")
    for pkey in sorted({partition_bits(one) for one in table} - desired.keys()):
        # opensm always makes every port at least a limited member of the default one.
        if pkey != DEFAULT_PARTITION:
            text = f"{guid} is a member of {full_member(pkey)}, and should not be"
            yield Sentence("port-is-member", text)


def remarks(definitions: Sequence[Definition]) -> tuple[Sentence, ...]:
    """Return a sentence for each way in which the default partition is valid, and keeps
    ports from each other.
    """
    default = by_pkey(definitions).get(DEFAULT_PARTITION, [])
    if not default:
        text = (
            "there is no default partition (0x7fff): all ports but the subnet "
            "manager's become limited members, which do not reach each other, and it "
            f"has no broadcast group; write {DEFAULT_NAME}=0x7fff,ipoib : ALL=full ;"
        )
        return (Sentence("default-partition-undefined", text),)
    found = []
    if not any(one.ipoib for one in default):
        text = (
            "the default partition has no broadcast group, so the base netdevs of "
            "IPoIB have no carrier; write ipoib in its definition, unless no host uses "
            "them"
        )
        found.append(Sentence("default-partition-without-ipoib", text))
    members = [member for one in default for member in one.members]
    if not any(one.membership != LIMITED and one.port != SELF for one in members):
        text = (
            "the default partition has no full member but at most the subnet manager's "
            "port (SELF), so that no other port reaches another there"
        )
        found.append(Sentence("default-partition-limited", text))
    return tuple(found)


PORT, MANAGER = "FABRIC-PORT-01", "FABRIC-SM-01"
PKEYS, GROUP = "FABRIC-PKEY-01", "FABRIC-GROUP-01"


def findings(
    fabric: FabricFacts, definitions: Sequence[Definition]
) -> Iterator[Finding]:
    """Yield what is so and what is not, port by port.

    ``definitions`` are the partitions of the policy, none if it has none: then P_Keys
    are not compared.
    """
    named = {member.port for one in definitions for member in one.members}
    for subnet in fabric.subnets:
        port, about = subnet.port.port, About(PORT, subnet.port.title)
        text = f"the port is {port.state} ({port.physical_state})"
        if port.is_active:
            yield from _managers(subnet, fabric)
            if definitions:
                yield from _partitions(subnet, fabric, definitions)
            yield from _groups(subnet)
        elif subnet.port.guid in named:
            yield about.fails(text, "see ovirt-rdma-host check: IB-PORT-01")
        else:
            yield about.skips(f"{text}, and the policy does not name it")
    if not fabric.subnets:
        yield About(PORT).skips("this host has no InfiniBand port")


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
        yield About(rule, title).fails(sentence, fix)
    if not of_port:
        keys = membership(definitions, guid, manager=guid in managers)
        shown = ", ".join(map(full_member, keys)) or "none"
        yield About(PKEYS, title).passes(f"its P_Keys are as the policy says: {shown}")


def _managers(subnet: Subnet, fabric: FabricFacts) -> Iterator[Finding]:
    about, master = About(MANAGER, subnet.port.title), subnet.master
    if master is None:
        if any(one.id == "fabric-tool-missing" for one in subnet.problems):
            yield about.skips(f"not checked: {subnet.problems[0]}")
        else:
            fix = "see the log of the subnet manager, and sminfo(8)"
            yield about.fails("the subnet manager does not answer sminfo", fix)
        return
    where = "this host" if master.guid in fabric.guids else master.guid
    at = f"at {where}, LID {master.lid}, priority {master.priority}"
    yield about.passes(f"the subnet manager is {at}")
    if subnet.several_masters:
        fix = "stop all but one; different sm_key settings keep them from agreeing"
        yield about.fails(subnet.several_masters, fix)
    standby = {one.guid for one in subnet.managers or () if one.state != MASTER}
    if standby:
        yield about.warns(
            f"{len(standby)} more on standby, of these {len(standby - fabric.guids)} "
            "on other hosts or switches; all of them need the same partitions.conf"
        )


def _groups(subnet: Subnet) -> Iterator[Finding]:
    """Yield whether the port can be in the groups of its P_Keys."""
    port, about = subnet.port.port, About(GROUP, subnet.port.title)
    keys = {partition_of(one.value) for one in port.pkeys}
    for group in subnet.groups or ():
        if group.pkey not in keys:
            continue
        name = f"the broadcast group of {full_member(group.pkey)}"
        mtu, rate = MTUS.get(group.mtu), RATES.get(group.rate)
        why = ""
        if mtu and port.active_mtu and port.active_mtu < mtu:
            why = f"has MTU {port.active_mtu}, not {mtu}"
        if rate and port.rate_mbps and port.rate_mbps < rate:
            why = f"has {port.rate_mbps / 1000:g} Gb/s, not {rate / 1000:g}"
        if why:
            yield about.fails(
                f"{name} is not for this port, which {why}; its IPoIB netdev has no "
                "carrier there",
                "set mtu and rate of the partition to what the slowest port can do",
            )
        else:
            yield about.passes(f"{name} has {group_text(group.mtu, group.rate)}")


def own_findings(policy: FabricPolicy, fabric: FabricFacts) -> Iterator[Finding]:
    """Yield whether our opensm runs if ``policy`` names this host, and only then."""
    rules = rules_of(policy, fabric)
    titles = {one.port.guid: one.port.title for one in fabric.subnets}
    if rules and not fabric.ours:
        yield About(RULE).fails(
            "the policy names this host in fabric.subnet_managers, and no opensm of "
            "ovirt-rdma is running",
            ENABLE,
        )
    for process in fabric.ours:
        about = About(RULE, titles.get(process.guid or "", process.guid or ""))
        runs = f"opensm of ovirt-rdma is running with priority {process.priority}"
        if not rules:
            text = f"{runs}, and the policy does not name this host"
            yield about.fails(text, f"{VERB} disable")
        elif process.priority != rules[0].priority:
            text = f"{runs}, and the policy says {rules[0].priority}"
            yield about.fails(text, ENABLE)
        else:
            yield about.passes(runs)
