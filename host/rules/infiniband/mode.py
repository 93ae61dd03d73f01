# SPDX-License-Identifier: GPL-2.0-or-later
"""IPOIB-MODE-01 and IPOIB-MODE-02: check and change the IPoIB transport mode. Pure.

IPOIB-MODE-02 reports udev rules that try to set the mode and cannot. For ``auto`` see
:mod:`ovirt_rdma.host.rules.infiniband.choice`.

The kernel sets an MTU with each mode: 65520 with connected, the smaller of the present
and the broadcast group's with datagram. Connected mode accepts every MTU, datagram mode
none above the port's. Therefore the MTU is always written in connected mode: after the
change to connected, before the change to datagram. Reverted in reverse order, both
values are then the earlier ones (ipoib_set_mode and ipoib_change_mtu, Linux 6.1).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from typing import Optional

from ovirt_rdma.host.facts.ipoib import CONNECTED
from ovirt_rdma.host.rules.base import (
    FAIL,
    LINK_DOWN,
    LIVE,
    PASS,
    SKIP,
    WARN,
    Change,
    Finding,
    Outcome,
    Rule,
    Step,
)
from ovirt_rdma.host.rules.infiniband.children import parents_first
from ovirt_rdma.host.rules.infiniband.choice import (
    Choice,
    asked_mode,
    choose_mode,
    decided_mtu,
)
from ovirt_rdma.host.rules.infiniband.limits import (
    no_connected_mode,
    no_mode_file,
)
from ovirt_rdma.host.rules.infiniband.settings import (
    TRANSPORT_MODE,
    Settings,
    settings_of,
    write,
)
from ovirt_rdma.host.rules.reapply import class_of
from ovirt_rdma.host.rules.view import Interface, View


def mode_changes(view: View, interface: Interface, mode: str) -> tuple[Change, ...]:
    """Return the Changes of mode and MTU that set ``interface`` to ``mode``."""
    change = write(interface, "mode", mode)
    if interface.planned:
        return (change,)  # IPOIB-MTU-01 sets a new child's MTU
    mtu = write(interface, "mtu", str(_mtu_in(view, interface, mode)))
    if mode == CONNECTED:
        return (change, mtu)
    return (replace(mtu, clamped=True), change)


def _mtu_in(view: View, interface: Interface, mode: str) -> int:
    """Return the MTU that the change to ``mode`` sets, the present one if unknown."""
    return decided_mtu(view, interface, mode).mtu or interface.netdev.mtu


MODE = "IPOIB-MODE-01"
UDEV = "IPOIB-MODE-02"
SOURCE = "Linux Documentation/infiniband/ipoib.rst and ulp/ipoib/ipoib_cm.c"

_COSTS = (
    "connected mode has no TSO and no checksum offload, and its multicast is still "
    "limited to datagrams"
)
# An assignment, not a match (==, !=).
_UDEV_MODE = re.compile(r'ATTR\{mode\}\s*[:+]?=\s*e?"([^"]*)"')


def decide_mode(view: View) -> Iterator[Outcome]:
    """Yield a finding for each IPoIB netdev, and a step if the policy requires another
    mode.
    """
    if not view.ipoib:
        yield Finding(MODE, "host", SKIP, "this host has no IPoIB netdev")
    for interface in parents_first(view):
        step = _step(view, interface)
        if not interface.planned:
            yield _finding(view, interface, step)
        if step:
            yield step


def _finding(view: View, interface: Interface, step: Optional[Step]) -> Finding:
    name = interface.name
    now = interface.netdev.ipoib.mode if interface.netdev.ipoib else None
    if now is None:
        return Finding(MODE, name, SKIP, f"the transport mode of {name} is unknown")
    choice = choose_mode(view, interface)
    shown = f"{name} is in {now} mode"
    if choice is None:
        return _without_policy(view, interface, shown, now)
    if step is None:
        costs = f"; {_COSTS}" if now == CONNECTED else ""
        return Finding(MODE, name, PASS, f"{shown}: {choice.reason}{costs}")
    if choice.refused:
        sentence = f"{shown}, and the policy's {choice.mode} mode is not possible"
        fix = "set transport_mode: auto or datagram for it in the policy"
        if choice.mode != CONNECTED:
            fix = "lower that MTU first, or set transport_mode: auto for it"
        if choice.refused == no_mode_file(interface):
            fix = (
                f"set it manually: ip link set {shlex.quote(name)} type ipoib mode "
                f"{choice.mode}"
            )
        return Finding(MODE, name, FAIL, f"{sentence}: {choice.refused}", fix)
    if now == choice.mode:
        sentence = f"{shown}, but its profile has another mode, which NetworkManager"
        return Finding(MODE, name, WARN, f"{sentence} sets at each activation")
    sentence = f"{shown}, but should be in {choice.mode} mode: {choice.reason}"
    return Finding(MODE, name, FAIL, sentence)


def _without_policy(view: View, interface: Interface, shown: str, now: str) -> Finding:
    name, network = interface.name, interface.network
    asked = asked_mode(view, interface)
    if network and asked not in (None, now):
        return Finding(
            MODE,
            name,
            FAIL,
            f"{shown}, but the network {network.name!r} asks for {asked} mode "
            "(ipoib_mode): the hook ran out of time when VDSM set it up, or somebody "
            "has changed the mode since",
            f"write transport_mode: {asked} for {name} in the policy, put the host "
            "into maintenance, then: ovirt-rdma-host policy load, and ovirt-rdma-host "
            "apply",
        )
    why_not = no_connected_mode(view, interface)
    possible = f"connected is not possible: {why_not}"
    if not why_not:
        possible = "connected is possible, and the policy does not set the mode"
    return Finding(MODE, name, PASS, f"{shown}; {possible}")


def _step(view: View, interface: Interface) -> Optional[Step]:
    choice = choose_mode(view, interface)
    now = interface.netdev.ipoib.mode if interface.netdev.ipoib else None
    if choice is None or now is None:
        return None
    settings = settings_of(view, interface)
    if interface.planned and settings.target and not choice.refused:
        return None  # its profile is created with that mode
    changes = _profile_changes(settings, now, choice.mode)
    effect = class_of(changes, settings.profile)
    if now != choice.mode:
        effect = LIVE if interface.planned else LINK_DOWN
        changes += mode_changes(view, interface, choice.mode)
    if not changes:
        return None
    return Step(
        MODE,
        interface.name,
        _sentence(view, interface, choice, now),
        now,
        choice.mode,
        effect,
        choice.reason,
        SOURCE,
        _undo(interface, settings, now, choice.mode),
        changes,
        refused=choice.refused or settings.blocked,
        users=interface.users if effect == LINK_DOWN else (),
    )


def _profile_changes(settings: Settings, now: str, mode: str) -> tuple[Change, ...]:
    """Return the Changes of the profile.

    IPOIB-PROFILE-01 creates or fixes a profile without a mode first: it then has the
    present mode.
    """
    if settings.value(TRANSPORT_MODE) is not None:
        return settings.change(TRANSPORT_MODE, mode)
    if now == mode:
        return ()
    changes = settings.change(TRANSPORT_MODE, mode)
    return tuple(replace(change, before=now) for change in changes)


def _undo(interface: Interface, settings: Settings, now: str, mode: str) -> str:
    if now == mode:
        return "restores the profile's earlier mode"
    mtu = "" if interface.planned else f" and MTU {interface.netdev.mtu}"
    profile = ", and the profile's mode" if settings.target else ""
    return f"restores {now} mode{mtu}{profile}"


def _sentence(view: View, interface: Interface, choice: Choice, now: str) -> str:
    name = interface.name
    if now == choice.mode:
        return f"set {choice.mode} mode in the profile of {name}"
    if interface.planned:
        return f"set {name} to {choice.mode} mode; {_COSTS}"
    mtu = _mtu_in(view, interface, choice.mode)
    if choice.mode == CONNECTED:
        return f"set {name} to connected mode with MTU {mtu}; {_COSTS}"
    return (
        f"set {name} to datagram mode with MTU {mtu}, or less if the broadcast group "
        "does not allow it"
    )


def decide_udev(view: View) -> Iterator[Finding]:
    """Yield a finding for each udev line that sets a mode."""
    none = True
    for line in view.facts.software.udev_lines:
        for mode in _UDEV_MODE.findall(line.text):
            none = False
            subject = f"{line.file}:{line.line}"
            yield Finding(
                UDEV,
                subject,
                WARN,
                f'{subject} sets ATTR{{mode}}="{mode}", which never works: udev writes '
                "no newline, and the kernel refuses a mode without one",
                "remove the line, and set transport_mode in the policy's host part",
            )
    if none:
        yield Finding(UDEV, "host", PASS, "no udev rule tries to set a transport mode")


RULES = (
    Rule(MODE, decide_mode),
    Rule(UDEV, decide_udev),
)
