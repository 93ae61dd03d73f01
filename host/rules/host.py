# SPDX-License-Identifier: GPL-2.0-or-later
"""UNIT-01, FACTS-01 and VDSM-01: check units, facts and VDSM's version. Pure.

UNIT-01 checks rdma-core's units and openibd. FACTS-01 reports facts that could not be
read. VDSM-01 checks that VDSM reports IPoIB netdevs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Optional

from ovirt_rdma.host.facts.model import Unit
from ovirt_rdma.host.rules.base import FAIL, HOST, PASS, SKIP, WARN, Finding, Rule
from ovirt_rdma.host.rules.module_loading import (
    OPENIBD,
    has_rdma_core,
    list_unit,
    lists_for,
    openibd_runs,
)
from ovirt_rdma.host.rules.view import View

UNITS_ID = "UNIT-01"
TARGET = "rdma-hw.target"
_WATCHED = ("rdma-", "openibd", "opensm", "srp_daemon", "iwpmd")
_FAILED, _ACTIVE, _LOADED = "failed", "active", "loaded"


def decide_units(view: View) -> Iterator[Finding]:
    """Yield a finding for each unit in a wrong state."""
    units = view.facts.software.units
    if not units:
        yield Finding(UNITS_ID, HOST, SKIP, "the state of systemd's units is unknown")
        return
    findings = [*_failed(units), *_openibd(view), *_inactive(view, units)]
    yield from findings
    if findings:
        return
    if not view.facts.rdma_devices:
        yield Finding(
            UNITS_ID, HOST, SKIP, "no RDMA device, so rdma-core's units are inactive"
        )
    elif has_rdma_core(view) is False:
        yield Finding(UNITS_ID, HOST, SKIP, "rdma-core's units are not installed")
    else:
        yield Finding(UNITS_ID, HOST, PASS, "no unit of rdma-core has failed")


def _failed(units: tuple[Unit, ...]) -> Iterator[Finding]:
    for unit in units:
        if unit.active == _FAILED and unit.name.startswith(_WATCHED):
            sentence = f"{unit.name} has failed"
            hint = ""
            if unit.name.startswith("rdma-load-modules@"):
                name = unit.name.partition("@")[2].partition(".")[0]
                hint = f"; /etc/rdma/modules/{name}.conf may name a missing module"
            yield Finding(
                UNITS_ID,
                unit.name,
                WARN,
                sentence,
                f"journalctl -b -u {unit.name}{hint}",
            )


def _openibd(view: View) -> Iterator[Finding]:
    """Yield a finding if MLNX_OFED's openibd is active: it unloads and reloads the
    modules that rdma-core's units have loaded.
    """
    if not openibd_runs(view):
        return
    sentence = "openibd and rdma-core are both active, and both load RDMA modules"
    if has_rdma_core(view) is not True:
        sentence = "openibd loads the RDMA modules on this host"
    fix = (
        "with the distribution's drivers: systemctl disable --now openibd; with "
        "MLNX_OFED: never restart openibd while storage is mounted"
    )
    yield Finding(UNITS_ID, OPENIBD, WARN, sentence, fix)


def _inactive(view: View, units: tuple[Unit, ...]) -> Iterator[Finding]:
    """Yield a finding if units are inactive that systemd starts for a known device."""
    if not view.facts.rdma_devices or not has_rdma_core(view) or openibd_runs(view):
        return
    names = lists_for(view.facts.rdma_devices)
    expected = {TARGET, *(list_unit(name) for name in names)}
    idle = [
        unit.name
        for unit in units
        if unit.name in expected
        and unit.load == _LOADED
        and unit.active not in (_ACTIVE, _FAILED, "activating")
    ]
    if idle:
        verb = "is" if len(idle) == 1 else "are"
        sentence = f"the host has an RDMA device, but {', '.join(idle)} {verb} inactive"
        fix = f"systemctl start {' '.join(idle)}"
        yield Finding(UNITS_ID, idle[0], WARN, sentence, fix)


UNITS_RULE = Rule(UNITS_ID, decide_units)

UNITS_RULES = (UNITS_RULE,)


UNREAD_ID = "FACTS-01"
# More would hide the other findings; facts -o json has them all.
_SHOWN = 20


def decide_unread(view: View) -> Iterator[Finding]:
    """Yield a finding for each problem of the facts."""
    problems = view.facts.problems
    if not problems:
        yield Finding(UNREAD_ID, HOST, PASS, "all facts could be read")
    for problem in problems[:_SHOWN]:
        sentence = problem.rstrip(".") or "a fact could not be read"
        yield Finding(UNREAD_ID, HOST, WARN, sentence, _fix(problem))
    left = len(problems) - _SHOWN
    if left > 0:
        sentence = f"{left} more facts could not be read"
        yield Finding(
            UNREAD_ID, HOST, WARN, sentence, "ovirt-rdma-host facts shows them"
        )


def _fix(problem: str) -> str:
    """Return the fix for the cause that the problem's text names."""
    text = problem.lower()
    if "permission denied" in text or "not permitted" in text:
        return "run it as root"
    if "no such file" in text and "failed" in text:
        return "install the tool"
    return "see the driver's messages: journalctl -k"


UNREAD_RULE = Rule(UNREAD_ID, decide_unread)

UNREAD_RULES = (UNREAD_RULE,)


VDSM_ID = "VDSM-01"
# VDSM commit 5c5a1c47e: link kind "ipoib" counts as a NIC.
FIRST = (4, 50, 1, 1)
_FIRST_TEXT = ".".join(map(str, FIRST))
_VERSION = re.compile(r"(\d{1,6}(?:\.\d{1,6})*)", re.ASCII)


def decide_vdsm(view: View) -> Iterator[Finding]:
    """Yield one finding for the host."""
    if not view.ipoib:
        yield Finding(VDSM_ID, HOST, SKIP, "no IPoIB netdev, so any VDSM is sufficient")
        return
    text = view.facts.software.vdsm_version
    version = parsed(text)
    if version is None:
        sentence = "VDSM's version is unknown"
        if text:
            sentence = f"VDSM's version {text!a} is not a version number"
        yield Finding(
            VDSM_ID, HOST, SKIP, sentence, f"rpm -q vdsm; {_FIRST_TEXT} is required"
        )
    elif version >= FIRST:
        yield Finding(VDSM_ID, HOST, PASS, f"VDSM {text} reports IPoIB netdevs as NICs")
    else:
        names = ", ".join(interface.name for interface in view.ipoib)
        used = any(interface.wanted for interface in view.ipoib)
        yield Finding(
            VDSM_ID,
            HOST,
            FAIL if used else WARN,
            f"VDSM {text} does not report {names} to the engine",
            f"update VDSM to {_FIRST_TEXT} or later",
        )


def parsed(text: Optional[str]) -> Optional[tuple[int, ...]]:
    """Return the leading numbers of a version; None if the text is not a version."""
    match = _VERSION.match(text or "")
    return tuple(int(n) for n in match.group(1).split(".")) if match else None


VDSM_RULE = Rule(VDSM_ID, decide_vdsm)

VDSM_RULES = (VDSM_RULE,)
