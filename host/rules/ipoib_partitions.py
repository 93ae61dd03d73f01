# SPDX-License-Identifier: GPL-2.0-or-later
"""IPOIB-PKEY-02: the unit that keeps P_Key children equal to the port's P_Key table,
where the policy says ``partitions: follow``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from ovirt_rdma.host.facts import Unit
from ovirt_rdma.host.paths import PARTITIONS_UNIT
from ovirt_rdma.host.rules.absence import HOST
from ovirt_rdma.host.rules.ipoib_children import follows
from ovirt_rdma.host.rules.rule import (
    FAIL,
    LIVE,
    PASS,
    SKIP,
    UNIT,
    WARN,
    Change,
    Finding,
    Outcome,
    Rule,
    Step,
)
from ovirt_rdma.host.rules.view import View

ID = "IPOIB-PKEY-02"
SOURCE = "Linux drivers/infiniband/core/device.c: no uevent tells of a new P_Key"
_ENABLED, _DISABLED = "enabled", "disabled"
_LOADED, _NOT_FOUND = "loaded", "not-found"
_ACTIVE, _FAILED = "active", "failed"


def decide(view: View) -> Iterator[Outcome]:
    """Give one finding for the host, and a step where the unit is to be enabled."""
    unit = next(
        (u for u in view.facts.software.units if u.name == PARTITIONS_UNIT), None
    )
    if not view.policy.host.follows_partitions:
        yield _not_wanted(unit)
        return
    parents = [one.name for one in view.ipoib if follows(one)]
    if unit is None:
        sentence = f"whether {PARTITIONS_UNIT} is enabled is not known"
        yield Finding(ID, HOST, SKIP, sentence)
    elif unit.enabled == _ENABLED:
        yield _enabled(unit)
    elif not parents:
        sentence = "no IPoIB netdev here is of a rule with partitions: follow"
        yield Finding(ID, HOST, SKIP, sentence)
    else:
        refused = _refused(unit)
        sentence = (
            f"the children of {', '.join(parents)} should follow the P_Key table, and "
            f"{PARTITIONS_UNIT} is not {_ENABLED}"
        )
        yield Finding(ID, HOST, FAIL, f"{sentence}: {refused}" if refused else sentence)
        yield _step(unit, refused)


def _not_wanted(unit: Optional[Unit]) -> Finding:
    if unit is None or unit.enabled != _ENABLED:
        return Finding(ID, HOST, SKIP, "the policy has no partitions: follow")
    return Finding(
        ID,
        HOST,
        WARN,
        f"{PARTITIONS_UNIT} is enabled, and the policy has no partitions: follow any "
        "more; the children stay as they are",
        f"ovirt-rdma-host revert {ID}/{HOST}; where it was not enabled by apply: "
        f"systemctl disable --now {PARTITIONS_UNIT}",
    )


def _enabled(unit: Unit) -> Finding:
    if unit.load == _LOADED and unit.active == _ACTIVE:
        return Finding(ID, HOST, PASS, f"{unit.name} follows the P_Key tables")
    state = "has failed" if unit.active == _FAILED else "does not run"
    return Finding(
        ID,
        HOST,
        FAIL,
        f"{unit.name} is enabled and {state}, so no P_Key table is followed",
        f"journalctl -b -u {unit.name}; then: systemctl restart {unit.name}",
    )


def _refused(unit: Unit) -> str:
    if unit.load == _LOADED:
        return ""
    if unit.load == _NOT_FOUND:
        return f"{unit.name} is not installed"
    return f"systemd says of {unit.name}: {unit.load or 'nothing'}"


def _step(unit: Unit, refused: str) -> Step:
    before = unit.enabled or _DISABLED
    return Step(
        ID,
        HOST,
        f"{unit.name} is not {_ENABLED}",
        before,
        f"{_ENABLED}, and started",
        LIVE,
        "the kernel tells nobody of a P_Key that appears, so the table is looked at "
        "every few seconds",
        SOURCE,
        f"systemctl disable --now {unit.name}; the children stay",
        (Change(UNIT, unit.name, before, _ENABLED, _ENABLED),),
        refused=refused,
    )


RULE = Rule(
    ID,
    "the unit that follows the P_Key tables",
    f"With partitions: follow in the policy, {PARTITIONS_UNIT} should be enabled and "
    "running. It looks at the P_Key tables of the ports every partitions_interval "
    "seconds, makes the children of partitions that have appeared, with the mode and "
    "MTU of their rule, and removes children whose partition has left the table.",
    "The subnet manager may put a port into a partition, or take it out, at any time. "
    "The kernel sends no uevent then, and makes no netdev. A child is removed only if "
    "one of our runs made it, its partition was missing in two looks one after the "
    "other at an ACTIVE port, and nobody uses it: no storage, logical network, IP "
    "address or netdev on top. All others are left, and IPOIB-PKEY-01 reports them.",
    "ovirt-rdma-host apply enables the unit. VDSM sees the children as NICs; Refresh "
    "Capabilities in the engine shows a new one at once. When the policy no longer "
    f"says partitions: follow, ovirt-rdma-host revert {ID}/{HOST} disables the unit; "
    "until then it runs and changes nothing.",
    (
        "Linux drivers/infiniband/core/device.c, IB_EVENT_PKEY_CHANGE",
        "Linux drivers/infiniband/ulp/ipoib/ipoib_ib.c, ipoib_ib_dev_flush_heavy",
        "opensm(8), partition configuration",
    ),
    decide,
)

RULES = (RULE,)
