# SPDX-License-Identifier: GPL-2.0-or-later
"""Decide whether one of our units, which a key of the policy turns on, has to be
enabled. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Optional

from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.facts.model import Unit
from ovirt_rdma.host.rules.base import (
    FAIL,
    HOST,
    LIVE,
    PASS,
    SKIP,
    UNIT,
    WARN,
    Change,
    Finding,
    Outcome,
    Step,
)
from ovirt_rdma.host.rules.view import View

ENABLED, DISABLED = "enabled", "disabled"
_LOADED, _NOT_FOUND = "loaded", "not-found"
_ACTIVE, _FAILED = "active", "failed"


@dataclass(frozen=True)
class OwnUnit:
    """The unit ``name`` and the texts of its rule ``rule``, as clauses.

    ``key`` is what turns it on in the policy. ``running``: what it does; ``failed``:
    what follows if it is not running; ``kept``: what stays if the policy has the key no
    more. ``reason``, ``source`` and ``undo`` are those of the step.
    """

    rule: str
    name: str
    key: str
    running: str
    failed: str
    kept: str
    reason: str
    source: str
    undo: str = ""


def decide_unit(view: View, own: OwnUnit, wanted: str) -> Iterator[Outcome]:
    """Yield one finding for the host, and a step if the unit must be enabled.

    ``wanted`` says what the policy wants, as a clause; "" if it does not want the unit.
    """
    unit = next((u for u in view.facts.software.units if u.name == own.name), None)
    if not wanted:
        yield _not_wanted(own, unit)
    elif unit is None:
        sentence = f"it is unknown if {own.name} is {ENABLED}"
        yield Finding(own.rule, HOST, SKIP, sentence)
    elif unit.enabled == ENABLED:
        yield _enabled(own, unit)
    else:
        refused = refused_unit(unit)
        sentence = f"{wanted}, but {own.name} is not {ENABLED}"
        yield Finding(
            own.rule, HOST, FAIL, f"{sentence}: {refused}" if refused else sentence
        )
        yield enabling_step(own, unit, refused)


def _not_wanted(own: OwnUnit, unit: Optional[Unit]) -> Finding:
    if unit is None or unit.enabled != ENABLED:
        return Finding(own.rule, HOST, SKIP, f"the policy has no {own.key}")
    return Finding(
        own.rule,
        HOST,
        WARN,
        f"{own.name} is {ENABLED}, but the policy no longer has {own.key}; {own.kept}",
        f"ovirt-rdma-host revert {own.rule}/{HOST}; if apply did not enable it: "
        f"systemctl disable --now {own.name}",
    )


def _enabled(own: OwnUnit, unit: Unit) -> Finding:
    if unit.load == _LOADED and unit.active == _ACTIVE:
        return Finding(own.rule, HOST, PASS, f"{unit.name} {own.running}")
    state = "has failed" if unit.active == _FAILED else "is not running"
    return Finding(
        own.rule,
        HOST,
        FAIL,
        f"{unit.name} is {ENABLED} but {state}, {own.failed}",
        f"journalctl -b -u {unit.name}; then: systemctl restart {unit.name}",
    )


def refused_unit(unit: Unit) -> str:
    """Return why ``unit`` cannot be enabled, or ""."""
    if unit.load == _LOADED:
        return ""
    if unit.load == _NOT_FOUND:
        return Sentence("unit-missing", f"{unit.name} is not installed")
    load = unit.load or "unknown"
    return Sentence("unit-not-loaded", f"the load state of {unit.name} is {load}")


def enabling_step(own: OwnUnit, unit: Unit, refused: str) -> Step:
    """Return the step that enables ``unit``."""
    before = unit.enabled or DISABLED
    return Step(
        own.rule,
        HOST,
        f"enable {unit.name}",
        before,
        f"{ENABLED}, and started",
        LIVE,
        own.reason,
        own.source,
        f"systemctl disable --now {unit.name}{own.undo}",
        (Change(UNIT, unit.name, before, ENABLED, ENABLED),),
        refused=refused,
    )
