# SPDX-License-Identifier: GPL-2.0-or-later
"""Compare the transport that a domain should have on a host with the one that it has,
and select domains; and whether hosts can mount a domain, or would share the connection
of another domain of its server. Pure.

The requested transport comes from the policy in force on the host, or from the engine's
storage connection if no rule names the export. The one in use comes from the kernel's
signals in the host's facts. Without data there is no proof: such a cell is unknown.

A host uses one connection for all NFS 4 mounts of a server with the same minor version
(:mod:`ovirt_rdma.storage.mounts`), so a new domain gets the transport of mounts that it
has. Only the host's report proves these: hosts follow their policies. Since NFS 4.1, a
server is the same by its other addresses too, which only the mount shows.
"""

from __future__ import annotations

import functools
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Optional

from ovirt_rdma.engine_sdk_tools.hosts.report import (
    HostReport,
    PolicyInForce,
    health_of,
    loaded_policy,
    paths_of,
    policy_of,
    status_part,
    with_health,
    with_own_bugs_caught,
    with_paths,
)
from ovirt_rdma.engine_sdk_tools.model import (
    FAIL,
    FILE_TYPES,
    NONE,
    OK,
    UNKNOWN,
    WARN,
    Axis,
    Cell,
    Domain,
    Engine,
    Host,
    Matrix,
    NameProblem,
    StorageConnection,
    data_center_named,
    domain_named,
    listed,
    nfs_text,
    status_words,
)
from ovirt_rdma.host.collect.storage import MOUNTINFO
from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.export import RDMA, Export, ExportProblem, MountOptions, nfs_check
from ovirt_rdma.host.facts.model import Facts, NfsMount, Route
from ovirt_rdma.host.paths import is_vdsms
from ovirt_rdma.host.policy.model import PREFER_RDMA, TCP, NfsRule, rule_for
from ovirt_rdma.host.services.enablement import MODE_VDSMD
from ovirt_rdma.storage.mounts import (
    REMOUNT,
    ConflictingMounts,
    MountReview,
    Proof,
    conflict_clause,
    conflict_fix,
    conflicting_mounts,
    prove,
    review_all,
)
from ovirt_rdma.storage.readiness import NOT_READY, local_steps

# Exports to keep parsed: all hosts mount the same few.
_KEPT = 1024


@dataclass(frozen=True)
class Requested:
    """The transport ``rdma``, ``tcp``, or None if unknown; ``by`` is what requests it
    ("rule 'nas'"). ``preferred``: a mount over TCP succeeds, but is degraded.
    """

    transport: Optional[str]
    by: str
    preferred: bool = False


def nfs_export(connection: Optional[StorageConnection]) -> Optional[Export]:
    """Return a valid NFS export of a connection, also by PosixFS; else None."""
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
    """Return the export; IPv6 with or without brackets. Raises ExportProblem."""
    server = address or ""
    if server.count(":") > 1 and not server.startswith("["):
        server = f"[{server}]"
    return _parsed(f"{server}:{path}")


def connection_transport(connection: StorageConnection) -> str:
    """Return ``rdma``, or ``tcp``, mount.nfs' default (nfs(5), proto=)."""
    return RDMA if MountOptions.parse(connection.mount_options).wants_rdma else TCP


def requested_transport(
    connection: StorageConnection, force: PolicyInForce
) -> Requested:
    """Return the transport that a host should use for ``connection``. Rules are for NFS
    domains only: VDSM mounts PosixFS with a class of its own.
    """
    by_row = connection_transport(connection)
    export = nfs_export(connection)
    row = Requested(by_row, "the storage connection")
    if export is None or connection.type != "nfs":
        return row
    if force.policy is None:
        # A rule of the unknown policy may request another transport. RDMA in the
        # connection is a request all the same, TCP is only the default.
        return row if by_row == RDMA else Requested(None, force.reason)
    match = rule_for(force.policy, export)
    if match is None:
        return row
    if match.rule.transport == TCP:
        return Requested(TCP, match.rule.title)
    preferred = match.rule.transport == PREFER_RDMA
    return Requested(RDMA, match.rule.title, preferred)


def rule_without_effect(
    connection: StorageConnection, force: PolicyInForce
) -> Optional[NfsRule]:
    """Return the rule that names a PosixFS domain's export and requests another
    transport than the connection, without effect; else None.
    """
    export = nfs_export(connection)
    if export is None or connection.type == "nfs" or force.enabled != MODE_VDSMD:
        return None
    match = rule_for(force.policy, export) if force.policy else None
    if match is None:
        return None
    wanted = TCP if match.rule.transport == TCP else RDMA
    return None if wanted == connection_transport(connection) else match.rule


