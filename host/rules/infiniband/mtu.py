# SPDX-License-Identifier: GPL-2.0-or-later
"""IPOIB-MTU-01 and IPOIB-MTU-02: check and set the MTU of IPoIB netdevs. Pure.

IPOIB-MTU-01 sets the policy's MTU and names what limits it. IPOIB-MTU-02 compares it
with the MTU of a logical network, which only the engine sets.

A datagram MTU is the smaller of the requested one and that of the broadcast group,
which the subnet manager sets. The kernel silently accepts a larger number if the port
supports it, and shows the smaller one. The group's MTU cannot be read. It is taken as
the limit if the profile requests more, or if nothing is requested and the netdev has
one of the MTUs that a group can have.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Optional

from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.facts.devices import OvirtNetwork
from ovirt_rdma.host.facts.ipoib import (
    AUTO,
    COMMON_GROUP_MTU,
    CONNECTED,
    CONNECTED_MTU,
    DATAGRAM,
    HEADER,
)
from ovirt_rdma.host.rules.base import (
    FAIL,
    LINK_DOWN,
    LIVE,
    PASS,
    PROFILE,
    SKIP,
    SYSFS,
    WARN,
    Change,
    Finding,
    Outcome,
    Rule,
    Step,
)
from ovirt_rdma.host.rules.infiniband.children import parents_first
from ovirt_rdma.host.rules.infiniband.choice import (
    BOND,
    NETWORK,
    DecidedMtu,
    decided_mtu,
    may_be_group_mtu,
    mode_for_mtu,
    planned_mode,
)
from ovirt_rdma.host.rules.infiniband.limits import (
    MtuLimit,
    is_mlx5,
    is_omni_path,
    mtu_limit,
    planned_port_mtu,
    port_limit,
    unknown_mtu_fix,
)
from ovirt_rdma.host.rules.infiniband.settings import MTU, Settings, settings_of, write
from ovirt_rdma.host.rules.view import Interface, View


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


def refusal_of(case: MtuCase) -> str:
    """Return a clause why the target is not possible; empty if it is."""
    if not case.decided.too_large:
        return ""
    possible = port_limit(case.interface)
    why = f"the limit is {case.limit.mtu} ({case.limit.reason})"
    if case.end == DATAGRAM and possible and case.target <= possible.mtu:
        why += "; the kernel would accept more, but not use it"
    return Sentence("mtu-above-limit", why)


def changes_of(case: MtuCase) -> tuple[Change, ...]:
    """Return the Changes for the target: of the profile, then of sysfs."""
    profile: tuple[Change, ...] = ()
    if _profile_differs(case):
        profile = case.settings.change(MTU, str(case.target))
    live: tuple[Change, ...] = ()
    if not _live_is_correct(case):
        change = write(case.interface, "mtu", str(case.target))
        recreated = case.recreated
        if recreated is not None:
            change = replace(change, before=str(recreated))
        live = (replace(change, clamped=case.auto and case.end == DATAGRAM),)
    return (*profile, *live)


def _profile_differs(case: MtuCase) -> bool:
    """Whether the profile must be changed.

    With ``auto`` it may have no MTU: the kernel then uses that of mode and group.
    """
    if not case.auto:
        return True
    if case.profile_mtu is None:
        return False
    if case.end == DATAGRAM:
        possible = port_limit(case.interface)
        most = possible.mtu if possible else case.limit.mtu
        return not case.target <= case.profile_mtu <= most
    return case.profile_mtu != case.target


def _live_is_correct(case: MtuCase) -> bool:
    if case.now != case.end:
        # The change of mode sets the MTU, of a new child the largest one.
        return not case.interface.planned or case.target == CONNECTED_MTU
    if case.recreated is not None:
        return case.auto or case.target == case.recreated
    return case.mtu == case.target or case.follows_group


NETWORK_MTU_ID = "IPOIB-MTU-02"


def decide_network_mtu(view: View) -> Iterator[Finding]:
    """Yield a finding for each IPoIB netdev with a logical network."""
    none = True
    for interface in view.ipoib:
        if interface.network:
            none = False
            yield _finding(view, interface, interface.network)
    if none:
        yield Finding(
            NETWORK_MTU_ID, "host", SKIP, "no IPoIB netdev has a logical network"
        )


def _finding(view: View, interface: Interface, network: OvirtNetwork) -> Finding:
    name = interface.name
    mode = planned_mode(view, interface)
    decided = decided_mtu(view, interface, mode)
    mtu, limit = decided.wanted, decided.limit
    shown = f"{decided.who} sets MTU {mtu} on {name}"
    if limit and decided.too_large:
        return Finding(
            NETWORK_MTU_ID,
            name,
            FAIL,
            f"{shown}, but {mode} mode supports at most {limit.mtu}: {limit.reason}",
            f"set the network's MTU to {limit.mtu} or less in the engine, or set "
            "transport_mode: auto in the policy",
        )
    wanted = interface.wanted.mtu if interface.wanted else None
    if wanted == AUTO:
        wanted = limit.mtu if limit else None
    if wanted is None and limit and mtu != limit.mtu:
        possible = f"; up to {limit.mtu} is possible: {limit.reason}"
        return Finding(NETWORK_MTU_ID, name, PASS, shown + possible)
    if wanted is None or wanted == mtu:
        return Finding(NETWORK_MTU_ID, name, PASS, shown)
    return Finding(
        NETWORK_MTU_ID,
        name,
        WARN,
        f"{shown}, and the policy requires {wanted}; the engine's MTU applies",
        f"set MTU {wanted} in the logical network {network.name!r} (Network, Logical "
        f"Networks, Edit), for all its hosts{_group(mode, int(wanted))}; or remove mtu "
        "from the policy",
    )


def _group(mode: Optional[str], wanted: int) -> str:
    """Return a condition about the broadcast group, whose MTU is unknown, if it may be
    smaller.
    """
    if mode == CONNECTED or wanted <= COMMON_GROUP_MTU:
        return ""
    return ", if the subnet manager gives the partition that MTU (opensm: mtu=5)"


NETWORK_MTU_RULES = (Rule(NETWORK_MTU_ID, decide_network_mtu),)


ID = "IPOIB-MTU-01"
SOURCE = "Linux ulp/ipoib/ipoib_main.c, ipoib_change_mtu"
_LARGER_GROUP = (
    "set a larger MTU for the partition in the subnet manager (opensm's "
    "partitions.conf: ipoib,mtu=5), if all switches and hosts support it"
)
_GROUP_FIX = (
    "ovirt-rdma-host plan; if the MTU does not change, the broadcast group's is "
    f"smaller: {_LARGER_GROUP}"
)


def decide(view: View) -> Iterator[Outcome]:
    """Yield a finding for each IPoIB netdev, and a step if the policy requires another
    MTU.
    """
    if not view.ipoib:
        yield Finding(ID, "host", SKIP, "this host has no IPoIB netdev")
    for interface in parents_first(view):
        outcomes: Iterator[Outcome] = _outcomes(view, interface)
        if interface.planned:
            outcomes = (o for o in outcomes if isinstance(o, Step))
        yield from outcomes


def _outcomes(view: View, interface: Interface) -> Iterator[Outcome]:
    name = interface.name
    now = interface.netdev.ipoib.mode if interface.netdev.ipoib else None
    end = mode_for_mtu(view, interface)
    decided = decided_mtu(view, interface, end)
    if interface.wanted is None or interface.wanted.mtu is None:
        yield Finding(ID, name, PASS, _present(interface, now))
    elif decided.by == NETWORK:
        sentence = f"the engine sets the MTU of {name}, by {decided.who}"
        yield Finding(ID, name, SKIP, sentence)
    elif decided.by == BOND:
        sentence = f"{name} is a member of {decided.who}, which sets its MTU"
        yield Finding(ID, name, SKIP, sentence)
    elif now is None or end is None:
        sentence = f"the transport mode of {name} is unknown, so its largest MTU is too"
        yield Finding(ID, name, SKIP, sentence)
    elif decided.mtu is None:
        yield _unknown(interface)
    else:
        settings = settings_of(view, interface)
        yield from _compare(MtuCase(interface, settings, now, end, decided))


def _compare(case: MtuCase) -> Iterator[Outcome]:
    name = case.interface.name
    shown = f"{name} has MTU {case.mtu} in {case.now} mode"
    refusal = refusal_of(case)
    if refusal:
        yield Finding(
            ID,
            name,
            FAIL,
            f"{shown}, and the policy's {case.target} is not possible: {refusal}",
            f"set mtu: auto, or at most {case.limit.mtu}, in the policy",
        )
        yield replace(_step(case, changes_of(case)), refused=refusal)
        return
    changes = changes_of(case)
    if case.follows_group and not case.auto:
        yield Finding(
            ID,
            name,
            FAIL,
            f"{shown}, although the profile has {case.profile_mtu}: the broadcast "
            f"group allows {case.mtu}",
            f"{_LARGER_GROUP}; else set mtu: auto in the policy",
        )
    elif not changes:
        yield Finding(ID, name, PASS, f"{shown}: {_why_correct(case)}")
    else:
        verdict = WARN if case.mtu == case.target else FAIL
        target = f"the policy requires {case.target}"
        if case.auto:
            above = "at most " if case.mtu > case.target else ""
            target = f"{above}{case.target} is possible: {case.limit.reason}"
        if verdict == WARN:
            target = "its profile does not have that MTU"
        by_opensm = case.may_be_group and not is_omni_path(case.interface.device)
        fix = _GROUP_FIX if by_opensm else ""
        yield Finding(ID, name, verdict, f"{shown}, but {target}", fix)
    if changes:
        yield _step(case, changes)


def _step(case: MtuCase, changes: tuple[Change, ...]) -> Step:
    interface = case.interface
    name = interface.name
    # Enhanced IPoIB drops the carrier and opens its queues again.
    disruptive = is_mlx5(interface.device) and any(c.kind == SYSFS for c in changes)
    after = str(case.target)
    if case.auto and case.end == DATAGRAM:
        after += ", or less if the broadcast group does not allow it"
    before = str(case.mtu)
    undo = f"restores {case.mtu}"
    if any(c.kind == PROFILE for c in changes):
        undo += ", and the profile's earlier value"
    if not any(c.kind == SYSFS for c in changes):
        before = f"profile {case.profile_mtu or 'without MTU'}"
        after = f"profile {case.target}"
        undo = "restores the profile's earlier value"
    return Step(
        ID,
        name,
        f"set the MTU of {name}",
        before,
        after,
        LINK_DOWN if disruptive else LIVE,
        case.limit.reason if case.auto else "the policy requires it",
        SOURCE,
        undo,
        changes,
        refused=case.settings.blocked,
        users=interface.users if disruptive else (),
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


def _present(interface: Interface, mode: Optional[str]) -> str:
    shown = f"{interface.name} has MTU {interface.netdev.mtu}"
    limit = mtu_limit(interface, mode)
    if limit is None:
        return shown
    shown = f"{shown} in {mode} mode; up to {limit.mtu} is possible"
    return shown if mode == CONNECTED else f"{shown}: {limit.reason}"


def _unknown(interface: Interface) -> Finding:
    port = f"{interface.device.name}/{interface.port.number}"
    return Finding(
        ID,
        interface.name,
        SKIP,
        f"{interface.name} has MTU {interface.netdev.mtu}; the largest MTU of {port} "
        "is unknown",
        unknown_mtu_fix(interface.device),
    )


RULES = (Rule(ID, decide),)
