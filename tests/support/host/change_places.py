# SPDX-License-Identifier: GPL-2.0-or-later
"""Parse the target of a change: the oracle of the tests of changes.

It shares no code with the product, whose own parsing is under test.
"""

from __future__ import annotations

import re
from dataclasses import replace

NETDEV_FILE = re.compile(r"/sys/class/net/([^/]+)/(\w+)")
PORT_MTU = re.compile(r"/sys/bus/pci/devices/([^/]+)/mlx4_port(\d)_mtu")


def netdev_of(change):
    if change.kind == "sysfs":
        found = NETDEV_FILE.fullmatch(change.target)
        return found[1] if found else None
    if change.kind == "offload":
        return change.target
    new = change.kind == "profile" and change.target.startswith("new:")
    return change.target[len("new:") :] if new else None


def file_of(change):
    """Return the netdev's file in /sys that is written, or ""."""
    found = NETDEV_FILE.fullmatch(change.target) if change.kind == "sysfs" else None
    return found[2] if found else ""


def adapter_of(change):
    found = PORT_MTU.fullmatch(change.target) if change.kind == "sysfs" else None
    return found[1] if found else None


def makes_child(change):
    return file_of(change) == "create_child"


def makes_profile(act):
    return any(
        change.kind == "profile"
        and change.target.startswith("new:")
        and change.name == "connection.type"
        for change in act.changes
    )


def is_volatile(change):
    """Whether only the kernel has the value, and no disk."""
    return change.kind in ("sysfs", "offload")


def uuid_of(change, uuid):
    """Return the profile's UUID; a new profile has that of its change."""
    new = change.target.startswith("new:")
    assert not new or uuid, "a new profile has a UUID"
    return uuid if new else change.target


def child_of(change):
    """Return the P_Key child that ``create_child`` makes, as (parent, P_Key)."""
    return netdev_of(change), int(change.after, 16) | 0x8000


def naming(change, name):
    """Return the same change for a netdev with another name."""
    if change.kind == "offload":
        return replace(change, target=name)
    if NETDEV_FILE.fullmatch(change.target):
        return replace(change, target=f"/sys/class/net/{name}/{file_of(change)}")
    return change


def is_at(netdev, place):
    """Whether ``netdev`` is on the hardware of ``place``."""
    if place.guid:
        # The last 8 of the 20 bytes of an IPoIB address (RFC 4391, section 9.1.1);
        # a bond has that of one of its ports.
        guid = ":".join(netdev.address.lower().split(":")[12:])
        child = netdev.ipoib is not None and netdev.ipoib.parent is not None
        pkey = int(netdev.ipoib.pkey, 16) if child else None
        wanted = int(place.pkey, 16) if place.pkey else None
        return not netdev.bond and (guid, pkey) == (place.guid, wanted)
    pci = netdev.pci.address if netdev.pci else None
    return (pci, netdev.rdma_port) == (place.pci, place.port)


def values_of(facts):
    """Return the values of a host as they are read: by kind, target and name."""
    found = {}
    for netdev in facts.netdevs:
        folder = f"/sys/class/net/{netdev.name}"
        found["sysfs", f"{folder}/mtu", ""] = str(netdev.mtu)
        if netdev.ipoib:
            found["sysfs", f"{folder}/mode", ""] = netdev.ipoib.mode
        for one in netdev.offloads:
            # The requested state: "off [requested on]" is on again in datagram mode.
            on = one.on or one.requested
            found["offload", netdev.name, one.name] = "on" if on else "off"
    for adapter in facts.adapters:
        for number, mtu in enumerate(adapter.port_mtus, 1):
            file = f"/sys/bus/pci/devices/{adapter.pci.address}/mlx4_port{number}_mtu"
            found["sysfs", file, ""] = str(mtu)
    manager = facts.network_manager
    for profile in manager.profiles if manager else ():
        for one in profile.properties:
            found["profile", profile.uuid, one.name] = one.value
    for module in facts.modules.loaded:
        found["module", module, ""] = "loaded"
    return found
