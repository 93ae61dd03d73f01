# SPDX-License-Identifier: GPL-2.0-or-later
"""Over what each host should reach each domain, and over what it does. Pure.

What is asked for comes from the policy in force on the host, or from the engine's
connection row where no rule names the export; what is in use from the kernel's signals
in the host's facts. No data is no proof: such a cell is unknown.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Optional

from ovirt_rdma.engine_sdk_tools.asked_transport import (
    Asked,
    Mounts,
    asked_for,
    nfs_export,
)
from ovirt_rdma.engine_sdk_tools.engine_facts import (
    Domain,
    Engine,
    Host,
    status_words,
)
from ovirt_rdma.engine_sdk_tools.host_policy import InForce, policy_of
from ovirt_rdma.engine_sdk_tools.host_report import HostReport, judged
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
from ovirt_rdma.host.facts import NfsMount
from ovirt_rdma.host.mountinfo import MOUNTINFO
from ovirt_rdma.storage.mount_review import MountReview, review_all
from ovirt_rdma.storage.proof import RDMA, Proof, prove

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
