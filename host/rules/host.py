# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules about the host as a whole. Pure.

UNIT-01 checks rdma-core's units and openibd. FACTS-01 reports facts that could not be
read. VDSM-01 checks that VDSM reports IPoIB netdevs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Optional

from ovirt_rdma.host.rules.base import FAIL, PASS, WARN, About, Finding, Rule
from ovirt_rdma.host.rules.modules import (
    OPENIBD,
    has_rdma_core,
    list_unit,
    lists_for,
    openibd_runs,
)
from ovirt_rdma.host.rules.view import View

TARGET = "rdma-hw.target"
_WATCHED = ("rdma-", "openibd", "opensm", "srp_daemon", "iwpmd")


def _units(view: View) -> Iterator[Finding]:
    """Yield a finding for each unit in a wrong state."""
    units = view.facts.software.units
    if not units:
        yield About(UNITS.id).skips("the state of systemd's units is unknown")
        return
    findings = [*_failed(view), *_openibd(view), *_inactive(view)]
    yield from findings
    if findings:
        return
    if not view.facts.rdma_devices:
        yield About(UNITS.id).skips("no RDMA device, so rdma-core's units are inactive")
    elif has_rdma_core(view) is False:
        yield About(UNITS.id).skips("rdma-core's units are not installed")


def _failed(view: View) -> Iterator[Finding]:
    for unit in view.facts.software.units:
        if unit.active == "failed" and unit.name.startswith(_WATCHED):
            hint = ""
            if unit.name.startswith("rdma-load-modules@"):
                name = unit.name.partition("@")[2].partition(".")[0]
                hint = f"; /etc/rdma/modules/{name}.conf may name a missing module"
            yield About(UNITS.id, unit.name).warns(
                f"{unit.name} has failed", f"journalctl -b -u {unit.name}{hint}"
            )


def _openibd(view: View) -> Iterator[Finding]:
    """Yield a finding if MLNX_OFED's openibd is active: it unloads and reloads the
    modules that rdma-core's units have loaded.
    """
    if openibd_runs(view):
        sentence = "openibd and rdma-core are both active, and both load RDMA modules"
        if has_rdma_core(view) is not True:
            sentence = "openibd loads the RDMA modules on this host"
        yield About(UNITS.id, OPENIBD).warns(
            sentence,
            "with the distribution's drivers: systemctl disable --now openibd; with "
            "MLNX_OFED: never restart openibd while storage is mounted",
        )


def _inactive(view: View) -> Iterator[Finding]:
    """Yield a finding if units are inactive that systemd starts for a known device."""
    if not view.facts.rdma_devices or not has_rdma_core(view) or openibd_runs(view):
        return
    names = lists_for(view.facts.rdma_devices)
    expected = {TARGET, *(list_unit(name) for name in names)}
    idle = [
        unit.name
        for unit in view.facts.software.units
        if unit.name in expected
        and unit.load == "loaded"
        and unit.active not in ("active", "failed", "activating")
    ]
    if idle:
        verb = "is" if len(idle) == 1 else "are"
        yield About(UNITS.id, idle[0]).warns(
            f"the host has an RDMA device, but {', '.join(idle)} {verb} inactive",
            f"systemctl start {' '.join(idle)}",
        )


# More would hide the other findings; facts -o json has them all.
_SHOWN = 20


def _unread(view: View) -> Iterator[Finding]:
    """Yield a finding for each problem of the facts."""
    problems, about = view.facts.problems, About(UNREAD.id)
    for problem in problems[:_SHOWN]:
        sentence = problem.rstrip(".") or "a fact could not be read"
        yield about.warns(sentence, _fix(problem.lower()))
    left = len(problems) - _SHOWN
    if left > 0:
        sentence = f"{left} more facts could not be read"
        yield about.warns(sentence, "ovirt-rdma-host facts shows them")


def _fix(problem: str) -> str:
    """Return the fix for the cause that the problem's text names."""
    if "permission denied" in problem or "not permitted" in problem:
        return "run it as root"
    if "no such file" in problem and "failed" in problem:
        return "install the tool"
    return "see the driver's messages: journalctl -k"


# VDSM commit 5c5a1c47e: link kind "ipoib" counts as a NIC.
FIRST = (4, 50, 1, 1)
_FIRST_TEXT = ".".join(map(str, FIRST))
_VERSION = re.compile(r"(\d{1,6}(?:\.\d{1,6})*)", re.ASCII)


def _vdsm(view: View) -> Iterator[Finding]:
    """Yield one finding for a host with IPoIB."""
    if not view.ipoib:
        return
    text, about = view.facts.software.vdsm_version, About(VDSM.id)
    version = parsed(text)
    if version is None:
        sentence = "VDSM's version is unknown"
        if text:
            sentence = f"VDSM's version {text!a} is not a version number"
        yield about.skips(sentence, f"rpm -q vdsm; {_FIRST_TEXT} is required")
    elif version >= FIRST:
        yield about.passes(f"VDSM {text} reports IPoIB netdevs as NICs")
    else:
        names = ", ".join(interface.name for interface in view.ipoib)
        used = any(interface.wanted for interface in view.ipoib)
        yield about.finds(
            FAIL if used else WARN,
            f"VDSM {text} does not report {names} to the engine",
            f"update VDSM to {_FIRST_TEXT} or later",
        )


def parsed(text: Optional[str]) -> Optional[tuple[int, ...]]:
    """Return the leading numbers of a version; None if the text is not a version."""
    match = _VERSION.match(text or "")
    return tuple(int(n) for n in match.group(1).split(".")) if match else None


UNITS = Rule("UNIT-01", _units, "no unit of rdma-core has failed", PASS)
UNREAD = Rule("FACTS-01", _unread, "all facts could be read", PASS)
VDSM = Rule("VDSM-01", _vdsm, "no IPoIB netdev, so any VDSM is sufficient")
