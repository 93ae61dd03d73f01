# SPDX-License-Identifier: GPL-2.0-or-later
"""P_Key children: those that the policy wants, and what they are as long as they are
only planned. Pure.

Sources: ipoib_vlan_add in drivers/infiniband/ulp/ipoib/ipoib_vlan.c (Linux 6.1);
nm_net_devname_infiniband in NetworkManager.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Optional

from ovirt_rdma.host.facts.devices import Ipoib, Profile, RdmaPort
from ovirt_rdma.host.policy.model import (
    DATAGRAM,
    FOLLOW,
    FULL_MEMBER,
    interface_rule_for,
    partition_read,
)
from ovirt_rdma.host.rules.infiniband.limits import port_limit
from ovirt_rdma.host.rules.infiniband.settings import (
    INFINIBAND_TYPE,
    P_KEY,
    PARENT,
    is_managed,
)
from ovirt_rdma.host.rules.view import Interface, View, is_kept

# The kernel names a child "%.10s.%04x".
PARENT_LENGTH = 10
# That of the default P_Key 0xffff: every port is in it, and it is the base netdev's.
DEFAULT_PARTITION = 0x7FFF


@dataclass(frozen=True)
class WantedChild:
    """A child that the policy wants on ``parent``, a port's base netdev.

    ``pkey`` as ``0x8001``, bit 15 set, as the kernel sets it; ``name`` is what the
    kernel will call it, or calls the child that is ``there``. ``member`` is the
    port's entry for the partition (``0x0001``: limited), None where the table has
    none. ``refused`` says why it cannot be made, as a clause, and ``fix`` what to do.
    """

    parent: Interface
    pkey: str
    name: str
    there: bool
    member: Optional[str]
    refused: str = ""
    fix: str = ""


@lru_cache(maxsize=1)  # of the view in hand: several rules ask
def wanted_children(view: View) -> tuple[WantedChild, ...]:
    """Return the children that the policy wants, port by port."""
    return tuple(_wanted(view))


def _wanted(view: View) -> Iterator[WantedChild]:
    there = {
        (one.netdev.ipoib.parent, partition_read(one.netdev.ipoib.pkey)): one.name
        for one in view.ipoib
        if one.netdev.ipoib and one.netdev.ipoib.parent
    }
    taken = {netdev.name for netdev in view.facts.netdevs}
    for parent in view.ipoib:
        if parent.is_child or parent.wanted is None:
            continue
        for value in _keys(parent):
            found = there.get((parent.name, value & ~FULL_MEMBER))
            name = found or f"{parent.name[:PARENT_LENGTH]}.{value:04x}"
            refused, fix = ("", "") if found else _refused(view, parent, value, name)
            if not found and name in taken:
                refused = f"there is, or will be, another netdev {name}"
                name = f"{parent.name}.{value:04x}"
            taken.add(name)
            yield WantedChild(
                parent=parent,
                pkey=f"0x{value:04x}",
                name=name,
                there=found is not None,
                member=table_entry(parent.port, value),
                refused=refused,
                fix=fix,
            )


def _keys(parent: Interface) -> tuple[int, ...]:
    """Return the P_Keys for which ``parent`` should have children, bit 15 set."""
    if follows(parent):
        return tuple(one | FULL_MEMBER for one in followed_partitions(parent))
    named = parent.wanted.pkey_children if parent.wanted else ()
    return tuple(dict.fromkeys(int(text, 16) | FULL_MEMBER for text in named))


def follows(parent: Interface) -> bool:
    """Whether the children of ``parent`` should follow the port's P_Key table."""
    return (
        not parent.is_child
        and parent.wanted is not None
        and parent.wanted.partitions == FOLLOW
    )


def followed_partitions(parent: Interface) -> tuple[int, ...]:
    """Return the partitions of the port of ``parent``, in the order of its table, but
    for the default one and the base netdev's own, which is that at index 0
    (ipoib_parent_init in drivers/infiniband/ulp/ipoib/ipoib_main.c).
    """
    own = partition_read(parent.netdev.ipoib.pkey if parent.netdev.ipoib else None)
    left_out = {None, 0, DEFAULT_PARTITION, own}
    left_out |= {partition_read(e.value) for e in parent.port.pkeys if e.index == 0}
    found = (partition_read(entry.value) for entry in parent.port.pkeys)
    return tuple(
        dict.fromkeys(one for one in found if one is not None and one not in left_out)
    )


def planned_children(view: View) -> tuple[Interface, ...]:
    """Return the children that the plan makes, as they are right after."""
    found = []
    for child in wanted_children(view):
        if child.there or child.member is None or child.refused:
            continue
        parent = child.parent
        limit = port_limit(parent)
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
            ipoib=Ipoib(DATAGRAM, child.pkey, parent.name, umcast=False),
        )
        planned = replace(
            parent,
            netdev=netdev,
            wanted=interface_rule_for(
                view.policy.host, netdev, parent.device, parent.port
            ),
            profile=None,
            network=None,
            uses=(),
            planned=True,
        )
        found.append(planned)
    return tuple(found)


@lru_cache(maxsize=1)
def in_order(view: View) -> tuple[Interface, ...]:
    """Return all IPoIB netdevs, planned ones too, each parent before its children."""
    everything = (*view.ipoib, *planned_children(view))
    return tuple(sorted(everything, key=lambda one: (one.is_child, one.name)))


def table_entry(port: RdmaPort, pkey: int) -> Optional[str]:
    """Return the port's P_Key of that partition, a full member's before a limited."""
    wanted = pkey & ~FULL_MEMBER
    found = [e.value for e in port.pkeys if partition_read(e.value) == wanted]
    return max(found, key=lambda value: int(value, 16), default=None)


def _refused(view: View, parent: Interface, value: int, name: str) -> tuple[str, str]:
    """Say why a child cannot be made, and what to do."""
    own = parent.netdev.ipoib.pkey if parent.netdev.ipoib else None
    if partition_read(own) == value & ~FULL_MEMBER:
        return f"{parent.name} itself is in that partition", ""
    if not is_managed(view, parent.name):
        return "", ""
    if len(parent.name) > PARENT_LENGTH:
        return (
            f"the kernel names children by the first {PARENT_LENGTH} letters of "
            f"{parent.name}, and NetworkManager expects another name",
            "",
        )
    profile = _profile_of(view, parent, value, name)
    if profile:
        return (
            f"the profile {profile.name!r} is for it, and NetworkManager has not "
            "brought that up",
            f"nmcli connection up {profile.uuid}; or delete it, for one of ours",
        )
    return "", ""


def _profile_of(
    view: View, parent: Interface, value: int, name: str
) -> Optional[Profile]:
    """Return the profile for a child that is not there."""
    manager = view.facts.network_manager
    for profile in manager.profiles if manager else ():
        if profile.type != INFINIBAND_TYPE or not is_kept(profile):
            continue
        pkey = partition_read(profile.value(P_KEY))
        if profile.interface_name == name or (
            profile.value(PARENT) == parent.name and pkey == value & ~FULL_MEMBER
        ):
            return profile
    return None
