# SPDX-License-Identifier: GPL-2.0-or-later
"""IPOIB-TSO-01 and IPOIB-TSO-02: check and set TSO of IPoIB netdevs. Pure.

IPOIB-TSO-01 turns TSO off on a ConnectX of revision a0, IPOIB-TSO-02 sets it as the
policy requires.

NetworkManager does not change an offload that the profile does not name, neither at
activations nor when it releases the netdev (``_ethtool_state_set`` and
``_ethtool_state_reset``, src/core/devices/nm-device.c). So it is set by ethtool, and
our unit sets it again when the netdev is recreated. In the profile it would make
NetworkManager refuse each Reapply (:mod:`.reapply`). The profile is changed only if it
has another value, which NetworkManager would set at the next activation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.facts.ipoib import CONNECTED
from ovirt_rdma.host.policy.model import AUTO, OFF, ON
from ovirt_rdma.host.rules.base import (
    FAIL,
    LINK_DOWN,
    OFFLOAD,
    PASS,
    PROFILE,
    SKIP,
    WARN,
    Change,
    Finding,
    Outcome,
    Rule,
    Step,
)
from ovirt_rdma.host.rules.infiniband.children import parents_first
from ovirt_rdma.host.rules.infiniband.choice import planned_mode
from ovirt_rdma.host.rules.infiniband.limits import (
    Tso,
    is_connectx_a0,
    revision_text,
    tso_of,
)
from ovirt_rdma.host.rules.infiniband.settings import TSO, Settings, settings_of
from ovirt_rdma.host.rules.reapply import class_of
from ovirt_rdma.host.rules.view import Interface, View

_PROFILE_UNDO = "the profile's earlier value"


def wanted_tso(interface: Interface) -> Optional[str]:
    """Return the policy's TSO for ``interface``: ``on``, ``off``, ``auto`` or None."""
    return interface.wanted.tso if interface.wanted else None


def tso_changes(
    interface: Interface, settings: Settings, tso: Tso, target: str
) -> tuple[Change, ...]:
    """Return the Changes that set TSO to ``target``: in a profile with another value,
    then live.
    """
    opposed = bool(tso.changeable) and settings.value(TSO) not in (None, target)
    profile = settings.change(TSO, target) if opposed else ()
    return (*profile, *_live(interface, tso, target))


def _live(interface: Interface, tso: Tso, target: str) -> tuple[Change, ...]:
    if target == ON:
        # Datagram mode turns requested features on that connected mode turned off.
        names = [n for n in tso.changeable if n not in (*tso.on, *tso.requested)]
    else:
        names = [n for n in (*tso.on, *tso.requested) if n in tso.changeable]
    before = OFF if target == ON else ON
    known = None if interface.planned else before
    return tuple(Change(OFFLOAD, interface.name, known, target, n) for n in names)


def undo_of(changes: tuple[Change, ...]) -> str:
    """Return a clause about the revert of ``changes``."""
    kinds = {change.kind for change in changes}
    if kinds == {OFFLOAD}:
        return "restores the earlier state"
    if kinds == {PROFILE}:
        return f"restores {_PROFILE_UNDO}"
    return f"restores the earlier state, and {_PROFILE_UNDO}"


def tso_text(tso: Tso) -> str:
    """Return the state of TSO in a few words."""
    if tso.on:
        return "on"
    if tso.requested:
        return "off, but requested (connected mode has no TSO)"
    return "off" if tso.changeable else "off [fixed]"


A0_ID = "IPOIB-TSO-01"
A0_SOURCE = "Linux drivers/infiniband/hw/mlx4/main.c, MLX4_IB_CARD_REV_A0"
MUST_BE_OFF = "a ConnectX of revision a0 must not use TSO over IPoIB"


def decide_a0(view: View) -> Iterator[Outcome]:
    """Yield a finding for each IPoIB netdev of a ConnectX of revision a0, and a step if
    TSO is on and the policy has ``tso: auto`` or ``off``.
    """
    none = True
    for interface in parents_first(view):
        if is_connectx_a0(interface.device):
            none = False
            if not interface.planned:
                yield _finding(interface)
            if wanted_tso(interface) in (AUTO, OFF):
                yield from _step(view, interface)
    if none:
        sentence = "no IPoIB netdev is on a ConnectX of revision a0"
        yield Finding(A0_ID, "host", SKIP, sentence)


