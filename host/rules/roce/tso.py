# SPDX-License-Identifier: GPL-2.0-or-later
"""ROCE-TSO-01: set the policy's TSO on the Ethernet netdevs of RoCE ports. Pure.

RDMA does not use TSO, but TCP on the same port does. So ``auto`` does not change the
driver's default, which is on. For the profile see :mod:`ovirt_rdma.host.rules.reapply`.
"""

from __future__ import annotations

from collections.abc import Iterator

from ovirt_rdma.host.errors import Sentence
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
from ovirt_rdma.host.rules.roce.ports import (
    profile_change,
    profile_value,
    why_no_profile,
)
from ovirt_rdma.host.rules.view import Interface, View

ID = "ROCE-TSO-01"
_SOURCE = "ethtool(8), nm-settings-nmcli(5) ethtool.feature-tso"


def decide(view: View) -> Iterator[Outcome]:
    """Yield a finding for each netdev whose TSO the policy sets, and its step."""
    if not view.facts.rdma_devices:
        yield no_device(ID)
        return
    named = [
        (interface, interface.wanted.tso) for interface in view.roce if interface.wanted
    ]
    wanted = [(interface, tso) for interface, tso in named if tso is not None]
    if not wanted:
        sentence = "the policy does not set TSO of Ethernet netdevs"
        yield Finding(ID, HOST, SKIP, sentence)
    for interface, tso in wanted:
        yield from _wanted(view, interface, tso)


def _wanted(view: View, interface: Interface, wanted: str) -> Iterator[Outcome]:
    name, tso = interface.name, tso_of(interface.netdev)
    if tso is None:
        sentence = f"the TSO state of {name} is unknown"
        yield Finding(ID, name, SKIP, sentence, "install ethtool")
        return
    now = ON if tso.on else OFF
    if wanted == AUTO:
        sentence = f"TSO of {name} is {now}; auto does not change it"
        yield Finding(ID, name, PASS, sentence)
        return
    opposed = bool(tso.changeable) and profile_value(interface, TSO) not in (
        None,
        wanted,
    )
    refused = _refusal(view, interface, tso, wanted, opposed)
    profile = profile_change(interface, TSO, wanted) if opposed else ()
    changes = (*profile, *_live(name, tso, wanted))
    effect = class_of(changes, interface.profile)
    if now == wanted and (refused or not changes):
        yield Finding(ID, name, PASS, f"TSO of {name} is {now}: the policy requires it")
        return
    other = OFF if wanted == ON else ON
    sentence = f"TSO of {name} is {now}, the policy requires {wanted}"
    if now == wanted:
        sentence = f"TSO of {name} is {now}, but its profile will turn it {other}"
    yield Finding(ID, name, FAIL, sentence, refused or "ovirt-rdma-host plan")
    yield Step(
        rule=ID,
        subject=name,
        sentence=f"turn TSO of {name} {wanted}",
        before=now,
        after=wanted,
        effect=effect,
        reason="the policy requires it",
        source=_SOURCE,
        undo="restores the earlier state"
        + (", and the profile's earlier value" if profile else ""),
        changes=() if refused else changes,
        refused=refused,
        users=interface.users if effect == LINK_DOWN else (),
    )


def _live(name: str, tso: Tso, wanted: str) -> tuple[Change, ...]:
    if wanted == ON:
        features = [feature for feature in tso.changeable if feature not in tso.on]
    else:
        features = [feature for feature in tso.on if feature in tso.changeable]
    before = OFF if wanted == ON else ON
    return tuple(Change(OFFLOAD, name, before, wanted, feature) for feature in features)


def _refusal(
    view: View, interface: Interface, tso: Tso, wanted: str, opposed: bool
) -> str:
    fixed_on = set(tso.on) - set(tso.changeable)
    if fixed_on if wanted == OFF else not (tso.on or tso.changeable):
        return Sentence(
            "tso-fixed", "the driver does not support changing it ([fixed])"
        )
    return why_no_profile(view, interface) if opposed else ""


RULE = Rule(ID, decide)

RULES = (RULE,)
