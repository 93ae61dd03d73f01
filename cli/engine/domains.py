# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ``domain create``, ``domain list`` and ``domain verify``.

``create`` checks the request, creates an NFS domain and verifies its transport.
``list`` shows the file storage domains with the transport that is requested and in use.
``verify`` shows the proven transport of each domain on each host as a matrix.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

from ovirt_rdma.cli.engine.matrix import OnHost, group_by_sentence, show_matrix
from ovirt_rdma.cli.engine.session import (
    access_of,
    approve,
    ask_hosts,
    note_no_access,
    open_session,
    show_calls,
    work,
)
from ovirt_rdma.cli.output import Output, count
from ovirt_rdma.engine_sdk_tools.domains.create import DomainMade, create_domain
from ovirt_rdma.engine_sdk_tools.domains.create_plan import (
    DomainPlan,
    DomainRequest,
    plan_domain_create,
)
from ovirt_rdma.engine_sdk_tools.domains.list import (
    DomainRow,
    domain_rows,
    domains_to_verify,
    file_domains,
)
from ovirt_rdma.engine_sdk_tools.domains.mounted import ProvenHost, unverified_sentence
from ovirt_rdma.engine_sdk_tools.domains.transport import matrix_of, row_of
from ovirt_rdma.engine_sdk_tools.hosts.report import HostReport
from ovirt_rdma.engine_sdk_tools.matrix import FAIL, UNKNOWN
from ovirt_rdma.engine_sdk_tools.model import Domain, Engine, Host, status_label
from ovirt_rdma.engine_sdk_tools.names import data_center_named
from ovirt_rdma.engine_sdk_tools.reader import read_engine

_TONES = {
    "rdma": "good",
    "not verified": "doubtful",
    "unproven": "doubtful",
    "not mounted": "bad",
}


def create(args: Namespace, output: Output) -> int:
    """Create the domain; return 0, or 5 if some hosts have another transport."""
    request = DomainRequest(
        args.name,
        args.export,
        args.datacenter,
        args.nfs_version,
        args.transport,
        args.host,
        args.mount_options,
    )
    with open_session(args) as session:
        engine = read_engine(session)
        center = data_center_named(engine, args.datacenter)
        access = access_of(args, engine)
        note_no_access(access, output)
        up = [host for host in engine.hosts_of(center.id) if host.status == "up"]
        reports = {host.name: report for host, report in ask_hosts(up, access, output)}
        plan = plan_domain_create(engine, reports, request)
        for sentence in plan.warnings:
            output.message(f"warning: {sentence}")
        if args.dry_run:
            show_calls(output, plan.calls, "domain-create", **_planned(plan))
            return 0
        if not plan.nothing:
            approve(args, output, _lines(plan))
        title = f"create domain {plan.name}"
        resume = "run the same command again to continue"
        changes = not plan.nothing
        with work(
            args, output, session, title, resume=resume, changes=changes
        ) as progress:
            # A folder of dumps has no newer report.
            newest = None if args.facts_dir is not None else access
            made = create_domain(session, newest, plan, progress.listener)
    _show(plan, made, output)
    return made.exit_code


def _lines(plan: DomainPlan) -> list[str]:
    options = plan.row.mount_options or "no mount options"
    return [
        f"domain {plan.name} on {plan.row.export}, over {plan.transport}",
        f"NFS version {plan.row.nfs_version}, {options}",
        f"created by {plan.host.name}, attached to {plan.data_center.name}, mounted by "
        f"{count(len(plan.hosts), 'host')}",
    ]


def _planned(plan: DomainPlan) -> dict[str, object]:
    return {
        "name": plan.name,
        "export": plan.row.export,
        "transport": plan.transport,
        "nfs_version": plan.row.nfs_version,
        "mount_options": plan.row.mount_options,
        "host": plan.host.name,
        "warnings": list(plan.warnings),
    }


def _show(plan: DomainPlan, made: DomainMade, output: Output) -> None:
    unknown = unverified_sentence(made.hosts)
    if not output.for_people:
        document = {
            **_planned(plan),
            "dry_run": False,
            "id": made.id,
            "made": made.made,
            "hosts": [asdict(host) for host in made.hosts],
            "not_verified": list(made.not_verified),
            "problems": [unknown] if unknown else [],
        }
        output.document("domain-create", document)
        return
    result = "is active" if made.made else "is already active: nothing to do"
    output.text(f"Domain {plan.name} ({plan.row.export}) {result}.")
    rows = [[host.host, _transport(host)] for host in made.hosts]
    output.table(["HOST", "TRANSPORT"], rows, _TONES)
    addresses = {host.name: host.address for host in plan.hosts}
    # Each sentence once: most of fifty hosts have the same.
    grouped = group_by_sentence(
        OnHost(host.host, addresses.get(host.host, ""), host.sentence)
        for host in made.hosts
        if host.sentence
    )
    for sentence in grouped:
        output.text(sentence.line)
    if unknown:
        output.text(f"{unknown[0].upper()}{unknown[1:]}.")
    output.fix(next((h.fix for h in made.hosts if h.fix), ""))
    output.next(f"ovirt-rdma domain verify {plan.name}")


