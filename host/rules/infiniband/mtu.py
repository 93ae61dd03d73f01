# SPDX-License-Identifier: GPL-2.0-or-later
"""IPOIB-MTU-01 and IPOIB-MTU-02: the MTU of IPoIB netdevs. Pure.

One IPoIB netdev's MTU: what it is, what it should be, and what has to change. Pure.

A datagram MTU is the smaller of what is asked for and what the broadcast group has,
which is the subnet manager's to say. The kernel takes a larger number without a word,
as long as the port could do it, and shows the smaller one. The group's MTU itself is
nowhere to be read, so two things tell that it decided: the profile asks for more, or
nothing asks and the netdev has one of the MTUs that a group can give.

IPOIB-MTU-02: the MTU of a netdev in a logical network is the engine's to set.

IPOIB-MTU-01: the MTU of IPoIB netdevs, and what decides it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Optional

from ovirt_rdma.host.facts.devices import OvirtNetwork
from ovirt_rdma.host.policy.model import AUTO, CONNECTED, DATAGRAM
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
from ovirt_rdma.host.rules.infiniband.children import in_order
from ovirt_rdma.host.rules.infiniband.limits import (
    CONNECTED_MTU,
    GROUP_MTUS,
    HEADER,
    MtuLimit,
    coming_port_mtu,
    datagram_limit,
    is_mlx5,
    is_omni_path,
    port_limit,
    without_port_mtu,
)
from ovirt_rdma.host.rules.infiniband.mode_choice import coming_mode
from ovirt_rdma.host.rules.infiniband.settings import (
    MTU,
    Settings,
    bonds_of,
    settings_of,
    write,
)
from ovirt_rdma.host.rules.view import Interface, View


@dataclass(frozen=True)
class MtuCase:
    """An IPoIB netdev whose MTU is ours to set: the modes that it has ``now`` and in
    the ``end``, the ``limit`` of the latter, and the ``target`` in bytes.
    """

    interface: Interface
    settings: Settings
    now: str
    end: str
    limit: MtuLimit
    target: int
    auto: bool

    @property
    def mtu(self) -> int:
        """The present MTU."""
        return self.interface.netdev.mtu

    @property
    def kept(self) -> Optional[int]:
        """The MTU that the profile asks for."""
        text = self.settings.value(MTU) or ""
        return int(text) if text.isdecimal() else None

    @property
    def made_anew(self) -> Optional[int]:
        """The MTU with which a new port MTU makes the netdev anew; None: none does."""
        port_mtu = coming_port_mtu(self.interface)
        datagram = self.now == self.end == DATAGRAM
        return port_mtu - HEADER if port_mtu and datagram else None

    @property
    def may_be_group(self) -> bool:
        """Whether the group may be what keeps the present MTU below the target."""
        datagram = self.now == self.end == DATAGRAM
        return datagram and self.mtu in GROUP_MTUS and self.mtu < self.target

    @property
    def follows_group(self) -> bool:
        """Whether the present MTU is the group's, as far as one can tell."""
        asked = self.kept is not None and self.kept >= self.target
        free = self.kept is None and self.auto
        return self.may_be_group and (asked or free)


def refusal_of(case: MtuCase) -> str:
    """Say, as a clause, why the target is not possible, or nothing."""
    if case.target <= case.limit.mtu:
        return ""
    possible = port_limit(case.interface)
    text = f"at most {case.limit.mtu}, {case.limit.because}"
    if case.end == DATAGRAM and possible and case.target <= possible.mtu:
        return f"{text}; the kernel would take it and stay below"
    return text


def changes_of(case: MtuCase) -> tuple[Change, ...]:
    """Return what has to change in the profile, then in sysfs, for the target."""
    profile: tuple[Change, ...] = ()
    if _profile_errs(case):
        profile = case.settings.change(MTU, str(case.target))
    live: tuple[Change, ...] = ()
    if not _live_will_do(case):
        change = write(case.interface, "mtu", str(case.target))
        made = case.made_anew
        if made is not None:
            change = replace(change, before=str(made))
        live = (replace(change, clamped=case.auto and case.end == DATAGRAM),)
    return (*profile, *live)


