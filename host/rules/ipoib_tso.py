# SPDX-License-Identifier: GPL-2.0-or-later
"""IPOIB-TSO-02: TSO of IPoIB netdevs as the policy says."""

from __future__ import annotations

from collections.abc import Iterator

from ovirt_rdma.host.policy_host import AUTO, CONNECTED, OFF, ON
from ovirt_rdma.host.rules.hardware import is_connectx_a0
from ovirt_rdma.host.rules.ipoib_children import in_order
from ovirt_rdma.host.rules.ipoib_limits import Tso, tso_of
from ovirt_rdma.host.rules.ipoib_settings import settings_of
from ovirt_rdma.host.rules.ipoib_target import coming_mode
from ovirt_rdma.host.rules.ipoib_tso_a0 import MUST_BE_OFF
from ovirt_rdma.host.rules.ipoib_tso_changes import (
    tso_changes,
    tso_text,
    undo_of,
    wanted_tso,
)
from ovirt_rdma.host.rules.reapply import class_of
from ovirt_rdma.host.rules.rule import (
    FAIL,
    LINK_DOWN,
    OFFLOAD,
    PASS,
    SKIP,
    WARN,
    Finding,
    Outcome,
    Rule,
    Step,
)
from ovirt_rdma.host.rules.view import Interface, View

ID = "IPOIB-TSO-02"
SOURCE = "Linux ulp/ipoib/ipoib_main.c, ipoib_set_dev_features and ipoib_fix_features"


def decide(view: View) -> Iterator[Outcome]:
    """Give a finding for each IPoIB netdev, and a step where the policy wants TSO
    another way than it is.
    """
    if not view.ipoib:
        yield Finding(ID, "host", SKIP, "this host has no IPoIB netdev")
    for interface in in_order(view):
        found = list(_wanted(view, interface))
        if interface.planned:
            found = [one for one in found if isinstance(one, Step)]
        yield from found


def _wanted(view: View, interface: Interface) -> Iterator[Outcome]:
    name = interface.name
    says = wanted_tso(interface)
    tso = tso_of(interface.netdev)
    a0 = is_connectx_a0(interface.device)
    if tso is None:
        sentence = f"whether TSO is on for {name} is not known"
        fix = "install ethtool" if says else ""
        yield Finding(ID, name, SKIP, sentence, fix)
        return
    shown = f"TSO of {name} is {tso_text(tso)}"
    if says is None or (a0 and says != ON):
        if a0:
            yield Finding(ID, name, SKIP, f"{shown}; see IPOIB-TSO-01")
        else:
            yield Finding(ID, name, PASS, f"{shown}; the policy does not say")
        return
    target = OFF if says == OFF else ON
    refused = _refusal(view, interface, tso, target)
    if refused and says == AUTO:
        yield Finding(ID, name, PASS, f"{shown}: {refused}")
        return
    reason = "the policy asks for it"
    if says == AUTO:
        reason = "it saves the CPU the cutting of TCP segments"
    settings = settings_of(view, interface)
    changes = () if refused else tso_changes(interface, settings, tso, target)
    if refused:
        sentence = f"{shown}, and the policy's {target} is not possible: {refused}"
        fix = "write tso: auto for it in the policy"
        yield Finding(ID, name, FAIL, sentence, fix)
    elif not changes:
        yield Finding(ID, name, PASS, f"{shown}: {reason}")
    elif all(change.kind != OFFLOAD for change in changes):
        other = ON if target == OFF else OFF
        yield Finding(ID, name, WARN, f"{shown}, and its profile will turn it {other}")
    else:
        yield Finding(ID, name, FAIL, f"{shown}, and should be {target}: {reason}")
    if refused or changes:
        effect = class_of(changes, settings.profile)
        yield Step(
            ID,
            name,
            f"TSO of {name}",
            tso_text(tso),
            target,
            effect,
            reason,
            SOURCE,
            undo_of(changes),
            changes,
            refused=refused,
            users=interface.users if effect == LINK_DOWN else (),
        )


def _refusal(view: View, interface: Interface, tso: Tso, target: str) -> str:
    """Say, as a clause, why TSO cannot be as wanted, or nothing."""
    if target == OFF:
        if tso.on and not set(tso.on) & set(tso.changeable):
            return "the driver does not let it be turned off ([fixed])"
        return ""
    if is_connectx_a0(interface.device):
        return MUST_BE_OFF
    if coming_mode(view, interface) == CONNECTED:
        now = interface.netdev.ipoib.mode if interface.netdev.ipoib else None
        goes = "" if now == CONNECTED else "it goes to connected mode, and "
        return f"{goes}connected mode has none"
    if not tso.on and not tso.changeable:
        return "the driver offers none (off [fixed])"
    return ""


RULES = (
    Rule(
        ID,
        "TSO of IPoIB netdevs",
        "The policy's tso is on, off, or auto: on wherever mode and driver have it.",
        "With TSO the adapter cuts TCP segments, and the CPU hands over up to 64 KiB "
        "at a time. Connected mode has no TSO: the kernel turns it off there, and on "
        "again with datagram mode if it was asked for. What ethtool shows as [fixed] "
        "cannot be changed.",
        "Write tso: auto, or nothing. What is set here is set again by "
        "ovirt-rdma-netdev@.service when the netdev comes anew, and NetworkManager "
        "leaves an offload alone that the profile does not name. Where the profile "
        "names it otherwise (ethtool.feature-tso), that is changed, and the profile "
        "activated once, which takes the link down.",
        (
            "Linux drivers/infiniband/ulp/ipoib/ipoib_main.c, ipoib_fix_features",
            "ethtool(8), -k and -K",
            "NetworkManager nm-settings-nmcli(5), ethtool.feature-tso",
            "NetworkManager src/core/devices/nm-device.c, can_reapply_change and "
            "_ethtool_state_set",
        ),
        decide,
    ),
)
