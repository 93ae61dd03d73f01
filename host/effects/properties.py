# SPDX-License-Identifier: GPL-2.0-or-later
"""Which property of the host a change is about, and what an act makes anew. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from ovirt_rdma.host.effects.act import Act
from ovirt_rdma.host.effects.targets import (
    child_name,
    makes_child,
    netdev_file,
    netdev_of,
    port_mtu_of,
)
from ovirt_rdma.host.rules.ipoib_pkey import ID as PKEY_RULE
from ovirt_rdma.host.rules.ipoib_settings import CONNECTION_TYPE, INTERFACE_NAME, NEW
from ovirt_rdma.host.rules.rule import FILE, OFFLOAD, PROFILE, SYSFS, Change


@dataclass(frozen=True)
class Property:
    """A place on the host that holds one value. ``target`` is a profile's UUID where
    the change says ``new:NETDEV``.
    """

    kind: str
    target: str
    name: str


def property_of(change: Change, uuid: Optional[str] = None) -> Property:
    """Return the property of ``change``; ``uuid`` is that of its act."""
    target = change.target
    if target.startswith(NEW) and uuid:
        target = uuid
    # One file, and each child is there or not by itself.
    name = (change.after or "") if makes_child(change) else change.name
    return Property(change.kind, target, name)


def is_volatile(change: Change) -> bool:
    """Whether the kernel forgets the value with a boot."""
    return change.kind in (SYSFS, OFFLOAD)


def makes_profile(act: Act) -> bool:
    """Whether ``act`` makes a new profile, and does not change one."""
    return any(
        change.kind == PROFILE
        and change.name == CONNECTION_TYPE
        and change.target.startswith(NEW)
        for change in act.changes
    )


def is_maker(act: Act) -> bool:
    """Whether ``act`` makes something that other acts can change."""
    return makes_profile(act) or makes_child(act.changes[0])


def made_netdev(act: Act) -> Optional[str]:
    """Return the P_Key child that ``act`` makes, by its profile or in sysfs."""
    first = act.changes[0]
    file = netdev_file(first)
    if file and makes_child(first):
        return child_name(file[0], first.after) if first.after else None
    # IPOIB-PROFILE-01 makes a profile for a child that is there already, and stays.
    if makes_profile(act) and act.step.startswith(f"{PKEY_RULE}/"):
        return _value(act, INTERFACE_NAME)
    return None


def file_of(change: Change) -> str:
    """Return the name of the netdev's sysfs file that ``change`` writes, or ""."""
    file = netdev_file(change)
    return file[1] if file else ""


def adapter_of(change: Change) -> Optional[str]:
    """Return the PCI address of the adapter whose port MTU ``change`` sets: all its
    netdevs go, and come back.
    """
    port = port_mtu_of(change)
    return port[0] if port else None


def goes_with(act: Act, maker: Act) -> bool:
    """Whether what ``act`` changed is a part of what ``maker`` made."""
    change = act.changes[0]
    if act is maker:
        return False
    if change.kind == PROFILE and makes_profile(maker):
        return property_of(change, act.uuid).target == maker.uuid
    if change.kind == PROFILE:
        return False  # a profile outlives its netdev
    netdev = made_netdev(maker)
    return netdev is not None and netdev_of(change) == netdev


def shown(change: Change) -> str:
    """Return the property as people call it: ``mtu of ib0``."""
    file = netdev_file(change)
    if file:
        return f"{file[1]} of {file[0]}"
    if change.kind == PROFILE:
        return f"{change.name} of the profile {change.target}"
    if change.name and change.kind == OFFLOAD:
        return f"{change.name} of {change.target}"
    return change.target


def shown_act(act: Act) -> str:
    """Return what ``act`` is about: the profile that it makes, or its property."""
    if makes_profile(act):
        return f"the profile of {act.changes[0].target[len(NEW) :]}"
    if makes_child(act.changes[0]):
        return f"the netdev {made_netdev(act)}"
    return shown(act.changes[0])


def said(change: Change, value: Optional[str], text: str = "another text") -> str:
    """Return ``value`` for a sentence; of a file, ``text`` instead."""
    if value is None:
        return "not set" if change.kind == PROFILE else "not there"
    return text if change.kind == FILE else value.strip() or "empty"


def _value(act: Act, name: str) -> Optional[str]:
    return next((c.after for c in act.changes if c.name == name), None)