def _finding(interface: Interface) -> Finding:
    name = interface.name
    revision = revision_text(interface.device)
    adapter = f"{name} is on a ConnectX of revision a0 ({revision})"
    tso = tso_of(interface.netdev)
    if tso is None:
        fix = f"install ethtool, or check manually: ethtool -k {name}"
        return Finding(
            A0_ID, name, WARN, f"{adapter}, and its TSO state is unknown", fix
        )
    fix = ""
    if wanted_tso(interface) not in (AUTO, OFF):
        guid = interface.port.guid or "..."
        rule = f'{{match: {{guid: "{guid}"}}, tso: auto}}'
        fix = f"policy.yaml, host: interfaces: [{rule}]"
    if tso.on and not set(tso.on) & set(tso.changeable):
        fix = (
            "its driver does not support turning TSO off ([fixed]); connected mode has "
            "no TSO: set transport_mode: connected in the policy"
        )
    if tso.on:
        sentence = f"{adapter}, and TSO is on ({', '.join(tso.on)})"
        return Finding(A0_ID, name, FAIL, sentence, fix)
    if tso.requested:
        sentence = (
            f"{adapter}; TSO is off in connected mode, and datagram mode turns it on"
        )
        return Finding(A0_ID, name, WARN, sentence, fix)
    state = "off [fixed]: the driver detects this adapter"
    if tso.changeable:
        state = "off, and the driver would allow turning it on"
    return Finding(A0_ID, name, PASS, f"{adapter}; TSO is {state}")


def _step(view: View, interface: Interface) -> Iterator[Step]:
    settings = settings_of(view, interface)
    tso = tso_of(interface.netdev)
    changes = tso_changes(interface, settings, tso, OFF) if tso else ()
    if tso and changes:
        effect = class_of(changes, settings.profile)
        yield Step(
            A0_ID,
            interface.name,
            f"turn TSO of {interface.name} {OFF}",
            tso_text(tso),
            OFF,
            effect,
            MUST_BE_OFF,
            A0_SOURCE,
            undo_of(changes),
            changes,
            users=interface.users if effect == LINK_DOWN else (),
        )


A0_RULES = (Rule(A0_ID, decide_a0),)


ID = "IPOIB-TSO-02"
SOURCE = "Linux ulp/ipoib/ipoib_main.c, ipoib_set_dev_features and ipoib_fix_features"


def decide(view: View) -> Iterator[Outcome]:
    """Yield a finding for each IPoIB netdev, and a step if the policy requires another
    TSO state.
    """
    if not view.ipoib:
        yield Finding(ID, "host", SKIP, "this host has no IPoIB netdev")
    for interface in parents_first(view):
        outcomes = list(_wanted(view, interface))
        if interface.planned:
            outcomes = [o for o in outcomes if isinstance(o, Step)]
        yield from outcomes


def _wanted(view: View, interface: Interface) -> Iterator[Outcome]:
    name = interface.name
    wanted = wanted_tso(interface)
    tso = tso_of(interface.netdev)
    a0 = is_connectx_a0(interface.device)
    if tso is None:
        fix = "install ethtool" if wanted else ""
        yield Finding(ID, name, SKIP, f"the TSO state of {name} is unknown", fix)
        return
    shown = f"TSO of {name} is {tso_text(tso)}"
    if wanted is None or (a0 and wanted != ON):
        if a0:
            yield Finding(ID, name, SKIP, f"{shown}; see IPOIB-TSO-01")
        else:
            yield Finding(ID, name, PASS, f"{shown}; the policy does not set it")
        return
    target = OFF if wanted == OFF else ON
    refused = _refusal(view, interface, tso, target)
    if refused and wanted == AUTO:
        yield Finding(ID, name, PASS, f"{shown}: {refused}")
        return
    reason = "the policy requires it"
    if wanted == AUTO:
        reason = "with TSO the adapter segments TCP data instead of the CPU"
    settings = settings_of(view, interface)
    changes = () if refused else tso_changes(interface, settings, tso, target)
    if refused:
        sentence = f"{shown}, and the policy's {target} is not possible: {refused}"
        fix = "set tso: auto for it in the policy"
        yield Finding(ID, name, FAIL, sentence, fix)
    elif not changes:
        yield Finding(ID, name, PASS, f"{shown}: {reason}")
    elif all(change.kind != OFFLOAD for change in changes):
        other = ON if target == OFF else OFF
        yield Finding(ID, name, WARN, f"{shown}, but its profile will turn it {other}")
    else:
        yield Finding(ID, name, FAIL, f"{shown}, but should be {target}: {reason}")
    if refused or changes:
        effect = class_of(changes, settings.profile)
        yield Step(
            ID,
            name,
            f"turn TSO of {name} {target}",
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
    """Return a clause why TSO cannot be set to ``target``; empty if it can."""
    if target == OFF:
        if tso.on and not set(tso.on) & set(tso.changeable):
            return Sentence(
                "tso-fixed", "the driver does not support turning it off ([fixed])"
            )
        return ""
    if is_connectx_a0(interface.device):
        return Sentence("tso-on-connectx-a0", MUST_BE_OFF)
    if planned_mode(view, interface) == CONNECTED:
        now = interface.netdev.ipoib.mode if interface.netdev.ipoib else None
        change = "" if now == CONNECTED else "the plan sets connected mode, and "
        return Sentence("tso-in-connected-mode", f"{change}connected mode has no TSO")
    if not tso.on and not tso.changeable:
        return Sentence("tso-fixed", "the driver does not support TSO (off [fixed])")
    return ""


RULES = (Rule(ID, decide),)
