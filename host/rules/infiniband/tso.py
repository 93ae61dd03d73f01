# SPDX-License-Identifier: GPL-2.0-or-later
"""IPOIB-TSO-01 and IPOIB-TSO-02: TSO of IPoIB netdevs. Pure.

What has to change so that an IPoIB netdev has TSO, or has none. Pure.

NetworkManager leaves an offload alone that the profile does not name, at activations
and when the netdev is let go (``_ethtool_state_set`` and ``_ethtool_state_reset``,
src/core/devices/nm-device.c). So it is set by ethtool, and again by our unit when the
netdev comes anew. In the profile it would make NetworkManager refuse each Reapply
(:mod:`.reapply`); there it is changed only where the profile names it otherwise, as
NetworkManager would set that with its next activation.

IPOIB-TSO-01: TSO has to be off behind a ConnectX of revision a0.

IPOIB-TSO-02: TSO of IPoIB netdevs as the policy says.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from ovirt_rdma.host.policy.model import AUTO, CONNECTED, OFF, ON
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
from ovirt_rdma.host.rules.infiniband.children import in_order
from ovirt_rdma.host.rules.infiniband.limits import (
    Tso,
    is_connectx_a0,
    revision_text,
    tso_of,
)
from ovirt_rdma.host.rules.infiniband.mode_choice import coming_mode
from ovirt_rdma.host.rules.infiniband.settings import TSO, Settings, settings_of
from ovirt_rdma.host.rules.reapply import class_of
from ovirt_rdma.host.rules.view import Interface, View

_PROFILE_BACK = "the profile's property to its earlier value"


def wanted_tso(interface: Interface) -> Optional[str]:
    """Return what the policy says of TSO: ``on``, ``off``, ``auto`` or None."""
    return interface.wanted.tso if interface.wanted else None


def tso_changes(
    interface: Interface, settings: Settings, tso: Tso, target: str
) -> tuple[Change, ...]:
    """Return the Changes that turn TSO to ``target``: in a profile that says otherwise,
    then at once.
    """
    opposed = bool(tso.changeable) and settings.value(TSO) not in (None, target)
    kept = settings.change(TSO, target) if opposed else ()
    return (*kept, *_at_once(interface, tso, target))


def _at_once(interface: Interface, tso: Tso, target: str) -> tuple[Change, ...]:
    if target == ON:
        # Asked for and not on is connected mode's doing; datagram mode gives it back.
        names = [n for n in tso.changeable if n not in (*tso.on, *tso.asked)]
    else:
        names = [n for n in (*tso.on, *tso.asked) if n in tso.changeable]
    before = OFF if target == ON else ON
    known = None if interface.planned else before
    return tuple(Change(OFFLOAD, interface.name, known, target, n) for n in names)


def undo_of(changes: tuple[Change, ...]) -> str:
    """Return what takes ``changes`` back, as a clause."""
    kinds = {change.kind for change in changes}
    if kinds == {OFFLOAD}:
        return "turns it back"
    if kinds == {PROFILE}:
        return f"sets {_PROFILE_BACK}"
    return f"turns it back, and {_PROFILE_BACK}"


def tso_text(tso: Tso) -> str:
    """Return the state of TSO as a word or two."""
    if tso.on:
        return "on"
    if tso.asked:
        return "off, as connected mode has none, but asked for"
    return "off" if tso.changeable else "off [fixed]"


A0_ID = "IPOIB-TSO-01"
A0_SOURCE = "Linux drivers/infiniband/hw/mlx4/main.c, MLX4_IB_CARD_REV_A0"
MUST_BE_OFF = "a ConnectX of revision a0 must not use TSO over IPoIB"


def decide_a0(view: View) -> Iterator[Outcome]:
    """Give a finding for each IPoIB netdev of a ConnectX of revision a0, and a step
    where TSO is on and the policy leaves it to us.
    """
    none = True
    for interface in in_order(view):
        if is_connectx_a0(interface.device):
            none = False
            if not interface.planned:
                yield _finding(interface)
            if wanted_tso(interface) in (AUTO, OFF):
                yield from _step(view, interface)
    if none:
        sentence = "no IPoIB netdev is behind a ConnectX of revision a0"
        yield Finding(A0_ID, "host", SKIP, sentence)


def _finding(interface: Interface) -> Finding:
    name = interface.name
    told = revision_text(interface.device)
    card = f"{name} is behind a ConnectX of revision a0 ({told})"
    tso = tso_of(interface.netdev)
    if tso is None:
        fix = f"install ethtool, or look: ethtool -k {name}"
        return Finding(
            A0_ID, name, WARN, f"{card}; whether TSO is on is not known", fix
        )
    fix = ""
    if wanted_tso(interface) not in (AUTO, OFF):
        guid = interface.port.guid or "..."
        rule = f'{{match: {{guid: "{guid}"}}, tso: auto}}'
        fix = f"policy.yaml, host: interfaces: [{rule}]"
    if tso.on and not set(tso.on) & set(tso.changeable):
        fix = (
            "its driver does not let it be turned off ([fixed]), and connected mode "
            "has none: transport_mode: connected in the policy"
        )
    if tso.on:
        sentence = f"{card}, and TSO is on ({', '.join(tso.on)})"
        return Finding(A0_ID, name, FAIL, sentence, fix)
    if tso.asked:
        sentence = (
            f"{card}; TSO is off in connected mode, and datagram mode turns it on"
        )
        return Finding(A0_ID, name, WARN, sentence, fix)
    how = "off [fixed]: the driver knows this card"
    if tso.changeable:
        how = "off, and the driver would let it be turned on"
    return Finding(A0_ID, name, PASS, f"{card}; TSO is {how}")


def _step(view: View, interface: Interface) -> Iterator[Step]:
    settings = settings_of(view, interface)
    tso = tso_of(interface.netdev)
    changes = tso_changes(interface, settings, tso, OFF) if tso else ()
    if tso and changes:
        effect = class_of(changes, settings.profile)
        yield Step(
            A0_ID,
            interface.name,
            f"TSO of {interface.name}",
            tso_text(tso),
            OFF,
            effect,
            MUST_BE_OFF,
            A0_SOURCE,
            undo_of(changes),
            changes,
            users=interface.users if effect == LINK_DOWN else (),
        )


A0_RULES = (
    Rule(
        A0_ID,
        "TSO of ConnectX revision a0",
        "Behind the first ConnectX (Mellanox MT25408 and its kin, revision a0), TCP "
        "segmentation offload has to be off on every IPoIB netdev, P_Key children "
        "included. The card is told by its PCI id and by its revision, hw_rev of the "
        "RDMA device before the PCI revision: ConnectX-2 has the same ids, and "
        "revision b0.",
        "The kernel's driver offers TSO on all ConnectX but revision a0. Today's mlx4 "
        "driver so shows off [fixed], and there is nothing to do; older drivers and "
        "some that are not the kernel's do not know the card and leave TSO on. The "
        "drivers in EL9's and EL10's kernels never need this rule: they do not take "
        "these cards at all (see DRIVER-01).",
        "Name the netdev in the policy with tso: auto. The plan then turns TSO off "
        "where it is really on, by ethtool, and again when the netdev comes anew. A "
        "script that runs ethtool -K at boot can go.",
        (
            "Linux drivers/infiniband/hw/mlx4/main.c and mlx4_ib.h, "
            "MLX4_IB_CARD_REV_A0",
            "Linux drivers/infiniband/ulp/ipoib/ipoib_main.c",
        ),
        decide_a0,
    ),
)


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
