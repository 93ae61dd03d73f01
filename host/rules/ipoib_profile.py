# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules about InfiniBand ports, profiles, bonds, bridges and VLANs of IPoIB, and TSO.
Pure.

IB-PORT-01: InfiniBand ports are up and have a subnet manager. IPOIB-BOND-01: bonds,
bridges and VLANs on IPoIB netdevs. IPOIB-PROFILE-01: NetworkManager profiles of IPoIB
netdevs. A netdev needs a profile before the engine attaches a network to it. VDSM's
request has no interface type and no transport mode. nmstate changes the profile that it
finds by ``connection.interface-name``; without one it creates a profile without
``infiniband.transport-mode``, which NetworkManager refuses. The rule also reports
profiles whose netdev does not exist: the adapter was removed, or the netdev was
renamed.

IPOIB-TSO-01 turns TSO off on a ConnectX of revision a0, IPOIB-TSO-02 sets it as the
policy requires. ROCE-TSO-01 sets the policy's TSO on the Ethernet netdevs of RoCE
ports: RDMA does not use TSO, but TCP on the same port does. So ``auto`` does not change
the driver's default there, which is on.

NetworkManager does not change an offload that the profile does not name, neither at
activations nor when it releases the netdev (``_ethtool_state_set`` and
``_ethtool_state_reset``, src/core/devices/nm-device.c). So it is set by ethtool, and
our unit sets it again when the netdev is recreated. In the profile it would make
NetworkManager refuse each Reapply. The profile is changed only if it
has another value, which NetworkManager would set at the next activation.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import replace
from typing import Optional

from ovirt_rdma.host.facts.devices import Bond
from ovirt_rdma.host.facts.infiniband import (
    ACTIVE_BACKUP,
    CONNECTED,
    DATAGRAM,
    full_member,
    is_full_member,
    partition_of,
)
from ovirt_rdma.host.policy.model import AUTO, OFF, ON
from ovirt_rdma.host.rules import ipoib
from ovirt_rdma.host.rules.base import (
    FAIL,
    LINK_DOWN,
    OFFLOAD,
    PROFILE,
    SKIP,
    WARN,
    About,
    Change,
    Finding,
    Interface,
    Outcome,
    Port,
    Rule,
    Step,
    View,
    each,
    is_persistent,
)
from ovirt_rdma.host.rules.ipoib import (
    INTERFACE_NAME,
    MTU,
    TRANSPORT_MODE,
    TSO,
    Settings,
    Tso,
    is_connectx_a0,
    settings_of,
    static_addresses,
)
from ovirt_rdma.host.rules.ipoib_children import NO_NETDEV, of_netdevs, parents_first

_NO_MANAGER = (
    "start a subnet manager: on a switch that has one, or opensm on one machine of the "
    "fabric (two hosts connected back-to-back need one too)"
)
_LINK_FIX = {
    "Polling": "check the cable, and that the port at its other end is on and has the "
    "same link layer",
    "Disabled": "reload the port's driver, or enable the port from the switch",
    "Sleep": "reload the port's driver",
    "LinkErrorRecovery": "the link keeps failing: check or replace the cable",
}


def _port(view: View, about: About, place: Port) -> Iterator[Finding]:
    port, name = place.port, place.name
    verdict, need = _need(view, place)
    sentence = f"{name} is {port.state} (link: {port.physical_state})"
    fix = _link_fix(place) if verdict != SKIP else ""
    if port.is_active and port.sm_lid:
        rate = f", {port.rate_mbps / 1000:g} Gb/s" if port.rate_mbps else ""
        lid = f", LID {port.lid}" if port.lid else ""
        manager = f"subnet manager at LID {port.sm_lid}"
        yield about.passes(f"{name} is ACTIVE{rate}{lid}, {manager}")
        yield from _membership(view, place)
        return
    if port.is_active and port.sm_lid is None:
        yield about.skips(f"{name} is ACTIVE; its subnet manager is unknown")
        return
    if port.is_active:
        sentence = f"{name} is ACTIVE, but has lost its subnet manager (SM LID 0)"
    elif port.state in ("INIT", "ARMED"):
        sentence = f"{name} has a link, but is {port.state}: no subnet manager has "
        sentence += "configured it"
    if port.is_active or port.state in ("INIT", "ARMED"):
        fix = _manager_fix(view)
    yield about.finds(verdict, f"{sentence}; {need}", fix)


def _uses(one: Interface) -> list[str]:
    """Return what a netdev is used for: uses, its network and addresses, as text."""
    network = [f"network {one.network.name!r}"] if one.network else []
    purposes = [use.purpose for use in one.uses]
    return [*purposes, *network, *static_addresses(one.netdev)]


