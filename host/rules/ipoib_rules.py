# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules about InfiniBand ports and IPoIB netdevs: profiles, bonds, bridges and VLANs,
TSO, transport mode and MTU. Pure.

NetworkManager does not change an offload that the profile does not name, neither at
activations nor when it releases the netdev (``_ethtool_state_set`` and
``_ethtool_state_reset``, src/core/devices/nm-device.c). So it is set by ethtool, and
our unit sets it again when the netdev is recreated. In the profile it would make
NetworkManager refuse each Reapply. The profile is changed only if it has another value,
which NetworkManager would set at the next activation.

The kernel sets an MTU with each mode: 65520 with connected, the smaller of the present
and the broadcast group's with datagram. Connected mode accepts every MTU, datagram mode
none above the port's. Therefore the MTU is always written in connected mode: after the
change to connected, before the change to datagram. Reverted in reverse order, both
values are then the earlier ones (ipoib_set_mode and ipoib_change_mtu, Linux 6.1).

The broadcast group's MTU, which limits that of a netdev in datagram mode, cannot be
read. It is taken as the limit if the profile requests more, or if nothing is requested
and the netdev has one of the MTUs that a group can have.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from typing import Optional

from ovirt_rdma.host.facts.adapter_models import HFI1, MLX5
from ovirt_rdma.host.facts.devices import Bond, NetworkManager
from ovirt_rdma.host.facts.infiniband import (
    ACTIVE_BACKUP,
    COMMON_GROUP_MTU,
    CONNECTED,
    CONNECTED_MTU,
    DATAGRAM,
    HEADER,
    full_member,
    is_full_member,
    partition_of,
)
from ovirt_rdma.host.facts.model import SETS_MODE
from ovirt_rdma.host.policy.model import AUTO
from ovirt_rdma.host.policy.texts import OFF, ON
from ovirt_rdma.host.rules import ipoib
from ovirt_rdma.host.rules.base import (
    FAIL,
    LINK_DOWN,
    LIVE,
    OFFLOAD,
    PASS,
    PROFILE,
    SKIP,
    SYSFS,
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
    NO_NETDEV,
    TRANSPORT_MODE,
    TSO,
    Settings,
    Tso,
    is_connectx_a0,
    of_netdevs,
    parents_first,
    settings_of,
    static_addresses,
    write,
)


def _port(view: View, about: About, place: Port) -> Iterator[Finding]:
    port, name = place.port, place.name
    verdict, need = _need(view, place)
    if port.is_active and port.sm_lid:
        rate = f", {port.rate_mbps / 1000:g} Gb/s" if port.rate_mbps else ""
        lid = f", LID {port.lid}" if port.lid else ""
        manager = f"subnet manager at LID {port.sm_lid}"
        yield about.passes(f"{name} is ACTIVE{rate}{lid}, {manager}")
        yield from _membership(view, place)
    elif port.is_active and port.sm_lid is None:
        yield about.skips(f"{name} is ACTIVE; its subnet manager is unknown")
    elif port.is_active or port.state in ("INIT", "ARMED"):
        why = "it has lost its subnet manager (SM LID 0)"
        if not port.is_active:
            why = "it has a link, but no subnet manager has configured it"
        unit = view.facts.software.subnet_manager
        fix = (
            "start a subnet manager: on a switch that has one, or opensm on one "
            "machine of the fabric (two hosts connected back-to-back need one too)"
        )
        if unit:
            fix = (
                f"{unit} is running on this host: see its log, and if it serves "
                "this port's fabric (guid in opensm.conf)"
            )
        yield about.finds(verdict, f"{name} is {port.state}: {why}; {need}", fix)
    else:
        fix = (
            "check the cable, and that the port at its other end is on and has the "
            "same link layer; if it is Disabled or Sleep, reload the port's driver"
        )
        if place.adapter and place.adapter.physical_function:
            fix = (
                "the port of this virtual function must follow the physical one's: on "
                f"{place.adapter.physical_function}, set the link state of the VF to "
                "auto"
            )
        sentence = f"{name} is {port.state} (link: {port.physical_state}); {need}"
        yield about.finds(verdict, sentence, fix if verdict != SKIP else "")


