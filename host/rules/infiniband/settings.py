# SPDX-License-Identifier: GPL-2.0-or-later
"""Find the NetworkManager profile that stores the settings of an IPoIB netdev. Pure.

It is the netdev's own profile or one that the plan creates. If NetworkManager does not
manage the netdev, its settings are only in sysfs.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Optional

from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.facts.devices import Guid, Netdev, Profile
from ovirt_rdma.host.facts.pkeys import partition_of
from ovirt_rdma.host.paths import NET_CLASS
from ovirt_rdma.host.rules.base import PROFILE, SYSFS, Change
from ovirt_rdma.host.rules.reapply import INFINIBAND_MTU
from ovirt_rdma.host.rules.view import Interface, View, is_persistent

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

# nmcli's output for a property that is not set.
UNSET = ("", "--", "auto", "0", "default", "-1", "ignore", "unknown")


@dataclass(frozen=True)
class Settings:
    """The profile of a netdev.

    - ``target``: the profile for Changes (a UUID or ``new:NETDEV``); None if there is
      none, and only sysfs is set.
    - ``profile``: the existing profile.
    - ``blocked``: a clause why no profile can be created.
    """

    target: Optional[str] = None
    profile: Optional[Profile] = None
    blocked: str = ""

    def value(self, name: str) -> Optional[str]:
        """Return a property; None if it is not set or there is no profile."""
        value = self.profile.value(name) if self.profile else None
        return None if value is None or value.strip().lower() in UNSET else value

    def number(self, name: str) -> Optional[int]:
        """Return a property as a number; None if it has none."""
        text = self.value(name) or ""
        return int(text) if text.isdecimal() else None

    def change(self, name: str, after: str) -> tuple[Change, ...]:
        """Return the Change that sets a property; none if it has that value already."""
        if self.target is None or self.value(name) == after:
            return ()
        return (Change(PROFILE, self.target, self.value(name), after, name),)


def settings_of(view: View, interface: Interface) -> Settings:
    """Return the Settings of ``interface``, an IPoIB netdev."""
    if interface.planned:
        managed = is_managed(view, interface.parent or "")
        return Settings(NEW + interface.name if managed else None)
    if not is_managed(view, interface.name):
        return Settings()
    profile = interface.profile or unnamed_profile(view, interface)
    if profile and is_persistent(profile) and profile.type == INFINIBAND_TYPE:
        return Settings(profile.uuid, profile)
    blocked = _blocked(view, interface)
    return Settings(None if blocked else NEW + interface.name, blocked=blocked)


def _blocked(view: View, interface: Interface) -> str:
    """Return a clause why no profile can be created for a netdev without one; empty if
    one can.
    """
    name = interface.name
    foreign = renamed_profile(view, interface)
    if foreign:
        return Sentence(
            "profile-of-other-netdev",
            f"the profile {foreign.name!r} of this port names the netdev "
            f"{foreign.interface_name}",
        )
    if interface.is_child and child_pkey(interface) is None:
        return Sentence(
            "child-name-unsupported",
            "NetworkManager requires the name that create_child gives a P_Key child, "
            f"but {name} has another",
        )
    bonds = bonds_of(view, interface)
    if bonds:
        return Sentence(
            "bond-without-profile",
            f"{name} is a member of {bonds[0]}, but has no profile for that",
        )
    addresses = static_addresses(interface.netdev)
    if addresses:
        return Sentence(
            "address-without-profile",
            f"{name} has the address {addresses[0]}, which is in no profile",
        )
    return ""


def child_pkey(interface: Interface) -> Optional[str]:
    """Return the P_Key in the name of a child, such as ``0x8001``.

    None if NetworkManager would give that child another name than ``PARENT.%04x``.
    """
    ipoib = interface.netdev.ipoib
    parent, dot, digits = interface.name.rpartition(".")
    if not dot or len(digits) != 4 or not ipoib or ipoib.parent != parent:
        return None
    partition = partition_of(f"0x{digits}")
    same = partition is not None and partition == partition_of(ipoib.pkey)
    return f"0x{digits}" if same else None


def new_profile(
    name: str, mode: str, parent: Optional[str] = None, pkey: Optional[str] = None
) -> tuple[Change, ...]:
    """Return the Changes that create a profile for the netdev ``name``, with ``parent``
    and ``pkey`` for a P_Key child. It has no IP addresses: the engine assigns them.
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
    """Whether NetworkManager is running and manages the netdev ``name``."""
    return name in view.managed


def unnamed_profile(view: View, interface: Interface) -> Optional[Profile]:
    """Return the profile that names the port by GUID only, and no netdev, or None."""
    return _by_guid(view, interface, named=False)


def renamed_profile(view: View, interface: Interface) -> Optional[Profile]:
    """Return the profile of the port's GUID that names another netdev, or None."""
    return _by_guid(view, interface, named=True)


def _by_guid(view: View, interface: Interface, *, named: bool) -> Optional[Profile]:
    manager = view.facts.network_manager
    if interface.is_child or manager is None:
        return None  # children share their parent's GUID
    guid = Guid.of_address(interface.netdev.address)
    for profile in manager.profiles:
        mac = profile.value(MAC_ADDRESS)
        settings = Settings(profile=profile)
        if (
            profile.type == INFINIBAND_TYPE
            and is_persistent(profile)
            and mac is not None
            and guid is not None
            and Guid.of_address(mac) == guid
            and settings.value(P_KEY) is None
            and profile.interface_name != interface.name
            and (profile.interface_name is not None) is named
        ):
            return profile
    return None


def bonds_of(view: View, interface: Interface) -> tuple[str, ...]:
    """Return the bonds of which ``interface`` is a member: one, or none."""
    above = [view.netdev(name) for name in interface.netdev.uppers]
    return tuple(upper.name for upper in above if upper and upper.bond)


def static_addresses(netdev: Netdev) -> tuple[str, ...]:
    """Return the IP addresses of ``netdev`` without link-local ones, which the kernel
    assigns itself.
    """
    addresses = []
    for text in netdev.addresses:
        try:
            if ipaddress.ip_interface(text).ip.is_link_local:
                continue
        except ValueError:
            pass  # an invalid address counts too, so that it is not lost
        addresses.append(text)
    return tuple(addresses)


def write(interface: Interface, name: str, after: str) -> Change:
    """Return the Change that writes ``after`` to the netdev's sysfs file ``name``."""
    before: Optional[str] = None
    if not interface.planned:
        ipoib = interface.netdev.ipoib
        mode = ipoib.mode if ipoib else None
        before = mode if name == "mode" else str(interface.netdev.mtu)
    return Change(SYSFS, f"{NET_CLASS}/{interface.name}/{name}", before, after)
