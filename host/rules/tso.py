# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules about TSO of netdevs of RDMA ports. Pure.

IPOIB-TSO-01 turns TSO off on a ConnectX of revision a0, IPOIB-TSO-02 sets it as the
policy requires. ROCE-TSO-01 sets the policy's TSO on the Ethernet netdevs of RoCE
ports: RDMA does not use TSO, but TCP on the same port does. So ``auto`` does not change
the driver's default there, which is on.

NetworkManager does not change an offload that the profile does not name, neither at
activations nor when it releases the netdev (``_ethtool_state_set`` and
``_ethtool_state_reset``, src/core/devices/nm-device.c). So it is set by ethtool, and
our unit sets it again when the netdev is recreated. In the profile it would make
NetworkManager refuse each Reapply (:mod:`.profiles`). The profile is changed only if it
has another value, which NetworkManager would set at the next activation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Optional

from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.facts.ipoib import CONNECTED
from ovirt_rdma.host.policy.model import AUTO, OFF, ON
from ovirt_rdma.host.rules.base import (
    OFFLOAD,
    PROFILE,
    About,
    Change,
    Finding,
    Outcome,
    Rule,
    Step,
)
from ovirt_rdma.host.rules.ipoib import (
    Tso,
    is_connectx_a0,
    planned_mode,
    revision_text,
    tso_of,
)
from ovirt_rdma.host.rules.ipoib_children import parents_first
from ovirt_rdma.host.rules.ipoib_profile import NO_NETDEV
from ovirt_rdma.host.rules.profiles import TSO, Settings, class_of, settings_of
from ovirt_rdma.host.rules.view import Interface, View

_OTHER = {ON: OFF, OFF: ON}


def _wanted(interface: Interface) -> Optional[str]:
    """Return the policy's TSO for ``interface``: ``on``, ``off``, ``auto`` or None."""
    return interface.wanted.tso if interface.wanted else None


def _changes(
    interface: Interface, settings: Settings, tso: Tso, target: str
) -> tuple[Change, ...]:
    """Return the Changes that set TSO to ``target``: in a profile with another value,
    then live.
    """
    opposed = bool(tso.changeable) and settings.value(TSO) not in (None, target)
    profile = settings.change(TSO, target) if opposed else ()
    if target == ON:
        # Datagram mode turns requested features on that connected mode turned off.
        names = [n for n in tso.changeable if n not in (*tso.on, *tso.requested)]
    else:
        names = [n for n in (*tso.on, *tso.requested) if n in tso.changeable]
    before = None if interface.planned else _OTHER[target]
    live = (Change(OFFLOAD, interface.name, before, target, n) for n in names)
    return (*profile, *live)


def _step(
    about: About,
    interface: Interface,
    settings: Settings,
    changes: tuple[Change, ...],
    *,
    before: str,
    after: str,
    reason: str,
    source: str,
    refused: str = "",
) -> Step:
    kinds = {change.kind for change in changes}
    profile = "the profile's earlier value"
    undo = "restores the earlier state" if kinds != {PROFILE} else f"restores {profile}"
    if PROFILE in kinds and OFFLOAD in kinds:
        undo += f", and {profile}"
    return about.step(
        f"turn TSO of {interface.name} {after}",
        before,
        after,
        class_of(changes, settings.profile),
        reason=reason,
        source=source,
        undo=undo,
        changes=() if refused else changes,
        refused=refused,
        users=interface.users,
    )


def _tso_text(tso: Tso) -> str:
    """Return the state of TSO in a few words."""
    if tso.on:
        return "on"
    if tso.requested:
        return "off, but requested (connected mode has no TSO)"
    return "off" if tso.changeable else "off [fixed]"


MUST_BE_OFF = "a ConnectX of revision a0 must not use TSO over IPoIB"


def _a0(view: View) -> Iterator[Outcome]:
    """Yield a finding for each IPoIB netdev of a ConnectX of revision a0, and a step if
    TSO is on and the policy has ``tso: auto`` or ``off``.
    """
    for interface in parents_first(view):
        if not is_connectx_a0(interface.device):
            continue
        about, tso = About(A0.id, interface.name), tso_of(interface.netdev)
        if not interface.planned:
            yield _a0_finding(interface, about, tso)
        if tso is None or _wanted(interface) not in (AUTO, OFF):
            continue
        settings = settings_of(view, interface)
        changes = _changes(interface, settings, tso, OFF)
        if changes:
            yield _step(
                about,
                interface,
                settings,
                changes,
                before=_tso_text(tso),
                after=OFF,
                reason=MUST_BE_OFF,
                source="Linux drivers/infiniband/hw/mlx4/main.c, MLX4_IB_CARD_REV_A0",
            )


def _a0_finding(interface: Interface, about: About, tso: Optional[Tso]) -> Finding:
    revision = revision_text(interface.device)
    adapter = f"{interface.name} is on a ConnectX of revision a0 ({revision})"
    if tso is None:
        return about.warns(
            f"{adapter}, and its TSO state is unknown",
            f"install ethtool, or check manually: ethtool -k {interface.name}",
        )
    fix = ""
    if _wanted(interface) not in (AUTO, OFF):
        guid = interface.port.guid or "..."
        rule = f'{{match: {{guid: "{guid}"}}, tso: auto}}'
        fix = f"policy.yaml, host: interfaces: [{rule}]"
    if tso.on and not set(tso.on) & set(tso.changeable):
        fix = (
            "its driver does not support turning TSO off ([fixed]); connected mode has "
            "no TSO: set transport_mode: connected in the policy"
        )
    if tso.on:
        return about.fails(f"{adapter}, and TSO is on ({', '.join(tso.on)})", fix)
    if tso.requested:
        return about.warns(
            f"{adapter}; TSO is off in connected mode, and datagram mode turns it on",
            fix,
        )
    state = "off [fixed]: the driver detects this adapter"
    if tso.changeable:
        state = "off, and the driver would allow turning it on"
    return about.passes(f"{adapter}; TSO is {state}")