def _membership(view: View, place: Port) -> Iterator[Finding]:
    """Yield a finding if the port's own netdevs are limited members of their partition,
    that of the first entry of the P_Key table. The kernel shows such a netdev as a full
    member, whatever it is (ipoib_main.c).
    """
    values = {
        pkey.index: pkey.value
        for pkey in place.port.pkeys
        if partition_of(pkey.value) is not None
    }
    first = values.get(0)
    if first is None or full_member(int(first, 16)) in values.values():
        return
    elsewhere = any(map(is_full_member, values.values()))
    for one in view.on_port(place):
        if one.is_child or (elsewhere and not _uses(one)):
            continue
        yield About(PORTS.id, one.name).warns(
            f"{place.name} is only a limited member of the partition of {one.name} "
            f"({first}): it reaches full members only, and two limited members do not "
            "reach each other",
            "make the storage server's ports, or all, full members in the subnet "
            "manager's partitions (opensm: ALL=full, or GUID=full)",
        )


def _link_fix(place: Port) -> str:
    if place.adapter and place.adapter.physical_function:
        return (
            "the port of this virtual function must follow the physical one's: on "
            f"{place.adapter.physical_function}, set the link state of the VF to auto"
        )
    state = place.port.physical_state
    return _LINK_FIX.get(state, "check the cable and the switch port")


def _need(view: View, place: Port) -> tuple[str, str]:
    """Return the verdict for a port that does not work, and who needs it."""
    if place.rules:
        rule = place.rules[0]
        # A rule for several ports is satisfied even if some have no cable.
        active = (
            p.name for p in view.ports if p.port.is_active and p.rules[:1] == (rule,)
        )
        other = next(active, "") if place.port.state == "DOWN" else ""
        if other:
            return WARN, f"the policy names it and {other} ({rule.title})"
        return FAIL, f"the policy names it ({rule.title})"
    for one in view.on_port(place):
        for use in _uses(one):
            return WARN, f"{one.name} is in use ({use})"
    return SKIP, "nothing on this host needs it"


def _manager_fix(view: View) -> str:
    unit = view.facts.software.subnet_manager
    if unit is None:
        return _NO_MANAGER
    return (
        f"{unit} is running on this host: see its log, and check that it serves this "
        "port's fabric (GUIDS in /etc/sysconfig/opensm, guid in opensm.conf)"
    )


_BOND_FIX = (
    "set the bond's mode to active-backup: in the engine's host networks, custom bond "
    "mode 'mode=1 miimon=100 fail_over_mac=1'"
)


def _bonds(view: View) -> Iterator[Finding]:
    modes = {interface.name: interface.mode for interface in view.ipoib}
    for netdev in view.facts.netdevs:
        bond = netdev.bond
        members = {name: modes[name] for name in netdev.lowers if name in modes}
        if bond and members:
            yield _bond(About(BONDS.id, netdev.name), bond, members)
    yield from _networks(view)


def _bond(about: About, bond: Bond, members: dict[str, Optional[str]]) -> Finding:
    shown = f"{about.subject} of {', '.join(members)} is in mode {bond.mode}"
    modes = {*members.values()}
    if bond.mode not in ACTIVE_BACKUP:
        why = f"{shown}, but IPoIB supports only {ACTIVE_BACKUP[0]}"
        return about.fails(why, _BOND_FIX)
    if bond.fail_over_mac not in (None, "active"):
        return about.fails(
            f"{shown} with fail_over_mac {bond.fail_over_mac} instead of active",
            "set fail_over_mac=active: an IPoIB address cannot move to another port",
        )
    if bond.fail_over_mac is None or None in modes:
        what = "fail_over_mac" if bond.fail_over_mac is None else "members' modes"
        return about.skips(f"{shown}; its {what} could not be read")
    if len(modes) > 1:
        return about.warns(
            f"{shown}, but its members have different transport modes",
            "name all members in one policy rule: a failover must not change the MTU",
        )
    return about.passes(f"{shown}, which IPoIB requires")


def _networks(view: View) -> Iterator[Finding]:
    carriers = {name for one in view.ipoib for name in view.carriers(one.name)}
    for network in view.facts.ovirt_networks:
        base = southbound = network.southbound or ""
        if network.vlan is not None:
            base = southbound.removesuffix(f".{network.vlan}")
        about, name = About(BONDS.id, southbound), f"network {network.name!r}"
        if not {southbound, base} & carriers:
            continue
        if network.vlan is not None:
            yield about.fails(
                f"{name} has VLAN {network.vlan} on {base}, but IPoIB does not support "
                "VLANs",
                "remove the VLAN from the network and use a P_Key child (pkey_children "
                "in the policy)",
            )
        elif network.bridged:
            yield about.fails(
                f"{name} is a VM network on {southbound}, but IPoIB cannot be a port "
                "of a bridge",
                "change it to a non-VM network: clear 'VM network' in the engine",
            )


