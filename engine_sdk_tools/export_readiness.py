# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether a host can reach NFS servers over RDMA, as far as its facts tell. Pure.

Facts know the way to servers that the host has mounts of, and no host is asked here:
what only the server can answer stays open.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Optional

from ovirt_rdma.engine_sdk_tools.asked_transport import (
    asked_for,
    nfs_export,
    passed_by,
)
from ovirt_rdma.engine_sdk_tools.engine_facts import StorageConnection
from ovirt_rdma.engine_sdk_tools.host_cells import untold
from ovirt_rdma.engine_sdk_tools.host_policy import InForce, policy_of
from ovirt_rdma.engine_sdk_tools.host_report import HostReport
from ovirt_rdma.engine_sdk_tools.matrix import FAIL, NONE, OK, UNKNOWN, WARN, Cell
from ovirt_rdma.host.export import Export, ExportProblem
from ovirt_rdma.host.facts import Facts, Route
from ovirt_rdma.storage import readiness
from ovirt_rdma.storage.proof import RDMA

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
