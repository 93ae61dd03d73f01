# SPDX-License-Identifier: GPL-2.0-or-later
"""Where the settings of an IPoIB netdev are kept: in a NetworkManager profile, one of
its own or one that the plan makes, or, where NetworkManager does not manage the
netdev, in sysfs alone. Pure.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Optional

from ovirt_rdma.host.facts.devices import Netdev, Profile
from ovirt_rdma.host.policy.model import partition_read
from ovirt_rdma.host.rules.base import PROFILE, SYSFS, Change
from ovirt_rdma.host.rules.reapply import INFINIBAND_MTU
from ovirt_rdma.host.rules.view import Interface, View, is_kept

INFINIBAND_TYPE = "infiniband"
NEW = "new:"

CONNECTION_TYPE = "connection.type"
CONNECTION_ID = "connection.id"
INTERFACE_NAME = "connection.interface-name"
TRANSPORT_MODE = "infiniband.transport-mode"
MTU = INFINIBAND_MTU
P_KEY = "infiniband.p-key"
PARENT = "infiniband.parent"
MAC_ADDRESS = "infiniband.mac-address"
TSO = "ethtool.feature-tso"

# How nmcli prints a property that says nothing.
UNSET = ("", "--", "auto", "0", "default", "-1", "ignore", "unknown")

# A port's GUID is the last 8 of a netdev address's 20 bytes; the rest changes.
_GUID_BYTES = 8


@dataclass(frozen=True)
class Settings:
    """``target`` is the profile for Changes (a UUID or ``new:NETDEV``), None where
    there is none and sysfs alone is set. ``profile`` is the one that is there.
    ``blocked`` says why no setting can be kept, as a clause.
    """

    target: Optional[str] = None
    profile: Optional[Profile] = None
    blocked: str = ""

    def value(self, name: str) -> Optional[str]:
        """Return a property, None where the profile does not say or there is none."""
        value = self.profile.value(name) if self.profile else None
        return None if value is None or value.strip().lower() in UNSET else value

    def change(self, name: str, after: str) -> tuple[Change, ...]:
        """Return the Change that sets a property; none where it is so already."""
        if self.target is None or self.value(name) == after:
            return ()
        return (Change(PROFILE, self.target, self.value(name), after, name),)


def settings_of(view: View, interface: Interface) -> Settings:
    """Return where the settings of ``interface``, an IPoIB netdev, are kept."""
    if interface.planned:
        managed = is_managed(view, interface.parent or "")
        return Settings(NEW + interface.name if managed else None)
    if not is_managed(view, interface.name):
        return Settings()
    profile = interface.profile or unnamed_profile(view, interface)
    if profile and is_kept(profile) and profile.type == INFINIBAND_TYPE:
        return Settings(profile.uuid, profile)
    blocked = _blocked(view, interface)
    return Settings(None if blocked else NEW + interface.name, blocked=blocked)


def _blocked(view: View, interface: Interface) -> str:
    """Say, as a clause, why no profile can be made for a netdev that has none."""
    name = interface.name
    foreign = renamed_profile(view, interface)
    if foreign:
        return (
            f"the profile {foreign.name!r} of this port names the netdev "
            f"{foreign.interface_name}"
        )
    if interface.is_child and child_pkey(interface) is None:
        return (
            "NetworkManager keeps P_Key children by the name that create_child gives, "
            f"and {name} has another"
        )
    bonds = bonds_of(view, interface)
    if bonds:
        return f"{name} is a member of {bonds[0]} and has no profile that keeps it"
    addresses = lasting_addresses(interface.netdev)
    if addresses:
        return f"{name} has the address {addresses[0]} and no profile that keeps it"
    return ""


def child_pkey(interface: Interface) -> Optional[str]:
    """Return the P_Key by which NetworkManager knows a child, as ``0x8001``; None where
    it would call that child something else, ``PARENT.%04x`` being the only form.
    """
    ipoib = interface.netdev.ipoib
    parent, dot, digits = interface.name.rpartition(".")
    if not dot or len(digits) != 4 or not ipoib or ipoib.parent != parent:
        return None
    partition = partition_read(f"0x{digits}")
    same = partition is not None and partition == partition_read(ipoib.pkey)
    return f"0x{digits}" if same else None


def new_profile(
    name: str, mode: str, parent: Optional[str] = None, pkey: Optional[str] = None
) -> tuple[Change, ...]:
    """Return the Changes that make a profile for the netdev ``name``, with ``parent``
    and ``pkey`` where it is a P_Key child: without IP addresses, which are the
    engine's to give.
    """
    properties = {
        CONNECTION_TYPE: INFINIBAND_TYPE,
        CONNECTION_ID: name,
        INTERFACE_NAME: name,
        TRANSPORT_MODE: mode,
        "ipv4.method": "disabled",
        "ipv6.method": "disabled",
    }
    if parent and pkey:
        properties.update({PARENT: parent, P_KEY: pkey})
    target = NEW + name
    return tuple(Change(PROFILE, target, None, v, n) for n, v in properties.items())


def is_managed(view: View, name: str) -> bool:
    """Whether NetworkManager runs and manages the netdev ``name``."""
    return name in view.managed


def unnamed_profile(view: View, interface: Interface) -> Optional[Profile]:
    """Return the profile that names the port by GUID only, and no netdev."""
    return _by_guid(view, interface, named=False)


def renamed_profile(view: View, interface: Interface) -> Optional[Profile]:
    """Return the profile of the port's GUID that names another netdev."""
    return _by_guid(view, interface, named=True)


def _by_guid(view: View, interface: Interface, *, named: bool) -> Optional[Profile]:
    manager = view.facts.network_manager
    if interface.is_child or manager is None:
        return None  # children share their parent's GUID
    guid = _guid(interface.netdev.address)
    for profile in manager.profiles:
        mac = profile.value(MAC_ADDRESS)
        settings = Settings(profile=profile)
        if (
            profile.type == INFINIBAND_TYPE
            and is_kept(profile)
            and mac is not None
            and guid is not None
            and _guid(mac) == guid
            and settings.value(P_KEY) is None
            and profile.interface_name != interface.name
            and (profile.interface_name is not None) is named
        ):
            return profile
    return None


def bonds_of(view: View, interface: Interface) -> tuple[str, ...]:
    """Return the bonds of which ``interface`` is a member: one, or none."""
    above = [view.netdev(name) for name in interface.netdev.uppers]
    return tuple(one.name for one in above if one and one.bond)


def lasting_addresses(netdev: Netdev) -> tuple[str, ...]:
    """Return the IP addresses of ``netdev`` but for link-local ones, which the kernel
    makes itself.
    """
    found = []
    for text in netdev.addresses:
        try:
            if ipaddress.ip_interface(text).ip.is_link_local:
                continue
        except ValueError:
            pass  # odd, so better counted than lost
        found.append(text)
    return tuple(found)


def write(interface: Interface, name: str, after: str) -> Change:
    """Return the Change that writes ``after`` to the netdev's sysfs file ``name``."""
    before: Optional[str] = None
    if not interface.planned:
        ipoib = interface.netdev.ipoib
        mode = ipoib.mode if ipoib else None
        before = mode if name == "mode" else str(interface.netdev.mtu)
    return Change(SYSFS, f"/sys/class/net/{interface.name}/{name}", before, after)


def _guid(address: str) -> Optional[tuple[str, ...]]:
    parts = address.strip().lower().split(":")
    return tuple(parts[-_GUID_BYTES:]) if len(parts) == 20 else None
