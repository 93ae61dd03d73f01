# SPDX-License-Identifier: GPL-2.0-or-later
"""Cells of ``hosts check``. Pure.

The cells of ``hosts check`` that look at one host alone. Pure.

Whether a host can reach NFS servers over RDMA, as far as its facts tell. Pure.

Facts know the way to servers that the host has mounts of, and no host is asked here:
what only the server can answer stays open.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Optional

from ovirt_rdma.engine_sdk_tools.domains.transport import (
    asked_for,
    nfs_export,
    passed_by,
)
from ovirt_rdma.engine_sdk_tools.hosts.policy import (
    NFSMOUNT,
    NFSMOUNT_FIX,
    InForce,
    part,
    policy_of,
)
from ovirt_rdma.engine_sdk_tools.hosts.report import HostReport
from ovirt_rdma.engine_sdk_tools.matrix import FAIL, NONE, OK, UNKNOWN, WARN, Cell
from ovirt_rdma.engine_sdk_tools.model import (
    Host,
    StorageConnection,
    status_label,
    status_words,
)
from ovirt_rdma.host.decision.registry import decide
from ovirt_rdma.host.enablement.state import (
    BY_LAUNCHER,
    MODE_NFSMOUNT,
    MODE_VDSMD,
    MODES,
)
from ovirt_rdma.host.export import Export, ExportProblem
from ovirt_rdma.host.facts.model import Facts, Route
from ovirt_rdma.host.policy.model import Policy
from ovirt_rdma.host.rules import base
from ovirt_rdma.storage import readiness
from ovirt_rdma.storage.proof import RDMA
from ovirt_rdma.storage.readiness import ACTIVE

NOT_TOLD = Cell(UNKNOWN, "unknown", "the host did not tell its status")

_DOWN = (
    "down",
    "error",
    "install_failed",
    "non_operational",
    "non_responsive",
    "pending_approval",
)
_SENTENCES_SHOWN = 3


def status_cell(host: Host) -> Cell:
    """The engine's status of the host; only ``up`` is good."""
    sentence = f"the host is {status_words(host.status)}"
    text = status_label(host.status)
    if host.status == "up":
        return Cell(OK, text, sentence, "", "engine")
    if host.status is None:
        return Cell(UNKNOWN, text, sentence, "", "engine")
    if host.status in _DOWN:
        fix = "see the events of the host in the administration portal"
        return Cell(FAIL, text, sentence, fix, "engine")
    return Cell(WARN, text, sentence, "", "engine")


def package_cell(report: HostReport) -> Cell:
    """Whether the add-on's files are there."""
    files = part(report.status, "package")
    if not files:
        return untold(report)
    missing = [name for name, there in files.items() if not there]
    if not missing:
        return Cell(OK, "complete", "the add-on's files are there")
    fix = "install the package ovirt-rdma-host there"
    if len(missing) == len(files):
        return Cell(FAIL, "missing", "the add-on is not installed", fix)
    sentence = f"files of the add-on are missing: {', '.join(missing)}"
    return Cell(FAIL, "incomplete", sentence, fix)


def enabled_cell(report: HostReport) -> Cell:
    """Whether the add-on is enabled, and in which mode."""
    if report.status is None:
        return untold(report)
    mode = part(report.status, "enabled").get("mode")
    if mode in MODES:
        return Cell(OK, str(mode), f"enabled in mode {mode}")
    if mode == MODE_NFSMOUNT:
        return Cell(WARN, str(mode), NFSMOUNT, NFSMOUNT_FIX)
    return Cell(
        FAIL,
        "no",
        "the add-on is not enabled: storage is mounted as stock",
        "on the host: ovirt-rdma-host enable --restart-vdsmd",
    )


def running_cell(host: Host, report: HostReport) -> Cell:
    """Whether the running vdsmd is what the mode wants."""
    if report.status is None:
        return untold(report)
    running = part(report.status, "running")
    mode = part(report.status, "enabled").get("mode")
    if not running:
        verdict = FAIL if host.status == "up" else WARN
        return Cell(verdict, "no", "vdsmd does not run", source="host")
    launched = running.get("program") == BY_LAUNCHER
    text = "launcher" if launched else "stock"
    restart = "on the host: systemctl restart vdsmd"
    if launched and mode != MODE_VDSMD:
        sentence = "vdsmd still runs our class, which is not enabled any more"
        return Cell(WARN, text, sentence, restart)
    if not launched and mode == MODE_VDSMD:
        sentence = "vdsmd runs as stock, although mode vdsmd is enabled"
        return Cell(FAIL, text, sentence, restart)
    by = "by the launcher" if launched else "as stock"
    return Cell(OK, text, f"vdsmd runs {by}")


