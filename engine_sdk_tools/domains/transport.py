# SPDX-License-Identifier: GPL-2.0-or-later
"""Compare the transport that a domain should use with the one in use. Pure.

Which transport is asked for a domain, by the engine's row or by a host's policy, and
which of a host's mounts is that domain's. Pure.

Over what each host should reach each domain, and over what it does. Pure.

What is asked for comes from the policy in force on the host, or from the engine's
connection row where no rule names the export; what is in use from the kernel's signals
in the host's facts. No data is no proof: such a cell is unknown.
"""

from __future__ import annotations

import functools
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Optional

from ovirt_rdma.engine_sdk_tools.hosts.policy import InForce, policy_of
from ovirt_rdma.engine_sdk_tools.hosts.report import HostReport, judged
from ovirt_rdma.engine_sdk_tools.matrix import (
    FAIL,
    NONE,
    OK,
    UNKNOWN,
    WARN,
    Axis,
    Cell,
    Matrix,
)
from ovirt_rdma.engine_sdk_tools.model import (
    Domain,
    Engine,
    Host,
    StorageConnection,
    status_words,
)
from ovirt_rdma.host.collect.parsers.mounts import MOUNTINFO
from ovirt_rdma.host.enablement.state import MODE_VDSMD
from ovirt_rdma.host.export import Export, ExportProblem
from ovirt_rdma.host.facts.model import NfsMount
from ovirt_rdma.host.paths import VDSM_MOUNTS
from ovirt_rdma.host.policy.model import PREFER_RDMA, TCP, NfsRule, rule_for
from ovirt_rdma.storage.mount_options import MountOptions
from ovirt_rdma.storage.proof import RDMA, Proof, prove
from ovirt_rdma.storage.review import MountReview, review_all

# All hosts mount the same few exports.
_KEPT = 1024


@dataclass(frozen=True)
class Asked:
    """What is asked for: ``rdma``, ``tcp``, or None where it cannot be told.

    ``by`` says by whom: "rule 'nas'", "the engine's row". ``preferred``: TCP will do
    for mounting, but is not what is wanted (prefer-rdma).
    """

    transport: Optional[str]
    by: str
    preferred: bool = False


def nfs_export(connection: Optional[StorageConnection]) -> Optional[Export]:
    """Return a row's NFS export; None for one that is not NFS or makes none.

    PosixFS counts where its file system is NFS.
    """
    if connection is None or connection.address is None or connection.path is None:
        return None
    posix_nfs = connection.type == "posixfs" and connection.vfs_type in ("nfs", "nfs4")
    if connection.type != "nfs" and not posix_nfs:
        return None
    try:
        return export_at(connection.address, connection.path)
    except ExportProblem:
        return None


def export_at(address: Optional[str], path: str) -> Export:
    """Return the export of a row's address and path. Raises ExportProblem.

    The engine keeps an IPv6 address in brackets, or without.
    """
    server = address or ""
    if server.count(":") > 1 and not server.startswith("["):
        server = f"[{server}]"
    return _parsed(f"{server}:{path}")


def row_transport(connection: StorageConnection) -> str:
    """Return the transport that the row's mount options give: ``rdma`` or ``tcp``,
    which is mount.nfs's own choice where they name none (nfs(5), proto=).
    """
    return RDMA if MountOptions.parse(connection.mount_options).wants_rdma else TCP


def asked_for(connection: StorageConnection, force: InForce) -> Asked:
    """Say which transport a host should use for the domain of ``connection``.

    Rules are for NFS domains only: VDSM mounts PosixFS by a class of its own, which the
    add-on leaves alone.
    """
    by_row = row_transport(connection)
    export = nfs_export(connection)
    row = Asked(by_row, "the engine's row")
    if export is None or connection.type != "nfs":
        return row
    if force.policy is None:
        # A rule could still say otherwise, but nothing less than RDMA is a promise.
        return row if by_row == RDMA else Asked(None, force.reason)
    match = rule_for(force.policy, export)
    if match is None:
        return row
    if match.rule.transport == TCP:
        return Asked(TCP, match.rule.title)
    preferred = match.rule.transport == PREFER_RDMA
    return Asked(RDMA, match.rule.title, preferred)


def passed_by(connection: StorageConnection, force: InForce) -> Optional[NfsRule]:
    """Return the rule that names the export of a PosixFS domain, wants another
    transport than its row, and does not cover it; None where there is no such.
    """
    export = nfs_export(connection)
    if export is None or connection.type == "nfs" or force.enabled != MODE_VDSMD:
        return None
    match = rule_for(force.policy, export) if force.policy else None
    if match is None:
        return None
    wanted = TCP if match.rule.transport == TCP else RDMA
    return None if wanted == row_transport(connection) else match.rule


