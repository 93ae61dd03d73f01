# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules about the transport mode and the MTU of IPoIB. Pure.

IPOIB-MODE-01 checks and changes the mode; for ``auto`` see
:mod:`ovirt_rdma.host.rules.ipoib`. IPOIB-MODE-02 reports udev rules that try to set the
mode and cannot.

The kernel sets an MTU with each mode: 65520 with connected, the smaller of the present
and the broadcast group's with datagram. Connected mode accepts every MTU, datagram mode
none above the port's. Therefore the MTU is always written in connected mode: after the
change to connected, before the change to datagram. Reverted in reverse order, both
values are then the earlier ones (ipoib_set_mode and ipoib_change_mtu, Linux 6.1).

IPOIB-MTU-01 sets the policy's MTU and names what limits it. IPOIB-MTU-02 compares it
with the MTU of a logical network, which only the engine sets. A datagram MTU is the
smaller of the requested one and that of the broadcast group, which the subnet manager
sets. The kernel silently accepts a larger number if the port supports it, and shows the
smaller one. The group's MTU cannot be read. It is taken as the limit if the profile
requests more, or if nothing is requested and the netdev has one of the MTUs that a
group can have.

IPOIB-MTU-03 sets mlx4's port MTU, which determines the size of receive buffers there.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from typing import Optional