def _uses(view: View, one: Interface) -> list[str]:
    """Return what a netdev is used for: uses, its network and addresses, as text."""
    network = [f"network {one.network.name!r}"] if one.network else []
    purposes = [use.purpose for use in view.users.uses(one.name)]
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
        if one.is_child or (elsewhere and not _uses(view, one)):
            continue
        yield About(PORTS.id, one.name).warns(
            f"{place.name} is only a limited member of the partition of {one.name} "
            f"({first}): it reaches full members only, and two limited members do not "
            "reach each other",
            "make the storage server's ports, or all, full members in the subnet "
            "manager's partitions (opensm: ALL=full, or GUID=full)",
        )


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
        for use in _uses(view, one):
            return WARN, f"{one.name} is in use ({use})"
    return SKIP, "nothing on this host needs it"


def _bonds(view: View) -> Iterator[Finding]:
    modes = {interface.name: interface.mode for interface in view.ipoib}
    for netdev in view.facts.netdevs:
        members = {name: modes[name] for name in netdev.lowers if name in modes}
        if netdev.bond and members:
            yield _bond(About(BONDS.id, netdev.name), netdev.bond, members)
    yield from _networks(view)


def _bond(about: About, bond: Bond, members: dict[str, Optional[str]]) -> Finding:
    mac, modes = bond.fail_over_mac, {*members.values()}
    shown = f"{about.subject} of {', '.join(members)} is in mode {bond.mode}"
    shown += f" with fail_over_mac {mac or 'unknown'}"
    if bond.mode not in ACTIVE_BACKUP or mac not in (None, "active"):
        return about.fails(
            f"{shown}, but IPoIB supports only {ACTIVE_BACKUP[0]} with active: an "
            "address cannot move to another port",
            "in the engine's host networks, custom bond mode 'mode=1 miimon=100 "
            "fail_over_mac=1'",
        )
    if mac is None or None in modes:
        return about.skips(f"{shown}; that, or a member's mode, could not be read")
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
    manager, unknown = view.facts.network_manager, ipoib.manager_unknown(view)
    if unknown and view.ipoib:
        yield About(PROFILES.id).skips(unknown)
    elif manager and manager.running:
        for interface in parents_first(view):
            if not interface.planned:
                yield from _profile(view, interface, manager)
        yield from _orphans(view)
    elif view.ipoib:
        names = ", ".join(interface.name for interface in view.ipoib)
        yield About(PROFILES.id).warns(
            f"NetworkManager {'is not running' if manager else 'is not installed'}, so "
            f"nothing stores the settings of {names}",
            f"{'' if manager else 'install it; '}systemctl enable --now "
            "NetworkManager; VDSM needs it too",
        )


def _orphans(view: View) -> Iterator[Finding]:
    renamed = [ipoib.profile_of_guid(view, one, named=True) for one in view.ipoib]
    for profile in view.profiles:
        name = profile.interface_name
        if (
            profile.type == ipoib.INFINIBAND_TYPE
            and is_persistent(profile)
            and Settings(profile=profile).value(ipoib.PARENT) is None
            and profile not in renamed
            and name is not None
            and view.netdev(name) is None
        ):
            yield About(PROFILES.id, name).warns(
                f"the profile {profile.name!r} is for {name}, which does not exist",
                "if the netdev was renamed, write its name into "
                f"{INTERFACE_NAME} of {profile.uuid}; if the adapter was removed: "
                f"nmcli connection delete {profile.uuid}",
            )


