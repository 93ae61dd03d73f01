# SPDX-License-Identifier: GPL-2.0-or-later
"""UNIT-01: rdma-core's units, and openibd beside them."""

from __future__ import annotations

from collections.abc import Iterator

from ovirt_rdma.host.facts import Unit
from ovirt_rdma.host.rules.absence import HOST
from ovirt_rdma.host.rules.autoload import (
    OPENIBD,
    has_rdma_core,
    list_unit,
    lists_for,
    openibd_runs,
)
from ovirt_rdma.host.rules.rule import PASS, SKIP, WARN, Finding, Rule
from ovirt_rdma.host.rules.view import View

ID = "UNIT-01"
TARGET = "rdma-hw.target"
_WATCHED = ("rdma-", "openibd", "opensm", "srp_daemon", "iwpmd")
_FAILED, _ACTIVE, _LOADED = "failed", "active", "loaded"


def decide(view: View) -> Iterator[Finding]:
    """Give a finding for each unit that is not as it should be."""
    units = view.facts.software.units
    if not units:
        yield Finding(ID, HOST, SKIP, "the state of systemd's units is not known")
        return
    findings = [*_failed(units), *_openibd(view), *_inactive(view, units)]
    yield from findings
    if findings:
        return
    if not view.facts.rdma_devices:
        yield Finding(ID, HOST, SKIP, "no RDMA device, so rdma-core's units stay idle")
    elif has_rdma_core(view) is False:
        yield Finding(ID, HOST, SKIP, "rdma-core's units are not installed")
    else:
        yield Finding(ID, HOST, PASS, "no unit of rdma-core has failed")


def _failed(units: tuple[Unit, ...]) -> Iterator[Finding]:
    for unit in units:
        if unit.active == _FAILED and unit.name.startswith(_WATCHED):
            sentence = f"{unit.name} has failed"
            hint = ""
            if unit.name.startswith("rdma-load-modules@"):
                name = unit.name.partition("@")[2].partition(".")[0]
                hint = f"; /etc/rdma/modules/{name}.conf may name a module that is gone"
            yield Finding(
                ID, unit.name, WARN, sentence, f"journalctl -b -u {unit.name}{hint}"
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
    yield Finding(ID, OPENIBD, WARN, sentence, fix)


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
        yield Finding(ID, idle[0], WARN, f"{sentence} device", fix)


RULE = Rule(
    id=ID,
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
    decide=decide,
)

RULES = (RULE,)