def _transport(host: ProvenHost) -> str:
    if host.mounted is None:
        return "not verified"
    return host.transport or ("unproven" if host.mounted else "not mounted")


_HEADINGS = (
    "DOMAIN",
    "DATA CENTER",
    "TYPE",
    "STATUS",
    "EXPORT",
    "NFS",
    "ENGINE REQUESTS",
)


def show(args: Namespace, output: Output) -> int:
    """List the domains, with the transport on the hosts if these can be asked."""
    with open_session(args) as session:
        engine = read_engine(session)
    center = None
    if args.datacenter is not None:
        center = data_center_named(engine, args.datacenter).id
    domains = file_domains(engine, center)
    access = access_of(args, engine)
    hosts = engine.hosts if center is None else engine.hosts_of(center)
    without_report: list[OnHost] = []
    reports = () if access is None else ask_hosts(hosts, access, output)
    rows = domain_rows(engine, domains, _collect_problems(reports, without_report))
    if not output.for_people:
        output.document(
            "domain-list",
            {
                "hosts_asked": access is not None,
                "domains": [_document(row) for row in rows],
                "problems": [
                    *engine.problems,
                    *(f"{host.host}: {host.sentence}" for host in without_report),
                ],
            },
        )
        return 0
    for sentence in (
        *engine.problems,
        *(one.line for one in group_by_sentence(without_report)),
    ):
        output.message(f"note: {sentence}")
    if not rows:
        output.line("There is no file storage domain.")
        return 0
    headings = list(_HEADINGS)
    more = ["HOSTS REQUEST", "IN USE"] if access is not None else []
    output.table(headings + more, [_cells(row, with_hosts=bool(more)) for row in rows])
    return 0


def _collect_problems(
    reports: Iterable[tuple[Host, HostReport]], without_report: list[OnHost]
) -> Iterator[tuple[Host, HostReport]]:
    """Yield ``reports``; add to ``without_report`` why hosts have none."""
    for host, report in reports:
        if report.problem:
            without_report.append(OnHost(host.name, host.address, report.problem))
        yield host, report


def _cells(row: DomainRow, *, with_hosts: bool) -> list[str]:
    domain, connection = row.domain, row.domain.connection
    kind = domain.type + (" (master)" if domain.master else "")
    version = (connection.nfs_version or "-") if connection else "-"
    cells = [
        domain.name,
        row.data_center or "-",
        kind if domain.storage_type == "nfs" else f"{kind} {domain.storage_type}",
        status_label(domain.status),
        connection.export if connection else "-",
        version.lstrip("v").replace("_", "."),
        row.by_row or "-",
    ]
    if with_hosts:
        cells += [_counts(row.asked), _counts(row.in_use)]
    return cells


def _counts(counted: dict[str, int]) -> str:
    return (
        ", ".join(f"{transport} {number}" for transport, number in counted.items())
        or "-"
    )


def _document(row: DomainRow) -> dict[str, Any]:
    domain, connection = row.domain, row.domain.connection
    return {
        "name": domain.name,
        "id": domain.id,
        "data_center": row.data_center,
        "type": domain.type,
        "storage_type": domain.storage_type,
        "status": domain.status,
        "master": domain.master,
        "hosted_engine": domain.hosted_engine,
        "connection": asdict(connection) if connection else None,
        "export": connection.export if connection else None,
        "engine_asks": row.by_row,
        "hosts": [asdict(host) for host in row.hosts],
    }


def verify(args: Namespace, output: Output) -> int:
    """Show the matrix; return 3 if a mount is not as requested, or unknown."""
    with open_session(args) as session:
        engine = read_engine(session)
    domains = domains_to_verify(engine, args.names, args.datacenter)
    access = access_of(args, engine)
    note_no_access(access, output)
    hosts = _hosts(engine, domains)
    matrix = matrix_of(
        engine,
        [
            (host, row_of(engine, host, report, domains))
            for host, report in ask_hosts(hosts, access, output)
        ],
        domains,
    )
    if output.for_people and not domains:
        output.line("There is no NFS storage domain in a data center.")
    else:
        show_matrix(output, matrix)
    return 3 if matrix.worst in (FAIL, UNKNOWN) else 0


def _hosts(engine: Engine, domains: list[Domain]) -> list[Host]:
    """Return the hosts of the domains' data centers."""
    centers = {domain.data_center for domain in domains}
    inside = {c.id for c in engine.clusters if c.data_center in centers}
    return [host for host in engine.hosts if host.cluster in inside]