class Mounts:
    """A host's NFS mounts, found by their exports: each source is read once, for a host
    may have thousands.
    """

    def __init__(self, mounts: Iterable[NfsMount]) -> None:
        self._by_export: dict[tuple[str, str], list[NfsMount]] = {}
        for mount in mounts:
            try:
                key = _key(_parsed(mount.source))
            except ExportProblem:
                continue
            self._by_export.setdefault(key, []).append(mount)

    def of(self, export: Export) -> Optional[NfsMount]:
        """Return the mount of ``export``, VDSM's before anybody else's."""
        found = self._by_export.get(_key(export), [])
        return self.vdsms(export) or (found[0] if found else None)

    def vdsms(self, export: Export) -> Optional[NfsMount]:
        """Return VDSM's own mount of ``export``, or None."""
        found = self._by_export.get(_key(export), [])
        folder = f"{VDSM_MOUNTS}/"
        return next((m for m in found if m.mountpoint.startswith(folder)), None)


def _key(export: Export) -> tuple[str, str]:
    """Return what is one for an export, however its server is written."""
    address = export.address
    server = export.server.rstrip(".").lower() if address is None else str(address)
    return server, export.path


@functools.lru_cache(_KEPT)
def _parsed(text: str) -> Export:
    return Export.parse(text)


KIND = "domains"
# Statuses in which the engine has a host or a domain connected. A domain that no host
# reaches is inactive, or unknown where there is no host to tell.
_CONNECTED = ("up", "non_operational")
_MOUNTED = ("active", "unknown", "inactive", "mixed")


@dataclass(frozen=True)
class InUse:
    """A domain on a host: ``transport`` is proven, None for not mounted or unproven.

    ``host`` is the engine's name of it. ``mounted`` is None where nothing is known of
    the host. ``cell`` is what a matrix shows.
    """

    host: str
    asked: Asked
    cell: Cell
    mounted: Optional[bool] = None
    transport: Optional[str] = None
    proof: Optional[Proof] = None
    review: Optional[MountReview] = None


def look(host: Host, report: HostReport, domains: Sequence[Domain]) -> list[InUse]:
    """Say for each of ``domains``, which are of the host's data center, over what the
    host reaches it.
    """
    return judged(report, lambda its: _looks(host, its, domains))


def _looks(host: Host, report: HostReport, domains: Sequence[Domain]) -> list[InUse]:
    force, facts = policy_of(report), report.facts
    mounts = Mounts(facts.nfs_mounts if facts else ())
    exports = [nfs_export(domain.connection) for domain in domains]
    theirs = [mounts.of(export) if export else None for export in exports]
    reviews: dict[str, MountReview] = {}
    if facts is not None and force.policy is not None:
        found = review_all(facts, force.policy, [m for m in theirs if m is not None])
        reviews = {review.mount.mountpoint: review for review in found}
    return [
        _look(
            host,
            report,
            domain,
            force,
            (mount, reviews.get(mount.mountpoint)) if mount else None,
        )
        for domain, mount in zip(domains, theirs)
    ]


def row_of(
    engine: Engine, host: Host, report: HostReport, domains: Sequence[Domain]
) -> tuple[Cell, ...]:
    """Return a host's row of the matrix: a cell for each of ``domains``."""
    mine = [domain for domain in domains if _reaches(engine, host, domain)]
    cells = {
        (domain.id, domain.data_center): used.cell
        for domain, used in zip(mine, look(host, report, mine))
    }
    nothing = Cell(NONE, "-", source="engine")
    return tuple(cells.get((d.id, d.data_center), nothing) for d in domains)


def matrix_of(
    engine: Engine,
    rows: Sequence[tuple[Host, tuple[Cell, ...]]],
    domains: Sequence[Domain],
) -> Matrix:
    """Return the matrix of hosts and domains, from the rows of :func:`row_of`."""
    names = [domain.name for domain in domains]
    centers = {center.id: center.name for center in engine.data_centers}
    return Matrix(
        KIND,
        tuple(Axis(host.name, host.id, host.address) for host, _ in rows),
        tuple(
            Axis(
                d.name
                if names.count(d.name) == 1
                else f"{d.name} ({centers.get(d.data_center or '', '?')})",
                d.id,
            )
            for d in domains
        ),
        tuple(cells for _, cells in rows),
        engine.problems,
    )