def _profiles(view: View) -> Iterator[Outcome]:
    manager = view.facts.network_manager
    if not view.ipoib:
        yield About(PROFILES.id).skips(NO_NETDEV)
    elif manager is None or not manager.running:
        names = ", ".join(interface.name for interface in view.ipoib)
        state = "is not running" if manager else "is not installed"
        start = "systemctl enable --now NetworkManager; VDSM needs it too"
        yield About(PROFILES.id).warns(
            f"NetworkManager {state}, so nothing stores the settings of {names}",
            start if manager else f"install it; {start}",
        )
    for interface in parents_first(view):
        if not interface.planned:
            yield from _profile(view, interface)
    yield from _orphans(view)


def _orphans(view: View) -> Iterator[Finding]:
    for profile in view.profiles:
        name = profile.interface_name
        if (
            name is None
            or profile.type != ipoib.INFINIBAND_TYPE
            or not is_persistent(profile)
            or Settings(profile=profile).value(ipoib.PARENT) is not None
            or view.netdev(name) is not None
            or any(
                ipoib.profile_of_guid(view, one, named=True) is profile
                for one in view.ipoib
            )
        ):
            continue
        yield About(PROFILES.id, name).warns(
            f"the profile {profile.name!r} is for {name}, which does not exist",
            "if the netdev was renamed, write its name into connection.interface-name "
            f"of {profile.uuid}; if the adapter was removed: nmcli connection delete "
            f"{profile.uuid}",
        )


def _profile(view: View, interface: Interface) -> Iterator[Outcome]:
    name, manager = interface.name, view.facts.network_manager
    about, settings = About(PROFILES.id, name), settings_of(view, interface)
    profile, step = settings.profile, _step(interface, about, settings)
    missing = f"{name} has no NetworkManager profile of its own"
    if profile:
        missing = f"the profile {profile.name!r} of {name} has no {INTERFACE_NAME}"
    if manager is None or not manager.running:
        return
    if name not in view.managed:
        why = f"{name} is unknown to NetworkManager"
        if name in manager.unmanaged:
            why = f"{name} is an unmanaged device of NetworkManager"
        yield about.warns(
            f"{why}, so NetworkManager does not store its transport mode and MTU, and "
            "VDSM cannot attach a network to it",
            "remove it from unmanaged-devices (NetworkManager.conf(5)) and from udev's "
            "NM_UNMANAGED, or set transport mode and MTU in the program that sets it "
            "up",
        )
    elif settings.blocked:
        verdict = FAIL if interface.wanted else WARN
        yield about.finds(verdict, settings.blocked, settings.fix)
    elif step is None:
        if profile:
            yield _present(view, about, interface, settings)
    elif interface.wanted:
        yield about.fails(missing)
        yield step
    elif interface.netdev.carrier is False and not _uses(interface):
        sentence = f"{missing}; it has no link, and nothing on this host needs it"
        yield about.skips(sentence)
    else:
        guid = interface.port.guid or "..."
        yield about.warns(
            missing,
            "name the netdev in the policy (host: interfaces: - match: {guid: "
            f'"{guid}"}}), and apply creates a profile',
        )


def _present(
    view: View, about: About, interface: Interface, settings: Settings
) -> Finding:
    name, mode = interface.name, settings.value(TRANSPORT_MODE)
    title = settings.profile.name if settings.profile else ""
    shown = f"{name} has the profile {title!r} with transport mode {mode}"
    if not mode or ipoib.choose_mode(view, interface) is not None:
        return about.passes(shown)
    why_not = ipoib.no_connected_mode(view, interface) if mode == CONNECTED else ""
    modify = f"nmcli connection modify {settings.target} {TRANSPORT_MODE} "
    if why_not not in ("", ipoib.MODE_UNKNOWN):
        limit = ipoib.datagram_limit(interface)
        large = (settings.number(MTU) or 0) > (limit.mtu if limit else _SAFE_MTU)
        less = f" {MTU} {_SAFE_MTU}" if large else ""
        return about.warns(
            f"{shown}, which {name} cannot have: {why_not}; NetworkManager cannot "
            "activate it (the device could not be readied for configuration)",
            f"{modify}{DATAGRAM}{less}",
        )
    if interface.mode is None:
        return about.skips(f"{shown}; the netdev's own mode is unknown")
    if interface.mode != mode:
        return about.warns(
            f"{shown}, but it is in {interface.mode} mode: NetworkManager changes that "
            "when it activates the profile",
            f"{modify}{interface.mode}; or write transport_mode for it in the policy",
        )
    return about.passes(shown)


