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

IPOIB-MTU-03 reports large receive buffers, and sets mlx4's port MTU, which determines
their size there.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Optional

from ovirt_rdma.host.errors import Sentence
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
    is_mlx5,
    is_omni_path,
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
from ovirt_rdma.host.rules.ipoib_children import parents_first
from ovirt_rdma.host.rules.ipoib_profile import NO_NETDEV

_COSTS = (
    "connected mode has no TSO and no checksum offload, and its multicast is still "
    "limited to datagrams"
)


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


def _mode(view: View) -> Iterator[Outcome]:
    """Yield a finding for each IPoIB netdev, and a step if the policy requires another
    mode.
    """
    for interface in parents_first(view):
        about = About(MODE.id, interface.name)
        choice = choose_mode(view, interface)
        step = _mode_step(view, interface, about, choice) if choice else None
        if not interface.planned:
            yield _mode_finding(view, interface, about, choice, step)
        if step:
            yield step


def _mode_finding(
    view: View,
    interface: Interface,
    about: About,
    choice: Optional[Choice],
    step: Optional[Step],
) -> Finding:
    name, now = interface.name, interface.mode
    shown = f"{name} is in {now} mode"
    if now is None:
        return about.skips(f"the transport mode of {name} is unknown")
    if choice is None:
        return _without_policy(view, interface, about, shown)
    if step is None:
        costs = f"; {_COSTS}" if now == CONNECTED else ""
        say = about.skips if choice.unknown else about.passes
        return say(f"{shown}: {choice.reason}{costs}")
    if choice.refused:
        fix = "set transport_mode: auto or datagram for it in the policy"
        if choice.mode != CONNECTED:
            fix = "lower that MTU first, or set transport_mode: auto for it"
        if choice.refused == no_mode_file(interface):
            fix = (
                f"set it manually: ip link set {shlex.quote(name)} type ipoib mode "
                f"{choice.mode}"
            )
        sentence = f"{shown}, and the policy's {choice.mode} mode is not possible"
        return about.fails(f"{sentence}: {choice.refused}", fix)
    if now == choice.mode:
        return about.warns(
            f"{shown}, but its profile has another mode, which NetworkManager sets at "
            "each activation"
        )
    return about.fails(f"{shown}, but should be in {choice.mode} mode: {choice.reason}")


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
    possible = f"connected is not possible: {why_not}"
    if not why_not:
        possible = "connected is possible, and the policy does not set the mode"
    return about.passes(f"{shown}; {possible}")


def _mode_step(
    view: View, interface: Interface, about: About, choice: Choice
) -> Optional[Step]:
    now, mode = interface.mode, choice.mode
    if now is None:
        return None
    settings = settings_of(view, interface)
    if interface.planned and settings.target and not choice.refused:
        return None  # its profile is created with that mode
    changes = _profile_changes(settings, now, mode)
    effect = class_of(changes, settings.profile)
    if now != mode:
        effect = LIVE if interface.planned else LINK_DOWN
        changes += mode_changes(view, interface, mode)
    if not changes:
        return None
    mtu = "" if interface.planned else f" and MTU {interface.netdev.mtu}"
    profile = ", and the profile's mode" if settings.target else ""
    before, after = now, mode
    if now == mode:
        before = f"profile {settings.value(TRANSPORT_MODE) or 'without mode'}"
        after = f"profile {mode}"
    return about.step(
        _mode_sentence(view, interface, mode),
        before,
        after,
        effect,
        reason=choice.reason,
        source="Linux Documentation/infiniband/ipoib.rst and ulp/ipoib/ipoib_cm.c",
        undo="restores the profile's earlier mode"
        if now == mode
        else f"restores {now} mode{mtu}{profile}",
        changes=changes,
        refused=choice.refused or settings.blocked,
        users=interface.users,
    )


def _profile_changes(settings: Settings, now: str, mode: str) -> tuple[Change, ...]:
    """Return the Changes of the profile.

    IPOIB-PROFILE-01 creates or fixes a profile without a mode first: it then has the
    present mode.
    """
    changes = settings.change(TRANSPORT_MODE, mode)
    if settings.value(TRANSPORT_MODE) is not None:
        return changes
    if now == mode:
        return ()
    return tuple(replace(change, before=now) for change in changes)


