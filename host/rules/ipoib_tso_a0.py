# SPDX-License-Identifier: GPL-2.0-or-later
"""IPOIB-TSO-01: TSO has to be off behind a ConnectX of revision a0."""

from __future__ import annotations

from collections.abc import Iterator

from ovirt_rdma.host.policy_host import AUTO, OFF
from ovirt_rdma.host.rules.hardware import is_connectx_a0, revision_text
from ovirt_rdma.host.rules.ipoib_children import in_order
from ovirt_rdma.host.rules.ipoib_limits import tso_of
from ovirt_rdma.host.rules.ipoib_settings import settings_of
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
    PASS,
    SKIP,
    WARN,
    Finding,
    Outcome,
    Rule,
    Step,
)
from ovirt_rdma.host.rules.view import Interface, View

ID = "IPOIB-TSO-01"
SOURCE = "Linux drivers/infiniband/hw/mlx4/main.c, MLX4_IB_CARD_REV_A0"
MUST_BE_OFF = "a ConnectX of revision a0 must not use TSO over IPoIB"


def decide(view: View) -> Iterator[Outcome]:
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
        yield Finding(ID, "host", SKIP, sentence)


def _finding(interface: Interface) -> Finding:
    name = interface.name
    told = revision_text(interface.device)
    card = f"{name} is behind a ConnectX of revision a0 ({told})"
    tso = tso_of(interface.netdev)
    if tso is None:
        fix = f"install ethtool, or look: ethtool -k {name}"
        return Finding(ID, name, WARN, f"{card}; whether TSO is on is not known", fix)
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
        return Finding(ID, name, FAIL, sentence, fix)
    if tso.asked:
        sentence = (
            f"{card}; TSO is off in connected mode, and datagram mode turns it on"
        )
        return Finding(ID, name, WARN, sentence, fix)
    how = "off [fixed]: the driver knows this card"
    if tso.changeable:
        how = "off, and the driver would let it be turned on"
    return Finding(ID, name, PASS, f"{card}; TSO is {how}")


def _step(view: View, interface: Interface) -> Iterator[Step]:
    settings = settings_of(view, interface)
    tso = tso_of(interface.netdev)
    changes = tso_changes(interface, settings, tso, OFF) if tso else ()
    if tso and changes:
        effect = class_of(changes, settings.profile)
        yield Step(
            ID,
            interface.name,
            f"TSO of {interface.name}",
            tso_text(tso),
            OFF,
            effect,
            MUST_BE_OFF,
            SOURCE,
            undo_of(changes),
            changes,
            users=interface.users if effect == LINK_DOWN else (),
        )


RULES = (
    Rule(
        ID,
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
        decide,
    ),
)
