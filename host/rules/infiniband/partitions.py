# SPDX-License-Identifier: GPL-2.0-or-later
"""IPOIB-PKEY-01 and IPOIB-PKEY-02: P_Key children. Pure.

IPOIB-PKEY-02: the unit that keeps P_Key children equal to the port's P_Key table,
where the policy says ``partitions: follow``.

IPOIB-PKEY-01: P_Key children: those that the policy wants, and whether the fabric
lets the port into their partitions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from ovirt_rdma.host.facts.model import Unit
from ovirt_rdma.host.paths import PARTITIONS_UNIT
from ovirt_rdma.host.policy.model import (
    DATAGRAM,
    FOLLOW,
    FULL_MEMBER,
    names_port,
    partition,
    partition_read,
)
from ovirt_rdma.host.rules.base import (
    FAIL,
    HOST,
    LIVE,
    PASS,
    SKIP,
    SYSFS,
    UNIT,
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
    in_order,
    table_entry,
    wanted_children,
)
from ovirt_rdma.host.rules.infiniband.mode_choice import choose_mode
from ovirt_rdma.host.rules.infiniband.settings import is_managed, new_profile
from ovirt_rdma.host.rules.view import Interface, View

FOLLOW_ID = "IPOIB-PKEY-02"
FOLLOW_SOURCE = "Linux drivers/infiniband/core/device.c: no uevent tells of a new P_Key"
_ENABLED, _DISABLED = "enabled", "disabled"
_LOADED, _NOT_FOUND = "loaded", "not-found"
_ACTIVE, _FAILED = "active", "failed"


def decide_follow(view: View) -> Iterator[Outcome]:
    """Give one finding for the host, and a step where the unit is to be enabled."""
    unit = next(
        (u for u in view.facts.software.units if u.name == PARTITIONS_UNIT), None
    )
    if not view.policy.host.follows_partitions:
        yield _not_wanted(unit)
        return
    parents = [one.name for one in view.ipoib if follows(one)]
    if unit is None:
        sentence = f"whether {PARTITIONS_UNIT} is enabled is not known"
        yield Finding(FOLLOW_ID, HOST, SKIP, sentence)
    elif unit.enabled == _ENABLED:
        yield _enabled(unit)
    elif not parents:
        sentence = "no IPoIB netdev here is of a rule with partitions: follow"
        yield Finding(FOLLOW_ID, HOST, SKIP, sentence)
    else:
        refused = _refused(unit)
        sentence = (
            f"the children of {', '.join(parents)} should follow the P_Key table, and "
            f"{PARTITIONS_UNIT} is not {_ENABLED}"
        )
        yield Finding(
            FOLLOW_ID, HOST, FAIL, f"{sentence}: {refused}" if refused else sentence
        )
        yield _follow_step(unit, refused)


def _not_wanted(unit: Optional[Unit]) -> Finding:
    if unit is None or unit.enabled != _ENABLED:
        return Finding(FOLLOW_ID, HOST, SKIP, "the policy has no partitions: follow")
    return Finding(
        FOLLOW_ID,
        HOST,
        WARN,
        f"{PARTITIONS_UNIT} is enabled, and the policy has no partitions: follow any "
        "more; the children stay as they are",
        f"ovirt-rdma-host revert {FOLLOW_ID}/{HOST}; where it was not enabled by "
        "apply: "
        f"systemctl disable --now {PARTITIONS_UNIT}",
    )


def _enabled(unit: Unit) -> Finding:
    if unit.load == _LOADED and unit.active == _ACTIVE:
        return Finding(FOLLOW_ID, HOST, PASS, f"{unit.name} follows the P_Key tables")
    state = "has failed" if unit.active == _FAILED else "does not run"
    return Finding(
        FOLLOW_ID,
        HOST,
        FAIL,
        f"{unit.name} is enabled and {state}, so no P_Key table is followed",
        f"journalctl -b -u {unit.name}; then: systemctl restart {unit.name}",
    )


def _refused(unit: Unit) -> str:
    if unit.load == _LOADED:
        return ""
    if unit.load == _NOT_FOUND:
        return f"{unit.name} is not installed"
    return f"systemd says of {unit.name}: {unit.load or 'nothing'}"


def _follow_step(unit: Unit, refused: str) -> Step:
    before = unit.enabled or _DISABLED
    return Step(
        FOLLOW_ID,
        HOST,
        f"{unit.name} is not {_ENABLED}",
        before,
        f"{_ENABLED}, and started",
        LIVE,
        "the kernel tells nobody of a P_Key that appears, so the table is looked at "
        "every few seconds",
        FOLLOW_SOURCE,
        f"systemctl disable --now {unit.name}; the children stay",
        (Change(UNIT, unit.name, before, _ENABLED, _ENABLED),),
        refused=refused,
    )


FOLLOW_RULE = Rule(
    FOLLOW_ID,
    "the unit that follows the P_Key tables",
    f"With partitions: follow in the policy, {PARTITIONS_UNIT} should be enabled and "
    "running. It looks at the P_Key tables of the ports every partitions_interval "
    "seconds, makes the children of partitions that have appeared, with the mode and "
    "MTU of their rule, and removes children whose partition has left the table.",
    "The subnet manager may put a port into a partition, or take it out, at any time. "
    "The kernel sends no uevent then, and makes no netdev. A child is removed only if "
    "one of our runs made it, its partition was missing in two looks one after the "
    "other at an ACTIVE port, and nobody uses it: no storage, logical network, IP "
    "address or netdev on top. All others are left, and IPOIB-PKEY-01 reports them.",
    "ovirt-rdma-host apply enables the unit. VDSM sees the children as NICs; Refresh "
    "Capabilities in the engine shows a new one at once. When the policy no longer "
    f"says partitions: follow, ovirt-rdma-host revert {FOLLOW_ID}/{HOST} disables "
    "the unit; "
    "until then it runs and changes nothing.",
    (
        "Linux drivers/infiniband/core/device.c, IB_EVENT_PKEY_CHANGE",
        "Linux drivers/infiniband/ulp/ipoib/ipoib_ib.c, ipoib_ib_dev_flush_heavy",
        "opensm(8), partition configuration",
    ),
    decide_follow,
)

FOLLOW_RULES = (FOLLOW_RULE,)


ID = "IPOIB-PKEY-01"
SOURCE = "Linux Documentation/infiniband/ipoib.rst and ulp/ipoib/ipoib_vlan.c"


def decide(view: View) -> Iterator[Outcome]:
    """Give findings for the children that are wanted and those that are there."""
    none = True
    named = set()
    for child in wanted_children(view):
        none = False
        named.add(child.name)
        yield from _wanted(view, child)
    for interface in view.ipoib:
        if interface.is_child and interface.name not in named:
            none = False
            yield _there(view, interface)
    for interface in view.ipoib:
        if follows(interface) and not followed_partitions(interface):
            none = False
            yield _nothing_to_follow(interface)
    for finding in _without_parent(view):
        none = False
        yield finding
    if none:
        sentence = "there are no P_Key children, and the policy wants none"
        yield Finding(ID, "host", SKIP, sentence)


def _wanted(view: View, child: WantedChild) -> Iterator[Outcome]:
    name, parent = child.name, child.parent
    port = f"{parent.device.name}/{parent.port.number}"
    if child.member is None:
        what = "P_Key table could not be read"
        if parent.port.pkeys:
            what = f"P_Key table has no {child.pkey}"
        state = f"{name} has no carrier" if child.there else f"{name} is not made"
        yield Finding(ID, name, FAIL, f"{port}: its {what}, so {state}", _fabric(child))
        return
    limited = not int(child.member, 16) & FULL_MEMBER
    if child.there:
        sentence = f"{name} is there, for P_Key {child.pkey}"
        if not limited:
            yield Finding(ID, name, PASS, sentence)
    else:
        sentence = f"{name} is to be made, for P_Key {child.pkey}"
        rule = parent.wanted.title if parent.wanted else "the policy"
        missing = f"{name} is not there, and {rule} wants it"
        if child.refused:
            missing += f"; {child.refused}"
        yield Finding(ID, name, FAIL, missing, child.fix)
        yield _step(view, child)
    if limited:
        yield Finding(
            ID,
            name,
            WARN,
            f"{sentence}, in which {port} is a limited member: it reaches full members "
            "only",
            "make the port a full member in the subnet manager's partitions "
            "(=full in partitions.conf), unless that is what you want",
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
        folder = f"/sys/class/net/{parent}"
        changes = (Change(SYSFS, f"{folder}/create_child", None, child.pkey),)
        after = f"{child.name} on {parent}, P_Key {child.pkey}"
        undo = f"writes {child.pkey} to {folder}/delete_child"
    return Step(
        ID,
        child.name,
        f"{child.name} is not there",
        "none",
        after,
        LIVE,
        "the children follow the port's P_Key table"
        if follows(child.parent)
        else "the policy wants it, and the port is in its partition",
        SOURCE,
        undo,
        changes,
        refused=child.refused,
    )


def _mode(view: View, child: WantedChild) -> str:
    """Return the transport mode with which a child's profile is made."""
    made = (one for one in in_order(view) if one.planned and one.name == child.name)
    choice = next((choose_mode(view, one) for one in made), None)
    return DATAGRAM if choice is None or choice.refused else choice.mode