def _mode_sentence(view: View, interface: Interface, mode: str) -> str:
    name = interface.name
    if interface.mode == mode:
        return f"set {mode} mode in the profile of {name}"
    if interface.planned:
        return f"set {name} to {mode} mode; {_COSTS}"
    mtu = _mtu_in(view, interface, mode)
    if mode == CONNECTED:
        return f"set {name} to connected mode with MTU {mtu}; {_COSTS}"
    return (
        f"set {name} to datagram mode with MTU {mtu}, or less if the broadcast group "
        "does not allow it"
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
class MtuCase:
    """An IPoIB netdev whose MTU the policy sets.

    - ``now``, ``end``: the present mode, and the mode after the plan.
    - ``decided``: the MTU in the mode ``end``, which is known.
    """

    interface: Interface
    settings: Settings
    now: str
    end: str
    decided: DecidedMtu

    @property
    def auto(self) -> bool:
        """Whether the policy wants the largest possible MTU."""
        return self.decided.wanted is None

    @property
    def target(self) -> int:
        """The MTU to set, in bytes."""
        return self.decided.mtu or 0

    @property
    def limit(self) -> MtuLimit:
        """The limit in the mode ``end``; the target itself if it is unknown."""
        return self.decided.limit or MtuLimit(self.target, "")

    @property
    def mtu(self) -> int:
        """The present MTU."""
        return self.interface.netdev.mtu

    @property
    def profile_mtu(self) -> Optional[int]:
        """The MTU in the profile; None if it has none."""
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
        requested = self.profile_mtu is not None and self.profile_mtu >= self.target
        free = self.profile_mtu is None and self.auto
        return self.may_be_group and (requested or free)

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
        """Whether the profile must be changed.

        With ``auto`` it may have no MTU: the kernel then uses that of mode and group.
        """
        if not self.auto:
            return True
        if self.profile_mtu is None:
            return False
        if self.end == DATAGRAM:
            possible = port_limit(self.interface)
            most = possible.mtu if possible else self.limit.mtu
            return not self.target <= self.profile_mtu <= most
        return self.profile_mtu != self.target

    @property
    def _live_is_correct(self) -> bool:
        if self.now != self.end:
            # The change of mode sets the MTU, of a new child the largest one.
            return not self.interface.planned or self.target == CONNECTED_MTU
        if self.recreated is not None:
            return self.auto or self.target == self.recreated
        return self.mtu == self.target or self.follows_group


_LARGER_GROUP = (
    "set a larger MTU for the partition in the subnet manager (opensm's "
    "partitions.conf: ipoib,mtu=5), if all switches and hosts support it"
)
_GROUP_FIX = (
    "ovirt-rdma-host plan; if the MTU does not change, the broadcast group's is "
    f"smaller: {_LARGER_GROUP}"
)


def _mtu(view: View) -> Iterator[Outcome]:
    """Yield a finding for each IPoIB netdev, and a step if the policy requires another
    MTU.
    """
    for interface in parents_first(view):
        for outcome in _mtu_outcomes(view, interface):
            if not interface.planned or isinstance(outcome, Step):
                yield outcome


def _mtu_outcomes(view: View, interface: Interface) -> Iterator[Outcome]:
    name, now = interface.name, interface.mode
    about = About(NETDEV_MTU.id, name)
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
        yield from _compare(about, MtuCase(interface, settings, now, end, decided))


def _compare(about: About, case: MtuCase) -> Iterator[Outcome]:
    shown = f"{case.interface.name} has MTU {case.mtu} in {case.now} mode"
    changes = case.changes
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
            f"group allows {case.mtu}",
            f"{_LARGER_GROUP}; else set mtu: auto in the policy",
        )
    elif not changes:
        yield about.passes(f"{shown}: {_why_correct(case)}")
    elif case.mtu == case.target:
        yield about.warns(
            f"{shown}, but its profile does not have that MTU", _mtu_fix(case)
        )
    else:
        target = f"the policy requires {case.target}"
        if case.auto:
            above = "at most " if case.mtu > case.target else ""
            target = f"{above}{case.target} is possible: {case.limit.reason}"
        yield about.fails(f"{shown}, but {target}", _mtu_fix(case))
    if changes:
        yield _mtu_step(about, case, changes)


def _mtu_fix(case: MtuCase) -> str:
    by_opensm = case.may_be_group and not is_omni_path(case.interface.device)
    return _GROUP_FIX if by_opensm else ""


def _mtu_step(about: About, case: MtuCase, changes: tuple[Change, ...]) -> Step:
    interface, kinds = case.interface, {change.kind for change in changes}
    # Enhanced IPoIB drops the carrier and opens its queues again.
    disruptive = is_mlx5(interface.device) and SYSFS in kinds
    before, after, undo = str(case.mtu), str(case.target), f"restores {case.mtu}"
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


def _why_correct(case: MtuCase) -> str:
    if case.follows_group:
        return (
            "the broadcast group of the subnet manager limits it; the port supports "
            f"{case.limit.mtu}"
        )
    if case.end != case.now:
        less = ", or less if the broadcast group does not allow it"
        less = less if case.end == DATAGRAM else ""
        return f"the change to {case.end} mode sets {case.target}{less}"
    if case.recreated is not None:
        return f"the new port MTU sets {case.recreated}"
    return case.limit.reason if case.auto else "the policy requires it"


