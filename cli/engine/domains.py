# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ``domain create``, ``domain list`` and ``domain verify``.

``create`` checks the request, creates an NFS domain and verifies its transport.
``list`` shows the file storage domains with the transport that the engine requests.
``verify`` shows the proven transport of each domain on each host as a matrix.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Optional

from ovirt_rdma.cli.engine.main import (
    AccessOptions,
    ChangeOptions,
    EngineVerb,
    add_change_options,
    add_data_center,
    add_host_access,
)
from ovirt_rdma.cli.engine.session import (
    Approver,
    changing,
    matrix_code,
    open_session,
    rdma_engine,
    show_calls,
    show_matrix,
)
from ovirt_rdma.cli.output import Output
from ovirt_rdma.cli.parser import AllowNone, Context, Parser, add_allow_none
from ovirt_rdma.engine_sdk_tools.domains.create import (
    DomainMade,
    DomainPlan,
    DomainRequest,
    unverified_sentence,
)
from ovirt_rdma.engine_sdk_tools.domains.transport import (
    connection_transport,
    file_domains,
    verifiable,
)
from ovirt_rdma.engine_sdk_tools.model import (
    Domain,
    OnHost,
    data_center_named,
    domain_status,
    group_by_sentence,
    status_label,
)
from ovirt_rdma.engine_sdk_tools.reader import read_engine

_NFS_VERSIONS = ("3", "4", "4.0", "4.1", "4.2")
_TONES = {
    "rdma": "good",
    "unknown": "doubtful",
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
        ask = Approver(
            self,
            output,
            lambda plan: () if plan.nothing else plan.lines,
            lambda plan: show_calls(
                output, plan.calls, "domain-create", **plan.document
            ),
        )
        with changing(self, context) as rdma:
            made = rdma.create_domain(request, approve=ask)
        if made is None:
            return 0
        _show(ask.plan, made, output)
        return made.exit_code


def _show(plan: DomainPlan, made: DomainMade, output: Output) -> None:
    unknown = unverified_sentence(made.hosts)
    if not output.for_people:
        document = {
            **plan.document,
            "dry_run": False,
            "id": made.id,
            "made": made.made,
            "hosts": [
                {
                    "host": host.host,
                    "transport": host.transport,
                    "mounted": host.mounted,
                    "sentence": host.cell.sentence,
                    "fix": host.cell.fix,
                }
                for host in made.hosts
            ],
            "not_verified": list(made.not_verified),
            "problems": [unknown] if unknown else [],
        }
        output.document("domain-create", document)
        return
    result = "is active" if made.made else "is already active: nothing to do"
    output.text(f"Domain {plan.name} ({plan.row.export}) {result}.")
    rows = [[host.host, host.word] for host in made.hosts]
    output.table(["HOST", "TRANSPORT"], rows, _TONES)
    addresses = {host.name: host.address for host in plan.hosts}
    # Each sentence once: most of fifty hosts have the same.
    grouped = group_by_sentence(
        OnHost(host.host, addresses.get(host.host, ""), host.cell.sentence)
        for host in made.hosts
        if host.cell.sentence
    )
    for sentence in grouped:
        output.text(sentence.line)
    if unknown:
        output.text(f"{unknown[0].upper()}{unknown[1:]}.")
    output.fix(next((h.cell.fix for h in made.hosts if h.cell.fix), ""))
    output.next(f"ovirt-rdma domain verify {plan.name}")


_HEADINGS = [
    "DOMAIN",
    "DATA CENTER",
    "TYPE",
    "STATUS",
    "EXPORT",
    "NFS",
    "ENGINE REQUESTS",
]


class ListDomains(EngineVerb):
    """List the domains, with the transport that the engine's options request."""

    codes = "0 listed, 1 failed"
    examples = ("", "--datacenter dc1 -o json")

    datacenter: Optional[str]

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        add_data_center(parser)

    def run(self, context: Context) -> int:
        output = context.output
        with open_session(self, output) as session:
            engine = read_engine(session)
        center = None
        if self.datacenter is not None:
            center = data_center_named(engine, self.datacenter).id
        centers = {center.id: center.name for center in engine.data_centers}
        documents = [
            _document(domain, centers.get(domain.data_center or ""))
            for domain in file_domains(engine, center)
        ]
        problems = [
            *engine.problems,
            *(
                f"{domain.name} is {domain_status(engine, domain)}"
                for domain in file_domains(engine, center)
                if domain.status == "unknown"
            ),
        ]
        if not output.for_people:
            content = {"domains": documents, "problems": problems}
            output.document("domain-list", content)
            return 0
        for sentence in problems:
            output.message(f"note: {sentence}")
        if not documents:
            output.line("There is no file storage domain.")
            return 0
        output.table(_HEADINGS, [_cells(one) for one in documents])
        return 0


def _document(domain: Domain, data_center: Optional[str]) -> dict[str, Any]:
    connection = domain.connection
    nfs = connection if verifiable(domain) else None
    return {
        **asdict(domain),
        "data_center": data_center,
        "export": connection.export if connection else None,
        "engine_asks": connection_transport(nfs) if nfs else None,
    }


def _cells(domain: dict[str, Any]) -> list[str]:
    kind = domain["type"] + (" (master)" if domain["master"] else "")
    if domain["storage_type"] != "nfs":
        kind += f" {domain['storage_type']}"
    version = (domain["connection"] or {}).get("nfs_version") or "-"
    return [
        domain["name"],
        domain["data_center"] or "-",
        kind,
        status_label(domain["status"]),
        domain["export"] or "-",
        version.lstrip("v").replace("_", "."),
        domain["engine_asks"] or "-",
    ]


class Verify(EngineVerb, AccessOptions, AllowNone):
    """Show the matrix; return 3 if a mount is not as requested, or unknown."""

    codes = (
        "0 all as requested, 1 failed,\n"
        "3 a mount is not as requested, or unknown, or there is none"
    )
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
        add_allow_none(parser, "mount")

    def run(self, context: Context) -> int:
        output = context.output
        with open_session(self, output) as session:
            rdma = rdma_engine(self, context, session)
            matrix = rdma.verify(*self.names, data_center=self.datacenter)
        if matrix.columns or not output.for_people:
            show_matrix(output, matrix)
        none = "There is no NFS storage domain in a data center."
        if matrix.columns:
            none = "Nothing was verified: no host has to mount these domains now."
        return matrix_code(self, output, matrix, none)