def _nothing_to_follow(parent: Interface) -> Finding:
    """Say of a base netdev whose children follow the table why it has none."""
    port = f"{parent.device.name}/{parent.port.number}"
    if not parent.port.pkeys:
        sentence = f"{port}: its P_Key table could not be read, so no child follows it"
        return Finding(ID, parent.name, FAIL, sentence)
    sentence = f"{port} is in no partition that needs a child of {parent.name}"
    return Finding(ID, parent.name, PASS, sentence)


def _there(view: View, interface: Interface) -> Finding:
    """Judge a child that the policy does not name: it is left alone."""
    ipoib = interface.netdev.ipoib
    pkey = partition_read(ipoib.pkey if ipoib else None)
    name = interface.name
    shown = f"{name} (P_Key {ipoib.pkey if ipoib else None})"
    if pkey is None:
        return Finding(ID, name, WARN, f"{name}: its P_Key could not be read")
    if interface.port.pkeys and table_entry(interface.port, pkey) is None:
        fix = (
            "let the subnet manager put the port into the partition, or remove the "
            "child; it comes up by itself when the P_Key appears"
        )
        if any(one.name == interface.parent and follows(one) for one in view.ipoib):
            fix += (
                "; ovirt-rdma-partitions.service removes children that our runs made "
                "and nobody uses"
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
    """Give a finding for each port that is to have children and has no netdev."""
    for device in view.facts.rdma_devices:
        for port in device.ports:
            if any(one.is_ipoib for one in view.on_port(device, port)):
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
                        f"{subject} has no IPoIB netdev on which {rule.title} could "
                        f"have children ({keys})",
                        "modprobe ib_ipoib, and see IB-PORT-01 and DRIVER-01; a RoCE "
                        "port has no IPoIB",
                    )
                    break


