# SPDX-License-Identifier: GPL-2.0-or-later
"""IPOIB-PROFILE-01: NetworkManager profiles of IPoIB netdevs. Pure.

Profiles of type infiniband for a netdev that is not there: of an adapter that is
gone, or of a netdev that has another name now.

IPOIB-PROFILE-01: the NetworkManager profile that an IPoIB netdev needs before the
engine attaches a network to it.

VDSM's request names no interface type and no transport mode. nmstate then changes the
profile that it finds by ``connection.interface-name``, and makes one without
``infiniband.transport-mode`` where it finds none, which NetworkManager refuses.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Optional

from ovirt_rdma.host.policy.model import DATAGRAM
from ovirt_rdma.host.rules.base import (
    FAIL,
    LINK_DOWN,
    PASS,
    SKIP,
    WARN,
    Finding,
    Outcome,
    Rule,
    Step,
)
from ovirt_rdma.host.rules.infiniband.children import in_order
from ovirt_rdma.host.rules.infiniband.settings import (
    INFINIBAND_TYPE,
    INTERFACE_NAME,
    PARENT,
    TRANSPORT_MODE,
    Settings,
    bonds_of,
    child_pkey,
    is_managed,
    lasting_addresses,
    new_profile,
    renamed_profile,
    settings_of,
)
from ovirt_rdma.host.rules.reapply import class_of
from ovirt_rdma.host.rules.view import Interface, View, is_kept


def orphan_profiles(view: View, rule: str) -> Iterator[Finding]:
    """Give a finding of ``rule`` for each profile whose netdev is not there."""
    manager = view.facts.network_manager
    for profile in manager.profiles if manager else ():
        name = profile.interface_name
        settings = Settings(profile=profile)
        if (
            name is None
            or profile.type != INFINIBAND_TYPE
            or not is_kept(profile)
            or settings.value(PARENT) is not None
            or view.netdev(name) is not None
            or any(renamed_profile(view, one) is profile for one in view.ipoib)
        ):
            continue
        yield Finding(
            rule,
            name,
            WARN,
            f"the profile {profile.name!r} is for {name}, and there is no such netdev",
            f"if the netdev was renamed: nmcli connection modify {profile.uuid} "
            "connection.interface-name NAME; if the adapter is gone: nmcli connection "
            f"delete {profile.uuid}",
        )


ID = "IPOIB-PROFILE-01"
SOURCE = "nm-settings-nmcli(5), infiniband; nmstate rust/src/lib/nm/settings"
_REASON = (
    "VDSM's network request carries no transport mode, and NetworkManager refuses an "
    "infiniband profile without one"
)


def decide(view: View) -> Iterator[Outcome]:
    """Give a finding for each IPoIB netdev, and a step where the policy names it."""
    if not view.ipoib:
        yield Finding(ID, "host", SKIP, "this host has no IPoIB netdev")
    else:
        yield from _no_manager(view)
    for interface in in_order(view):
        if not interface.planned:
            yield from _one(view, interface)
    yield from orphan_profiles(view, ID)


def _no_manager(view: View) -> Iterator[Finding]:
    """Give one finding for all netdevs where there is no NetworkManager."""
    manager = view.facts.network_manager
    if manager and manager.running:
        return
    names = ", ".join(one.name for one in view.ipoib)
    state = "does not run" if manager else "is not installed"
    sentence = f"NetworkManager {state}, so nothing keeps the settings of {names}"
    fix = "VDSM needs it too: systemctl enable --now NetworkManager"
    if manager is None:
        fix = f"install it; {fix}"
    yield Finding(ID, "host", WARN, sentence, fix)


def _one(view: View, interface: Interface) -> Iterator[Outcome]:
    name = interface.name
    if not is_managed(view, name):
        yield from _unmanaged(view, name)
        return
    settings = settings_of(view, interface)
    if settings.blocked:
        yield _blocked(view, interface, settings)
        return
    step = _step(interface, settings)
    if step is None:
        profile = settings.profile
        mode = settings.value(TRANSPORT_MODE)
        sentence = f"{name} has the profile {profile.name!r}" if profile else name
        yield Finding(ID, name, PASS, f"{sentence} with transport mode {mode}")
        return
    wanted = interface.wanted is not None
    if not wanted and _is_idle(interface):
        sentence = f"{step.sentence}; it has no link, and nothing here needs it"
        yield Finding(ID, name, SKIP, sentence)
        return
    fix = "" if wanted else _policy_line(interface)
    yield Finding(ID, name, FAIL if wanted else WARN, step.sentence, fix)
    if wanted:
        yield step


def _is_idle(interface: Interface) -> bool:
    netdev = interface.netdev
    return (
        netdev.carrier is False
        and not lasting_addresses(netdev)
        and not interface.uses
        and interface.network is None
    )


def _step(interface: Interface, settings: Settings) -> Optional[Step]:
    name = interface.name
    ipoib = interface.netdev.ipoib
    mode = (ipoib.mode if ipoib else None) or DATAGRAM
    profile = settings.profile
    if profile is None:
        return Step(
            ID,
            name,
            f"{name} has no NetworkManager profile of its own",
            "none",
            f"profile {name!r}, transport mode {mode}, no IP address",
            LINK_DOWN,
            _REASON,
            SOURCE,
            f"deletes the profile: nmcli connection delete {shlex.quote(name)}",
            new_profile(name, mode, interface.parent, child_pkey(interface)),
            users=interface.users,
        )
    if settings.value(INTERFACE_NAME) or profile.interface_name:
        return None
    changes = settings.change(INTERFACE_NAME, name)
    effect = class_of(changes, profile)
    return Step(
        ID,
        name,
        f"the profile {profile.name!r} of {name} has no {INTERFACE_NAME}",
        "not set",
        f"{INTERFACE_NAME} {name}",
        effect,
        "nmstate finds a profile by its interface-name only",
        SOURCE,
        "takes the property out of the profile again",
        changes,
        users=interface.users if effect == LINK_DOWN else (),
    )


def _unmanaged(view: View, name: str) -> Iterator[Finding]:
    manager = view.facts.network_manager
    if manager is None or not manager.running:
        return
    why = f"NetworkManager does not know {name}"
    if name in manager.unmanaged:
        why = f"NetworkManager is told to leave {name} alone"
    netdev = view.netdev(name)
    owner = netdev.owner if netdev else None
    if owner:
        why += f", which {owner} sets up"
    sentence = f"{why}, so it keeps no transport mode and MTU for it"
    fix = (
        "VDSM can attach no network to it: take it out of unmanaged-devices "
        "(NetworkManager.conf(5)) and of udev's NM_UNMANAGED, or let "
        f"{owner or 'whoever sets it up'} keep transport mode and MTU"
    )
    yield Finding(ID, name, WARN, sentence, fix)


def _blocked(view: View, interface: Interface, settings: Settings) -> Finding:
    name = interface.name
    verdict = FAIL if interface.wanted else WARN
    foreign = renamed_profile(view, interface)
    if foreign:
        return Finding(
            ID,
            name,
            verdict,
            f"{settings.blocked}, but the port's netdev is {name} now: it was renamed",
            f"nmcli connection modify {foreign.uuid} connection.interface-name "
            f"{shlex.quote(name)}, or give the port its old name back",
        )
    fix = (
        "put the address into a profile (nmcli connection add type infiniband ifname "
        f"{name} infiniband.transport-mode {DATAGRAM} ipv4.method manual ...), or take "
        "it off and let the engine give one"
    )
    if interface.is_child and child_pkey(interface) is None:
        fix = "delete the child, and name its P_Key in the policy's pkey_children"
    elif bonds_of(view, interface):
        fix = "make the bond in the engine, or by profiles for the bond and its members"
    return Finding(ID, name, verdict, settings.blocked, fix)


def _policy_line(interface: Interface) -> str:
    return (
        "name the netdev in the policy (host: interfaces: - match: {guid: "
        f'"{interface.port.guid or "..."}"}}), and a profile is made'
    )


RULES = (
    Rule(
        ID,
        "NetworkManager profile of an IPoIB netdev",
        "Every IPoIB netdev that the policy names has a NetworkManager profile of type "
        "infiniband, with interface-name and transport-mode set, also where the mode "
        "is datagram. A profile that names a netdev which the port no longer has, as "
        "after a rename, is reported.",
        "When the engine attaches a logical network, VDSM sends name, MTU and IP "
        "addresses, and neither a type nor a transport mode. nmstate changes the "
        "profile that names the netdev, and keeps its mode; without such a profile it "
        "makes one without a mode, and NetworkManager refuses that, so that the "
        "network cannot be attached. NetworkManager writes the mode of the profile at "
        "each activation, with the link taken down: a mode set in any other way is "
        "lost there.",
        "Name the netdev in the policy; the plan then makes the profile, with the mode "
        "that the netdev has, and without IP addresses. A netdev that has an address "
        "which no profile keeps is left alone: put the address into a profile first. "
        "Where NetworkManager does not manage the netdev, no profile is made, and what "
        "the plan sets is set in sysfs.",
        (
            "NetworkManager nm-settings-nmcli(5), infiniband.transport-mode",
            "NetworkManager src/core/devices/nm-device-infiniband.c",
            "nmstate rust/src/lib/nm/settings/infiniband.rs",
            "VDSM lib/vdsm/network/nmstate/linux_bridge.py",
        ),
        decide,
    ),
)
