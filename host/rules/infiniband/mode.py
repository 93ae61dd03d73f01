# SPDX-License-Identifier: GPL-2.0-or-later
"""IPOIB-MODE-01 and IPOIB-MODE-02: the IPoIB mode, and how it is changed. Pure.

What is written to change a netdev's transport mode: the mode, and the MTU beside it,
in an order that works backwards too. Pure.

The kernel sets an MTU with each mode: 65520 with connected, the smaller of the present
and the broadcast group's with datagram. Connected mode takes every MTU, datagram mode
none above the port's. So the MTU is always written in connected mode: after the mode
on the way there, before it on the way back. Undone backwards, both values then are what
they were (ipoib_set_mode and ipoib_change_mtu, Linux 6.1).

IPOIB-MODE-01 and IPOIB-MODE-02: the transport mode of IPoIB netdevs, and udev rules
that try to set it and cannot. How ``auto`` chooses stands in
:mod:`ovirt_rdma.host.rules.infiniband.mode_choice`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from typing import Optional

from ovirt_rdma.host.policy.model import AUTO, CONNECTED, DATAGRAM
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
from ovirt_rdma.host.rules.infiniband.children import in_order
from ovirt_rdma.host.rules.infiniband.limits import (
    CONNECTED_MTU,
    datagram_limit,
    no_connected_mode,
    no_mode_file,
)
from ovirt_rdma.host.rules.infiniband.mode_choice import Choice, choose_mode
from ovirt_rdma.host.rules.infiniband.settings import (
    MTU,
    TRANSPORT_MODE,
    Settings,
    bonds_of,
    settings_of,
    write,
)
from ovirt_rdma.host.rules.reapply import class_of
from ovirt_rdma.host.rules.view import Interface, View


def mode_changes(view: View, interface: Interface, mode: str) -> tuple[Change, ...]:
    """Return the Changes that bring ``interface`` into ``mode``."""
    change = write(interface, "mode", mode)
    if interface.planned:
        return (change,)  # a new child's MTU is IPOIB-MTU-01's
    mtu = write(interface, "mtu", str(coming_mtu(view, interface, mode)))
    if mode == CONNECTED:
        return (change, mtu)
    return (replace(mtu, clamped=True), change)


def coming_mtu(view: View, interface: Interface, mode: str) -> int:
    """Return the MTU in bytes that ``interface`` is to have in ``mode``: the engine's,
    else that of the bond above, the policy, the profile, else the most. In datagram
    mode the broadcast group may make it less.
    """
    now = interface.netdev.mtu
    limit = datagram_limit(interface) if mode == DATAGRAM else None
    most = limit.mtu if limit else now if mode == DATAGRAM else CONNECTED_MTU
    wanted = interface.wanted.mtu if interface.wanted else None
    if wanted is None:
        kept = settings_of(view, interface).value(MTU) or ""
        wanted = int(kept) if kept.isdecimal() else AUTO
    if interface.network:
        wanted = interface.network.mtu or now
    elif bonds_of(view, interface):
        wanted = now
    return min(wanted, most) if isinstance(wanted, int) else most


MODE = "IPOIB-MODE-01"
UDEV = "IPOIB-MODE-02"
SOURCE = "Linux Documentation/infiniband/ipoib.rst and ulp/ipoib/ipoib_cm.c"

_COSTS = (
    "it gives up TSO and checksum offload, and multicast stays limited to datagrams"
)
# An assignment, not a match (==, !=).
_UDEV_MODE = re.compile(r'ATTR\{mode\}\s*[:+]?=\s*e?"([^"]*)"')


def decide_mode(view: View) -> Iterator[Outcome]:
    """Give a finding for each IPoIB netdev, and a step where the policy wants another
    mode.
    """
    if not view.ipoib:
        yield Finding(MODE, "host", SKIP, "this host has no IPoIB netdev")
    for interface in in_order(view):
        step = _step(view, interface)
        if not interface.planned:
            yield _finding(view, interface, step)
        if step:
            yield step


def _finding(view: View, interface: Interface, step: Optional[Step]) -> Finding:
    name = interface.name
    now = interface.netdev.ipoib.mode if interface.netdev.ipoib else None
    if now is None:
        return Finding(MODE, name, SKIP, f"the transport mode of {name} is not known")
    choice = choose_mode(view, interface)
    shown = f"{name} is in {now} mode"
    if choice is None:
        why_not = no_connected_mode(view, interface)
        possible = f"connected is not possible: {why_not}"
        if not why_not:
            possible = "connected is possible, and the policy does not say"
        return Finding(MODE, name, PASS, f"{shown}; {possible}")
    if step is None:
        costs = f"; {_COSTS}" if now == CONNECTED else ""
        return Finding(MODE, name, PASS, f"{shown}: {choice.reason}{costs}")
    if choice.refused:
        sentence = f"{shown}, and the policy's {choice.mode} mode is not possible"
        fix = "write transport_mode: auto or datagram for it in the policy"
        if choice.mode != CONNECTED:
            fix = "lower that MTU first, or write transport_mode: auto for it"
        if choice.refused == no_mode_file(interface):
            fix = (
                f"set it by hand: ip link set {shlex.quote(name)} type ipoib mode "
                f"{choice.mode}"
            )
        return Finding(MODE, name, FAIL, f"{sentence}: {choice.refused}", fix)
    if now == choice.mode:
        sentence = f"{shown}, but its profile does not say so, and NetworkManager sets"
        return Finding(MODE, name, WARN, f"{sentence} the profile's at each activation")
    sentence = f"{shown}, and should be in {choice.mode} mode: {choice.reason}"
    return Finding(MODE, name, FAIL, sentence)


def _step(view: View, interface: Interface) -> Optional[Step]:
    choice = choose_mode(view, interface)
    now = interface.netdev.ipoib.mode if interface.netdev.ipoib else None
    if choice is None or now is None:
        return None
    settings = settings_of(view, interface)
    if interface.planned and settings.target and not choice.refused:
        return None  # its profile is made with that mode
    changes = _kept(settings, now, choice.mode)
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


def _kept(settings: Settings, now: str, mode: str) -> tuple[Change, ...]:
    """Return what changes in the profile. One that has no mode yet, as IPOIB-PROFILE-01
    makes or mends it first, has got the present one by then.
    """
    if settings.value(TRANSPORT_MODE) is not None:
        return settings.change(TRANSPORT_MODE, mode)
    if now == mode:
        return ()
    found = settings.change(TRANSPORT_MODE, mode)
    return tuple(replace(change, before=now) for change in found)


def _undo(interface: Interface, settings: Settings, now: str, mode: str) -> str:
    if now == mode:
        return "gives the profile its earlier mode"
    mtu = "" if interface.planned else f" and MTU {interface.netdev.mtu}"
    profile = ", the mode in the profile too" if settings.target else ""
    return f"sets {now} mode{mtu} again{profile}"


def _sentence(view: View, interface: Interface, choice: Choice, now: str) -> str:
    name = interface.name
    if now == choice.mode:
        return f"the profile of {name} does not say {choice.mode} mode"
    if interface.planned:
        return f"{name} goes to {choice.mode} mode: {_COSTS}"
    mtu = coming_mtu(view, interface, choice.mode)
    if choice.mode == CONNECTED:
        return f"{name} goes to connected mode with MTU {mtu}: {_COSTS}"
    return (
        f"{name} goes to datagram mode with MTU {mtu}, or what the broadcast group "
        "allows"
    )


def decide_udev(view: View) -> Iterator[Finding]:
    """Give a finding for each udev line that sets a mode."""
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
                "remove the line, and write transport_mode in the policy's host part",
            )
    if none:
        yield Finding(UDEV, "host", PASS, "no udev rule tries to set a transport mode")


RULES = (
    Rule(
        MODE,
        "IPoIB transport mode",
        "An IPoIB netdev is in datagram or in connected mode. The policy's "
        "transport_mode names one, or auto, which takes the best that driver, kernel "
        "and MTU allow, and says which of them decided: datagram where connected mode "
        "is not possible; connected where a number for the MTU, of the policy or of "
        "the engine's network, does not fit a datagram; datagram on Omni-Path; "
        "connected where TSO cannot be used; else datagram.",
        "Connected mode carries packets of up to 65520 bytes over a queue pair for "
        "each peer. It gives up TSO, checksum offload and all but one transmit queue, "
        "takes kernel memory for each peer, and sends multicast as datagrams all the "
        "same. Datagram mode with TSO hands the adapter as much at a time and scales; "
        "NVIDIA recommends it, and ConnectX-4 and later know nothing else on today's "
        "kernels (enhanced IPoIB; MLNX_OFED's ib_ipoib has ipoib_enhanced=0 to go "
        "back). Whether connected mode is possible shows in the first byte of the "
        "netdev's address: its bit 0x80. hfi1 accepts connected mode too.",
        "Set transport_mode: auto. A change takes the link down for a moment: "
        "NetworkManager does so, because some drivers want it, and all peers look up "
        "each other anew. Where only the profile has to change, it is activated once, "
        "which takes the link down too: NetworkManager would refuse the engine's next "
        "change to the netdev otherwise, and nmstate activate it then. The kernel sets "
        "an MTU with each mode, and datagram mode refuses large ones, so the MTU is "
        "written in connected mode: after the mode on the way there, and before it on "
        "the way back.",
        (
            "Linux Documentation/infiniband/ipoib.rst",
            "Linux drivers/infiniband/ulp/ipoib/ipoib_main.c, ipoib_set_mode",
            "Linux drivers/net/ethernet/mellanox/mlx5/core/ipoib/ipoib.c",
            "Red Hat, Configuring InfiniBand and RDMA networks: IPoIB modes",
            "NVIDIA MLNX_OFED user manual: IPoIB mode setting",
            "Cornelis CN5000 performance tuning: IPoIB",
        ),
        decide_mode,
    ),
    Rule(
        UDEV,
        "udev rules that set the transport mode",
        'A udev rule with ATTR{mode}="connected" for an IPoIB netdev.',
        "The kernel compares what is written to the file mode with a whole line, its "
        "newline included, and answers anything else with EINVAL. udev drops the "
        "newline, so such a rule fails at each boot, with a line in the journal that "
        "nobody sees. And NetworkManager writes its profile's mode afterwards anyway.",
        "Remove the line and let the policy's transport_mode set the profile.",
        (
            "Linux drivers/infiniband/ulp/ipoib/ipoib_main.c, ipoib_set_mode",
            "systemd src/libsystemd/sd-device/sd-device.c, sd_device_set_sysattr_value",
        ),
        decide_udev,
    ),
)
