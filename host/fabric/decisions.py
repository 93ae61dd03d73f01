# SPDX-License-Identifier: GPL-2.0-or-later
"""Decide what the policy wants of the fabric and of opensm, and whether it is so. Pure.

A fabric has one master. Of two subnet managers the one with the higher priority is it,
at equal priority the one with the lower GUID (opensm 3.3.23, include/opensm/osm_sm.h,
osm_sm_is_greater_than(); InfiniBand 1.3, 14.4.1.2). So we start one only where the
policy names the host, and only if it is known which of them will be master.

The policy's partitions become definitions of partitions.conf and the step that writes
them; what the file says is compared with what the fabric has, and reviewed. The fabric
is checked at each port of a host: subnet manager, P_Keys, groups.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import NamedTuple, Optional, Union

from ovirt_rdma.host.errors import Problem, Sentence
from ovirt_rdma.host.fabric.partitions_conf import (
    Definition,
    Member,
    by_pkey,
    guid_text,
    render,
)
from ovirt_rdma.host.fabric.subnet import (
    MASTER,
    STANDBY,
    BroadcastGroup,
    FabricFacts,
    LocalPort,
    Manager,
    Subnet,
)
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
from ovirt_rdma.host.facts.model import Unit
from ovirt_rdma.host.paths import OPENSM_SETTINGS_FILE, OPENSM_UNIT
from ovirt_rdma.host.policy.fabric import FabricPolicy, PartitionRule, SubnetManagerRule
from ovirt_rdma.host.rules.base import (
    HOST,
    LIVE,
    OPENSM_FILE,
    OPENSM_SETTINGS,
    UNIT,
    About,
    Change,
    Finding,
    Step,
)
from ovirt_rdma.host.system.files import foreign_reason, own_text

RULE = "FABRIC-SM-02"
STEP = f"{RULE}/{HOST}"
VERB = "ovirt-rdma-host fabric sm"
ENABLE = f"{VERB} enable"
LOG = "/var/log/ovirt-rdma-opensm/{}.log"
# opensm empties its log at that size (opensm(8), --log_limit).
_LOG_MB = 16
ENABLED, _DISABLED = "enabled", "disabled"
# The states of a port with a link (include/uapi/rdma/ib_user_verbs.h).
_WITH_LINK = ("INIT", "ARMED", "ACTIVE")


@dataclass(frozen=True)
class ManagerFacts:
    """What is decided from, besides the policy.

    ``no_tools`` says why the subnet manager cannot be asked, ``partitions`` is the file
    that opensm will read, and ``partitions_wrong`` why it must not. ``others`` are the
    units of the distribution's subnet managers. ``settings`` has the text of our
    settings, and ``units`` the state of our unit (None: not installed), by GUID.
    ``reachable`` has the GUIDs of all ports behind a port, None if that is unknown.
    """

    fabric: FabricFacts
    installed: bool
    partitions: str
    no_tools: Optional[Sentence] = None
    partitions_wrong: Optional[Problem] = None
    others: tuple[Unit, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    units: Mapping[str, Optional[str]] = field(default_factory=dict)
    reachable: Mapping[str, Optional[frozenset[str]]] = field(default_factory=dict)

    def runs_at(self, guid: str) -> bool:
        """Whether our opensm is set up at the port with ``guid``."""
        return guid in self.settings and self.units.get(guid) == ENABLED


class PlannedPort(NamedTuple):
    """A port at which opensm is to run, the state that it will have (MASTER or
    STANDBY), and why.
    """

    port: LocalPort
    priority: int
    state: str
    reason: str


@dataclass(frozen=True)
class ManagerPlan:
    """``step`` makes it so, None if it is so already. ``refusals`` are data: with any,
    nothing may be done.
    """

    ports: tuple[PlannedPort, ...] = ()
    step: Optional[Step] = None
    refusals: tuple[Problem, ...] = ()


def rules_of(
    policy: FabricPolicy, fabric: FabricFacts
) -> tuple[SubnetManagerRule, ...]:
    """Return the subnet managers of the policy that are this host: none, one, or
    several by mistake.
    """
    guids = [one.port.port.guid or "" for one in fabric.subnets]
    return policy.managers_of(fabric.hostname, guids)


def ports_of(
    rule: SubnetManagerRule, ports: Sequence[LocalPort]
) -> tuple[list[LocalPort], list[Problem]]:
    """Return those of this host's InfiniBand ``ports`` that ``rule`` means, and why
    there is none for a part of it.
    """
    linked = [port for port in ports if port.port.state in _WITH_LINK]
    named = [guid for guid in rule.ports if guid != ALL]
    meant = [one for one in ports if one.port.guid in named] if named else linked
    refusals = []
    for guid in named:
        if guid not in [one.port.guid for one in meant]:
            why = f"{guid} is not an InfiniBand port of this host"
            fix = "correct ports of this host in fabric.subnet_managers"
            refusals.append(Problem("port-unknown", why, fix))
    if not ports and not named:
        why, fix = "this host has no InfiniBand port", "see ovirt-rdma-host facts"
        refusals.append(Problem("no-infiniband-port", why, fix))
    for port in meant or (() if named else ports):
        if port not in linked:
            why = f"{port.port.state}, {port.port.physical_state}"
            fix = "connect its cable; see ovirt-rdma-host check: IB-PORT-01"
            text = f"{port.title} has no link ({why})"
            refusals.append(Problem("port-without-link", text, fix))
    if len(linked) > 1 and not rule.ports:
        titles = ", ".join(one.title for one in linked)
        fix = (
            f"write ports of {rule.host} in fabric.subnet_managers: GUIDs, or [ALL] if "
            "each port has a subnet of its own"
        )
        why = (
            f"several ports have a link ({titles}), and the policy does not say at "
            "which of them opensm is to run"
        )
        return [], [Problem("ports-not-named", why, fix)]
    return [port for port in meant if port in linked], refusals


def decide(policy: FabricPolicy, facts: ManagerFacts) -> ManagerPlan:
    """Return what has to be done so that opensm runs as ``policy`` says."""
    rules = rules_of(policy, facts.fabric)
    if len(rules) != 1:
        return ManagerPlan(refusals=(_not_one(rules, facts),))
    rule = rules[0]
    refusals = list(_of_host(facts))
    ports, missing = ports_of(rule, [one.port for one in facts.fabric.subnets])
    refusals += missing
    planned = []
    for port in ports:
        refusals += _of_port(port, facts)
        found = _planned(port, rule, policy, facts)
        if isinstance(found, Problem):
            refusals.append(found)
        else:
            planned.append(found)
    if len(ports) > 1:
        refusals += _of_one_subnet(ports, facts)
    if refusals:
        # A process that names no port is a reason at each.
        return ManagerPlan(refusals=tuple({str(one): one for one in refusals}.values()))
    return ManagerPlan(tuple(planned), _step(planned, facts))


def _not_one(rules: Sequence[SubnetManagerRule], facts: ManagerFacts) -> Problem:
    host = facts.fabric.hostname
    if not rules:
        fix = (
            "if no switch has a subnet manager, name this host there, load the policy, "
            "and run this again"
        )
        why = f"the policy does not name {host} in fabric.subnet_managers"
        return Problem("host-not-named", why, fix)
    names = " and ".join(rule.host for rule in rules)
    why = f"both {names} of fabric.subnet_managers are this host ({host})"
    return Problem("host-named-twice", why, "remove one of them")


def _of_host(facts: ManagerFacts) -> Iterator[Problem]:
    if not facts.installed:
        missing = "opensm is not installed on this host"
        yield Problem("opensm-missing", missing, "install the package opensm")
    if facts.no_tools is not None:
        why = (
            f"{facts.no_tools}, so it is unknown if the fabric has a subnet manager "
            "already"
        )
        fix = "install the package infiniband-diags"
        yield Problem(facts.no_tools.id, why, fix)
    for unit in facts.others:
        if unit.active == "active" or unit.enabled.startswith(ENABLED):
            state = "active" if unit.active == "active" else "enabled"
            fix = f"systemctl disable --now {unit.name}"
            why = f"{unit.name} is {state}, which is not ours"
            yield Problem("subnet-manager-unit", why, fix)
    if facts.partitions_wrong is not None:
        yield facts.partitions_wrong


def _of_port(port: LocalPort, facts: ManagerFacts) -> Iterator[Problem]:
    for process in facts.fabric.processes:
        if process.is_ours or process.guid not in (None, port.guid):
            continue
        at = f"at {port.title}" if process.guid else "at a port that it does not name"
        fix = f"end it where it was started: systemctl status {process.pid}"
        why = f"another opensm (process {process.pid}) is running {at}"
        yield Problem("another-opensm", why, fix)
    if facts.units.get(port.guid) is None:
        why = f"systemd has no unit {OPENSM_UNIT.format(port.guid)}"
        yield Problem("unit-missing", why, "install the package ovirt-rdma-host")
    text = facts.settings.get(port.guid)
    path = OPENSM_SETTINGS_FILE.format(port.guid)
    foreign = "" if text is None else foreign_reason(path, text)
    if foreign:
        fix = "move the file away, if ovirt-rdma may write it"
        yield Problem("file-not-ours", foreign, fix)


def _planned(
    port: LocalPort, rule: SubnetManagerRule, policy: FabricPolicy, facts: ManagerFacts
) -> Union[PlannedPort, Problem]:
    """Return what opensm will be at ``port``, or why it must not be started there."""
    subnet = next(one for one in facts.fabric.subnets if one.port == port)
    master = subnet.master
    ours = facts.runs_at(port.guid)
    if master is None:
        if rule.standby and not ours:
            why = (
                "the policy says standby, and no subnet manager answers at "
                f"{port.title}"
            )
            fix = "start the one to stand by for, or remove standby from the policy"
            return Problem("nothing-to-stand-by-for", why, fix)
        why = "no subnet manager answers there"
        return PlannedPort(port, rule.priority, MASTER, why)
    refused = None if ours else _beside(port, master, rule, policy, facts)
    if refused is not None:
        return refused
    if master.guid != port.guid:
        state = MASTER if _is_higher(rule, port, master) else STANDBY
        why = f"{_title(master)} is the master there now"
        return PlannedPort(port, rule.priority, state, why)
    # Started again with another priority, it leaves the fabric to a higher one.
    for other in subnet.managers or ():
        if other.guid != port.guid and not _is_higher(rule, port, other):
            why = f"{_title(other)} is on standby there now"
            return PlannedPort(port, rule.priority, STANDBY, why)
    return PlannedPort(port, rule.priority, MASTER, "it is the master there now")


def _beside(
    port: LocalPort,
    master: Manager,
    rule: SubnetManagerRule,
    policy: FabricPolicy,
    facts: ManagerFacts,
) -> Optional[Problem]:
    """Return why opensm must not be started at ``port`` beside ``master``."""
    # Another opensm that is seen is refused in any case.
    seen = any(one.guid in (None, port.guid) for one in facts.fabric.processes)
    if master.guid == port.guid:
        why = f"a subnet manager that is no process here runs at {port.title}"
        fix = "look for it in containers, and end it"
        return None if seen else Problem("manager-not-seen", why, fix)
    if master.guid in facts.fabric.guids:
        why = f"this host runs the subnet manager of {port.title} at {master.guid}"
        fix = f"keep that port in the policy, or first: {VERB} disable"
        return Problem("manager-at-other-port", why, fix)
    if rule.standby and _is_higher(rule, port, master):
        why = (
            f"the policy says standby, and with priority {rule.priority} opensm would "
            f"take over from {_title(master)} at {port.title}"
        )
        fix = "give that one a higher priority"
        if master.priority:
            fix = f"write a priority below {master.priority} for {rule.host}, or {fix}"
        return Problem("standby-too-high", why, fix)
    if rule.standby or master.guid in map(guid_text, policy.manager_guids):
        return None
    why = (
        f"the subnet manager of {port.title} is {_title(master)}, which the policy "
        "does not name"
    )
    fix = (
        "stop that one; or name its host in fabric.subnet_managers, with its GUID in "
        f"fabric.hosts; or let {rule.host} stand by for it: standby: on, and a "
        "priority below its own"
    )
    return Problem("foreign-master", why, fix)


def _is_higher(rule: SubnetManagerRule, port: LocalPort, master: Manager) -> bool:
    """Whether opensm at ``port`` takes over from ``master``."""
    return (rule.priority, -int(port.guid, 16)) > (
        master.priority,
        -int(master.guid, 16),
    )


def _title(manager: Manager) -> str:
    return f"{manager.guid} with priority {manager.priority}"


def _of_one_subnet(
    ports: Sequence[LocalPort], facts: ManagerFacts
) -> Iterator[Problem]:
    """Yield why two of ``ports`` must not both have an opensm."""
    for port in ports:
        if facts.reachable.get(port.guid) is None:
            why = f"ibnetdiscover does not say what is behind {port.title}"
            fix = f"try it: ibnetdiscover -C {port.device} -P {port.number}"
            yield Problem("topology-unknown", why, fix)
    for port, other in combinations(ports, 2):
        if other.guid in (facts.reachable.get(port.guid) or ()):
            why = (
                f"{port.title} and {other.title} are in one subnet, which needs one "
                "opensm"
            )
            fix = "name one of them in ports of this host in fabric.subnet_managers"
            yield Problem("ports-in-one-subnet", why, fix)


def settings_text(guid: str, priority: int, partitions: str) -> str:
    """Return the settings of opensm for one port (opensm/osm_subnet.c, opt_tbl)."""
    lines = (
        f"guid {guid}",
        f"sm_priority {priority}",
        f"partition_config_file {partitions}",
        f"log_file {LOG.format(guid)}",
        f"log_max_size {_LOG_MB}",
    )
    return own_text(lines, "fabric sm enable")


def _step(planned: Sequence[PlannedPort], facts: ManagerFacts) -> Optional[Step]:
    changes: list[Change] = []
    for one in planned:
        guid = one.port.guid
        text = settings_text(guid, one.priority, facts.partitions)
        before = facts.settings.get(guid)
        if before != text:
            path = OPENSM_SETTINGS_FILE.format(guid)
            changes.append(Change(OPENSM_SETTINGS, path, before, text))
        state = facts.units.get(guid)
        if state != ENABLED:
            changes.append(unit_change(guid, state or _DISABLED, ENABLED))
    for guid in sorted(facts.settings.keys() - {one.port.guid for one in planned}):
        path, text = OPENSM_SETTINGS_FILE.format(guid), facts.settings[guid]
        if foreign_reason(path, text):
            continue
        if facts.runs_at(guid):
            changes.append(unit_change(guid, ENABLED, _DISABLED))
        changes.append(Change(OPENSM_SETTINGS, path, text, None))
    if not changes:
        return None
    present = sorted(guid for guid in facts.settings if facts.runs_at(guid))
    return Step(
        rule=RULE,
        subject=HOST,
        sentence="run opensm as the policy says",
        before=f"at {', '.join(present)}" if present else "no opensm of ovirt-rdma",
        after="; ".join(
            f"{one.state} at {one.port.title} with priority {one.priority}"
            for one in planned
        ),
        effect=LIVE,
        reason="; ".join(f"{one.port.title}: {one.reason}" for one in planned),
        undo=f"{VERB} disable",
        changes=tuple(changes),
    )


def unit_change(guid: str, before: Optional[str], after: str) -> Change:
    """Return the change of our unit of the port with ``guid``."""
    return Change(UNIT, OPENSM_UNIT.format(guid), before, after, ENABLED)


PARTITIONS_RULE = "FABRIC-PARTITIONS-01"


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
            name = port if port in PORT_WORDS else guid_text(port)
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


def step_of(
    path: str, before: Optional[str], definitions: Sequence[Definition]
) -> Optional[Step]:
    """Return the step that writes ``definitions`` to ``path``; None if ``before``, its
    present text, is that already.
    """
    after = render(definitions)
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


def findings(policy: FabricPolicy, fabric: FabricFacts) -> Iterator[Finding]:
    """Yield what is so and what is not, port by port; and whether our opensm runs if
    ``policy`` names this host, and only then. P_Keys are compared if it has partitions.
    """
    definitions = definitions_of(policy)
    named = {member.port for one in definitions for member in one.members}
    guids = [guid for host in policy.hosts for guid in host.guids]
    named.update(map(guid_text, policy.manager_guids.union(guids)))
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
    yield from _of_our_opensm(policy, fabric)


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
    if subnet.master is None:  # SELF may be this port
        with_self = membership(definitions, guid, manager=True)
        without = membership(definitions, guid, manager=False)
        unknown = {key for key, kind in with_self.items() if without.get(key) != kind}
        definitions = [one for one in definitions if one.pkey not in unknown]
        table = [one for one in table if partition_bits(one) not in unknown]
        for pkey in sorted(unknown):
            yield About(PKEYS, title).skips(
                f"{full_member(pkey)} is not compared: it has SELF, and the subnet "
                "manager is unknown"
            )
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
    others = [one for one in subnet.managers or () if one.state != MASTER]
    if others:
        shown = ", ".join(f"{_title(one)} is {one.state}" for one in others)
        yield about.warns(f"{shown}; all of them need the same partitions.conf")


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


def _of_our_opensm(policy: FabricPolicy, fabric: FabricFacts) -> Iterator[Finding]:
    rules = rules_of(policy, fabric)
    titles = {one.port.guid: one.port.title for one in fabric.subnets}
    if rules and fabric.ours:
        yield from _without_our_opensm(rules[0], fabric)
    elif rules:
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
        elif process.guid not in _meant_ports(rules[0], fabric):
            text = f"{runs}, and the policy does not name this port"
            yield about.fails(text, ENABLE)
        elif process.priority != rules[0].priority:
            text = f"{runs}, and the policy says {rules[0].priority}"
            yield about.fails(text, ENABLE)
        else:
            yield about.passes(runs)


def _without_our_opensm(
    rule: SubnetManagerRule, fabric: FabricFacts
) -> Iterator[Finding]:
    """Yield the ports of ``rule`` at which our opensm should run, and does not."""
    running = [process.guid for process in fabric.ours]
    ports, refusals = ports_of(rule, [one.port for one in fabric.subnets])
    for port in ports:
        if port.guid not in running:
            yield About(RULE, port.title).fails(
                "the policy names this port in fabric.subnet_managers, and no opensm "
                "of ovirt-rdma is running there",
                ENABLE,
            )
    for refusal in refusals:
        if refusal.id == "port-unknown":
            yield About(RULE, rule.host).fails(str(refusal), refusal.fix)


def _meant_ports(rule: SubnetManagerRule, fabric: FabricFacts) -> frozenset[str]:
    """Return the GUIDs at which ``rule`` lets our opensm run, with a link or without;
    all, if it does not say which.
    """
    ports, _ = ports_of(rule, [one.port for one in fabric.subnets])
    if rule.ports:
        found = frozenset(guid_text(port) for port in rule.ports if port != ALL)
    else:
        found = frozenset(port.guid for port in ports)
    return found or fabric.guids
