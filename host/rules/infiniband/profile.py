# SPDX-License-Identifier: GPL-2.0-or-later
"""IPOIB-PROFILE-01: check and create NetworkManager profiles of IPoIB netdevs. Pure.

A netdev needs a profile before the engine attaches a network to it. VDSM's request has
no interface type and no transport mode. nmstate changes the profile that it finds by
``connection.interface-name``; without one it creates a profile without
``infiniband.transport-mode``, which NetworkManager refuses.

The rule also reports profiles whose netdev does not exist: the adapter was removed, or
the netdev was renamed.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Optional

from ovirt_rdma.host.facts.ipoib import DATAGRAM
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
from ovirt_rdma.host.rules.infiniband.children import parents_first
from ovirt_rdma.host.rules.infiniband.settings import (
    INFINIBAND_TYPE,
    INTERFACE_NAME,
    PARENT,
    TRANSPORT_MODE,
    Settings,
    bonds_of,
    child_pkey,
    is_managed,
    new_profile,
    renamed_profile,
    settings_of,
    static_addresses,
)
from ovirt_rdma.host.rules.reapply import class_of
from ovirt_rdma.host.rules.view import Interface, View, is_persistent


def orphan_profiles(view: View, rule: str) -> Iterator[Finding]:
    """Yield a finding of ``rule`` for each profile whose netdev does not exist."""
    manager = view.facts.network_manager
    for profile in manager.profiles if manager else ():
        name = profile.interface_name
        settings = Settings(profile=profile)
        if (
            name is None
            or profile.type != INFINIBAND_TYPE
            or not is_persistent(profile)
            or settings.value(PARENT) is not None
            or view.netdev(name) is not None
            or any(
                renamed_profile(view, interface) is profile for interface in view.ipoib
            )
        ):
            continue
        yield Finding(
            rule,
            name,
            WARN,
            f"the profile {profile.name!r} is for {name}, which does not exist",
            "if the netdev was renamed, write its name into connection.interface-name "
            f"of {profile.uuid}; if the adapter was removed: nmcli connection delete "
            f"{profile.uuid}",
        )


ID = "IPOIB-PROFILE-01"
SOURCE = "nm-settings-nmcli(5), infiniband; nmstate rust/src/lib/nm/settings"
_REASON = (
    "VDSM's network request has no transport mode, and NetworkManager refuses an "
    "infiniband profile without one"
)


def decide(view: View) -> Iterator[Outcome]:
    """Yield a finding for each IPoIB netdev, and a step if the policy names it."""
    if not view.ipoib:
        yield Finding(ID, "host", SKIP, "this host has no IPoIB netdev")
    else:
        yield from _no_manager(view)
    for interface in parents_first(view):
        if not interface.planned:
            yield from _outcomes(view, interface)
    yield from orphan_profiles(view, ID)


def _no_manager(view: View) -> Iterator[Finding]:
    """Yield one finding for all netdevs if NetworkManager is not running."""
    manager = view.facts.network_manager
    if manager and manager.running:
        return
    names = ", ".join(interface.name for interface in view.ipoib)
    state = "is not running" if manager else "is not installed"
    sentence = f"NetworkManager {state}, so nothing stores the settings of {names}"
    fix = "systemctl enable --now NetworkManager; VDSM needs it too"
    if manager is None:
        fix = f"install it; {fix}"
    yield Finding(ID, "host", WARN, sentence, fix)


def _outcomes(view: View, interface: Interface) -> Iterator[Outcome]:
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
    missing = _missing(interface, settings)
    if not wanted and _is_idle(interface):
        sentence = f"{missing}; it has no link, and nothing on this host needs it"
        yield Finding(ID, name, SKIP, sentence)
        return
    fix = "" if wanted else _policy_line(interface)
    yield Finding(ID, name, FAIL if wanted else WARN, missing, fix)
    if wanted:
        yield step


def _missing(interface: Interface, settings: Settings) -> str:
    name, profile = interface.name, settings.profile
    if profile is None:
        return f"{name} has no NetworkManager profile of its own"
    return f"the profile {profile.name!r} of {name} has no {INTERFACE_NAME}"


def _is_idle(interface: Interface) -> bool:
    netdev = interface.netdev
    return (
        netdev.carrier is False
        and not static_addresses(netdev)
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
            f"create a NetworkManager profile for {name}",
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
        f"set {INTERFACE_NAME} in the profile {profile.name!r} of {name}",
        "not set",
        f"{INTERFACE_NAME} {name}",
        effect,
        "nmstate finds a profile by its interface-name only",
        SOURCE,
        "removes the property from the profile",
        changes,
        users=interface.users if effect == LINK_DOWN else (),
    )


def _unmanaged(view: View, name: str) -> Iterator[Finding]:
    manager = view.facts.network_manager
    if manager is None or not manager.running:
        return
    why = f"{name} is unknown to NetworkManager"
    if name in manager.unmanaged:
        why = f"{name} is an unmanaged device of NetworkManager"
    netdev = view.netdev(name)
    owner = netdev.owner if netdev else None
    if owner:
        why += f" and set up by {owner}"
    sentence = (
        f"{why}, so NetworkManager does not store its transport mode and MTU, and VDSM "
        "cannot attach a network to it"
    )
    fix = (
        "remove it from unmanaged-devices (NetworkManager.conf(5)) and from udev's "
        "NM_UNMANAGED, or set transport mode and MTU in "
        f"{owner or 'the program that sets it up'}"
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
            f"{settings.blocked}, but the netdev was renamed to {name}",
            f"nmcli connection modify {foreign.uuid} connection.interface-name "
            f"{shlex.quote(name)}, or restore the netdev's old name",
        )
    fix = (
        f"move the address to a profile of type infiniband for {name} with "
        f"infiniband.transport-mode {DATAGRAM}, or remove it and let the engine assign "
        "one"
    )
    if interface.is_child and child_pkey(interface) is None:
        fix = "delete the child, and add its P_Key to pkey_children in the policy"
    elif bonds_of(view, interface):
        fix = "create the bond in the engine, or create profiles for it and its members"
    return Finding(ID, name, verdict, settings.blocked, fix)


def _policy_line(interface: Interface) -> str:
    return (
        "name the netdev in the policy (host: interfaces: - match: {guid: "
        f'"{interface.port.guid or "..."}"}}), and apply creates a profile'
    )


RULES = (Rule(ID, decide),)
