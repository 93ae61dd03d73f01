# SPDX-License-Identifier: GPL-2.0-or-later
"""IPOIB-PKEY-01: P_Key children: those that the policy wants, and whether the fabric
lets the port into their partitions.
"""

from __future__ import annotations

from collections.abc import Iterator

from ovirt_rdma.host.policy_host import (
    DATAGRAM,
    FOLLOW,
    FULL_MEMBER,
    names_port,
    partition,
    partition_read,
)
from ovirt_rdma.host.rules.ipoib_children import (
    WantedChild,
    followed_partitions,
    follows,
    in_order,
    table_entry,
    wanted_children,
)
from ovirt_rdma.host.rules.ipoib_settings import is_managed, new_profile
from ovirt_rdma.host.rules.ipoib_target import choose_mode
from ovirt_rdma.host.rules.rule import (
    FAIL,
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
from ovirt_rdma.host.rules.view import Interface, View

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