def _profile(
    view: View, interface: Interface, manager: NetworkManager
) -> Iterator[Outcome]:
    name = interface.name
    about, settings = About(PROFILES.id, name), settings_of(view, interface)
    profile, step = settings.profile, _stored(interface, about, settings)
    missing = f"{name} has no NetworkManager profile of its own"
    if profile:
        missing = f"the profile {profile.name!r} of {name} has no {INTERFACE_NAME}"
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
    elif interface.netdev.carrier is False and not _uses(view, interface):
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
        large = (settings.number(MTU) or 0) > _SAFE_MTU
        return about.warns(
            f"{shown}, which {name} cannot have: {why_not}; NetworkManager cannot "
            "activate it (the device could not be readied for configuration)",
            f"{modify}{DATAGRAM}" + (f" {MTU} {_SAFE_MTU}" if large else ""),
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


def _stored(interface: Interface, about: About, settings: Settings) -> Optional[Step]:
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
    lambda view: (one for one in view.ports if one.port.is_infiniband),
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
    tso: Tso,
    changes: tuple[Change, ...],
    *,
    target: str,
    reason: str,
    refused: str = "",
) -> Step:
    return about.step(
        f"turn TSO of {interface.name} {target}",
        _tso_text(tso),
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
    revision, guid = ipoib.revision_text(interface.device), interface.port.guid or "..."
    adapter = f"{interface.name} is on a ConnectX of revision a0 ({revision})"
    tso, named = ipoib.tso_of(interface.netdev), interface.policy.tso in (AUTO, OFF)
    if tso is None:
        fix = f"install ethtool, or check manually: ethtool -k {interface.name}"
        yield about.warns(f"{adapter}, and its TSO state is unknown", fix)
        return
    rule = f'{{match: {{guid: "{guid}"}}, tso: auto}}'
    fix = "" if named else f"policy.yaml, host: interfaces: [{rule}]"
    if tso.on and not {*tso.on} & {*tso.changeable}:
        fix = (
            "its driver does not support turning TSO off ([fixed]); connected mode has "
            "no TSO: set transport_mode: connected in the policy"
        )
    shown = f"{adapter}; TSO is {_tso_text(tso)}"
    if tso.on:
        yield about.fails(f"{shown} ({', '.join(tso.on)})", fix)
    elif tso.requested:
        yield about.warns(f"{shown}, and datagram mode turns it on", fix)
    else:
        yield about.passes(shown)
    settings = settings_of(view, interface)
    changes = _changes(interface, settings, tso, OFF) if named else ()
    if changes:
        step = (about, interface, settings, tso, changes)
        yield _tso_step(*step, target=OFF, reason=MUST_BE_OFF)


def _tso(view: View, about: About, interface: Interface) -> Iterator[Outcome]:
    name, wanted, is_ipoib = interface.name, interface.policy.tso, interface.is_ipoib
    tso, settings = ipoib.tso_of(interface.netdev), settings_of(view, interface)
    if tso is None:
        fix = "install ethtool" if wanted else ""
        yield about.skips(f"the TSO state of {name} is unknown", fix)
        return
    if not is_ipoib:  # which alone turns them on again by itself
        tso = replace(tso, requested=())
    target, shown = OFF if wanted == OFF else ON, f"TSO of {name} is {_tso_text(tso)}"
    if is_ipoib and is_connectx_a0(interface.device) and wanted != ON:
        yield about.skips(f"{shown}; see IPOIB-TSO-01")
        return
    if wanted is None or (wanted == AUTO and not is_ipoib):
        yield about.passes(f"{shown}; the policy does not set it")
        return
    changes = _changes(interface, settings, tso, target)
    refused, reason = _refusal(view, interface, tso, target), "the policy requires it"
    if any(change.kind == PROFILE for change in changes) and settings.blocked:
        changes = changes[1:]
        refused = refused or (settings.blocked if changes else "")
    unknown = ipoib.manager_unknown(view)
    if changes:
        refused = refused or unknown
    if refused and wanted == AUTO:
        say = about.skips if refused == unknown else about.passes
        yield say(f"{shown}: {refused}")
        return
    if wanted == AUTO:
        reason = "with TSO the adapter segments TCP data instead of the CPU"
    if refused:
        yield about.fails(
            f"{shown}, and the policy's {target} is not possible: {refused}",
            "set tso: auto for it in the policy",
        )
    elif not changes:
        say = about.skips if unknown else about.passes
        yield say(f"{shown}: {unknown or reason}")
        return
    elif all(change.kind == PROFILE for change in changes):
        verdict = WARN if is_ipoib else FAIL
        sentence = f"{shown}, but its profile will turn it {_OTHER[target]}"
        yield about.finds(verdict, sentence)
    else:
        yield about.fails(f"{shown}, but should be {target}: {reason}")
    step = (about, interface, settings, tso, changes)
    yield _tso_step(*step, target=target, reason=reason, refused=refused)


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
        one for one in view.interfaces if not one.is_ipoib and one.policy.tso
    ),
    _tso,
    "the policy does not set TSO of Ethernet netdevs",
    rdma=True,
)


