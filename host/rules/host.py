# SPDX-License-Identifier: GPL-2.0-or-later
"""UNIT-01, VDSM-01 and FACTS-01: units, VDSM, facts that could not be read.

UNIT-01: rdma-core's units, and openibd beside them.

FACTS-01: what could not be read.

VDSM-01: a VDSM that sees IPoIB netdevs.
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
    """Give a finding for each unit that is not as it should be."""
    units = view.facts.software.units
    if not units:
        yield Finding(UNITS_ID, HOST, SKIP, "the state of systemd's units is not known")
        return
    findings = [*_failed(units), *_openibd(view), *_inactive(view, units)]
    yield from findings
    if findings:
        return
    if not view.facts.rdma_devices:
        yield Finding(
            UNITS_ID, HOST, SKIP, "no RDMA device, so rdma-core's units stay idle"
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
                hint = f"; /etc/rdma/modules/{name}.conf may name a module that is gone"
            yield Finding(
                UNITS_ID,
                unit.name,
                WARN,
                sentence,
                f"journalctl -b -u {unit.name}{hint}",
            )


def _openibd(view: View) -> Iterator[Finding]:
    """openibd is MLNX_OFED's; it unloads and reloads the modules that rdma-core's
    units have loaded.
    """
    if not openibd_runs(view):
        return
    sentence = "openibd runs beside rdma-core, and both load RDMA modules"
    if has_rdma_core(view) is not True:
        sentence = "openibd loads the RDMA modules on this host"
    fix = (
        "with the distribution's drivers: systemctl disable --now openibd; with "
        "MLNX_OFED: never restart openibd while storage is mounted"
    )
    yield Finding(UNITS_ID, OPENIBD, WARN, sentence, fix)


def _inactive(view: View, units: tuple[Unit, ...]) -> Iterator[Finding]:
    """With a device that udev knows, systemd starts the target and the lists."""
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
        sentence = f"{', '.join(idle)} {verb} not active, although there is an RDMA"
        fix = f"systemctl start {' '.join(idle)}"
        yield Finding(UNITS_ID, idle[0], WARN, f"{sentence} device", fix)


UNITS_RULE = Rule(
    id=UNITS_ID,
    title="units of rdma-core",
    what=(
        "rdma-hw.target and the rdma-load-modules@ units that fit this hardware should "
        "be active, none of them failed, and openibd should not run beside them."
    ),
    why=(
        "These units load ib_ipoib, rpcrdma and the rest before the network starts. "
        "One fails as soon as its list names a module that this kernel does not have. "
        "openibd, MLNX_OFED's service, unloads and loads the same modules when it is "
        "restarted, under mounted storage too."
    ),
    fix=(
        "journalctl -b -u UNIT names the module; take it out of the list in "
        "/etc/rdma/modules. Choose one of rdma-core and openibd."
    ),
    sources=("rdma-core Documentation/udev.md, kernel-boot/*", "systemd.special(7)"),
    decide=decide_units,
)

UNITS_RULES = (UNITS_RULE,)


UNREAD_ID = "FACTS-01"
# More would hide the rest of the result; facts -o json has them all.
_SHOWN = 20


def decide_unread(view: View) -> Iterator[Finding]:
    """Give a finding for each problem of the facts."""
    problems = view.facts.problems
    if not problems:
        yield Finding(UNREAD_ID, HOST, PASS, "everything could be read")
    for problem in problems[:_SHOWN]:
        sentence = problem.rstrip(".") or "something could not be read"
        yield Finding(UNREAD_ID, HOST, WARN, sentence, _fix(problem))
    left = len(problems) - _SHOWN
    if left > 0:
        sentence = f"{left} more things could not be read"
        yield Finding(
            UNREAD_ID, HOST, WARN, sentence, "ovirt-rdma-host facts shows them"
        )


def _fix(problem: str) -> str:
    """What the problem's words tell of its cause."""
    text = problem.lower()
    if "permission denied" in text or "not permitted" in text:
        return "run it as root"
    if "no such file" in text and "failed" in text:
        return "install the tool"
    return "rules that need it say SKIP, or that it is unknown"


UNREAD_RULE = Rule(
    id=UNREAD_ID,
    title="what could not be read",
    what="Everything that the rules look at should be readable.",
    why=(
        "A file in /sys may answer with an error, hold nothing or garbage, or vanish "
        "while it is read, and a tool may be missing. The rest is complete all the "
        "same; what depends on the missing piece is then unknown and no rule guesses."
    ),
    fix=(
        "As root more can be read. Errors of /sys are the driver's: look into "
        "journalctl -k. A tool that is missing is named."
    ),
    sources=("ovirt-rdma-host facts -o json, problems",),
    decide=decide_unread,
)

UNREAD_RULES = (UNREAD_RULE,)


VDSM_ID = "VDSM-01"
# VDSM commit 5c5a1c47e: link kind "ipoib" counts as a NIC.
FIRST = (4, 50, 1, 1)
_FIRST_TEXT = ".".join(map(str, FIRST))
_VERSION = re.compile(r"(\d{1,6}(?:\.\d{1,6})*)", re.ASCII)


def decide_vdsm(view: View) -> Iterator[Finding]:
    """Give one finding for the host."""
    if not view.ipoib:
        yield Finding(VDSM_ID, HOST, SKIP, "no IPoIB netdev, so any VDSM will do")
        return
    text = view.facts.software.vdsm_version
    version = parsed(text)
    if version is None:
        sentence = "VDSM's version is not known"
        if text:
            sentence = f"VDSM's version {text!a} is not one that can be compared"
        yield Finding(
            VDSM_ID, HOST, SKIP, sentence, f"rpm -q vdsm; {_FIRST_TEXT} is needed"
        )
    elif version >= FIRST:
        yield Finding(VDSM_ID, HOST, PASS, f"VDSM {text} shows IPoIB netdevs as NICs")
    else:
        names = ", ".join(one.name for one in view.ipoib)
        used = any(one.wanted for one in view.ipoib)
        yield Finding(
            VDSM_ID,
            HOST,
            FAIL if used else WARN,
            f"VDSM {text} does not show {names} to the engine",
            f"update VDSM to {_FIRST_TEXT} or later",
        )


def parsed(text: Optional[str]) -> Optional[tuple[int, ...]]:
    """Return a version as numbers, what follows them left out; None: no version."""
    match = _VERSION.match(text or "")
    return tuple(int(n) for n in match.group(1).split(".")) if match else None


VDSM_RULE = Rule(
    id=VDSM_ID,
    title="VDSM that knows IPoIB",
    what=f"With IPoIB netdevs, VDSM should be {_FIRST_TEXT} or later.",
    why=(
        "Kernels since the end of 2020, EL9's too, give IPoIB netdevs the link kind "
        "ipoib. Older VDSM knows no such kind and leaves them out of what it reports, "
        "so the engine shows no ib0 to attach a network to."
    ),
    fix="Update VDSM on the host, through the engine.",
    sources=("VDSM lib/vdsm/network/ipwrapper.py, commit 5c5a1c47e (v4.50.1.1)",),
    decide=decide_vdsm,
)

VDSM_RULES = (VDSM_RULE,)
