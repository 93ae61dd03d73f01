# SPDX-License-Identifier: GPL-2.0-or-later
"""P_Key children that the policy requires, existing and planned ones. Pure.

IPOIB-PKEY-01 creates them, and checks that the port is a member of their partitions.
IPOIB-PKEY-02 lets the daemon update the children from the port's P_Key table if
the policy has ``partitions: follow``. A planned child is an Interface with the values
that it has right after its creation.

Sources: Linux Documentation/infiniband/ipoib.rst and ipoib_vlan_add in
drivers/infiniband/ulp/ipoib/ipoib_vlan.c (Linux 6.1); nm_net_devname_infiniband in
NetworkManager.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Callable, Optional

from ovirt_rdma.host.facts.devices import Ipoib, RdmaPort
from ovirt_rdma.host.facts.infiniband import (
    DATAGRAM,
    DEFAULT_PARTITION,
    full_member,
    is_full_member,
    partition_bits,
    partition_of,
)
from ovirt_rdma.host.paths import NET_CLASS
from ovirt_rdma.host.policy.model import FOLLOW, interface_rule_for
from ovirt_rdma.host.rules.base import (
    FILE,
    HOST,
    LIVE,
    SYSFS,
    About,
    Change,
    Finding,
    Interface,
    Outcome,
    Rule,
    Step,
    View,
    is_persistent,
    once_per_view,
)
from ovirt_rdma.host.rules.ipoib import (
    INFINIBAND_TYPE,
    P_KEY,
    PARENT,
    choose_mode,
    new_profile,
    port_limit,
)
from ovirt_rdma.host.system.files import FOLLOW_PARTITIONS, foreign_reason, own_text

# The kernel names a child "%.10s.%04x".
PARENT_LENGTH = 10


@dataclass(frozen=True)
class WantedChild:
    """A child that the policy requires on ``parent``, a port's base netdev.

    pkey: such as ``0x8001``, with bit 15 set, as the kernel sets it
    name: the name that the kernel gives it; if it exists, its present name
    member: the port's P_Key table entry for the partition (``0x0001``: limited member),
        None if the table has none
    refused: why it cannot be created, and its ``fix``
    """

    parent: Interface
    pkey: str
    name: str
    exists: bool
    member: Optional[str]
    refused: str = ""
    fix: str = ""


@once_per_view
def required_children(view: View) -> tuple[WantedChild, ...]:
    """Return the children that the policy requires, port by port."""
    present = {
        (interface.parent, partition_of(interface.pkey)): interface.name
        for interface in view.ipoib
        if interface.parent
    }
    taken = {netdev.name for netdev in view.facts.netdevs}
    wanted = []
    for parent in view.ipoib:
        if parent.is_child:
            continue
        keys = (int(text, 16) for text in parent.policy.pkey_children)
        named = tuple(dict.fromkeys(map(partition_bits, keys)))
        for partition in followed_partitions(parent) if parent.follows else named:
            pkey = full_member(partition)
            existing = present.get((parent.name, partition))
            name = existing or f"{parent.name[:PARENT_LENGTH]}.{pkey[2:]}"
            refused, fix = "", ""
            if not existing:
                refused, fix = _refused(view, parent, partition, name)
            if not existing and name in taken:
                refused = f"another netdev {name} exists, or will exist"
                name = f"{parent.name}.{pkey[2:]}"
            taken.add(name)
            member = table_entry(parent.port, partition)
            wanted.append(
                WantedChild(parent, pkey, name, bool(existing), member, refused, fix)
            )
    return tuple(wanted)


def followed_partitions(parent: Interface) -> tuple[int, ...]:
    """Return the partitions of the port of ``parent``, in the order of its table.

    Without the default partition and the base netdev's own, which is at index 0
    (ipoib_parent_init in drivers/infiniband/ulp/ipoib/ipoib_main.c).
    """
    excluded = {None, DEFAULT_PARTITION, partition_of(parent.pkey)}
    excluded |= {partition_of(e.value) for e in parent.port.pkeys if e.index == 0}
    partitions = (partition_of(entry.value) for entry in parent.port.pkeys)
    return tuple(
        dict.fromkeys(p for p in partitions if p is not None and p not in excluded)
    )


def planned_children(view: View) -> tuple[Interface, ...]:
    """Return the children that the plan creates, with their values right after."""
    children = required_children(view)
    return tuple(
        _planned(view, child)
        for child in children
        if not (child.exists or child.member is None or child.refused)
    )


def _planned(view: View, child: WantedChild) -> Interface:
    parent, limit = child.parent, port_limit(child.parent)
    netdev = replace(
        parent.netdev,
        name=child.name,
        mtu=limit.mtu if limit else parent.netdev.mtu,
        driver="ipoib",
        operstate="down",
        carrier=None,
        uppers=(),
        lowers=(),
        addresses=(),
        ipoib=Ipoib(DATAGRAM, child.pkey, parent.name),
    )
    wanted = interface_rule_for(view.policy.host, netdev, parent.device, parent.port)
    unused = replace(parent, profile=None, network=None, uses=())
    return replace(unused, netdev=netdev, wanted=wanted, planned=True)


@once_per_view
def parents_first(view: View) -> tuple[Interface, ...]:
    """Return all IPoIB netdevs, planned ones included, parents before children."""
    everything = (*view.ipoib, *planned_children(view))
    return tuple(sorted(everything, key=lambda i: (i.is_child, i.name)))


NO_NETDEV = "this host has no IPoIB netdev"


def of_netdevs(
    rule: str,
    judge: Callable[[View, About, Interface], Iterable[Outcome]],
    otherwise: str = NO_NETDEV,
    applies: Callable[[Interface], bool] = lambda _: True,
) -> Rule:
    """Return a rule about IPoIB netdevs; planned ones have steps only."""

    def check(view: View) -> Iterator[Outcome]:
        for one in filter(applies, parents_first(view)):
            for outcome in judge(view, About(rule, one.name), one):
                if not one.planned or isinstance(outcome, Step):
                    yield outcome

    return Rule(rule, check, otherwise)


def table_entry(port: RdmaPort, partition: int) -> Optional[str]:
    """Return the port's entry for ``partition``, a full member's first, or None."""
    entries = [e.value for e in port.pkeys if partition_of(e.value) == partition]
    return max(entries, key=lambda value: int(value, 16), default=None)


def _refused(
    view: View, parent: Interface, partition: int, name: str
) -> tuple[str, str]:
    """Return why a child cannot be created, and the fix; empty if it can."""
    of_child = (
        profile
        for profile in view.profiles
        if profile.type == INFINIBAND_TYPE and is_persistent(profile)
        if profile.interface_name == name
        or (
            profile.value(PARENT) == parent.name
            and partition_of(profile.value(P_KEY)) == partition
        )
    )
    profile = next(of_child, None) if parent.name in view.managed else None
    if partition_of(parent.pkey) == partition:
        return f"{parent.name} itself is in that partition", ""
    if parent.name in view.managed and len(parent.name) > PARENT_LENGTH:
        names = f"the kernel names children by the first {PARENT_LENGTH} letters of "
        return names + f"{parent.name}, and NetworkManager expects another name", ""
    if profile is None:
        return "", ""
    return (
        f"the profile {profile.name!r} is for this child, but NetworkManager has not "
        "activated it",
        f"nmcli connection up {profile.uuid}; or delete it, and apply creates one",
    )


def _children(view: View) -> Iterator[Outcome]:
    required = required_children(view)
    named = {child.name for child in required}
    for child in required:
        yield from _wanted(view, child)
    for interface in view.ipoib:
        if interface.is_child and interface.name not in named:
            yield _existing(view, interface)
    for interface in view.ipoib:
        about, port = About(CHILDREN.id, interface.name), interface.port_name
        if not interface.follows or followed_partitions(interface):
            continue
        if interface.port.pkeys:
            none = f"{port} is in no partition that needs a child of {interface.name}"
            yield about.passes(none)
        else:
            unread = f"the P_Key table of {port} could not be read"
            yield about.fails(f"{unread}, so no child follows it")
    for place in view.ports:
        keys = [r for r in place.rules if r.pkey_children or r.partitions]
        if keys and not any(one.is_ipoib for one in view.on_port(place)):
            wanted = ", ".join(keys[0].pkey_children) or f"partitions: {FOLLOW}"
            yield About(CHILDREN.id, place.name).fails(
                f"{place.name} has no IPoIB netdev for the children of "
                f"{keys[0].title} ({wanted})",
                "modprobe ib_ipoib, and see IB-PORT-01 and DRIVER-01; a RoCE port has "
                "no IPoIB",
            )


def _wanted(view: View, child: WantedChild) -> Iterator[Outcome]:
    name, parent, port = child.name, child.parent, child.parent.port_name
    about = About(CHILDREN.id, name)
    if child.member is None:
        table = f"the P_Key table of {port} could not be read"
        if parent.port.pkeys:
            table = f"the P_Key table of {port} has no {child.pkey}"
        state = f"{name} has no carrier" if child.exists else f"{name} is not created"
        guid = (parent.port.guid or "GUID").replace(":", "")
        yield about.fails(
            f"{table}, so {state}",
            "add the port to the partition in the subnet manager (opensm's "
            f"partitions.conf: NAME=0x{partition_bits(int(child.pkey, 16)):04x},ipoib "
            f": 0x{guid}=full ;)",
        )
        return
    limited = not is_full_member(child.member)
    if child.exists:
        sentence = f"{name} exists, for P_Key {child.pkey}"
        if not limited:
            yield about.passes(sentence)
    else:
        sentence = f"{name} will be created, for P_Key {child.pkey}"
        rule = parent.wanted.title if parent.wanted else "the policy"
        missing = f"{rule} requires {name}, which does not exist"
        why = f"; {child.refused}" if child.refused else ""
        yield about.fails(missing + why, child.fix)
        yield _step(view, about, child)
    if limited:
        yield about.warns(
            f"{sentence}, of which {port} is a limited member: it reaches full members "
            "only",
            "unless this is intended, set the port to full member in the subnet "
            "manager's partitions (=full in partitions.conf)",
        )


def _step(view: View, about: About, child: WantedChild) -> Step:
    parent, name, pkey = child.parent.name, child.name, child.pkey
    if parent in view.managed:
        planned = [i for i in parents_first(view) if i.planned and i.name == name]
        choice = choose_mode(view, planned[0]) if planned else None
        mode = DATAGRAM if choice is None or choice.refused else choice.mode
        changes = new_profile(name, mode, parent, pkey)
        after = f"profile {name!r} on {parent}, P_Key {pkey}, {mode} mode"
        undo = f"deletes the profile, and NetworkManager removes {name}"
    else:
        folder = f"{NET_CLASS}/{parent}"
        changes = (Change(SYSFS, f"{folder}/create_child", None, pkey),)
        after = f"{name} on {parent}, P_Key {pkey}"
        undo = f"writes {pkey} to {folder}/delete_child"
    return about.step(
        f"create {name}",
        "none",
        after,
        LIVE,
        reason="the children follow the port's P_Key table"
        if child.parent.follows
        else "the policy requires it, and the port is a member of its partition",
        undo=undo,
        changes=changes,
        refused=child.refused,
    )


def _existing(view: View, interface: Interface) -> Finding:
    name, partition = interface.name, partition_of(interface.pkey)
    about, shown = About(CHILDREN.id, name), f"{name} (P_Key {interface.pkey})"
    if partition is None:
        return about.warns(f"the P_Key of {name} could not be read")
    if not interface.port.pkeys or table_entry(interface.port, partition):
        return about.passes(f"{shown} is in a partition of its port")
    fix = (
        "add the port to the partition in the subnet manager, or remove the child; it "
        "comes up by itself when the P_Key appears"
    )
    if any(one.name == interface.parent and one.follows for one in view.ipoib):
        fix += "; the daemon removes children of ours that are not in use"
    lost = f"{shown} has no carrier: its P_Key is not in the port's table"
    return about.warns(lost, fix)


def _follower(view: View) -> Iterator[Outcome]:
    about = About(FOLLOWER.id)
    parents = ", ".join(interface.name for interface in view.ipoib if interface.follows)
    present = view.own_file(FOLLOW_PARTITIONS)
    if not parents:
        none = "no rule with partitions: follow applies to an IPoIB netdev here"
        left = f"there is {FOLLOW_PARTITIONS}, but {none}; the children are unchanged"
        revert = f"ovirt-rdma-host revert {FOLLOWER.id}/{HOST}"
        yield about.warns(left, revert) if present else about.skips(none)
        return
    wanted = own_text(["partitions: follow"])
    if present and present.text == wanted:
        yield about.passes(f"the daemon may change the children of {parents}")
        return
    refused = foreign_reason(FOLLOW_PARTITIONS, present.text) if present else ""
    yield about.fails(
        f"the children of {parents} should follow the P_Key table, but "
        + (refused or f"{FOLLOW_PARTITIONS} does not allow it")
    )
    before = present.text if present else None
    yield about.step(
        "let the daemon make and remove P_Key children",
        "none",
        "allowed",
        LIVE,
        reason="the kernel sends no event for a new P_Key, so the daemon reads the "
        "table every few seconds",
        undo=f"{FOLLOW_PARTITIONS} is removed; the children stay",
        changes=(Change(FILE, FOLLOW_PARTITIONS, before, wanted),),
        refused=refused,
    )


CHILDREN = Rule(
    "IPOIB-PKEY-01",
    _children,
    "there are no P_Key children, and the policy requires none",
)
FOLLOWER = Rule("IPOIB-PKEY-02", _follower)