from ovirt_rdma.host.facts.adapter_models import HFI1, MLX5
from ovirt_rdma.host.facts.infiniband import (
    AUTO,
    COMMON_GROUP_MTU,
    CONNECTED,
    CONNECTED_MTU,
    DATAGRAM,
    HEADER,
)
from ovirt_rdma.host.rules import ipoib
from ovirt_rdma.host.rules.base import (
    LINK_DOWN,
    LIVE,
    PASS,
    SYSFS,
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
from ovirt_rdma.host.rules.ipoib import MTU, TRANSPORT_MODE, settings_of, write
from ovirt_rdma.host.rules.ipoib_children import of_netdevs

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
        say = about.skips if choice.unknown else about.passes
        yield say(f"{shown}: {choice.reason}{costs}")
    elif choice.refused:
        fix = "set transport_mode: auto or datagram for it in the policy"
        if choice.mode != CONNECTED:
            fix = "lower that MTU first, or set transport_mode: auto for it"
        if choice.refused == ipoib.no_mode_file(interface):
            fix = (
                f"set it manually: ip link set {shlex.quote(name)} type ipoib mode "
                f"{choice.mode}"
            )
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
    why_not = ipoib.no_connected_mode(view, interface)
    possible = "possible, and the policy does not set the mode"
    if why_not:
        possible = f"not possible: {why_not}"
    return about.passes(f"{shown}; connected is {possible}")


def _mode_step(
    view: View, interface: Interface, about: About, choice: ipoib.Choice
) -> Optional[Step]:
    name, now, mode = interface.name, interface.mode, choice.mode
    settings, planned = settings_of(view, interface), interface.planned
    if now is None or (planned and settings.target and not choice.refused):
        return None  # a planned one's profile is created with that mode
    changes = settings.change(TRANSPORT_MODE, mode)
    if settings.value(TRANSPORT_MODE) is None:
        # IPOIB-PROFILE-01 creates or fixes a profile without a mode first: it then has
        # the present mode.
        added = () if now == mode else changes
        changes = tuple(replace(change, before=now) for change in added)
    old = interface.netdev.mtu
    size = ipoib.decided_mtu(view, interface, mode).mtu or old
    change, mtu = write(interface, "mode", mode), write(interface, "mtu", str(size))
    live: tuple[Change, ...] = (replace(mtu, clamped=True), change)
    before, after, effect = now, mode, LIVE if planned else LINK_DOWN
    undo = f"restores {now} mode" + ("" if planned else f" and MTU {old}")
    sentence = f"set {name} to {mode} mode with MTU {size}"
    if now == mode:
        sentence, live = f"set {mode} mode in the profile of {name}", ()
        before = f"profile {settings.value(TRANSPORT_MODE) or 'without mode'}"
        after, effect = f"profile {mode}", ipoib.class_of(changes, settings.profile)
        undo = "restores the profile's earlier mode"
    elif planned:  # IPOIB-MTU-01 sets its MTU
        sentence, live = f"set {name} to {mode} mode; {_COSTS}", (change,)
    elif mode == CONNECTED:
        sentence, live = f"{sentence}; {_COSTS}", (change, mtu)
    else:
        sentence += ", or less if the broadcast group does not allow it"
    if not (*changes, *live):
        return None
    return about.step(
        sentence,
        before,
        after,
        effect,
        reason=choice.reason,
        undo=undo,
        changes=(*changes, *live),
        refused=choice.refused or settings.blocked,
        users=interface.users,
    )


# An assignment, not a match (==, !=).
_UDEV_MODE = re.compile(r'ATTR\{mode\}\s*[:+]?=\s*e?"([^"]*)"')


def _udev(view: View) -> Iterator[Finding]:
    for line in view.facts.software.udev_lines:
        for mode in _UDEV_MODE.findall(line.text):
            subject = f"{line.file}:{line.line}"
            yield About(UDEV.id, subject).warns(
                f'{subject} sets ATTR{{mode}}="{mode}", which never works: udev writes '
                "no newline, and the kernel refuses a mode without one",
                "remove the line, and set transport_mode in the policy's host part",
            )


_LARGER_GROUP = (
    "set a larger MTU for the partition in the subnet manager (opensm's "
    "partitions.conf: ipoib,mtu=5), if all switches and hosts support it"
)
_GROUP_FIX = (
    "ovirt-rdma-host plan; if the MTU does not change, the broadcast group's is "
    f"smaller: {_LARGER_GROUP}"
)


def _mtu(view: View, about: About, interface: Interface) -> Iterator[Outcome]:
    name, now, mtu = interface.name, interface.mode, interface.netdev.mtu
    end = ipoib.mode_for_mtu(view, interface)
    decided = ipoib.decided_mtu(view, interface, end)
    if interface.policy.mtu is None:
        shown, limit = f"{name} has MTU {mtu}", ipoib.mtu_limit(interface, now)
        if limit:
            shown = f"{shown} in {now} mode; up to {limit.mtu} is possible"
        why = f": {limit.reason}" if limit and now != CONNECTED else ""
        yield about.passes(shown + why)
    elif decided.by == ipoib.NETWORK:
        yield about.skips(f"the engine sets the MTU of {name}, by {decided.who}")
    elif decided.by == ipoib.BOND:
        yield about.skips(f"{name} is a member of {decided.who}, which sets its MTU")
    elif now is None or end is None:
        yield about.skips(
            f"the transport mode of {name} is unknown, so its largest MTU is too"
        )
    elif decided.mtu is None:
        yield about.skips(
            f"{name} has MTU {mtu}; the largest of {interface.port_name} is unknown",
            ipoib.unknown_mtu_fix(interface.device),
        )
    else:
        settings = settings_of(view, interface)
        yield from _compare(about, interface, settings, end, decided)


def _compare(
    about: About,
    interface: Interface,
    settings: ipoib.Settings,
    end: str,
    decided: ipoib.DecidedMtu,
) -> Iterator[Outcome]:
    """Yield outcomes for the MTU ``decided``, which is known, in the mode ``end`` that
    the netdev has after the plan.
    """
    mtu, target, stored = interface.netdev.mtu, decided.mtu or 0, settings.number(MTU)
    auto, datagram = decided.wanted is None, end == DATAGRAM
    limit = decided.limit or ipoib.MtuLimit(target, "")
    possible = ipoib.port_limit(interface)
    # Whether the group's MTU may keep the present one below the target, and is taken to
    # do so.
    may_be_group = datagram and ipoib.may_be_group_mtu(interface, target)
    by_group = may_be_group and (auto if stored is None else stored >= target)
    # With auto the profile may have none: the kernel then uses that of mode and group.
    most = (possible or limit).mtu if datagram else target
    changes = _live(interface, end, target, auto=auto, by_group=by_group)
    if not auto or (stored is not None and not target <= stored <= most):
        changes = (*settings.change(MTU, str(target)), *changes)
    shown = f"{interface.name} has MTU {mtu} in {interface.mode} mode"
    by_opensm = may_be_group and interface.device.driver != HFI1
    fix, refused = _GROUP_FIX if by_opensm else "", ""
    if decided.too_large:
        unused = datagram and possible and target <= possible.mtu
        more = "; the kernel would accept more, but not use it" if unused else ""
        refused = f"the limit is {limit.mtu} ({limit.reason}){more}"
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
        yield about.passes(f"{shown}: {why}")
    elif mtu == target:
        yield about.warns(f"{shown}, but its profile does not have that MTU", fix)
    else:
        should = f"the policy requires {target}"
        if auto:
            above = "at most " if mtu > target else ""
            should = f"{above}{target} is possible: {limit.reason}"
        yield about.fails(f"{shown}, but {should}", fix)
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
        fix = ipoib.unknown_mtu_fix(interface.device)
        yield about.skips(f"{shown}; its largest MTU is unknown", fix)
    elif wanted is None and limit and mtu != limit.mtu:
        possible = f"up to {limit.mtu} is possible: {limit.reason}"
        yield about.passes(f"{shown}; {possible}")
    elif wanted is None or wanted == mtu:
        yield about.passes(shown)
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


# The IB MTU that fits a page of 4096 bytes together with the 40 bytes of a GRH, the
# kernel's own 320 at the end (SKB_WITH_OVERHEAD) and 64 in front: 2048, but not 4096.
_PAGE_MTU = 2048


def _port_mtu(view: View, about: About, found: tuple[Port, int]) -> Iterator[Outcome]:
    place, wanted = found
    device, port, before = place.device, place.port, ipoib.port_mtu_of(place)
    refused = ipoib.no_port_mtu(place)
    shown = f"{place.name} has port MTU {before or port.max_mtu or 'unknown'}"
    if refused:
        fix = "remove port_mtu for this port from the policy"
        if device.driver == MLX5:
            fix += ", and set mtu instead: mlx5 sizes the buffers by the netdev's MTU"
        yield about.fails(
            f"{shown}, and the policy's {wanted} is not possible: {refused}", fix
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
        reason="the policy requires it: receive buffers have the size of the port's MTU"
        + (", and then fit a page" if wanted <= _PAGE_MTU else ""),
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
    lambda view: (
        (place.name, (place, place.rule.port_mtu))
        for place in view.ports
        if place.rule and place.rule.port_mtu
    ),
    _port_mtu,
    "the policy has no port_mtu for a port of this host",
)