_COSTS = (
    "connected mode has no TSO and no checksum offload, and its multicast is still "
    "limited to datagrams"
)


def _mode(view: View, about: About, interface: Interface) -> Iterator[Outcome]:
    choice, now = ipoib.choose_mode(view, interface), interface.mode
    name, shown = interface.name, f"{interface.name} is in {now} mode"
    step = _mode_step(view, interface, about, choice) if choice else None
    if now is None:
        yield about.skips(f"the transport mode of {name} is unknown")
    elif choice is None:
        yield _without_policy(view, interface, about, shown)
    elif step is None:
        costs = f"; {_COSTS}" if now == CONNECTED else ""
        unknown = ipoib.manager_unknown(view)
        say = about.skips if choice.unknown or unknown else about.passes
        yield say(f"{shown}: {unknown or choice.reason}{costs}")
    elif choice.refused:
        fix = "lower that MTU first, or set transport_mode: auto for it"
        if choice.refused == ipoib.no_mode_file(interface):
            fix = (
                f"set it manually: ip link set {shlex.quote(name)} type ipoib mode "
                f"{choice.mode}"
            )
        elif choice.mode == CONNECTED:
            fix = "set transport_mode: auto or datagram for it in the policy"
        sentence = f"{shown}, and the policy's {choice.mode} mode is not possible"
        yield about.fails(f"{sentence}: {choice.refused}", fix)
    elif now == choice.mode:
        yield about.warns(
            f"{shown}, but its profile has another mode, which NetworkManager sets at "
            "each activation"
        )
    else:
        should = f"but should be in {choice.mode} mode: {choice.reason}"
        yield about.fails(f"{shown}, {should}")
    if step:
        yield step


def _without_policy(
    view: View, interface: Interface, about: About, shown: str
) -> Finding:
    name, network = interface.name, interface.network
    asked = ipoib.asked_mode(view, interface)
    if network and asked not in (None, interface.mode):
        return about.fails(
            f"{shown}, but the network {network.name!r} asks for {asked} mode "
            "(ipoib_mode): the hook ran out of time when VDSM set it up, or somebody "
            "has changed the mode since",
            f"write transport_mode: {asked} for {name} in the policy, put the host "
            "into maintenance, then: ovirt-rdma-host policy load, and ovirt-rdma-host "
            "apply",
        )
    no = ipoib.no_connected_mode(view, interface)
    return about.passes(
        f"{shown}; connected is {f'not possible: {no}' if no else 'possible'}"
    )