def _fabric(child: WantedChild) -> str:
    guid = (child.parent.port.guid or "GUID").replace(":", "")
    base = partition(child.pkey)
    return (
        "let the subnet manager put the port into the partition (opensm's "
        f"partitions.conf: NAME=0x{base:04x},ipoib : 0x{guid}=full ;)"
    )


RULES = (
    Rule(
        ID,
        "P_Key children of IPoIB netdevs",
        "The policy's pkey_children name the partitions for which a port's base netdev "
        "should have a child, such as ib0.8001; partitions: follow means all of the "
        "port's P_Key table, but for that of the base netdev and the default one. The "
        "child is planned when the port's P_Key table has the partition. Children that "
        "the policy does not name are left alone.",
        "InfiniBand has partitions where Ethernet has VLANs, and IPoIB takes no VLAN "
        "on top. The subnet manager decides which port is in which partition; a child "
        "for a P_Key that the port has not got comes up without a carrier, and stays "
        "so until the key appears. A limited member (bit 15 of the P_Key is clear) "
        "reaches full members only. A child of a child is not possible.",
        "Put the port's GUID into the partition, in the subnet manager. The child then "
        "is made by a NetworkManager profile, or through create_child in sysfs where "
        "NetworkManager does not manage the parent. Its name is the parent's, cut to "
        "ten letters, a dot, and four hex digits. VDSM takes it for a NIC like any "
        "other, and needs to be told nothing. With partitions: follow, children come "
        "and go with the table: see IPOIB-PKEY-02.",
        (
            "Linux Documentation/infiniband/ipoib.rst",
            "Linux drivers/infiniband/ulp/ipoib/ipoib_vlan.c",
            "NetworkManager nm-settings-nmcli(5), infiniband.p-key and parent",
            "opensm(8), partition configuration",
        ),
        decide,
    ),
)