def _profile_errs(case: MtuCase) -> bool:
    """Whether the profile asks for something else than the policy. With ``auto`` it
    may ask for nothing: then the kernel takes what the mode and the group give.
    """
    if not case.auto:
        return True
    if case.kept is None:
        return False
    if case.end == DATAGRAM:
        possible = port_limit(case.interface)
        most = possible.mtu if possible else case.limit.mtu
        return not case.target <= case.kept <= most
    return case.kept != case.target


def _live_will_do(case: MtuCase) -> bool:
    if case.now != case.end:
        # The change of mode sets it, of a new child to the most.
        return not case.interface.planned or case.target == CONNECTED_MTU
    if case.made_anew is not None:
        return case.auto or case.target == case.made_anew
    return case.mtu == case.target or case.follows_group


NETWORK_MTU_ID = "IPOIB-MTU-02"

# What VDSM sets where the network names none (lib/vdsm/network/nmstate/bridge_util.py).
VDSM_DEFAULT = 1500
# What opensm gives a group unless told otherwise: an IB MTU of 2048.
COMMON_GROUP_MTU = 2044


def decide_network_mtu(view: View) -> Iterator[Finding]:
    """Give a finding for each IPoIB netdev that carries a logical network."""
    none = True
    for interface in view.ipoib:
        if interface.network:
            none = False
            yield _finding(view, interface, interface.network)
    if none:
        yield Finding(
            NETWORK_MTU_ID, "host", SKIP, "no IPoIB netdev carries a logical network"
        )


def _finding(view: View, interface: Interface, network: OvirtNetwork) -> Finding:
    name = interface.name
    mtu = network.mtu or VDSM_DEFAULT
    mode = coming_mode(view, interface)
    limit = datagram_limit(interface)
    if mode == CONNECTED:
        limit = MtuLimit(CONNECTED_MTU, "it is the most there")
    shown = f"network {network.name!r} gives {name} MTU {mtu}"
    if limit and mtu > limit.mtu:
        return Finding(
            NETWORK_MTU_ID,
            name,
            FAIL,
            f"{shown}, and {mode} mode carries {limit.mtu} at most: {limit.because}",
            f"set the network's MTU to {limit.mtu} or less in the engine, or let the "
            "policy choose the mode (transport_mode: auto)",
        )
    wanted = interface.wanted.mtu if interface.wanted else None
    if wanted == AUTO:
        wanted = limit.mtu if limit else None
    if wanted is None and limit and mtu < limit.mtu:
        possible = f"; up to {limit.mtu} is possible: {limit.because}"
        return Finding(NETWORK_MTU_ID, name, PASS, shown + possible)
    if wanted is None or wanted == mtu:
        return Finding(NETWORK_MTU_ID, name, PASS, shown)
    return Finding(
        NETWORK_MTU_ID,
        name,
        WARN,
        f"{shown}, and the policy wants {wanted}; the engine's counts",
        f"set MTU {wanted} in the logical network {network.name!r} (Network, Logical "
        f"Networks, Edit), on all its hosts at once{_group(mode, int(wanted))}; or "
        "take mtu out of the policy",
    )


def _group(mode: Optional[str], wanted: int) -> str:
    """Remind of the broadcast group, whose MTU cannot be read, where it may be less."""
    if mode == CONNECTED or wanted <= COMMON_GROUP_MTU:
        return ""
    return ", if the subnet manager gives the partition as much (opensm: mtu=5)"


NETWORK_MTU_RULES = (
    Rule(
        NETWORK_MTU_ID,
        "MTU of a netdev in a logical network",
        "A netdev that is in a logical network of oVirt has the network's MTU; that of "
        "the policy is compared with it and never set.",
        "VDSM sets an MTU with every network that it attaches: the network's, and "
        "1500 where the engine says default, which is less than the 2044 that "
        "InfiniBand ports commonly do. Two owners of one property would undo each "
        "other. A network whose MTU is larger than the mode allows cannot be attached.",
        "Set the MTU in the engine's logical network, to the same on all hosts: 2044, "
        "4092 or 65520 as IPOIB-MTU-01 says what is possible. Set the transport mode "
        "first, by the policy.",
        (
            "VDSM lib/vdsm/network/nmstate/bridge_util.py, linux_bridge.py",
            "oVirt Administration Guide, Logical Networks",
        ),
        decide_network_mtu,
    ),
)