# Any subnet manager's broadcast group allows it.
_SAFE_MTU = 2044


def _step(interface: Interface, about: About, settings: Settings) -> Optional[Step]:
    name, profile = interface.name, settings.profile
    mode = interface.mode or DATAGRAM
    if profile is None:
        return about.step(
            f"create a NetworkManager profile for {name}",
            "none",
            f"profile {name!r}, transport mode {mode}, no IP address",
            LINK_DOWN,
            reason="VDSM's network request has no transport mode, and NetworkManager "
            "refuses an infiniband profile without one",
            undo=f"deletes the profile: nmcli connection delete {shlex.quote(name)}",
            changes=ipoib.new_profile(
                name, mode, interface.parent, ipoib.child_pkey(interface)
            ),
            users=interface.users,
        )
    if settings.value(INTERFACE_NAME) or profile.interface_name:
        return None
    changes = settings.change(INTERFACE_NAME, name)
    return about.step(
        f"set {INTERFACE_NAME} in the profile {profile.name!r} of {name}",
        "not set",
        f"{INTERFACE_NAME} {name}",
        ipoib.class_of(changes, profile),
        reason="nmstate finds a profile by its interface-name only",
        undo="removes the property from the profile",
        changes=changes,
        users=interface.users,
    )


PORTS = each(
    "IB-PORT-01",
    lambda view: ((p.name, p) for p in view.ports if p.port.is_infiniband),
    _port,
    "this host has no InfiniBand port",
)
PROFILES = Rule("IPOIB-PROFILE-01", _profiles, NO_NETDEV)
BONDS = Rule("IPOIB-BOND-01", _bonds, "no bond, bridge or VLAN is on an IPoIB netdev")


_OTHER = {ON: OFF, OFF: ON}


def _changes(
    interface: Interface, settings: Settings, tso: Tso, target: str
) -> tuple[Change, ...]:
    """Return the Changes that set TSO: in a profile with another value, then live."""
    opposed = bool(tso.changeable) and settings.value(TSO) not in (None, target)
    profile = settings.change(TSO, target) if opposed else ()
    if target == ON:
        # Datagram mode turns requested features on that connected mode turned off.
        names = [n for n in tso.changeable if n not in (*tso.on, *tso.requested)]
    else:
        names = [n for n in (*tso.on, *tso.requested) if n in tso.changeable]
    before = None if interface.planned else _OTHER[target]
    live = (Change(OFFLOAD, interface.name, before, target, n) for n in names)
    return (*profile, *live)


def _tso_step(
    about: About,
    interface: Interface,
    settings: Settings,
    changes: tuple[Change, ...],
    *,
    now: str,
    target: str,
    reason: str,
    refused: str = "",
) -> Step:
    return about.step(
        f"turn TSO of {interface.name} {target}",
        now,
        target,
        ipoib.class_of(changes, settings.profile),
        reason=reason,
        undo="restores the earlier state",
        changes=changes,
        refused=refused,
        users=interface.users,
    )


def _tso_text(tso: Tso) -> str:
    if tso.on:
        return "on"
    if tso.requested:
        return "off, but requested (connected mode has no TSO)"
    return "off" if tso.changeable else "off [fixed]"


MUST_BE_OFF = "a ConnectX of revision a0 must not use TSO over IPoIB"


def _a0(view: View, about: About, interface: Interface) -> Iterator[Outcome]:
    tso = ipoib.tso_of(interface.netdev)
    yield _a0_finding(interface, about, tso)
    if tso is None or interface.policy.tso not in (AUTO, OFF):
        return
    settings = settings_of(view, interface)
    changes = _changes(interface, settings, tso, OFF)
    if changes:
        yield _tso_step(
            *(about, interface, settings, changes),
            now=_tso_text(tso),
            target=OFF,
            reason=MUST_BE_OFF,
        )


