# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ``domain create``, ``domain list`` and ``domain verify``.

``create`` checks the request, creates an NFS domain and verifies its transport.
``list`` shows the file storage domains with the transport that is requested and in use.
``verify`` shows the proven transport of each domain on each host as a matrix.
"""

from __future__ import annotations

from ovirt_rdma.cli.engine.arguments import (
    AccessOptions,
    ChangeOptions,
    EngineVerb,
    add_change_options,
    add_data_center,
    add_host_access,
)
from ovirt_rdma.cli.output import Output, count
from ovirt_rdma.cli.parser import Parser, Verb
from ovirt_rdma.host.exit_code import ExitCode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any, Optional

    from ovirt_rdma.cli.context import Context
    from ovirt_rdma.cli.engine.matrix import OnHost
    from ovirt_rdma.engine_sdk_tools.domains.create import DomainMade
    from ovirt_rdma.engine_sdk_tools.domains.create_plan import DomainPlan
    from ovirt_rdma.engine_sdk_tools.domains.list import DomainRow
    from ovirt_rdma.engine_sdk_tools.domains.mounted import ProvenHost
    from ovirt_rdma.engine_sdk_tools.hosts.report import HostReport
    from ovirt_rdma.engine_sdk_tools.model import Domain, Engine, Host

_NFS_VERSIONS = ("3", "4", "4.0", "4.1", "4.2")
_TONES = {
    "rdma": "good",
    "not verified": "doubtful",
    "unproven": "doubtful",
    "not mounted": "bad",
}


class Create(EngineVerb, AccessOptions, ChangeOptions):
    """Create the domain; return 0, or 5 if some hosts have another transport."""

    codes = (
        "0 active, 1 failed, 3 checks failed, 4 declined,\n"
        "5 active, but some hosts have another transport, 6 failed, and rolled back"
    )
    examples = (
        "data2 --export nas1:/exports/data2 --datacenter dc1",
        "data2 --export nas1:/exports/data2 --datacenter dc1 --dry-run",
    )
    more = (
        "Checks first; then creates, attaches and activates the domain, and\n"
        "verifies its transport if hosts can be asked."
    )

    name: str
    export: str
    datacenter: str
    nfs_version: str
    transport: str
    host: Optional[str]
    mount_options: str

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        parser.add_argument("name", metavar="NAME", help="the new domain's name")
        parser.add_argument(
            "--export", metavar="SERVER:/PATH", required=True, help="the export"
        )
        add_data_center(parser, required=True)
        parser.add_argument(
            "--nfs-version",
            choices=_NFS_VERSIONS,
            default="4.2",
            help="always sent to the engine; default: 4.2",
        )
        parser.add_argument(
            "--transport",
            choices=("rdma", "tcp"),
            default="rdma",
            help="of the mounts; default: rdma",
        )
        parser.add_argument(
            "--host",
            metavar="NAME",
            help="the host that creates the domain; default: one that is up",
        )
        parser.add_argument(
            "--mount-options",
            metavar="OPTIONS",
            default="",
            help="additional mount options, without those of the transport",
        )
        add_change_options(parser)
        add_host_access(parser)

    def run(self, context: Context) -> int:
        from ovirt_rdma.cli.engine.session import (
            access_of,
            approve,
            ask_hosts,
            note_no_access,
            open_session,
            show_calls,
            work,
        )
        from ovirt_rdma.engine_sdk_tools.domains.create import create_domain
        from ovirt_rdma.engine_sdk_tools.domains.create_plan import (
            DomainRequest,
            plan_domain_create,
        )
        from ovirt_rdma.engine_sdk_tools.names import data_center_named
        from ovirt_rdma.engine_sdk_tools.reader import read_engine

        output = context.output
        request = DomainRequest(
            self.name,
            self.export,
            self.datacenter,
            self.nfs_version,
            self.transport,
            self.host,
            self.mount_options,
        )
        with open_session(self, output) as session:
            engine = read_engine(session)
            center = data_center_named(engine, self.datacenter)
            access = access_of(self, context)
            note_no_access(access, output)
            up = [host for host in engine.hosts_of(center.id) if host.status == "up"]
            reports = {
                host.name: report for host, report in ask_hosts(up, access, output)
            }
            plan = plan_domain_create(engine, reports, request)
            for sentence in plan.warnings:
                output.message(f"warning: {sentence}")
            if self.dry_run:
                show_calls(output, plan.calls, "domain-create", **_planned(plan))
                return 0
            if not plan.nothing:
                approve(self, output, _lines(plan))
            title = f"create domain {plan.name}"
            resume = "run the same command again to continue"
            changes = not plan.nothing
            with work(
                self, context, session, title, resume=resume, changes=changes
            ) as progress:
                # A folder of dumps has no newer report.
                newest = None if self.facts_dir is not None else access
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
    from dataclasses import asdict

    from ovirt_rdma.cli.engine.matrix import OnHost, group_by_sentence
    from ovirt_rdma.engine_sdk_tools.domains.mounted import unverified_sentence

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


class ListDomains(EngineVerb, AccessOptions):
    """List the domains, with the transport on the hosts if these can be asked."""

    codes = "0 listed, 1 failed"
    examples = ("", "--datacenter dc1 -o json", "--facts-dir dumps")

    datacenter: Optional[str]

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        add_data_center(parser)
        add_host_access(parser)

    def run(self, context: Context) -> int:
        from ovirt_rdma.cli.engine.matrix import group_by_sentence
        from ovirt_rdma.cli.engine.session import access_of, ask_hosts, open_session
        from ovirt_rdma.engine_sdk_tools.domains.list import domain_rows, file_domains
        from ovirt_rdma.engine_sdk_tools.names import data_center_named
        from ovirt_rdma.engine_sdk_tools.reader import read_engine

        output = context.output
        with open_session(self, output) as session:
            engine = read_engine(session)
        center = None
        if self.datacenter is not None:
            center = data_center_named(engine, self.datacenter).id
        domains = file_domains(engine, center)
        access = access_of(self, context)
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
        output.table(
            headings + more, [_cells(row, with_hosts=bool(more)) for row in rows]
        )
        return 0


def _collect_problems(
    reports: Iterable[tuple[Host, HostReport]], without_report: list[OnHost]
) -> Iterator[tuple[Host, HostReport]]:
    """Yield ``reports``; add to ``without_report`` why hosts have none."""
    from ovirt_rdma.cli.engine.matrix import OnHost

    for host, report in reports:
        if report.problem:
            without_report.append(OnHost(host.name, host.address, report.problem))
        yield host, report


def _cells(row: DomainRow, *, with_hosts: bool) -> list[str]:
    from ovirt_rdma.engine_sdk_tools.model import status_label

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
    from dataclasses import asdict

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


class Verify(EngineVerb, AccessOptions):
    """Show the matrix; return 3 if a mount is not as requested, or unknown."""

    codes = "0 all as requested, 1 failed,\n3 a mount is not as requested, or unknown"
    examples = ("", "data1 data2", "--facts-dir dumps -o json")
    more = "Asks the kernel of each host. A host that does not answer is unknown."

    names: list[str]
    datacenter: Optional[str]

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        parser.add_argument(
            "names", metavar="NAME", nargs="*", help="domains; default: all NFS domains"
        )
        add_data_center(parser)
        add_host_access(parser)

    def run(self, context: Context) -> int:
        from ovirt_rdma.cli.engine.matrix import show_matrix
        from ovirt_rdma.cli.engine.session import (
            access_of,
            ask_hosts,
            note_no_access,
            open_session,
        )
        from ovirt_rdma.engine_sdk_tools.domains.list import domains_to_verify
        from ovirt_rdma.engine_sdk_tools.domains.transport import matrix_of, row_of
        from ovirt_rdma.engine_sdk_tools.matrix import FAIL, UNKNOWN
        from ovirt_rdma.engine_sdk_tools.reader import read_engine

        output = context.output
        with open_session(self, output) as session:
            engine = read_engine(session)
        domains = domains_to_verify(engine, self.names, self.datacenter)
        access = access_of(self, context)
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
        bad = matrix.worst in (FAIL, UNKNOWN)
        return ExitCode.CHECKS_FAILED if bad else ExitCode.DONE


def _hosts(engine: Engine, domains: list[Domain]) -> list[Host]:
    """Return the hosts of the domains' data centers."""
    centers = {domain.data_center for domain in domains}
    inside = {c.id for c in engine.clusters if c.data_center in centers}
    return [host for host in engine.hosts if host.cluster in inside]


VERBS: dict[str, type[Verb]] = {
    "list": ListDomains,
    "create": Create,
    "verify": Verify,
}