def _network_mtu(view: View) -> Iterator[Finding]:
    """Yield a finding for each IPoIB netdev with a logical network."""
    for interface in view.ipoib:
        if not interface.network:
            continue
        about, mode = (
            About(NETWORK_MTU.id, interface.name),
            planned_mode(view, interface),
        )
        decided = decided_mtu(view, interface, mode)
        mtu, limit = decided.wanted, decided.limit
        shown = f"{decided.who} sets MTU {mtu} on {interface.name}"
        wanted = interface.wanted.mtu if interface.wanted else None
        unknown = limit is None and ((mtu or 0) > COMMON_GROUP_MTU or wanted == AUTO)
        if wanted == AUTO:
            wanted = limit.mtu if limit else None
        if limit and decided.too_large:
            yield about.fails(
                f"{shown}, but {mode} mode supports at most {limit.mtu}: "
                f"{limit.reason}",
                f"set the network's MTU to {limit.mtu} or less in the engine, or set "
                "transport_mode: auto in the policy",
            )
        elif unknown:
            yield about.skips(
                f"{shown}; its largest MTU is unknown",
                unknown_mtu_fix(interface.device),
            )
        elif wanted is None and limit and mtu != limit.mtu:
            possible = f"; up to {limit.mtu} is possible: {limit.reason}"
            yield about.passes(shown + possible)
        elif wanted is None or wanted == mtu:
            yield about.passes(shown)
        else:
            # The broadcast group's MTU is unknown, and may be smaller.
            group = ""
            if mode != CONNECTED and int(wanted) > COMMON_GROUP_MTU:
                group = (
                    ", if the subnet manager gives the partition that MTU (opensm: "
                    "mtu=5)"
                )
            yield about.warns(
                f"{shown}, and the policy requires {wanted}; the engine's MTU applies",
                f"set MTU {wanted} in the logical network {interface.network.name!r} "
                f"(Network, Logical Networks, Edit), for all its hosts{group}; or "
                "remove mtu from the policy",
            )


# The IB MTU that fits a page of 4096 bytes together with the 40 bytes of a GRH, the
# kernel's own 320 at the end (SKB_WITH_OVERHEAD) and 64 in front: 2048, but not 4096.
_PAGE_MTU = 2048
_LARGE = 4096


def _buffers(view: View) -> Iterator[Outcome]:
    """Yield findings for InfiniBand ports with IPoIB, and steps for port_mtu."""
    for place in view.ports:
        about = About(BUFFERS.id, place.name)
        if place.rule and place.rule.port_mtu:
            yield from _port_mtu(view, place, about, place.rule.port_mtu)
        elif any(interface.is_ipoib for interface in view.on_port(place)):
            yield _present_buffers(place, about)


def _present_buffers(place: Port, about: About) -> Finding:
    device, port = place.device, place.port
    if is_mlx5(device):
        return about.passes(
            f"mlx5 sizes the receive buffers of {place.name} by the netdev's MTU"
        )
    if port.max_mtu is None:
        sentence = f"the largest MTU of {place.name} is unknown"
        return about.skips(sentence, unknown_mtu_fix(device))
    if port.max_mtu < _LARGE:
        return about.passes(
            f"{place.name} has port MTU {port.max_mtu}: its receive buffers fit a page"
        )
    hint = ""
    if not no_port_mtu(device, place.adapter, port):
        hint = "; port_mtu: 2048 in the policy would avoid this"
    return about.passes(
        f"{place.name} has port MTU {port.max_mtu}: each receive buffer needs two "
        f"contiguous pages{hint}"
    )


def _port_mtu(view: View, place: Port, about: About, wanted: int) -> Iterator[Outcome]:
    device, port = place.device, place.port
    before = port_mtu_of(place.adapter, port)
    refused = no_port_mtu(device, place.adapter, port)
    if not refused and before == wanted:
        yield about.passes(
            f"{place.name} has port MTU {wanted}: the policy requires it"
        )
        return
    shown = f"{place.name} has port MTU {before or port.max_mtu or 'unknown'}"
    if refused:
        fix = "remove port_mtu for this port from the policy"
        if is_mlx5(device):
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
        changes=() if refused else (Change(SYSFS, target, known, str(wanted)),),
        refused=refused,
        users=() if refused else view.users.of_adapter(address, removed=True),
    )


MODE = Rule("IPOIB-MODE-01", _mode, NO_NETDEV)
UDEV = Rule("IPOIB-MODE-02", _udev, "no udev rule tries to set a transport mode", PASS)
NETDEV_MTU = Rule("IPOIB-MTU-01", _mtu, NO_NETDEV)
NETWORK_MTU = Rule(
    "IPOIB-MTU-02", _network_mtu, "no IPoIB netdev has a logical network"
)
BUFFERS = Rule("IPOIB-MTU-03", _buffers, "this host has no port with IPoIB")