ID = "IPOIB-MTU-01"
SOURCE = "Linux ulp/ipoib/ipoib_main.c, ipoib_change_mtu"
_LARGER_GROUP = (
    "have the subnet manager give the partition a larger MTU (opensm's "
    "partitions.conf: ipoib,mtu=5), if all switches and hosts can do it"
)
_GROUP_FIX = (
    "ovirt-rdma-host plan; if the MTU stays as it is, the broadcast group is smaller: "
    f"{_LARGER_GROUP}"
)


def decide(view: View) -> Iterator[Outcome]:
    """Give a finding for each IPoIB netdev, and a step where the policy wants another
    MTU than there is.
    """
    if not view.ipoib:
        yield Finding(ID, "host", SKIP, "this host has no IPoIB netdev")
    for interface in in_order(view):
        found: Iterator[Outcome] = _one(view, interface)
        if interface.planned:
            found = (one for one in found if isinstance(one, Step))
        yield from found


def _one(view: View, interface: Interface) -> Iterator[Outcome]:
    name = interface.name
    wanted = interface.wanted.mtu if interface.wanted else None
    ours = _not_ours(view, interface)
    now = interface.netdev.ipoib.mode if interface.netdev.ipoib else None
    end = coming_mode(view, interface)
    if wanted is None:
        yield Finding(ID, name, PASS, _present(interface, now))
    elif ours:
        yield Finding(ID, name, SKIP, ours)
    elif now is None or end is None:
        yield Finding(ID, name, SKIP, f"{name}: without its mode the MTU has no limit")
    else:
        limit = MtuLimit(CONNECTED_MTU, "it is the most that connected mode carries")
        known = limit if end == CONNECTED else datagram_limit(interface)
        if known is None and wanted == AUTO:
            yield _unknown(interface)
            return
        auto = wanted == AUTO
        known = known or MtuLimit(int(wanted), "")
        target = known.mtu if auto else int(wanted)
        settings = settings_of(view, interface)
        yield from _judge(MtuCase(interface, settings, now, end, known, target, auto))


def _judge(case: MtuCase) -> Iterator[Outcome]:
    name = case.interface.name
    shown = f"{name} has MTU {case.mtu} in {case.now} mode"
    refusal = refusal_of(case)
    if refusal:
        yield Finding(
            ID,
            name,
            FAIL,
            f"{shown}, and the policy's {case.target} is not possible: {refusal}",
            f"write mtu: auto, or at most {case.limit.mtu}, in the policy",
        )
        yield replace(_step(case, changes_of(case)), refused=refusal)
        return
    changes = changes_of(case)
    if case.follows_group and not case.auto:
        yield Finding(
            ID,
            name,
            FAIL,
            f"{shown}, although the profile asks for {case.kept}: the broadcast group "
            f"allows {case.mtu}",
            f"{_LARGER_GROUP}; else write mtu: auto in the policy",
        )
    elif not changes:
        yield Finding(ID, name, PASS, f"{shown}: {_decided(case)}")
    else:
        verdict = WARN if case.mtu == case.target else FAIL
        want = f"the policy wants {case.target}"
        if case.auto:
            above = "no more than " if case.mtu > case.target else ""
            want = f"{above}{case.target} is possible: {case.limit.because}"
        if verdict == WARN:
            want = "its profile does not keep that"
        opensms = case.may_be_group and not is_omni_path(case.interface.device)
        fix = _GROUP_FIX if opensms else ""
        yield Finding(ID, name, verdict, f"{shown}, and {want}", fix)
    if changes:
        yield _step(case, changes)