def _ipoib(view: View) -> Iterator[Outcome]:
    """Yield a finding for each IPoIB netdev, and a step if the policy requires another
    TSO state.
    """
    for interface in parents_first(view):
        for outcome in _ipoib_outcomes(view, interface):
            if not interface.planned or isinstance(outcome, Step):
                yield outcome


def _ipoib_outcomes(view: View, interface: Interface) -> Iterator[Outcome]:
    name, wanted = interface.name, _wanted(interface)
    about, tso = About(IPOIB.id, name), tso_of(interface.netdev)
    if tso is None:
        fix = "install ethtool" if wanted else ""
        yield about.skips(f"the TSO state of {name} is unknown", fix)
        return
    shown = f"TSO of {name} is {_tso_text(tso)}"
    if is_connectx_a0(interface.device) and wanted != ON:
        yield about.skips(f"{shown}; see IPOIB-TSO-01")
        return
    if wanted is None:
        yield about.passes(f"{shown}; the policy does not set it")
        return
    target = OFF if wanted == OFF else ON
    refused = _refusal(view, interface, tso, target)
    if refused and wanted == AUTO:
        yield about.passes(f"{shown}: {refused}")
        return
    reason = "the policy requires it"
    if wanted == AUTO:
        reason = "with TSO the adapter segments TCP data instead of the CPU"
    settings = settings_of(view, interface)
    changes = () if refused else _changes(interface, settings, tso, target)
    if refused:
        yield about.fails(
            f"{shown}, and the policy's {target} is not possible: {refused}",
            "set tso: auto for it in the policy",
        )
    elif not changes:
        yield about.passes(f"{shown}: {reason}")
        return
    elif all(change.kind != OFFLOAD for change in changes):
        yield about.warns(f"{shown}, but its profile will turn it {_OTHER[target]}")
    else:
        yield about.fails(f"{shown}, but should be {target}: {reason}")
    yield _step(
        about,
        interface,
        settings,
        changes,
        before=_tso_text(tso),
        after=target,
        reason=reason,
        source="Linux ulp/ipoib/ipoib_main.c, ipoib_set_dev_features and "
        "ipoib_fix_features",
        refused=refused,
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
        now = interface.mode == CONNECTED
        change = "" if now else "the plan sets connected mode, and "
        return Sentence("tso-in-connected-mode", f"{change}connected mode has no TSO")
    if not tso.on and not tso.changeable:
        return Sentence("tso-fixed", "the driver does not support TSO (off [fixed])")
    return ""


def _roce(view: View) -> Iterator[Outcome]:
    """Yield a finding for each netdev whose TSO the policy sets, and its step."""
    for interface in view.roce:
        wanted = _wanted(interface)
        if wanted is not None:
            yield from _roce_outcomes(view, interface, wanted)


def _roce_outcomes(view: View, interface: Interface, wanted: str) -> Iterator[Outcome]:
    name, tso = interface.name, tso_of(interface.netdev)
    about, settings = About(ROCE.id, name), settings_of(view, interface)
    if tso is None:
        yield about.skips(f"the TSO state of {name} is unknown", "install ethtool")
        return
    # Only IPoIB turns them on again by itself.
    tso = replace(tso, requested=())
    now = ON if tso.on else OFF
    shown = f"TSO of {name} is {now}"
    if wanted == AUTO:
        yield about.passes(f"{shown}; auto does not change it")
        return
    changes = _changes(interface, settings, tso, wanted)
    opposed = bool(tso.changeable) and settings.value(TSO) not in (None, wanted)
    fixed_on = set(tso.on) - set(tso.changeable)
    refused = settings.blocked if opposed else ""
    if fixed_on if wanted == OFF else not (tso.on or tso.changeable):
        refused = Sentence(
            "tso-fixed", "the driver does not support changing it ([fixed])"
        )
    if now == wanted and (refused or not changes):
        yield about.passes(f"{shown}: the policy requires it")
        return
    sentence = f"{shown}, the policy requires {wanted}"
    if now == wanted:
        sentence = f"{shown}, but its profile will turn it {_OTHER[wanted]}"
    yield about.fails(sentence, refused or "ovirt-rdma-host plan")
    yield _step(
        about,
        interface,
        settings,
        changes,
        before=now,
        after=wanted,
        reason="the policy requires it",
        source="ethtool(8), nm-settings-nmcli(5) ethtool.feature-tso",
        refused=refused,
    )


A0 = Rule("IPOIB-TSO-01", _a0, "no IPoIB netdev is on a ConnectX of revision a0")
IPOIB = Rule("IPOIB-TSO-02", _ipoib, NO_NETDEV)
ROCE = Rule(
    "ROCE-TSO-01", _roce, "the policy does not set TSO of Ethernet netdevs", rdma=True
)