def _mode_step(
    view: View, interface: Interface, about: About, choice: ipoib.Choice
) -> Optional[Step]:
    name, now, mode = interface.name, interface.mode, choice.mode
    settings, planned = settings_of(view, interface), interface.planned
    if now is None or (planned and settings.target and not choice.refused):
        return None  # a planned one's profile is created with that mode
    stored, old = settings.value(TRANSPORT_MODE), interface.netdev.mtu
    changes = settings.change(TRANSPORT_MODE, mode)
    if stored is None:
        # IPOIB-PROFILE-01 creates or fixes a profile without a mode first: it then has
        # the present mode.
        added = () if now == mode else changes
        changes = tuple(replace(change, before=now) for change in added)
    if now == mode and not changes:
        return None
    size = ipoib.decided_mtu(view, interface, mode).mtu or old
    change, mtu = write(interface, "mode", mode), write(interface, "mtu", str(size))
    live: tuple[Change, ...] = (replace(mtu, clamped=True), change)
    undo = f"restores {now} mode" + ("" if planned else f" and MTU {old}")
    sentence = f"set {name} to {mode} mode with MTU {size}"
    if now == mode:
        sentence, live = f"set {mode} mode in the profile of {name}", ()
        undo = "restores the profile's earlier mode"
    elif planned:  # IPOIB-MTU-01 sets its MTU
        sentence, live = f"set {name} to {mode} mode; {_COSTS}", (change,)
    elif mode == CONNECTED:
        sentence, live = f"{sentence}; {_COSTS}", (change, mtu)
    else:
        sentence += ", or less if the broadcast group does not allow it"
    effect = LIVE if planned else LINK_DOWN
    return about.step(
        sentence,
        f"profile {stored or 'without mode'}" if now == mode else now,
        f"profile {mode}" if now == mode else mode,
        ipoib.class_of(changes, settings.profile) if now == mode else effect,
        reason=choice.reason,
        undo=undo,
        changes=(*changes, *live),
        refused=choice.refused or settings.blocked,
        users=interface.users,
    )


_NEWLINE = r"\n"  # as it is written in a rule


def _udev(view: View) -> Iterator[Finding]:
    for line in view.facts.software.udev_lines:
        for escapes, mode in re.findall(SETS_MODE, line.text):
            subject = f"{line.file}:{line.line}"
            what = (
                f'="{mode}", which never works: udev writes no newline, and the kernel '
                "refuses a mode without one"
            )
            if escapes and mode.endswith(_NEWLINE):
                what = (
                    f'=e"{mode}", which NetworkManager replaces by the mode of its '
                    "profile; udev later than systemd 257's drops the newline, without "
                    "which the kernel refuses it"
                )
            yield About(UDEV.id, subject).warns(
                f"{subject} sets ATTR{{mode}}{what}",
                "remove the line, and set transport_mode in the policy's host part",
            )


_LARGER_GROUP = (
    "set a larger MTU for the partition in the subnet manager (opensm's "
    "partitions.conf: ipoib,mtu=5), if all switches and hosts support it"
)


def _mtu(view: View, about: About, interface: Interface) -> Iterator[Outcome]:
    name, now, mtu = interface.name, interface.mode, interface.netdev.mtu
    end = ipoib.mode_for_mtu(view, interface)
    decided = ipoib.decided_mtu(view, interface, end)
    if interface.policy.mtu is None:
        limit = ipoib.mtu_limit(interface, now)
        shown = f"{name} has MTU {mtu} in {now or 'an unknown'} mode"
        most = f"; up to {limit.mtu} is possible: {limit.reason}" if limit else ""
        yield about.passes(shown + most)
    elif decided.by in (ipoib.NETWORK, ipoib.BOND):
        yield about.skips(f"{decided.who} sets the MTU of {name}")
    elif now is None or end is None:
        yield about.skips(
            f"the transport mode of {name} is unknown, so its largest MTU is too"
        )
    elif decided.mtu is None:
        yield about.skips(
            f"{name} has MTU {mtu}; the largest of {interface.port_name} in {end} mode "
            "is unknown",
            ipoib.UNKNOWN_MTU_FIX,
        )
    else:
        yield from _compare(view, about, interface, end, decided)