class Mounts:
    """A host's NFS mounts by export. Each source is parsed only once: a host may have
    thousands.
    """

    def __init__(self, mounts: Iterable[NfsMount]) -> None:
        self._by_export: dict[tuple[str, str], list[NfsMount]] = {}
        for mount in mounts:
            try:
                key = _parsed(mount.source).key
            except ExportProblem:
                continue
            self._by_export.setdefault(key, []).append(mount)

    def vdsms(self, export: Export) -> Optional[NfsMount]:
        """Return VDSM's own mount of ``export``, or None."""
        mounts = self._by_export.get(export.key, [])
        return next((m for m in mounts if is_vdsms(m.mountpoint)), None)


@functools.lru_cache(_KEPT)
def _parsed(text: str) -> Export:
    return Export.parse(text)


KIND = "domains"
# Statuses in which the engine has a host or a domain connected. A domain that no host
# reaches is inactive, or unknown if no host is up.
_CONNECTED = ("up", "non_operational")
_MOUNTED = ("active", "unknown", "inactive", "mixed")


@dataclass(frozen=True)
class InUse:
    """A domain on a host (a name): ``transport`` is proven; None if not mounted or
    unproven. ``mounted`` is None without a report. ``cell`` is for the matrix.
    """

    host: str
    cell: Cell
    mounted: Optional[bool] = None
    transport: Optional[str] = None
    review: Optional[MountReview] = None

    @property
    def word(self) -> str:
        """What the host uses, as docs/report.md lists it."""
        if self.transport is not None:
            return self.transport
        if self.mounted is None:
            return "unknown"
        return "unproven" if self.mounted else "not mounted"


def transports_in_use(
    host: Host, report: HostReport, domains: Sequence[Domain]
) -> list[InUse]:
    """Return the transport in use for ``domains`` of the host's data center."""
    return with_own_bugs_caught(report, lambda report: _in_use(host, report, domains))


def _in_use(host: Host, report: HostReport, domains: Sequence[Domain]) -> list[InUse]:
    force, facts = policy_of(report), report.facts
    host_mounts = Mounts(facts.nfs_mounts if facts else ())
    exports = [nfs_export(domain.connection) for domain in domains]
    mounts = [host_mounts.vdsms(export) if export else None for export in exports]
    reviews: dict[str, MountReview] = {}
    if facts is not None and force.policy is not None:
        found = review_all(facts, force.policy, [m for m in mounts if m is not None])
        reviews = {review.mount.mountpoint: review for review in found}
    return [
        _domain_in_use(
            host,
            report,
            domain,
            force,
            (mount, reviews.get(mount.mountpoint)) if mount else None,
        )
        for domain, mount in zip(domains, mounts)
    ]


