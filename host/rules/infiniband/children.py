# SPDX-License-Identifier: GPL-2.0-or-later
"""List the P_Key children that the policy requires, existing and planned ones. Pure.

A planned child is an Interface with the values that it has right after its creation.

Sources: ipoib_vlan_add in drivers/infiniband/ulp/ipoib/ipoib_vlan.c (Linux 6.1);
nm_net_devname_infiniband in NetworkManager.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Optional

from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.facts.devices import Ipoib, Profile, RdmaPort
from ovirt_rdma.host.facts.ipoib import DATAGRAM
from ovirt_rdma.host.facts.pkeys import (
    DEFAULT_PARTITION,
    full_member,
    partition_bits,
    partition_of,
)
from ovirt_rdma.host.policy.model import (
    FOLLOW,
    interface_rule_for,
)
from ovirt_rdma.host.rules.infiniband.limits import port_limit
from ovirt_rdma.host.rules.infiniband.settings import (
    INFINIBAND_TYPE,
    P_KEY,
    PARENT,
    is_managed,
)
from ovirt_rdma.host.rules.view import Interface, View, is_persistent, once_per_view

# The kernel names a child "%.10s.%04x".
PARENT_LENGTH = 10


@dataclass(frozen=True)
class WantedChild:
    """A child that the policy requires on ``parent``, a port's base netdev.

    - ``pkey``: such as ``0x8001``, with bit 15 set, as the kernel sets it.
    - ``name``: the name that the kernel gives it; if it exists, its present name.
    - ``exists``: the child exists.
    - ``member``: the port's P_Key table entry for the partition (``0x0001``: limited
      member), None if the table has none.
    - ``refused``: a clause with the reason why it cannot be created, and its ``fix``.
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
    return tuple(_wanted(view))


def _wanted(view: View) -> Iterator[WantedChild]:
    present = {
        (
            interface.netdev.ipoib.parent,
            partition_of(interface.netdev.ipoib.pkey),
        ): interface.name
        for interface in view.ipoib
        if interface.netdev.ipoib and interface.netdev.ipoib.parent
    }
    taken = {netdev.name for netdev in view.facts.netdevs}
    for parent in view.ipoib:
        if parent.is_child or parent.wanted is None:
            continue
        for partition in _partitions(parent):
            pkey = full_member(partition)
            existing = present.get((parent.name, partition))
            name = existing or f"{parent.name[:PARENT_LENGTH]}.{pkey[2:]}"
            refused, fix = "", ""
            if not existing:
                refused, fix = _refused(view, parent, partition, name)
            if not existing and name in taken:
                refused = Sentence(
                    "netdev-name-taken",
                    f"another netdev {name} exists, or will exist",
                )
                name = f"{parent.name}.{pkey[2:]}"
            taken.add(name)
            yield WantedChild(
                parent=parent,
                pkey=pkey,
                name=name,
                exists=existing is not None,
                member=table_entry(parent.port, partition),
                refused=refused,
                fix=fix,
            )


def _partitions(parent: Interface) -> tuple[int, ...]:
    """Return the partitions for which ``parent`` needs children."""
    if follows(parent):
        return followed_partitions(parent)
    named = parent.wanted.pkey_children if parent.wanted else ()
    return tuple(dict.fromkeys(partition_bits(int(text, 16)) for text in named))


def follows(parent: Interface) -> bool:
    """Whether the policy lets the children of ``parent`` follow the P_Key table."""
    return (
        not parent.is_child
        and parent.wanted is not None
        and parent.wanted.partitions == FOLLOW
    )


def followed_partitions(parent: Interface) -> tuple[int, ...]:
    """Return the partitions of the port of ``parent``, in the order of its table.

    Without the default partition and the base netdev's own, which is at index 0
    (ipoib_parent_init in drivers/infiniband/ulp/ipoib/ipoib_main.c).
    """
    own = partition_of(parent.netdev.ipoib.pkey if parent.netdev.ipoib else None)
    excluded = {None, DEFAULT_PARTITION, own}
    excluded |= {partition_of(e.value) for e in parent.port.pkeys if e.index == 0}
    partitions = (partition_of(entry.value) for entry in parent.port.pkeys)
    return tuple(
        dict.fromkeys(p for p in partitions if p is not None and p not in excluded)
    )


def planned_children(view: View) -> tuple[Interface, ...]:
    """Return the children that the plan creates, with their values right after."""
    planned = []
    for child in required_children(view):
        if child.exists or child.member is None or child.refused:
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
        interface = replace(
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
        planned.append(interface)
    return tuple(planned)


@once_per_view
def parents_first(view: View) -> tuple[Interface, ...]:
    """Return all IPoIB netdevs, planned ones included, parents before children."""
    everything = (*view.ipoib, *planned_children(view))
    return tuple(sorted(everything, key=lambda i: (i.is_child, i.name)))


def table_entry(port: RdmaPort, partition: int) -> Optional[str]:
    """Return the port's table entry for ``partition``, None if it has none.

    An entry of a full member takes precedence over one of a limited member.
    """
    entries = [e.value for e in port.pkeys if partition_of(e.value) == partition]
    return max(entries, key=lambda value: int(value, 16), default=None)


def _refused(
    view: View, parent: Interface, partition: int, name: str
) -> tuple[str, str]:
    """Return a clause why a child cannot be created, and the fix; empty if it can."""
    own = parent.netdev.ipoib.pkey if parent.netdev.ipoib else None
    if partition_of(own) == partition:
        return (
            Sentence(
                "partition-of-parent", f"{parent.name} itself is in that partition"
            ),
            "",
        )
    if not is_managed(view, parent.name):
        return "", ""
    if len(parent.name) > PARENT_LENGTH:
        return (
            Sentence(
                "parent-name-too-long",
                f"the kernel names children by the first {PARENT_LENGTH} letters of "
                f"{parent.name}, and NetworkManager expects another name",
            ),
            "",
        )
    profile = _profile_of(view, parent, partition, name)
    if profile:
        return (
            Sentence(
                "profile-not-active",
                f"the profile {profile.name!r} is for this child, but NetworkManager "
                "has not activated it",
            ),
            f"nmcli connection up {profile.uuid}; or delete it, and apply creates one",
        )
    return "", ""


def _profile_of(
    view: View, parent: Interface, partition: int, name: str
) -> Optional[Profile]:
    """Return the profile for a child that does not exist; None if there is none."""
    manager = view.facts.network_manager
    for profile in manager.profiles if manager else ():
        if profile.type != INFINIBAND_TYPE or not is_persistent(profile):
            continue
        pkey = partition_of(profile.value(P_KEY))
        if profile.interface_name == name or (
            profile.value(PARENT) == parent.name and pkey == partition
        ):
            return profile
    return None
