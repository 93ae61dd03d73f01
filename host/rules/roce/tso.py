# SPDX-License-Identifier: GPL-2.0-or-later
"""ROCE-TSO-01: the policy's TSO on the Ethernet netdevs of RoCE ports.

RDMA does not use it; what runs over TCP on the same port does. So ``auto`` leaves what
the driver chose, which is on. Where it is kept: see
:mod:`ovirt_rdma.host.rules.reapply`.
"""

from __future__ import annotations

from collections.abc import Iterator

from ovirt_rdma.host.policy.model import AUTO, OFF, ON
from ovirt_rdma.host.rules.base import (
    FAIL,
    HOST,
    LINK_DOWN,
    OFFLOAD,
    PASS,
    SKIP,
    Change,
    Finding,
    Outcome,
    Rule,
    Step,
    no_device,
)
from ovirt_rdma.host.rules.infiniband.limits import Tso, tso_of
from ovirt_rdma.host.rules.infiniband.settings import TSO
from ovirt_rdma.host.rules.reapply import class_of
from ovirt_rdma.host.rules.roce.ports import kept_value, profile_change, without_profile
from ovirt_rdma.host.rules.view import Interface, View

ID = "ROCE-TSO-01"
_SOURCE = "ethtool(8), nm-settings-nmcli(5) ethtool.feature-tso"


def decide(view: View) -> Iterator[Outcome]:
    """Give a finding for each netdev whose TSO the policy names, and its step."""
    if not view.facts.rdma_devices:
        yield no_device(ID)
        return
    named = [(one, one.wanted.tso) for one in view.roce if one.wanted]
    wanted = [(one, tso) for one, tso in named if tso is not None]
    if not wanted:
        sentence = "the policy says nothing of the TSO of Ethernet netdevs"
        yield Finding(ID, HOST, SKIP, sentence)
    for interface, tso in wanted:
        yield from _wanted(view, interface, tso)


def _wanted(view: View, interface: Interface, wanted: str) -> Iterator[Outcome]:
    name, tso = interface.name, tso_of(interface.netdev)
    if tso is None:
        sentence = f"whether TSO is on for {name} is not known"
        yield Finding(ID, name, SKIP, sentence, "install ethtool")
        return
    now = ON if tso.on else OFF
    if wanted == AUTO:
        sentence = f"TSO of {name} is {now}; auto leaves it, as RDMA does not use it"
        yield Finding(ID, name, PASS, sentence)
        return
    opposed = bool(tso.changeable) and kept_value(interface, TSO) not in (None, wanted)
    refused = _refusal(view, interface, tso, wanted, opposed)
    kept = profile_change(interface, TSO, wanted) if opposed else ()
    changes = (*kept, *_live(name, tso, wanted))
    effect = class_of(changes, interface.profile)
    if now == wanted and (refused or not changes):
        yield Finding(ID, name, PASS, f"TSO of {name} is {now}, as the policy wants")
        return
    other = OFF if wanted == ON else ON
    sentence = f"TSO of {name} is {now}, the policy wants {wanted}"
    if now == wanted:
        sentence = f"TSO of {name} is {now}, and its profile will turn it {other}"
    yield Finding(ID, name, FAIL, sentence, refused or "ovirt-rdma-host plan")
    yield Step(
        rule=ID,
        subject=name,
        sentence=f"turn TSO of {name} {wanted}",
        before=now,
        after=wanted,
        effect=effect,
        reason="the policy wants it",
        source=_SOURCE,
        undo="turns it back"
        + (", and the profile's property to its earlier value" if kept else ""),
        changes=() if refused else changes,
        refused=refused,
        users=interface.users if effect == LINK_DOWN else (),
    )


def _live(name: str, tso: Tso, wanted: str) -> tuple[Change, ...]:
    if wanted == ON:
        features = [one for one in tso.changeable if one not in tso.on]
    else:
        features = [one for one in tso.on if one in tso.changeable]
    before = OFF if wanted == ON else ON
    return tuple(Change(OFFLOAD, name, before, wanted, one) for one in features)


def _refusal(
    view: View, interface: Interface, tso: Tso, wanted: str, opposed: bool
) -> str:
    fixed_on = set(tso.on) - set(tso.changeable)
    if fixed_on if wanted == OFF else not (tso.on or tso.changeable):
        return "the driver does not let it be changed ([fixed])"
    return without_profile(view, interface) if opposed else ""


RULE = Rule(
    id=ID,
    title="TSO of the policy, on RoCE netdevs",
    what=(
        "Where an interface rule names an Ethernet netdev and says tso: on or off, TCP "
        "segmentation offload should be so, now and after a boot."
    ),
    why=(
        "RDMA does not pass the TCP code, so NFS over RDMA gains nothing from it "
        "either way. It matters to TCP on the same port. auto leaves what the driver "
        "chose."
    ),
    fix=(
        "ovirt-rdma-host apply sets it by ethtool, and ovirt-rdma-netdev@.service "
        "sets it again when the netdev comes anew. NetworkManager leaves an offload "
        "alone that the netdev's profile does not name. Where the profile names it "
        "otherwise (ethtool.feature-tso), that is changed, and the profile activated "
        "once, which interrupts who uses the netdev."
    ),
    sources=(
        "ethtool(8)",
        "nm-settings-nmcli(5), ethtool.feature-tso",
        "NetworkManager src/core/devices/nm-device.c, can_reapply_change and "
        "_ethtool_state_set",
    ),
    decide=decide,
)

RULES = (RULE,)