def verify(
    engine: Engine,
    reports: Iterable[HostReport],
    hosts: Sequence[Host],
    domains: Sequence[Domain],
) -> Matrix:
    """Return the proof per host and domain; a host without a report is unknown."""
    told = {report.host: report for report in reports}
    return matrix_of(
        engine,
        [
            (
                host,
                row_of(engine, host, told.get(host.name) or no_report(host), domains),
            )
            for host in hosts
        ],
        domains,
    )


def no_report(host: Host) -> HostReport:
    """What stands for a host that nobody asked."""
    return HostReport(
        host.name,
        problem="nothing is known of the host: it was not asked",
        fix="let the command reach the host over SSH, or give --facts-dir",
    )


def verifiable(domain: Domain) -> bool:
    """Whether the domain has a transport at all: NFS, or PosixFS on NFS."""
    return nfs_export(domain.connection) is not None


def _reaches(engine: Engine, host: Host, domain: Domain) -> bool:
    if domain.data_center is None:
        return False
    its = next((c.data_center for c in engine.clusters if c.id == host.cluster), None)
    return its == domain.data_center


def _look(
    host: Host,
    report: HostReport,
    domain: Domain,
    force: InForce,
    its: Optional[tuple[NfsMount, Optional[MountReview]]],
) -> InUse:
    """``its`` is the host's mount of the domain, None where it has none."""
    connection = domain.connection
    if connection is None or nfs_export(connection) is None:
        cell = Cell(
            NONE, "-", f"{domain.name} is {domain.storage_type}, not NFS", "", "engine"
        )
        return InUse(host.name, Asked(None, "it is not NFS"), cell)
    asked = asked_for(connection, force)
    facts = report.facts
    if facts is None:
        problem = report.problem or "nothing is known of the host"
        return InUse(host.name, asked, Cell(UNKNOWN, "unknown", problem, report.fix))
    if its is None:
        unread = next((p for p in facts.problems if MOUNTINFO in p), "")
        if unread:
            sentence = f"its mounts are not known: {unread}"
            return InUse(host.name, asked, Cell(UNKNOWN, "unknown", sentence))
        return InUse(host.name, asked, _not_mounted(host, domain, asked), False)
    mount, review = its
    proof = prove(mount, facts.cm_ids)
    if connection.type != "nfs":
        review = None
    cell = _mounted(domain, asked, proof, review)
    return InUse(host.name, asked, cell, True, proof.transport, proof, review)


def _not_mounted(host: Host, domain: Domain, asked: Asked) -> Cell:
    expected = host.status in _CONNECTED and domain.status in _MOUNTED
    if not expected:
        at_rest, its = host.name, host.status
        if host.status in _CONNECTED:
            at_rest, its = domain.name, domain.status
        sentence = f"{domain.name} is not mounted: {at_rest} is {status_words(its)}"
        return Cell(NONE, "not mounted", sentence, source="both")
    sentence = (
        f"{domain.name} is not mounted, although the host is "
        f"{status_words(host.status)} and the domain {status_words(domain.status)}"
    )
    fix = (
        "look for the error in /var/log/vdsm/vdsm.log there; activating the host again "
        "connects its storage"
    )
    # The engine does not take a host down for an ISO or export domain.
    verdict = FAIL if domain.type == "data" or asked.transport == RDMA else WARN
    return Cell(verdict, "not mounted", sentence, fix, "both")


def _mounted(
    domain: Domain,
    asked: Asked,
    proof: Proof,
    review: Optional[MountReview],
) -> Cell:
    runs = f"{domain.name} runs over {proof.transport} ({proof})"
    heal = f"ovirt-rdma domain heal {shlex.quote(domain.name)}"
    if proof.transport is None:
        sentence = f"the transport of {domain.name} is not proven: {proof}"
        return Cell(UNKNOWN, "unproven", sentence, review.fix if review else "")
    if asked.transport is None:
        if proof.transport == RDMA:
            return Cell(OK, RDMA, f"{runs}; what the policy asks is not known")
        sentence = f"{runs}; whether RDMA is asked for is not known: {asked.by}"
        fix = "ovirt-rdma-host status -o json on the host tells which policy is loaded"
        return Cell(UNKNOWN, proof.transport, sentence, fix)
    if proof.transport == asked.transport:
        return Cell(OK, proof.transport, f"{runs}, as {asked.by} asks")
    why = f"; {review.reason}" if review and review.reason else ""
    if asked.transport == RDMA:
        wants = "prefers RDMA" if asked.preferred else "asks for RDMA"
        return Cell(FAIL, proof.transport, f"{runs}, but {asked.by} {wants}{why}", heal)
    return Cell(
        WARN, proof.transport, f"{runs}, but {asked.by} asks for TCP{why}", heal
    )
