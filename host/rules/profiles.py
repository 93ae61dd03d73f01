# SPDX-License-Identifier: GPL-2.0-or-later
"""Say which NetworkManager profile stores the settings of a netdev, and what a change
of it does. Pure.

IPoIB: it is the netdev's own profile or one that the plan creates. If NetworkManager
does not manage the netdev, its settings are only in sysfs. RoCE: the netdev is an
ordinary Ethernet one, so its profile belongs to the admin, the installer or the engine.
Only single properties of it are set; no profile is created.

NetworkManager keeps the connection that it applied separately from the profile. A
Reapply applies some differences between the two without disruption, and is refused if
anything else differs (``can_reapply_change``, NetworkManager
src/core/devices/nm-device.c and nm-device-infiniband.c, the same in 1.42, 1.48, 1.54
and 1.58). nmstate requests a Reapply at each network setup of VDSM. If that is refused,
it activates the profile again (nmstate rust/src/lib/nm/query_apply/profile.rs,
reapply_or_activate): an IPoIB netdev goes down, and any netdev loses its addresses and
ports for a moment. Therefore the step that sets such a property activates the profile
itself, and its class is link-down.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Optional

from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.facts.devices import Guid, Netdev, Profile
from ovirt_rdma.host.facts.pkeys import partition_of
from ovirt_rdma.host.paths import NET_CLASS
from ovirt_rdma.host.rules.base import LINK_DOWN, LIVE, PROFILE, SYSFS, Change
from ovirt_rdma.host.rules.view import Interface, View, is_persistent

INFINIBAND_TYPE = "infiniband"
NEW = "new:"

CONNECTION_TYPE = "connection.type"
CONNECTION_ID = "connection.id"
INTERFACE_NAME = "connection.interface-name"
TRANSPORT_MODE = "infiniband.transport-mode"
MTU = "infiniband.mtu"
ETHERNET_MTU = "802-3-ethernet.mtu"
P_KEY = "infiniband.p-key"
PARENT = "infiniband.parent"
MAC_ADDRESS = "infiniband.mac-address"
TSO = "ethtool.feature-tso"
# The properties set by our rules that a Reapply accepts.
_REAPPLIED = (MTU, ETHERNET_MTU)

# nmcli's output for a property that is not set.
UNSET = ("", "--", "auto", "0", "default", "-1", "ignore", "unknown")


def needs_activation(change: Change) -> bool:
    """Whether ``change`` of an active profile takes effect only at an activation."""
    return change.kind == PROFILE and change.name not in _REAPPLIED


def class_of(changes: Iterable[Change], profile: Optional[Profile]) -> str:
    """Return the class of a step whose other changes are live: LINK_DOWN if ``profile``
    is active and must be activated again, else LIVE.
    """
    active = profile is not None and bool(profile.active_on)
    down = active and any(needs_activation(change) for change in changes)
    return LINK_DOWN if down else LIVE


@dataclass(frozen=True)
class Settings:
    """The profile of a netdev.

    - ``target``: the profile for Changes (a UUID or ``new:NETDEV``); None if there is
      none, and only sysfs is set.
    - ``profile``: the existing profile.
    - ``blocked``: a clause why no profile can be created, or changed.
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
    """Return the Settings of ``interface``."""
    profile = interface.profile
    if not interface.is_ipoib:
        blocked = _no_profile(view, interface)
        return Settings(profile.uuid if profile else None, profile, blocked)
    if interface.planned:
        managed = is_managed(view, interface.parent or "")
        return Settings(NEW + interface.name if managed else None)
    if not is_managed(view, interface.name):
        return Settings()
    # It may name the port by GUID only, and no netdev.
    profile = profile or _by_guid(view, interface, named=False)
    if profile and is_persistent(profile) and profile.type == INFINIBAND_TYPE:
        return Settings(profile.uuid, profile)
    blocked = _blocked(view, interface)
    return Settings(None if blocked else NEW + interface.name, blocked=blocked)


def _no_profile(view: View, interface: Interface) -> str:
    """Return why there is no profile of an Ethernet netdev to change, or nothing."""
    manager = view.facts.network_manager
    if manager is None or not manager.running:
        return Sentence(
            "network-manager-not-running",
            "NetworkManager is not running: set it where the netdev is configured",
        )
    if interface.profile is None:
        return Sentence(
            "profile-missing",
            f"no NetworkManager profile is active on {interface.name}",
        )
    if not is_persistent(interface.profile):
        return Sentence(
            "profile-in-memory-only",
            f"the profile of {interface.name} is in NetworkManager's memory only",
        )
    return ""


def _blocked(view: View, interface: Interface) -> str:
    """Return a clause why no profile can be created for an IPoIB netdev without one;
    empty if one can.
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
    parent, dot, digits = interface.name.rpartition(".")
    if not dot or len(digits) != 4 or interface.parent != parent:
        return None
    partition = partition_of(f"0x{digits}")
    same = partition is not None and partition == partition_of(interface.pkey)
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


def renamed_profile(view: View, interface: Interface) -> Optional[Profile]:
    """Return the profile of the port's GUID that names another netdev, or None."""
    return _by_guid(view, interface, named=True)


def _by_guid(view: View, interface: Interface, *, named: bool) -> Optional[Profile]:
    guid = Guid.of_address(interface.netdev.address)
    if interface.is_child or guid is None:
        return None  # children share their parent's GUID
    for profile in view.profiles:
        settings = Settings(profile=profile)
        if (
            profile.type == INFINIBAND_TYPE
            and is_persistent(profile)
            and Guid.of_address(profile.value(MAC_ADDRESS) or "") == guid
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
        before = interface.mode if name == "mode" else str(interface.netdev.mtu)
    return Change(SYSFS, f"{NET_CLASS}/{interface.name}/{name}", before, after)
