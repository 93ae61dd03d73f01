# SPDX-License-Identifier: GPL-2.0-or-later
"""IPOIB-PKEY-01 and IPOIB-PKEY-02: check and create P_Key children. Pure.

IPOIB-PKEY-01 creates the children that the policy requires, and checks that the port is
a member of their partitions. IPOIB-PKEY-02 enables the unit that updates the children
from the port's P_Key table if the policy has ``partitions: follow``.
"""

from __future__ import annotations

from collections.abc import Iterator

from ovirt_rdma.host.facts.ipoib import DATAGRAM
from ovirt_rdma.host.facts.pkeys import is_full_member, partition_bits, partition_of
from ovirt_rdma.host.paths import NET_CLASS, PARTITIONS_UNIT
from ovirt_rdma.host.policy.model import (
    FOLLOW,
    names_port,
)
from ovirt_rdma.host.rules.base import (
    FAIL,
    HOST,
    LIVE,
    PASS,
    SKIP,
    SYSFS,
    WARN,
    Change,
    Finding,
    Outcome,
    Rule,
    Step,
)
from ovirt_rdma.host.rules.infiniband.children import (
    WantedChild,
    followed_partitions,
    follows,
    parents_first,
    required_children,
    table_entry,
)
from ovirt_rdma.host.rules.infiniband.choice import choose_mode
from ovirt_rdma.host.rules.infiniband.settings import is_managed, new_profile
from ovirt_rdma.host.rules.own_unit import OwnUnit, decide_unit
from ovirt_rdma.host.rules.view import Interface, View

FOLLOW_ID = "IPOIB-PKEY-02"
FOLLOW_SOURCE = "Linux drivers/infiniband/core/device.c: no uevent for a new P_Key"


_FOLLOWER = OwnUnit(
    FOLLOW_ID,
    PARTITIONS_UNIT,
    key="partitions: follow",
    running="follows the P_Key tables",
    kept="the children are unchanged",
    failed="so the children do not follow the P_Key tables",
    reason="the kernel sends no event for a new P_Key, so the unit reads the table "
    "every few seconds",
    source=FOLLOW_SOURCE,
    undo="; the children stay",
)


def decide_follow(view: View) -> Iterator[Outcome]:
    """Yield one finding for the host, and a step if the unit must be enabled."""
    parents = [interface.name for interface in view.ipoib if follows(interface)]
    outcomes = [
        *decide_unit(
            view,
            _FOLLOWER,
            f"the children of {', '.join(parents)} should follow the P_Key table"
            if view.policy.host.follows_partitions
            else "",
        )
    ]
    if not parents and any(isinstance(one, Step) for one in outcomes):
        sentence = "no rule with partitions: follow applies to an IPoIB netdev here"
        outcomes = [Finding(FOLLOW_ID, HOST, SKIP, sentence)]
    yield from outcomes


FOLLOW_RULE = Rule(FOLLOW_ID, decide_follow)

FOLLOW_RULES = (FOLLOW_RULE,)


ID = "IPOIB-PKEY-01"
SOURCE = "Linux Documentation/infiniband/ipoib.rst and ulp/ipoib/ipoib_vlan.c"


def decide(view: View) -> Iterator[Outcome]:
    """Yield findings for the required children and the existing ones."""
    none = True
    named = set()
    for child in required_children(view):
        none = False
        named.add(child.name)
        yield from _wanted(view, child)
    for interface in view.ipoib:
        if interface.is_child and interface.name not in named:
            none = False
            yield _existing(view, interface)
    for interface in view.ipoib:
        if follows(interface) and not followed_partitions(interface):
            none = False
            yield _without_children(interface)
    for finding in _without_parent(view):
        none = False
        yield finding
    if none:
        sentence = "there are no P_Key children, and the policy requires none"
        yield Finding(ID, "host", SKIP, sentence)


def _wanted(view: View, child: WantedChild) -> Iterator[Outcome]:
    name, parent = child.name, child.parent
    port = f"{parent.device.name}/{parent.port.number}"
    if child.member is None:
        table = f"the P_Key table of {port} could not be read"
        if parent.port.pkeys:
            table = f"the P_Key table of {port} has no {child.pkey}"
        state = f"{name} has no carrier" if child.exists else f"{name} is not created"
        yield Finding(ID, name, FAIL, f"{table}, so {state}", _fabric_fix(child))
        return
    limited = not is_full_member(child.member)
    if child.exists:
        sentence = f"{name} exists, for P_Key {child.pkey}"
        if not limited:
            yield Finding(ID, name, PASS, sentence)
    else:
        sentence = f"{name} will be created, for P_Key {child.pkey}"
        rule = parent.wanted.title if parent.wanted else "the policy"
        missing = f"{rule} requires {name}, which does not exist"
        if child.refused:
            missing += f"; {child.refused}"
        yield Finding(ID, name, FAIL, missing, child.fix)
        yield _step(view, child)
    if limited:
        yield Finding(
            ID,
            name,
            WARN,
            f"{sentence}, of which {port} is a limited member: it reaches full members "
            "only",
            "unless this is intended, set the port to full member in the subnet "
            "manager's partitions (=full in partitions.conf)",
        )