def _step(case: MtuCase, changes: tuple[Change, ...]) -> Step:
    interface = case.interface
    name = interface.name
    # Enhanced IPoIB takes the carrier away and opens its queues anew.
    bounces = is_mlx5(interface.device) and any(c.kind == SYSFS for c in changes)
    after = str(case.target)
    if case.auto and case.end == DATAGRAM:
        after += ", or what the broadcast group allows"
    before = str(case.mtu)
    undo = f"sets {case.mtu} again"
    if any(c.kind == PROFILE for c in changes):
        undo += ", and the profile's earlier value"
    if not any(c.kind == SYSFS for c in changes):
        before = f"profile {case.kept or 'without MTU'}"
        after = f"profile {case.target}"
        undo = "gives the profile its earlier value"
    return Step(
        ID,
        name,
        f"the MTU of {name}",
        before,
        after,
        LINK_DOWN if bounces else LIVE,
        case.limit.because if case.auto else "the policy asks for it",
        SOURCE,
        undo,
        changes,
        refused=case.settings.blocked,
        users=interface.users if bounces else (),
    )


def _decided(case: MtuCase) -> str:
    if case.follows_group:
        most = f"the port could do {case.limit.mtu}"
        return f"the broadcast group decides, as the subnet manager made it; {most}"
    if case.end != case.now:
        allowed = ", or what the broadcast group allows" if case.end == DATAGRAM else ""
        return f"the change to {case.end} mode sets {case.target}{allowed}"
    if case.made_anew is not None:
        return f"the new port MTU sets {case.made_anew}"
    return case.limit.because if case.auto else "as the policy says"


def _present(interface: Interface, mode: Optional[str]) -> str:
    shown = f"{interface.name} has MTU {interface.netdev.mtu} in {mode} mode"
    if mode == CONNECTED:
        return f"{shown}; up to {CONNECTED_MTU} is possible"
    limit = datagram_limit(interface)
    if mode != DATAGRAM or limit is None:
        return f"{interface.name} has MTU {interface.netdev.mtu}"
    return f"{shown}; up to {limit.mtu} is possible: {limit.because}"


def _not_ours(view: View, interface: Interface) -> str:
    name = interface.name
    if interface.network:
        network = interface.network.name
        return f"the MTU of {name} is the engine's, of network {network!r}"
    for bond in bonds_of(view, interface):
        return f"{name} is a member of {bond}, whose MTU it has"
    return ""


def _unknown(interface: Interface) -> Finding:
    port = f"{interface.device.name}/{interface.port.number}"
    return Finding(
        ID,
        interface.name,
        SKIP,
        f"{interface.name} has MTU {interface.netdev.mtu}; what {port} can do is not "
        "known",
        without_port_mtu(interface.device),
    )


RULES = (
    Rule(
        ID,
        "IPoIB MTU",
        "The policy's mtu is a number of bytes, or auto: the most that mode, port, "
        "link and broadcast group allow. In datagram mode that is the InfiniBand MTU "
        "less 4 bytes: 2044 where the port, a switch or the group has 2048, 4092 "
        "where all have 4096, and up to 10236 on Omni-Path; in connected mode 65520. "
        "The finding says which of them decided.",
        "In datagram mode the kernel refuses more than the port can do, and takes what "
        "is between the group's MTU and the port's without a word: the netdev then has "
        "the group's. So the only check is to read it again. opensm gives groups 2048 "
        "unless told otherwise, also on a fabric that can do 4096. The subnet manager "
        "may change the group's MTU at any time, and the netdev follows. The maximum "
        "that ip -d link shows is 65520 always, and says nothing.",
        "Write mtu: auto. For 4092 the subnet manager has to give the partition mtu=5, "
        "which every switch and host in it must be able to do. A change of mode brings "
        "its MTU with it (IPOIB-MODE-01), and what was set is read again. A netdev in "
        "a logical network has the engine's MTU: see IPOIB-MTU-02.",
        (
            "Linux drivers/infiniband/ulp/ipoib/ipoib_main.c, ipoib_change_mtu",
            "Linux drivers/infiniband/ulp/ipoib/ipoib_multicast.c",
            "NetworkManager nm-settings-nmcli(5), infiniband.mtu",
            "opensm(8), partition configuration: mtu",
        ),
        decide,
    ),
)
