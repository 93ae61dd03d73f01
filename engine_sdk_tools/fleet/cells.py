# SPDX-License-Identifier: GPL-2.0-or-later
"""Make the cells of ``hosts check`` for one host. Pure.

The readiness for RDMA to NFS servers comes from the host's facts, which have routes
only to servers of present mounts. No server is asked, so that what only the server can
answer stays unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Optional

from ovirt_rdma.engine_sdk_tools.domains.transport import (
    nfs_export,
    requested_transport,
    rule_without_effect,
)
from ovirt_rdma.engine_sdk_tools.hosts.policy import (
    PolicyInForce,
    policy_of,
    status_part,
)
from ovirt_rdma.engine_sdk_tools.hosts.report import HostReport
from ovirt_rdma.engine_sdk_tools.matrix import FAIL, NONE, OK, UNKNOWN, WARN, Cell
from ovirt_rdma.engine_sdk_tools.model import (
    BROKEN,
    LACKS,
    Host,
    StorageConnection,
    host_is,
    status_label,
    status_words,
)
from ovirt_rdma.host import __version__
from ovirt_rdma.host.decision.registry import Decision
from ovirt_rdma.host.enablement.state import BY_LAUNCHER, MODE_VDSMD, MODES
from ovirt_rdma.host.export import Export
from ovirt_rdma.host.facts.model import Facts, Route
from ovirt_rdma.host.mount_options import RDMA
from ovirt_rdma.host.rules import base
from ovirt_rdma.storage import readiness

NOT_REPORTED = Cell(UNKNOWN, "unknown", "the host did not report its status")

_SENTENCES_SHOWN = 3
_LONGEST = 1000


def status_cell(host: Host) -> Cell:
    """Return the cell of the host's status in the engine; only ``up`` is good."""
    sentence = f"the host is {status_words(host.status)}"
    text = status_label(host.status)
    if host.status == "up":
        return Cell(OK, text, sentence, "", "engine")
    if host.status is None:
        return Cell(UNKNOWN, text, sentence, "", "engine")
    if host_is(host.status, LACKS, BROKEN) or host.status == "pending_approval":
        fix = "see the events of the host in the administration portal"
        return Cell(FAIL, text, sentence, fix, "engine")
    return Cell(WARN, text, sentence, "", "engine")


def package_cell(report: HostReport) -> Cell:
    """Return whether all files of the add-on exist, in the version of this machine.

    A file that was edited on the host is not seen here: ``rpm -V`` shows it.
    """
    files = status_part(report.status, "package")
    if not files:
        return not_reported(report)
    missing = [name for name, exists in files.items() if not exists]
    if not missing:
        return _version_cell((report.status or {}).get("version"))
    fix = "install the package ovirt-rdma-host on the host"
    if len(missing) == len(files):
        return Cell(FAIL, "missing", "the add-on is not installed", fix)
    sentence = f"files of the add-on are missing: {', '.join(missing)}"
    return Cell(FAIL, "incomplete", sentence, fix)


def _version_cell(version: Optional[str]) -> Cell:
    if version == __version__:
        return Cell(OK, version, "all files of the add-on exist, in this version")
    sentence = f"its version is {version}, and that of this machine {__version__}"
    fix = "install the same version on both"
    if version is None:
        return Cell(UNKNOWN, "unknown", "the host did not report the version", fix)
    return Cell(FAIL, version, sentence, fix)


def enabled_cell(report: HostReport) -> Cell:
    """Return whether the add-on is enabled, and in which mode."""
    if report.status is None:
        return not_reported(report)
    mode = status_part(report.status, "enabled").get("mode")
    if mode in MODES:
        return Cell(OK, str(mode), f"enabled in mode {mode}")
    return Cell(
        FAIL,
        "no",
        "the add-on is not enabled: stock VDSM mounts the storage",
        "on the host: ovirt-rdma-host enable --restart-vdsmd",
    )


def running_cell(host: Host, report: HostReport) -> Cell:
    """Return whether vdsmd is running, and in the mode that is enabled."""
    if report.status is None:
        return not_reported(report)
    running = status_part(report.status, "running")
    mode = status_part(report.status, "enabled").get("mode")
    if not running:
        verdict = FAIL if host.status == "up" else WARN
        return Cell(verdict, "no", "vdsmd is not running", source="host")
    launched = running.get("program") == BY_LAUNCHER
    text = "launcher" if launched else "stock"
    restart = "on the host: systemctl restart vdsmd"
    if launched and mode != MODE_VDSMD:
        sentence = "vdsmd still uses the add-on, which is no longer enabled"
        return Cell(WARN, text, sentence, restart)
    if not launched and mode == MODE_VDSMD:
        sentence = "stock vdsmd is running, although mode vdsmd is enabled"
        because = running.get("because")
        if isinstance(because, str) and because:
            # Such as an update of VDSM with a form that this version does not know.
            sentence = f"the launcher started stock vdsmd: {because[:_LONGEST]}"
            restart = "on the host: solve that, then systemctl restart vdsmd"
        return Cell(FAIL, text, sentence, restart)
    started = "vdsmd was started by the launcher" if launched else "stock vdsmd runs"
    return Cell(OK, text, started)