def _step(view: View, child: WantedChild) -> Step:
    parent = child.parent.name
    managed = is_managed(view, parent)
    if managed:
        mode = _mode(view, child)
        changes = new_profile(child.name, mode, parent, child.pkey)
        after = f"profile {child.name!r} on {parent}, P_Key {child.pkey}, {mode} mode"
        undo = f"deletes the profile, and NetworkManager removes {child.name}"
    else:
        folder = f"{NET_CLASS}/{parent}"
        changes = (Change(SYSFS, f"{folder}/create_child", None, child.pkey),)
        after = f"{child.name} on {parent}, P_Key {child.pkey}"
        undo = f"writes {child.pkey} to {folder}/delete_child"
    return Step(
        ID,
        child.name,
        f"create {child.name}",
        "none",
        after,
        LIVE,
        "the children follow the port's P_Key table"
        if follows(child.parent)
        else "the policy requires it, and the port is a member of its partition",
        SOURCE,
        undo,
        changes,
        refused=child.refused,
    )


def _mode(view: View, child: WantedChild) -> str:
    """Return the transport mode in which a child's profile is created."""
    planned = (
        interface
        for interface in parents_first(view)
        if interface.planned and interface.name == child.name
    )
    choice = next((choose_mode(view, interface) for interface in planned), None)
    return DATAGRAM if choice is None or choice.refused else choice.mode


def _without_children(parent: Interface) -> Finding:
    """Return the finding for a base netdev whose port has no partition to follow."""
    port = f"{parent.device.name}/{parent.port.number}"
    if not parent.port.pkeys:
        sentence = (
            f"the P_Key table of {port} could not be read, so no child follows it"
        )
        return Finding(ID, parent.name, FAIL, sentence)
    sentence = f"{port} is in no partition that needs a child of {parent.name}"
    return Finding(ID, parent.name, PASS, sentence)


def _existing(view: View, interface: Interface) -> Finding:
    """Return the finding for a child that the policy does not name; it is unchanged."""
    ipoib = interface.netdev.ipoib
    pkey = partition_of(ipoib.pkey if ipoib else None)
    name = interface.name
    shown = f"{name} (P_Key {ipoib.pkey if ipoib else None})"
    if pkey is None:
        return Finding(ID, name, WARN, f"the P_Key of {name} could not be read")
    if interface.port.pkeys and table_entry(interface.port, pkey) is None:
        fix = (
            "add the port to the partition in the subnet manager, or remove the child; "
            "it comes up by itself when the P_Key appears"
        )
        if any(p.name == interface.parent and follows(p) for p in view.ipoib):
            fix += (
                "; ovirt-rdma-partitions.service removes children that our runs "
                "created and that are not in use"
            )
        return Finding(
            ID,
            name,
            WARN,
            f"{shown} has no carrier: its P_Key is not in the port's table",
            fix,
        )
    return Finding(ID, name, PASS, f"{shown} is in a partition of its port")


def _without_parent(view: View) -> Iterator[Finding]:
    """Yield a finding for each port that needs children but has no IPoIB netdev."""
    for device in view.facts.rdma_devices:
        for port in device.ports:
            if any(interface.is_ipoib for interface in view.on_port(device, port)):
                continue
            for rule in view.policy.host.interfaces:
                wanted = rule.pkey_children or rule.partitions
                if wanted and names_port(rule, device, port):
                    subject = f"{device.name}/{port.number}"
                    keys = ", ".join(rule.pkey_children) or f"partitions: {FOLLOW}"
                    yield Finding(
                        ID,
                        subject,
                        FAIL,
                        f"{subject} has no IPoIB netdev for the children of "
                        f"{rule.title} ({keys})",
                        "modprobe ib_ipoib, and see IB-PORT-01 and DRIVER-01; a RoCE "
                        "port has no IPoIB",
                    )
                    break


def _fabric_fix(child: WantedChild) -> str:
    guid = (child.parent.port.guid or "GUID").replace(":", "")
    base = partition_bits(int(child.pkey, 16))
    return (
        "add the port to the partition in the subnet manager (opensm's "
        f"partitions.conf: NAME=0x{base:04x},ipoib : 0x{guid}=full ;)"
    )


RULES = (Rule(ID, decide),)