def row_of(
    engine: Engine, host: Host, report: HostReport, domains: Sequence[Domain]
) -> tuple[Cell, ...]:
    """Return a host's row of the matrix: a cell for each of ``domains``."""
    center = engine.center_of(host)
    inside = [d for d in domains if d.data_center and d.data_center == center]
    cells = {
        (domain.id, domain.data_center): used.cell
        for domain, used in zip(inside, transports_in_use(host, report, inside))
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
    columns = []
    for domain in domains:
        shown = domain.name
        if names.count(shown) > 1:
            shown = f"{shown} ({engine.center_name(domain.data_center) or '?'})"
        columns.append(Axis(shown, domain.id))
    hosts = tuple(Axis(host.name, host.id, host.address) for host, _ in rows)
    cells = tuple(of_host for _, of_host in rows)
    return Matrix(KIND, hosts, tuple(columns), cells, engine.problems)


def verify(
    engine: Engine, asked: Iterable[tuple[Host, HostReport]], domains: Sequence[Domain]
) -> Matrix:
    """Return the proof per host and domain; of each report only the result is kept."""
    rows = [(host, row_of(engine, host, report, domains)) for host, report in asked]
    return matrix_of(engine, rows, domains)


def no_report(host: Host) -> HostReport:
    """Return the report of a host that was not asked."""
    return HostReport(
        host.name,
        problem="the host was not asked",
        fix="allow access to the host over SSH, or give --facts-dir",
    )


def verifiable(domain: Domain) -> bool:
    """Whether the domain has a transport: NFS, or PosixFS on NFS."""
    return nfs_export(domain.connection) is not None


def _domain_in_use(
    host: Host,
    report: HostReport,
    domain: Domain,
    force: PolicyInForce,
    found: Optional[tuple[NfsMount, Optional[MountReview]]],
) -> InUse:
    """Judge a domain by the host's mount of it; ``found`` is None if it has none."""
    connection = domain.connection
    if connection is None or nfs_export(connection) is None:
        cell = Cell(
            NONE, "-", f"{domain.name} is {domain.storage_type}, not NFS", "", "engine"
        )
        return InUse(host.name, cell)
    asked = requested_transport(connection, force)
    facts = report.facts
    if facts is None:
        problem = report.problem or "no report from the host"
        return InUse(host.name, Cell(UNKNOWN, "unknown", problem, report.fix))
    if found is None:
        unread = next((p for p in facts.problems if MOUNTINFO in p), "")
        if unread:
            sentence = f"the host's mounts are unknown: {unread}"
            return InUse(host.name, Cell(UNKNOWN, "unknown", sentence))
        return InUse(host.name, _not_mounted(host, domain, asked), False)
    mount, review = found
    proof = prove(mount, facts.cm_ids)
    if connection.type != "nfs":
        review = None
    health = health_of(report) or ()
    its = next((one for one in health if one.mountpoint == mount.mountpoint), None)
    cell = _mounted(domain, asked, proof, review)
    if proof.transport and asked.transport not in (None, proof.transport):
        first = _before_a_remount(facts, mount, review)
        fix = _remount_fix(host, report, domain, asked, first)
        cell = replace(cell, fix=fix)
    paths = (one for one in paths_of(report) if mount.source in one.exports)
    cell = with_paths(with_health(cell, its), next(paths, None))
    return InUse(host.name, cell, True, proof.transport, review)


def _not_mounted(host: Host, domain: Domain, asked: Requested) -> Cell:
    expected = host.status in _CONNECTED and domain.status in _MOUNTED
    if not expected:
        name, status = host.name, host.status
        if host.status in _CONNECTED:
            name, status = domain.name, domain.status
        sentence = f"{domain.name} is not mounted: {name} is {status_words(status)}"
        return Cell(NONE, "not mounted", sentence, source="both")
    sentence = (
        f"{domain.name} is not mounted, although the host is "
        f"{status_words(host.status)} and the domain {status_words(domain.status)}"
    )
    fix = (
        "look for the error in /var/log/vdsm/vdsm.log on the host; to connect its "
        "storage again, move it to maintenance and activate it"
    )
    # A host stays up without an ISO or export domain.
    verdict = FAIL if domain.type == "data" or asked.transport == RDMA else WARN
    return Cell(verdict, "not mounted", sentence, fix, "both")


def _mounted(
    domain: Domain, asked: Requested, proof: Proof, review: Optional[MountReview]
) -> Cell:
    runs = f"{domain.name} runs over {proof.transport} ({proof})"
    if proof.transport is None:
        sentence = f"the transport of {domain.name} is not proven: {proof}"
        return Cell(UNKNOWN, "unproven", sentence, review.fix if review else "")
    if asked.transport is None:
        if proof.transport == RDMA:
            return Cell(OK, RDMA, f"{runs}; the policy on the host is unknown")
        sentence = f"{runs}; the requested transport is unknown: {asked.by}"
        fix = "ovirt-rdma-host status -o json on the host shows which policy is loaded"
        return Cell(UNKNOWN, proof.transport, sentence, fix)
    if proof.transport == asked.transport:
        return Cell(OK, proof.transport, f"{runs}, as requested by {asked.by}")
    why = f"; {review.reason}" if review and review.reason else ""
    if asked.transport == RDMA:
        wants = "prefers RDMA" if asked.preferred else "requests RDMA"
        return Cell(FAIL, proof.transport, f"{runs}, but {asked.by} {wants}{why}")
    return Cell(WARN, proof.transport, f"{runs}, but {asked.by} requests TCP{why}")


def can_be_healed(domain: Domain) -> bool:
    """Whether ``domain heal`` remounts the domain on hosts that are up."""
    nfs = domain.storage_type == "nfs" and domain.connection is not None
    return nfs and domain.status == "active" and not domain.hosted_engine


def _remount_fix(
    host: Host,
    report: HostReport,
    domain: Domain,
    asked: Requested,
    first: Sequence[str],
) -> str:
    """Return what gives the domain the requested transport, ``first`` included."""
    if asked.transport != RDMA and _rule_asks_for_rdma(report, domain):
        return "on the host: ovirt-rdma-host enable --restart-vdsmd"
    if domain.hosted_engine:
        return (
            "put the host into maintenance in the engine, reboot it and activate it: "
            "maintenance alone does not unmount this domain"
        )
    if asked.transport != RDMA or host.status != "up" or not can_be_healed(domain):
        return REMOUNT
    heal = f"ovirt-rdma domain heal {shlex.quote(domain.name)}"
    return f"first, {'; '.join(first)}; then {heal}" if first else heal


def server_addresses(facts: Facts, export: Export) -> set[str]:
    """Return the addresses of the export's server that the facts have."""
    known = {str(export.address)} if export.address else set()
    for mount in facts.nfs_mounts:
        server = mount.source.rpartition(":/")[0].strip("[]")
        if server.lower() == export.server.lower() and mount.address:
            known.add(mount.address)
    return known


def route_to(facts: Facts, addresses: Collection[Optional[str]]) -> Optional[Route]:
    """Return the route to one of ``addresses``; facts have those to mounted servers."""
    return next((r for r in facts.routes if r.destination in addresses), None)


def _before_a_remount(
    facts: Facts, mount: NfsMount, review: Optional[MountReview]
) -> list[str]:
    """Return what keeps a remount from getting RDMA, as what to do about it."""
    first = []
    if review and review.against:
        first.append(conflict_fix(review.against))
    route = route_to(facts, (mount.address,))
    if any(step.verdict == NOT_READY for step in local_steps(facts, route)):
        first.append(f"on the host: {nfs_check(mount.source)}")
    return first


def _rule_asks_for_rdma(report: HostReport, domain: Domain) -> bool:
    """Whether the add-on is not enabled and the loaded policy requests RDMA."""
    disabled = not status_part(report.status, "enabled").get("mode")
    export = nfs_export(domain.connection)
    policy, _ = loaded_policy(report)
    match = rule_for(policy, export) if disabled and policy and export else None
    return match is not None and match.rule.transport != TCP


# Select domains.


def file_domains(engine: Engine, data_center: Optional[str] = None) -> list[Domain]:
    """Return the domains on files, of the data center with this id or of all."""
    return [
        domain
        for domain in engine.domains
        if domain.storage_type in FILE_TYPES
        and data_center in (None, domain.data_center)
    ]


def domains_to_verify(
    engine: Engine, names: Sequence[str], data_center: Optional[str] = None
) -> list[Domain]:
    """Return the domains of ``names``, each once; without names, all attached NFS
    domains. ``data_center`` is a name or id. Raises NameProblem, also for one that is
    not NFS or attached.
    """
    if not names:
        center = None
        if data_center is not None:
            center = data_center_named(engine, data_center).id
        every = file_domains(engine, center)
        return [domain for domain in every if verifiable(domain) and domain.data_center]
    chosen = [domain_named(engine, name, data_center) for name in names]
    odd = [
        f"{domain.name} is on {domain.storage_type or 'unknown storage'}, not NFS: it "
        "has no transport to prove"
        if not verifiable(domain)
        else f"{domain.name} is in no data center: no host mounts it"
        for domain in chosen
        if not verifiable(domain) or not domain.data_center
    ]
    if odd:
        raise NameProblem("domain-not-verifiable", "\n".join(odd), "leave it out")
    return list(dict.fromkeys(chosen))


# Check whether hosts can mount a new domain.


def host_problems(
    up: Sequence[Host],
    reports: Mapping[str, HostReport],
    export: Export,
    row: StorageConnection,
    transport: str,
) -> tuple[list[Sentence], list[str]]:
    """Return why hosts that are ``up`` cannot mount the domain, and warnings."""
    offenders: list[Sentence] = []
    silent = []
    for host in up:
        report = reports.get(host.name)
        if report is None or report.facts is None:
            silent.append(host.name)
            continue
        asked = requested_transport(row, policy_of(report))
        if asked.transport not in (None, transport):
            sentence = (
                f"{host.name}: {asked.by} of its policy requests {asked.transport} for "
                f"{export}, not {transport}"
            )
            offenders.append(Sentence("policy-other-transport", sentence))
        elif transport == RDMA:
            offenders += _not_ready(host, report.facts, export)
    warnings = []
    if silent and transport == RDMA:
        warnings.append(
            f"no report from {listed(silent)}: if such a host cannot mount the domain, "
            "only the engine's events show it; then everything is rolled back"
        )
    return offenders, warnings


def _not_ready(host: Host, facts: Facts, export: Export) -> Iterator[Sentence]:
    head = f"{host.name} is not ready for RDMA"
    failed = [
        step
        for step in local_steps(facts, route_to(facts, server_addresses(facts, export)))
        if step.verdict == NOT_READY
    ]
    for step in failed:
        fix = f" ({step.fix})" if step.fix else ""
        yield Sentence("host-not-ready", f"{head}: {step.detail}{fix}")
    ports = [port for device in facts.rdma_devices for port in device.ports]
    if not failed and not any(port.is_active for port in ports):
        sentence = f"{head}: none of its RDMA ports is ACTIVE (ibstat; rdma link)"
        yield Sentence("host-not-ready", sentence)


# Find domains that share a connection of the kernel, and so the transport.


def sharing(
    row: StorageConnection,
    domains: Sequence[Domain],
    up: Sequence[Host],
    reports: Mapping[str, HostReport],
    transport: str,
) -> tuple[list[Sentence], list[Sentence], str]:
    """Return mounts on hosts that prevent ``transport`` for a new domain of ``row``,
    because it would share their connection; those that may, as warnings; and the fix of
    both.
    """
    offenders: list[Sentence] = []
    possible: dict[str, list[str]] = {}
    known = {nfs_export(domain.connection): domain for domain in domains}
    clashing: dict[str, Domain] = {}
    for host in up:
        clash = _on(reports.get(host.name), row, transport)
        if clash is None:
            continue
        names = []
        for mount in clash.mounts:
            export = Export.maybe(mount.source)
            domain = known.get(export) if export else None
            names.append(domain.name if domain else f"the mount at {mount.mountpoint}")
            if domain:
                clashing[domain.id] = domain
        prevent = "prevents" if len(names) == 1 else "prevent"
        sentence = (
            f"{listed(names)} {prevent if clash.certain else 'may prevent'} "
            f"{transport.upper()} for {row.export}: {conflict_clause(clash.mounts)}"
        )
        if clash.certain:
            offenders.append(Sentence("connection-shared", f"{host.name}: {sentence}"))
        else:
            possible.setdefault(sentence, []).append(host.name)
    fix = _shared_fix(clashing.values(), up, reports, transport)
    warnings = [
        Sentence("connection-may-be-shared", f"{text} (on {listed(names)}); {fix}")
        for text, names in possible.items()
    ]
    return offenders, warnings, fix


def _shared_fix(
    clashing: Iterable[Domain],
    up: Sequence[Host],
    reports: Mapping[str, HostReport],
    transport: str,
) -> str:
    """Return what gives all one transport, or the new one another connection."""
    convert, heal = [], []
    for domain in clashing:
        asked = {_asked(domain, reports.get(host.name)) for host in up}
        if asked == {RDMA} == {transport}:
            heal.append(domain.name)
        # The hosted engine's domain cannot be converted from the engine.
        elif not domain.hosted_engine:
            convert.append(domain.name)
    steps = []
    if convert:
        names = shlex.join(convert)
        steps.append(f"ovirt-rdma domain convert {names} --to {transport} --rolling")
    if heal:
        steps.append(f"ovirt-rdma domain heal {shlex.join(heal)}")
    other = "use an NFS version that they do not (--nfs-version)"
    return f"first {' and '.join(steps)}; or {other}" if steps else other


def _on(
    report: Optional[HostReport], row: StorageConnection, transport: str
) -> Optional[ConflictingMounts]:
    """Return the mounts on a host that clash with ``row``; None if none is known."""
    export = nfs_export(row)
    if export is None or report is None or report.facts is None:
        return None
    addresses = server_addresses(report.facts, export)
    version: Optional[str] = nfs_text(row.nfs_version or "")
    if row.nfs_version not in ("v3", "v4_0", "v4_1", "v4_2"):
        version = None  # host and server negotiate it
    mounts = report.facts.nfs_mounts
    return conflicting_mounts(mounts, export, addresses, version, transport)


def _asked(domain: Domain, report: Optional[HostReport]) -> Optional[str]:
    """Return the requested transport; the connection's if the policy is unknown."""
    row = domain.connection
    if row is None:
        return None
    asked = requested_transport(row, policy_of(report)).transport if report else None
    return asked or connection_transport(row)