def _a0_finding(interface: Interface, about: About, tso: Optional[Tso]) -> Finding:
    revision, guid = ipoib.revision_text(interface.device), interface.port.guid or "..."
    adapter = f"{interface.name} is on a ConnectX of revision a0 ({revision})"
    fix = ""
    if tso is None:
        fix = f"install ethtool, or check manually: ethtool -k {interface.name}"
        return about.warns(f"{adapter}, and its TSO state is unknown", fix)
    if tso.on and not set(tso.on) & set(tso.changeable):
        fix = (
            "its driver does not support turning TSO off ([fixed]); connected mode has "
            "no TSO: set transport_mode: connected in the policy"
        )
    elif interface.policy.tso not in (AUTO, OFF):
        rule = f'{{match: {{guid: "{guid}"}}, tso: auto}}'
        fix = f"policy.yaml, host: interfaces: [{rule}]"
    if tso.on:
        return about.fails(f"{adapter}, and TSO is on ({', '.join(tso.on)})", fix)
    if tso.requested:
        connected = "TSO is off in connected mode, and datagram mode turns it on"
        return about.warns(f"{adapter}; {connected}", fix)
    state = "off, and the driver would allow turning it on"
    if not tso.changeable:
        state = "off [fixed]: the driver detects this adapter"
    return about.passes(f"{adapter}; TSO is {state}")


def _tso(view: View, about: About, interface: Interface) -> Iterator[Outcome]:
    name, wanted, is_ipoib = interface.name, interface.policy.tso, interface.is_ipoib
    tso, settings = ipoib.tso_of(interface.netdev), settings_of(view, interface)
    if tso is None:
        fix = "install ethtool" if wanted else ""
        yield about.skips(f"the TSO state of {name} is unknown", fix)
        return
    if not is_ipoib:  # which alone turns them on again by itself
        tso = replace(tso, requested=())
    now, target = _tso_text(tso), OFF if wanted == OFF else ON
    shown = f"TSO of {name} is {now}"
    if is_ipoib and is_connectx_a0(interface.device) and wanted != ON:
        yield about.skips(f"{shown}; see IPOIB-TSO-01")
        return
    if wanted is None or (wanted == AUTO and not is_ipoib):
        yield about.passes(f"{shown}; the policy does not set it")
        return
    changes = _changes(interface, settings, tso, target)
    refused = _refusal(view, interface, tso, target)
    if any(change.kind == PROFILE for change in changes) and settings.blocked:
        changes = changes[1:]
        refused = refused or (settings.blocked if changes else "")
    if refused and wanted == AUTO:
        yield about.passes(f"{shown}: {refused}")
        return
    reason = "the policy requires it"
    if wanted == AUTO:
        reason = "with TSO the adapter segments TCP data instead of the CPU"
    if refused:
        yield about.fails(
            f"{shown}, and the policy's {target} is not possible: {refused}",
            "set tso: auto for it in the policy",
        )
    elif not changes:
        yield about.passes(f"{shown}: {reason}")
        return
    elif all(change.kind == PROFILE for change in changes):
        verdict = WARN if is_ipoib else FAIL
        sentence = f"{shown}, but its profile will turn it {_OTHER[target]}"
        yield about.finds(verdict, sentence)
    else:
        yield about.fails(f"{shown}, but should be {target}: {reason}")
    yield _tso_step(
        *(about, interface, settings, changes),
        now=now,
        target=target,
        reason=reason,
        refused=refused,
    )


def _refusal(view: View, interface: Interface, tso: Tso, target: str) -> str:
    """Return why TSO cannot be set to ``target``; empty if it can."""
    fixed = [name for name in tso.on if name not in tso.changeable]
    every, is_ipoib = len(fixed) == len(tso.on), interface.is_ipoib
    if target == OFF:
        # Of IPoIB what can be is turned off.
        if fixed and (every or not is_ipoib):
            what = "it" if every else ", ".join(fixed)
            return f"the driver does not support turning {what} off ([fixed])"
    elif is_ipoib and is_connectx_a0(interface.device):
        return MUST_BE_OFF
    elif is_ipoib and ipoib.planned_mode(view, interface) == CONNECTED:
        now = interface.mode == CONNECTED
        change = "" if now else "the plan sets connected mode, and "
        return f"{change}connected mode has no TSO"
    elif not tso.on and not tso.changeable:
        return "the driver does not support TSO (off [fixed])"
    return ""


TSO_A0 = of_netdevs(
    "IPOIB-TSO-01",
    _a0,
    "no IPoIB netdev is on a ConnectX of revision a0",
    lambda interface: is_connectx_a0(interface.device),
)
TSO_IPOIB = of_netdevs("IPOIB-TSO-02", _tso)
TSO_ROCE = each(
    "ROCE-TSO-01",
    lambda view: (
        (one.name, one)
        for one in view.interfaces
        if not one.is_ipoib and one.policy.tso is not None
    ),
    _tso,
    "the policy does not set TSO of Ethernet netdevs",
    rdma=True,
)