def _compare(
    view: View, about: About, interface: Interface, end: str, decided: ipoib.DecidedMtu
) -> Iterator[Outcome]:
    """Yield outcomes for the MTU ``decided``, which is known, in the mode ``end`` that
    the netdev has after the plan.
    """
    settings, unknown = settings_of(view, interface), ipoib.manager_unknown(view)
    mtu, target, stored = interface.netdev.mtu, decided.mtu or 0, settings.number(MTU)
    auto, datagram = decided.wanted is None, end == DATAGRAM
    limit = decided.limit or ipoib.MtuLimit(target, "")
    possible = ipoib.port_limit(interface) or limit
    # Whether the group's MTU may keep the present one below the target, and is taken to
    # do so.
    may_be_group = datagram and ipoib.may_be_group_mtu(interface, target)
    by_group = may_be_group and (auto if stored is None else stored >= target)
    # With auto the profile may have none: the kernel then uses that of mode and group.
    most = possible.mtu if datagram else target
    changes = _live(interface, end, target, auto=auto, by_group=by_group)
    if not auto or (stored is not None and not target <= stored <= most):
        changes = (*settings.change(MTU, str(target)), *changes)
    shown = f"{interface.name} has MTU {mtu} in {interface.mode} mode"
    refused = ""
    by_opensm = may_be_group and interface.device.driver != HFI1
    fix = (
        "ovirt-rdma-host plan; if the MTU does not change, the broadcast group's is "
        f"smaller: {_LARGER_GROUP}"
    )
    if decided.too_large:
        refused = f"the limit is {limit.mtu} ({limit.reason})"
        yield about.fails(
            f"{shown}, and the policy's {target} is not possible: {refused}",
            f"set mtu: auto, or at most {limit.mtu}, in the policy",
        )
    elif by_group and not auto:
        yield about.fails(
            f"{shown}, although the profile has {stored}: the broadcast group allows "
            f"{mtu}",
            f"{_LARGER_GROUP}; else set mtu: auto in the policy",
        )
    elif not changes:
        why = limit.reason if auto else "the policy requires it"
        if by_group:
            why = f"the broadcast group limits it; the port supports {limit.mtu}"
        elif end != interface.mode or _recreated(interface, end) is not None:
            why = f"another step sets {target}"
        say = about.skips if unknown else about.passes
        yield say(f"{shown}: {unknown or why}")
    elif mtu == target:
        yield about.warns(f"{shown}, but its profile does not have that MTU")
    else:
        should = f"up to {target} is possible: {limit.reason}"
        if not auto:
            should = f"the policy requires {target}"
        yield about.fails(f"{shown}, but {should}", fix if by_opensm else "")
    if not changes and not refused:
        return
    before, after, undo = str(mtu), str(target), f"restores {mtu}"
    live = any(change.kind == SYSFS for change in changes)
    if not live:
        before, after = f"profile {stored or 'without MTU'}", f"profile {target}"
        undo = "restores the profile's earlier value"
    if auto and datagram and (live or target > COMMON_GROUP_MTU):
        after += ", or less if the broadcast group does not allow it"
    # Enhanced IPoIB drops the carrier and opens its queues again.
    disruptive = interface.device.driver == MLX5 and live
    yield about.step(
        f"set the MTU of {interface.name}",
        before,
        after,
        LINK_DOWN if disruptive else LIVE,
        reason=limit.reason if auto else "the policy requires it",
        undo=undo,
        changes=changes,
        refused=refused or settings.blocked,
        users=interface.users,
    )


def _live(
    interface: Interface, end: str, target: int, *, auto: bool, by_group: bool
) -> tuple[Change, ...]:
    """Return the Change of sysfs to ``target``; none if it is so, or another step sets
    it.
    """
    recreated = _recreated(interface, end)
    if interface.mode != end:
        # The change of mode sets the MTU, of a new child the largest one.
        correct = not interface.planned or target == CONNECTED_MTU
    elif recreated is not None:
        correct = auto or target == recreated
    else:
        correct = interface.netdev.mtu == target or by_group
    if correct:
        return ()
    change = write(interface, "mtu", str(target))
    before = change.before if recreated is None else str(recreated)
    return (replace(change, before=before, clamped=auto and end == DATAGRAM),)


def _recreated(interface: Interface, end: str) -> Optional[int]:
    """Return the MTU of the netdev if a new port MTU recreates it, else None."""
    port_mtu = ipoib.planned_port_mtu(interface)
    datagram = interface.mode == end == DATAGRAM
    return port_mtu - HEADER if port_mtu and datagram else None