def rules_cell(report: HostReport, decision: Optional[Decision]) -> Cell:
    """Return the findings of ``decision``, which is None without the host's facts."""
    if decision is None:
        return not_reported(report)
    failed = [f for f in decision.findings if f.verdict == base.FAIL]
    warned = [f for f in decision.findings if f.verdict == base.WARN]
    to_do = len(decision.applicable)
    see = "on the host: ovirt-rdma-host check"
    for findings, verdict, noun in ((failed, FAIL, "fail"), (warned, WARN, "warn")):
        if findings:
            texts = [f"{f.rule}: {f.sentence}" for f in findings[:_SENTENCES_SHOWN]]
            more = len(findings) - len(texts)
            texts += [f"{more} more"] if more else []
            fix = "on the host: ovirt-rdma-host apply" if to_do else findings[0].fix
            sentence = "; ".join(texts)
            return Cell(verdict, f"{len(findings)} {noun}", sentence, fix or see)
    if to_do:
        count = "1 step" if to_do == 1 else f"{to_do} steps"
        sentence = f"the host does not match its policy: {count} to do"
        return Cell(
            WARN, f"{to_do} to do", sentence, "on the host: ovirt-rdma-host apply"
        )
    return Cell(OK, "ok", "no rule fails or warns")


def ports_cell(report: HostReport) -> Cell:
    """Return whether an RDMA port is ACTIVE."""
    facts = report.facts
    if facts is None:
        return not_reported(report)
    ports = [
        (device.name, port) for device in facts.rdma_devices for port in device.ports
    ]
    if not ports:
        fix = "check that the adapter's driver is loaded: rdma link"
        return Cell(FAIL, "none", "there is no RDMA device", fix)
    states = ", ".join(f"{name}/{port.number} is {port.state}" for name, port in ports)
    active = sum(port.is_active for _, port in ports)
    text = f"{active} of {len(ports)}"
    if active:
        return Cell(OK, text, states)
    fix = "check the cable, the switch port and, on InfiniBand, the subnet manager"
    return Cell(FAIL, text, states, fix)


def not_reported(report: HostReport) -> Cell:
    """Return the cell for data that the host did not report, with the reason."""
    return replace(
        NOT_REPORTED, sentence=report.problem or NOT_REPORTED.sentence, fix=report.fix
    )


_WORST_FIRST = (FAIL, UNKNOWN, WARN, NONE, OK)


def route_to(facts: Facts, export: Export) -> Optional[Route]:
    """Return the host's route to the export's server; None if the facts have none.

    The address of a server's name comes from a mount of that server.
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
    """Return whether the host is ready for RDMA to the servers of ``rows``.

    Not ready is FAIL if RDMA is requested, else WARN. Unknown counts only if RDMA is
    requested.
    """
    facts = report.facts
    if facts is None:
        return not_reported(report)
    force = policy_of(report)
    wanted: dict[str, tuple[Export, bool]] = {}
    for row in rows:
        export = nfs_export(row)
        if export is None:
            continue
        rdma = requested_transport(row, force).transport == RDMA
        _, before = wanted.get(export.server, (export, False))
        wanted[export.server] = (export, before or rdma)
    cells = [
        _server_cell(local_readiness(facts, export), export.server, rdma)
        for export, rdma in wanted.values()
    ]
    if not cells:
        return Cell(NONE, "-", "its data center has no NFS storage domain")
    ready = sum(cell.verdict == OK for cell in cells)
    all_cells = [*cells, *_passed(rows, force)]
    worst = min(all_cells, key=lambda cell: _WORST_FIRST.index(cell.verdict))
    return Cell(worst.verdict, f"{ready} of {len(cells)}", worst.sentence, worst.fix)


def _passed(rows: Iterable[StorageConnection], force: PolicyInForce) -> Iterator[Cell]:
    fix = (
        "set the transport in the mount options of its storage connection, or create "
        "an NFS domain instead"
    )
    for row in rows:
        rule = rule_without_effect(row, force)
        if rule is not None:
            sentence = (
                f"{rule.title} requests {rule.transport} for {nfs_export(row)}, but "
                "rules have no effect on a PosixFS domain"
            )
            yield Cell(WARN, "PosixFS", sentence, fix)


def _server_cell(ready: readiness.Readiness, server: str, rdma: bool) -> Cell:
    if ready.verdict == readiness.READY:
        return Cell(OK, server, f"ready for RDMA to {server}, by the host's own report")
    sentence = f"not ready for RDMA to {server}: {ready.reason}"
    if ready.verdict == readiness.NOT_READY:
        return Cell(FAIL if rdma else WARN, server, sentence, ready.fix)
    sentence = f"readiness for RDMA to {server} is unknown: {ready.reason}"
    return Cell(UNKNOWN if rdma else NONE, server, sentence, ready.fix)


def _server(source: str) -> Optional[str]:
    export = Export.maybe(source)
    return export.server.lower() if export else None
