# SPDX-License-Identifier: GPL-2.0-or-later
"""IPOIB-MTU-01: the MTU of IPoIB netdevs, and what decides it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Optional

from ovirt_rdma.host.policy_host import AUTO, CONNECTED, DATAGRAM
from ovirt_rdma.host.rules.hardware import is_mlx5, is_omni_path
from ovirt_rdma.host.rules.ipoib_children import in_order
from ovirt_rdma.host.rules.ipoib_limits import (
    CONNECTED_MTU,
    MtuLimit,
    datagram_limit,
    without_port_mtu,
)
from ovirt_rdma.host.rules.ipoib_mtu_case import MtuCase, changes_of, refusal_of
from ovirt_rdma.host.rules.ipoib_settings import bonds_of, settings_of
from ovirt_rdma.host.rules.ipoib_target import coming_mode
from ovirt_rdma.host.rules.rule import (
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
from ovirt_rdma.host.rules.view import Interface, View

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