def _network_mtu(view: View, about: About, interface: Interface) -> Iterator[Finding]:
    if not interface.network or interface.planned:
        return
    mode = ipoib.planned_mode(view, interface)
    decided = ipoib.decided_mtu(view, interface, mode)
    mtu, limit = decided.wanted or 0, decided.limit
    shown = f"{decided.who} sets MTU {mtu} on {interface.name}"
    wanted = interface.policy.mtu
    unknown = limit is None and (mtu > COMMON_GROUP_MTU or wanted == AUTO)
    if wanted == AUTO:
        wanted = limit.mtu if limit else None
    if limit and decided.too_large:
        yield about.fails(
            f"{shown}, but {mode} mode supports at most {limit.mtu}: {limit.reason}",
            f"set the network's MTU to {limit.mtu} or less in the engine, or set "
            "transport_mode: auto in the policy",
        )
    elif unknown:
        fix = ipoib.UNKNOWN_MTU_FIX
        yield about.skips(f"{shown}; its largest MTU is unknown", fix)
    elif wanted is None or wanted == mtu:
        most = f"; up to {limit.mtu} is possible: {limit.reason}" if limit else ""
        yield about.passes(shown + most)
    else:
        # The broadcast group's MTU is unknown, and may be smaller.
        group = ", if the subnet manager gives the partition that MTU (opensm: mtu=5)"
        if mode == CONNECTED or int(wanted) <= COMMON_GROUP_MTU:
            group = ""
        yield about.warns(
            f"{shown}, and the policy requires {wanted}; the engine's MTU applies",
            f"set MTU {wanted} in the logical network {interface.network.name!r} "
            f"(Network, Logical Networks, Edit), for all its hosts{group}; or remove "
            "mtu from the policy",
        )


def _port_mtu(view: View, about: About, place: Port) -> Iterator[Outcome]:
    device, port, before = place.device, place.port, ipoib.port_mtu_of(place)
    wanted, refused = (
        (place.rule and place.rule.port_mtu) or 0,
        ipoib.no_port_mtu(place),
    )
    shown = f"{place.name} has port MTU {before or port.max_mtu or 'unknown'}"
    if refused:
        yield about.fails(
            f"{shown}, and the policy's {wanted} is not possible: {refused}",
            "remove port_mtu for this port from the policy",
        )
    elif before == wanted:
        yield about.passes(f"{shown}: the policy requires it")
        return
    else:
        yield about.fails(f"{shown}, but the policy requires {wanted}")
    address = device.pci.address if device.pci else "unknown"
    target = f"/sys/bus/pci/devices/{address}/mlx4_port{port.number}_mtu"
    # P_Key children that no profile recreates with their parents.
    lost = ", ".join(
        one.name
        for one in view.interfaces
        if one.device is device
        and one.is_child
        and not (one.profile and is_persistent(one.profile))
    )
    known = str(before) if before else None
    yield about.step(
        f"set the port MTU of {place.name}; all netdevs of {device.name} are removed "
        "and recreated" + (f", except {lost}, which no profile keeps" if lost else ""),
        known or "unknown",
        str(wanted),
        LINK_DOWN,
        reason="the policy requires it: receive buffers have the size of the port's "
        "MTU, and one of 2048 bytes fits a page with all that is around it",
        undo=f"restores {before}, but does not recreate {lost}" if lost else "",
        changes=(Change(SYSFS, target, known, str(wanted)),),
        refused=refused,
        users=() if refused else view.users.of_adapter(address, removed=True),
    )


MODE = of_netdevs("IPOIB-MODE-01", _mode)
UDEV = Rule("IPOIB-MODE-02", _udev, "no udev rule tries to set a transport mode", PASS)
NETDEV_MTU = of_netdevs("IPOIB-MTU-01", _mtu)
NETWORK_MTU = of_netdevs(
    "IPOIB-MTU-02", _network_mtu, "no IPoIB netdev has a logical network"
)
BUFFERS = each(
    "IPOIB-MTU-03",
    lambda view: (one for one in view.ports if one.rule and one.rule.port_mtu),
    _port_mtu,
    "the policy has no port_mtu for a port of this host",
)
