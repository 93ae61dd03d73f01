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
from dataclasses import dataclass, replace
from typing import Optional

from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.facts.adapter_models import HFI1, MLX5
from ovirt_rdma.host.facts.infiniband import (
    AUTO,
    COMMON_GROUP_MTU,
    CONNECTED,
    CONNECTED_MTU,
    DATAGRAM,
    HEADER,
)
from ovirt_rdma.host.rules.base import (
    LINK_DOWN,
    LIVE,
    PASS,
    PROFILE,
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
from ovirt_rdma.host.rules.ipoib import (
    BOND,
    MTU,
    NETWORK,
    TRANSPORT_MODE,
    Choice,
    DecidedMtu,
    MtuLimit,
    Settings,
    asked_mode,
    choose_mode,
    class_of,
    decided_mtu,
    may_be_group_mtu,
    mode_for_mtu,
    mtu_limit,
    no_connected_mode,
    no_mode_file,
    no_port_mtu,
    planned_mode,
    planned_port_mtu,
    port_limit,
    port_mtu_of,
    settings_of,
    unknown_mtu_fix,
    write,
)
from ovirt_rdma.host.rules.ipoib_children import of_netdevs

_COSTS = (
    "connected mode has no TSO and no checksum offload, and its multicast is still "
    "limited to datagrams"
)


def _mode(view: View, about: About, interface: Interface) -> Iterator[Outcome]:
    """Yield a finding, and a step if the policy requires another mode."""
    choice, now = choose_mode(view, interface), interface.mode
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
        if choice.refused == no_mode_file(interface):
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
    asked = asked_mode(view, interface)
    if network and asked not in (None, interface.mode):
        return about.fails(
            f"{shown}, but the network {network.name!r} asks for {asked} mode "
            "(ipoib_mode): the hook ran out of time when VDSM set it up, or somebody "
            "has changed the mode since",
            f"write transport_mode: {asked} for {name} in the policy, put the host "
            "into maintenance, then: ovirt-rdma-host policy load, and ovirt-rdma-host "
            "apply",
        )
    why_not = no_connected_mode(view, interface)
    possible = "possible, and the policy does not set the mode"
    if why_not:
        possible = f"not possible: {why_not}"
    return about.passes(f"{shown}; connected is {possible}")


def _mode_step(
    view: View, interface: Interface, about: About, choice: Choice
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
    size = decided_mtu(view, interface, mode).mtu or interface.netdev.mtu
    change, mtu = write(interface, "mode", mode), write(interface, "mtu", str(size))
    live: tuple[Change, ...] = (replace(mtu, clamped=True), change)
    before, after, effect = now, mode, LIVE if planned else LINK_DOWN
    sentence = f"set {name} to {mode} mode with MTU {size}"
    if now == mode:
        sentence, live = f"set {mode} mode in the profile of {name}", ()
        before = f"profile {settings.value(TRANSPORT_MODE) or 'without mode'}"
        after, effect = f"profile {mode}", class_of(changes, settings.profile)
    elif planned:  # IPOIB-MTU-01 sets its MTU
        sentence, live = f"set {name} to {mode} mode; {_COSTS}", (change,)
    elif mode == CONNECTED:
        sentence, live = f"{sentence}; {_COSTS}", (change, mtu)
    else:
        sentence += ", or less if the broadcast group does not allow it"
    old = "" if planned else f" and MTU {interface.netdev.mtu}"
    profile = ", and the profile's mode" if settings.target else ""
    undo = f"restores {now} mode{old}{profile}"
    if now == mode:
        undo = "restores the profile's earlier mode"
    if not (*changes, *live):
        return None
    return about.step(
        sentence,
        before,
        after,
        effect,
        reason=choice.reason,
        source="Linux Documentation/infiniband/ipoib.rst and ulp/ipoib/ipoib_cm.c",
        undo=undo,
        changes=(*changes, *live),
        refused=choice.refused or settings.blocked,
        users=interface.users,
    )


# An assignment, not a match (==, !=).
_UDEV_MODE = re.compile(r'ATTR\{mode\}\s*[:+]?=\s*e?"([^"]*)"')


def _udev(view: View) -> Iterator[Finding]:
    """Yield a finding for each udev line that sets a mode."""
    for line in view.facts.software.udev_lines:
        for mode in _UDEV_MODE.findall(line.text):
            subject = f"{line.file}:{line.line}"
            yield About(UDEV.id, subject).warns(
                f'{subject} sets ATTR{{mode}}="{mode}", which never works: udev writes '
                "no newline, and the kernel refuses a mode without one",
                "remove the line, and set transport_mode in the policy's host part",
            )


@dataclass(frozen=True)
class _Case:
    """An IPoIB netdev whose MTU the policy sets. ``now`` and ``end`` are the present
    mode and that after the plan; ``decided`` is the MTU in ``end``, and known.
    """

    interface: Interface
    settings: Settings
    now: str
    end: str
    decided: DecidedMtu

    @property
    def auto(self) -> bool:
        return self.decided.wanted is None

    @property
    def target(self) -> int:
        return self.decided.mtu or 0

    @property
    def limit(self) -> MtuLimit:
        return self.decided.limit or MtuLimit(self.target, "")

    @property
    def profile_mtu(self) -> Optional[int]:
        return self.settings.number(MTU)

    @property
    def recreated(self) -> Optional[int]:
        """The MTU of the netdev if a new port MTU recreates it, else None."""
        port_mtu = planned_port_mtu(self.interface)
        datagram = self.now == self.end == DATAGRAM
        return port_mtu - HEADER if port_mtu and datagram else None

    @property
    def may_be_group(self) -> bool:
        """Whether the group's MTU may keep the present MTU below the target."""
        return self.end == DATAGRAM and may_be_group_mtu(self.interface, self.target)

    @property
    def follows_group(self) -> bool:
        """Whether the present MTU is taken as the group's."""
        if self.profile_mtu is None:
            return self.may_be_group and self.auto
        return self.may_be_group and self.profile_mtu >= self.target

    @property
    def refusal(self) -> str:
        """A clause why the target is not possible; empty if it is."""
        if not self.decided.too_large:
            return ""
        possible = port_limit(self.interface)
        why = f"the limit is {self.limit.mtu} ({self.limit.reason})"
        if self.end == DATAGRAM and possible and self.target <= possible.mtu:
            why += "; the kernel would accept more, but not use it"
        return Sentence("mtu-above-limit", why)

    @property
    def changes(self) -> tuple[Change, ...]:
        """The Changes for the target: of the profile, then of sysfs."""
        profile: tuple[Change, ...] = ()
        if self._profile_differs:
            profile = self.settings.change(MTU, str(self.target))
        if self._live_is_correct:
            return profile
        change = write(self.interface, "mtu", str(self.target))
        if self.recreated is not None:
            change = replace(change, before=str(self.recreated))
        clamped = self.auto and self.end == DATAGRAM
        return (*profile, replace(change, clamped=clamped))

    @property
    def _profile_differs(self) -> bool:
        # With auto it may have none: the kernel then uses that of mode and group.
        if not self.auto or self.profile_mtu is None:
            return not self.auto
        possible = port_limit(self.interface) or self.limit
        most = possible.mtu if self.end == DATAGRAM else self.target
        return not self.target <= self.profile_mtu <= most

    @property
    def _live_is_correct(self) -> bool:
        mtu = self.interface.netdev.mtu
        if self.now != self.end:
            # The change of mode sets the MTU, of a new child the largest one.
            return not self.interface.planned or self.target == CONNECTED_MTU
        if self.recreated is not None:
            return self.auto or self.target == self.recreated
        return mtu == self.target or self.follows_group


_LARGER_GROUP = (
    "set a larger MTU for the partition in the subnet manager (opensm's "
    "partitions.conf: ipoib,mtu=5), if all switches and hosts support it"
)
_GROUP_FIX = (
    "ovirt-rdma-host plan; if the MTU does not change, the broadcast group's is "
    f"smaller: {_LARGER_GROUP}"
)


def _mtu(view: View, about: About, interface: Interface) -> Iterator[Outcome]:
    """Yield a finding, and a step if the policy requires another MTU."""
    name, now = interface.name, interface.mode
    end = mode_for_mtu(view, interface)
    decided = decided_mtu(view, interface, end)
    if interface.wanted is None or interface.wanted.mtu is None:
        shown, limit = (
            f"{name} has MTU {interface.netdev.mtu}",
            mtu_limit(interface, now),
        )
        if limit:
            shown = f"{shown} in {now} mode; up to {limit.mtu} is possible"
        why = f": {limit.reason}" if limit and now != CONNECTED else ""
        yield about.passes(shown + why)
    elif decided.by == NETWORK:
        yield about.skips(f"the engine sets the MTU of {name}, by {decided.who}")
    elif decided.by == BOND:
        yield about.skips(f"{name} is a member of {decided.who}, which sets its MTU")
    elif now is None or end is None:
        yield about.skips(
            f"the transport mode of {name} is unknown, so its largest MTU is too"
        )
    elif decided.mtu is None:
        yield about.skips(
            f"{name} has MTU {interface.netdev.mtu}; the largest MTU of "
            f"{interface.port_name} is unknown",
            unknown_mtu_fix(interface.device),
        )
    else:
        settings = settings_of(view, interface)
        yield from _compare(about, _Case(interface, settings, now, end, decided))


def _compare(about: About, case: _Case) -> Iterator[Outcome]:
    mtu, changes = case.interface.netdev.mtu, case.changes
    shown = f"{case.interface.name} has MTU {mtu} in {case.now} mode"
    by_opensm = case.may_be_group and case.interface.device.driver != HFI1
    fix = _GROUP_FIX if by_opensm else ""
    if case.refusal:
        yield about.fails(
            f"{shown}, and the policy's {case.target} is not possible: {case.refusal}",
            f"set mtu: auto, or at most {case.limit.mtu}, in the policy",
        )
        yield replace(_mtu_step(about, case, changes), refused=case.refusal)
        return
    if case.follows_group and not case.auto:
        yield about.fails(
            f"{shown}, although the profile has {case.profile_mtu}: the broadcast "
            f"group allows {mtu}",
            f"{_LARGER_GROUP}; else set mtu: auto in the policy",
        )
    elif not changes:
        why = case.limit.reason if case.auto else "the policy requires it"
        if case.follows_group:
            why = f"the broadcast group limits it; the port supports {case.limit.mtu}"
        elif case.end != case.now or case.recreated is not None:
            why = f"another step sets {case.target}"
        yield about.passes(f"{shown}: {why}")
    elif mtu == case.target:
        yield about.warns(f"{shown}, but its profile does not have that MTU", fix)
    else:
        target = f"the policy requires {case.target}"
        if case.auto:
            above = "at most " if mtu > case.target else ""
            target = f"{above}{case.target} is possible: {case.limit.reason}"
        yield about.fails(f"{shown}, but {target}", fix)
    if changes:
        yield _mtu_step(about, case, changes)


def _mtu_step(about: About, case: _Case, changes: tuple[Change, ...]) -> Step:
    interface, kinds = case.interface, {change.kind for change in changes}
    mtu = interface.netdev.mtu
    # Enhanced IPoIB drops the carrier and opens its queues again.
    disruptive = interface.device.driver == MLX5 and SYSFS in kinds
    before, after, undo = str(mtu), str(case.target), f"restores {mtu}"
    if PROFILE in kinds:
        undo += ", and the profile's earlier value"
    if SYSFS not in kinds:
        before = f"profile {case.profile_mtu or 'without MTU'}"
        after = f"profile {case.target}"
        undo = "restores the profile's earlier value"
    small = SYSFS not in kinds and case.target <= COMMON_GROUP_MTU
    if case.auto and case.end == DATAGRAM and not small:
        after += ", or less if the broadcast group does not allow it"
    return about.step(
        f"set the MTU of {interface.name}",
        before,
        after,
        LINK_DOWN if disruptive else LIVE,
        reason=case.limit.reason if case.auto else "the policy requires it",
        source="Linux ulp/ipoib/ipoib_main.c, ipoib_change_mtu",
        undo=undo,
        changes=changes,
        refused=case.settings.blocked,
        users=interface.users,
    )


def _network_mtu(view: View, about: About, interface: Interface) -> Iterator[Finding]:
    if not interface.network or interface.planned:
        return
    mode = planned_mode(view, interface)
    decided = decided_mtu(view, interface, mode)
    mtu, limit = decided.wanted or 0, decided.limit
    shown = f"{decided.who} sets MTU {mtu} on {interface.name}"
    wanted = interface.wanted.mtu if interface.wanted else None
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
        fix = unknown_mtu_fix(interface.device)
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
    device, port, before = place.device, place.port, port_mtu_of(place)
    refused = no_port_mtu(place)
    if not refused and before == wanted:
        yield about.passes(
            f"{place.name} has port MTU {wanted}: the policy requires it"
        )
        return
    shown = f"{place.name} has port MTU {before or port.max_mtu or 'unknown'}"
    if refused:
        fix = "remove port_mtu for this port from the policy"
        if device.driver == MLX5:
            fix += ", and set mtu instead: mlx5 sizes the buffers by the netdev's MTU"
        yield about.fails(
            f"{shown}, and the policy's {wanted} is not possible: {refused}", fix
        )
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
        source="Linux mlx4/main.c, set_port_ib_mtu; ulp/ipoib/ipoib_ib.c, "
        "IPOIB_UD_BUF_SIZE",
        undo=(f"restores {before}" if before else "nothing is changed")
        + (f", but does not recreate {lost}" if lost else ""),
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
