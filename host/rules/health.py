# SPDX-License-Identifier: GPL-2.0-or-later
"""HEALTH-01: the unit that watches the NFS mounts. Pure.

It is off until the policy has ``health_interval``, and apply has enabled it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.facts.model import Unit
from ovirt_rdma.host.paths import HEALTH_UNIT
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
    Rule,
    Step,
)
from ovirt_rdma.host.rules.view import View

HEALTH_ID = "HEALTH-01"
_ENABLED, _DISABLED = "enabled", "disabled"
_LOADED, _NOT_FOUND, _ACTIVE = "loaded", "not-found", "active"


def decide_health(view: View) -> Iterator[Outcome]:
    """Yield one finding for the host, and a step if the unit must be enabled."""
    unit = next((u for u in view.facts.software.units if u.name == HEALTH_UNIT), None)
    interval = view.policy.nfs.health_interval
    if interval is None:
        yield _not_wanted(unit)
    elif unit is None:
        sentence = f"it is unknown if {HEALTH_UNIT} is enabled"
        yield Finding(HEALTH_ID, HOST, SKIP, sentence)
    elif unit.enabled == _ENABLED:
        yield _enabled(unit, interval)
    else:
        refused = _refused(unit)
        sentence = (
            f"the mounts should be looked at every {interval} s, but {HEALTH_UNIT} is "
            f"not {_ENABLED}"
        )
        yield Finding(
            HEALTH_ID, HOST, FAIL, f"{sentence}: {refused}" if refused else sentence
        )
        yield _step(unit, refused)


def _not_wanted(unit: Optional[Unit]) -> Finding:
    if unit is None or unit.enabled != _ENABLED:
        return Finding(HEALTH_ID, HOST, SKIP, "the policy has no health_interval")
    return Finding(
        HEALTH_ID,
        HOST,
        WARN,
        f"{HEALTH_UNIT} is enabled, but the policy no longer has health_interval, so "
        "nobody watches the mounts",
        f"ovirt-rdma-host revert {HEALTH_ID}/{HOST}; if apply did not enable it: "
        f"systemctl disable --now {HEALTH_UNIT}",
    )


def _enabled(unit: Unit, interval: int) -> Finding:
    if unit.load == _LOADED and unit.active == _ACTIVE:
        sentence = f"{unit.name} looks at the mounts every {interval} s"
        return Finding(HEALTH_ID, HOST, PASS, sentence)
    state = "has failed" if unit.active == "failed" else "is not running"
    return Finding(
        HEALTH_ID,
        HOST,
        FAIL,
        f"{unit.name} is enabled but {state}, so nobody watches the mounts",
        f"journalctl -b -u {unit.name}; then: systemctl restart {unit.name}",
    )


def _refused(unit: Unit) -> str:
    if unit.load == _LOADED:
        return ""
    if unit.load == _NOT_FOUND:
        return Sentence("unit-missing", f"{unit.name} is not installed")
    load = unit.load or "unknown"
    return Sentence("unit-not-loaded", f"the load state of {unit.name} is {load}")


def _step(unit: Unit, refused: str) -> Step:
    before = unit.enabled or _DISABLED
    return Step(
        HEALTH_ID,
        HOST,
        f"enable {unit.name}",
        before,
        f"{_ENABLED}, and started",
        LIVE,
        "the kernel tells nobody that a mount has stopped to answer",
        HEALTH_SOURCE,
        f"systemctl disable --now {unit.name}",
        (Change(UNIT, unit.name, before, _ENABLED, _ENABLED),),
        refused=refused,
    )


HEALTH_SOURCE = "nfs(5), soft and timeo; Linux fs/nfs/iostat.h"
RULES = (
    Rule(
        HEALTH_ID,
        "the unit that watches the NFS mounts",
        f"With health_interval in the policy, {HEALTH_UNIT} should be enabled and "
        "running. It asks the server of each mount one question per interval, which no "
        "cache answers, and writes the result to /run/ovirt-rdma/health.json.",
        "A mount whose server or path fails shows nothing: programs wait, and get an "
        "error after timeo and retrans. The unit tells the journal in seconds, with "
        "the cause, and the reports of the host have it.",
        "ovirt-rdma-host apply enables the unit. If the policy no longer has "
        f"health_interval, ovirt-rdma-host revert {HEALTH_ID}/{HOST} disables it; "
        "until then it runs and asks nobody.",
        (HEALTH_SOURCE,),
        decide_health,
    ),
)