def rules_cell(report: HostReport, policy: Optional[Policy]) -> Cell:
    """What the rules of ``check`` and ``plan`` say of the host under ``policy``;
    without one, under the empty policy, which still finds what is broken.
    """
    if report.facts is None:
        return untold(report)
    decision = decide(report.facts, policy or Policy())
    failed = [f for f in decision.findings if f.verdict == base.FAIL]
    warned = [f for f in decision.findings if f.verdict == base.WARN]
    to_do = len(decision.to_do)
    look = "on the host: ovirt-rdma-host check"
    for found, verdict, noun in ((failed, FAIL, "fail"), (warned, WARN, "warn")):
        if found:
            says = [f"{f.rule}: {f.sentence}" for f in found[:_SENTENCES_SHOWN]]
            more = len(found) - len(says)
            says += [f"{more} more"] if more else []
            fix = "on the host: ovirt-rdma-host apply" if to_do else found[0].fix
            sentence = "; ".join(says)
            return Cell(verdict, f"{len(found)} {noun}", sentence, fix or look)
    if to_do:
        count = "1 step" if to_do == 1 else f"{to_do} steps"
        sentence = f"it is not as its policy says: {count} to do"
        return Cell(
            WARN, f"{to_do} to do", sentence, "on the host: ovirt-rdma-host apply"
        )
    return Cell(OK, "ok", "no rule finds anything")


def ports_cell(report: HostReport) -> Cell:
    """Whether an RDMA port is ACTIVE."""
    facts = report.facts
    if facts is None:
        return untold(report)
    ports = [
        (device.name, port) for device in facts.rdma_devices for port in device.ports
    ]
    if not ports:
        fix = "check that the adapter's driver is loaded: rdma link"
        return Cell(FAIL, "none", "there is no RDMA device", fix)
    states = ", ".join(f"{name}/{port.number} is {port.state}" for name, port in ports)
    active = sum(port.state == ACTIVE for _, port in ports)
    text = f"{active} of {len(ports)}"
    if active:
        return Cell(OK, text, states)
    fix = "check the cable, the switch port and, on InfiniBand, the subnet manager"
    return Cell(FAIL, text, states, fix)


def untold(report: HostReport) -> Cell:
    """A cell for what the host did not tell, with the reason."""
    return replace(
        NOT_TOLD, sentence=report.problem or NOT_TOLD.sentence, fix=report.fix
    )


_WORST_FIRST = (FAIL, UNKNOWN, WARN, NONE, OK)


def route_to(facts: Facts, export: Export) -> Optional[Route]:
    """Return the host's route to the export's server; None where facts have none.

    A server's name is known by the address of a mount of it.
    """
    addresses = {str(export.address)} if export.address else set()
    if not addresses:
        for mount in facts.nfs_mounts:
            if mount.address and _server(mount.source) == export.server.lower():
                addresses.add(mount.address)
    return next((r for r in facts.routes if r.destination in addresses), None)


def local_readiness(facts: Facts, export: Export) -> readiness.Readiness:
    """Return the steps that the host alone decides: module, route, port."""
    steps = readiness.local_steps(facts, route_to(facts, export))
    return readiness.Readiness(steps)


def servers_cell(report: HostReport, rows: Sequence[StorageConnection]) -> Cell:
    """Say whether the host is ready for RDMA to the servers of ``rows``.

    Not ready is a failure where RDMA is asked for, and worth knowing elsewhere; what
    cannot be told matters only where it is asked for.
    """
    facts = report.facts
    if facts is None:
        return untold(report)
    force = policy_of(report)
    wanted: dict[str, tuple[Export, bool]] = {}
    for row in rows:
        export = nfs_export(row)
        if export is None:
            continue
        rdma = asked_for(row, force).transport == RDMA
        _, before = wanted.get(export.server, (export, False))
        wanted[export.server] = (export, before or rdma)
    cells = [
        _server_cell(local_readiness(facts, export), export.server, rdma)
        for export, rdma in wanted.values()
    ]
    if not cells:
        return Cell(NONE, "-", "its data center has no NFS storage domain")
    ready = sum(cell.verdict == OK for cell in cells)
    found = [*cells, *_passed(rows, force)]
    worst = min(found, key=lambda cell: _WORST_FIRST.index(cell.verdict))
    return Cell(worst.verdict, f"{ready} of {len(cells)}", worst.sentence, worst.fix)


def _passed(rows: Iterable[StorageConnection], force: InForce) -> Iterator[Cell]:
    fix = (
        "say so in the mount options of its storage connection, or create an NFS "
        "domain in its place"
    )
    for row in rows:
        rule = passed_by(row, force)
        if rule is not None:
            sentence = (
                f"{rule.title} names {nfs_export(row)} and says {rule.transport}, but "
                "no rule covers a PosixFS domain"
            )
            yield Cell(WARN, "PosixFS", sentence, fix)


def _server_cell(found: readiness.Readiness, server: str, rdma: bool) -> Cell:
    if found.verdict == readiness.READY:
        return Cell(OK, server, f"ready for RDMA to {server}, as far as the host tells")
    sentence = f"not ready for RDMA to {server}: {found.reason}"
    if found.verdict == readiness.NOT_READY:
        return Cell(FAIL if rdma else WARN, server, sentence, found.fix)
    sentence = f"readiness for RDMA to {server} is not known: {found.reason}"
    return Cell(UNKNOWN if rdma else NONE, server, sentence, found.fix)


def _server(source: str) -> Optional[str]:
    try:
        return Export.parse(source).server.lower()
    except ExportProblem:
        return None
