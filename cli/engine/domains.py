# SPDX-License-Identifier: GPL-2.0-or-later
"""``domain create``, ``domain list`` and ``domain verify``.

``domain create``: an NFS domain, checked first, active and proven after.

``domain list``: the storage domains on files, what is asked for, what is in use.

``domain verify``: over what each host reaches each domain, proven, as a matrix.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

from ovirt_rdma.cli.engine.matrix import OnHost, said_once, show_matrix
from ovirt_rdma.cli.engine.session import (
    approve,
    asked,
    door_of,
    opened,
    say_no_way,
    show_calls,
    work,
)
from ovirt_rdma.cli.output import Screen, count
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
from ovirt_rdma.engine_sdk_tools.domains.mounted import ProvenHost, what_is_open
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


def create(words: Namespace, screen: Screen) -> int:
    """Create the domain: 0 active, 5 with another transport on some hosts."""
    request = DomainRequest(
        words.name,
        words.export,
        words.datacenter,
        words.nfs_version,
        words.transport,
        words.host,
        words.mount_options,
    )
    with opened(words) as session:
        engine = read_engine(session)
        center = data_center_named(engine, words.datacenter)
        door = door_of(words, engine)
        say_no_way(door, screen)
        up = [host for host in engine.hosts_of(center.id) if host.status == "up"]
        reports = {host.name: told for host, told in asked(up, door, screen)}
        plan = plan_domain_create(engine, reports, request)
        for sentence in plan.warnings:
            screen.message(f"warning: {sentence}")
        if words.dry_run:
            show_calls(screen, plan.calls, "domain-create", **_planned(plan))
            return 0
        if not plan.nothing:
            approve(words, screen, _lines(plan))
        what = f"create domain {plan.name}"
        go_on = "the same command goes on with what is there"
        acts = not plan.nothing
        with work(words, screen, session, what, go_on=go_on, changes=acts) as shown:
            # A folder of dumps has nothing that is newer.
            asks = None if words.facts_dir is not None else door
            made = create_domain(session, asks, plan, shown.listener)
    _show(plan, made, screen)
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


def _show(plan: DomainPlan, made: DomainMade, screen: Screen) -> None:
    unknown = what_is_open(made.hosts)
    if not screen.for_people:
        document = {
            **_planned(plan),
            "dry_run": False,
            "id": made.id,
            "made": made.made,
            "hosts": [asdict(host) for host in made.hosts],
            "not_verified": list(made.not_verified),
            "problems": [unknown] if unknown else [],
        }
        screen.document("domain-create", document)
        return
    there = "is active" if made.made else "is there and active: nothing to do"
    screen.text(f"Domain {plan.name} ({plan.row.export}) {there}.")
    rows = [[host.host, _word(host)] for host in made.hosts]
    screen.table(["HOST", "TRANSPORT"], rows, _TONES)
    addresses = {host.name: host.address for host in plan.hosts}
    # The same sentence once: of fifty hosts most say the same.
    told = said_once(
        OnHost(host.host, addresses.get(host.host, ""), host.sentence)
        for host in made.hosts
        if host.sentence
    )
    for one in told:
        screen.text(one.line)
    if unknown:
        screen.text(f"{unknown[0].upper()}{unknown[1:]}.")
    screen.fix(next((h.fix for h in made.hosts if h.fix), ""))
    screen.next(f"ovirt-rdma domain verify {plan.name}")


def _word(host: ProvenHost) -> str:
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
    "ENGINE ASKS",
)


def show(words: Namespace, screen: Screen) -> int:
    """List the domains; with their transport on each host where hosts can be asked."""
    with opened(words) as session:
        engine = read_engine(session)
    center = None
    if words.datacenter is not None:
        center = data_center_named(engine, words.datacenter).id
    domains = file_domains(engine, center)
    door = door_of(words, engine)
    hosts = engine.hosts if center is None else engine.hosts_of(center)
    silent: list[OnHost] = []
    reports = () if door is None else asked(hosts, door, screen)
    rows = domain_rows(engine, domains, _heard(reports, silent))
    if not screen.for_people:
        screen.document(
            "domain-list",
            {
                "hosts_asked": door is not None,
                "domains": [_document(row) for row in rows],
                "problems": [
                    *engine.problems,
                    *(f"{one.host}: {one.sentence}" for one in silent),
                ],
            },
        )
        return 0
    for sentence in (*engine.problems, *(one.line for one in said_once(silent))):
        screen.message(f"note: {sentence}")
    if not rows:
        screen.line("There is no storage domain on files.")
        return 0
    headings = list(_HEADINGS)
    more = ["HOSTS ASK", "IN USE"] if door is not None else []
    screen.table(headings + more, [_cells(row, with_hosts=bool(more)) for row in rows])
    return 0


def _heard(
    reports: Iterable[tuple[Host, HostReport]], silent: list[OnHost]
) -> Iterator[tuple[Host, HostReport]]:
    """Yield ``reports``; put into ``silent`` why hosts gave none."""
    for host, report in reports:
        if report.problem:
            silent.append(OnHost(host.name, host.address, report.problem))
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
    return ", ".join(f"{word} {number}" for word, number in counted.items()) or "-"


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
        "hosts": [asdict(one) for one in row.hosts],
    }


def verify(words: Namespace, screen: Screen) -> int:
    """Show the matrix; 3 when a mount is not as asked for, or not known."""
    with opened(words) as session:
        engine = read_engine(session)
    domains = domains_to_verify(engine, words.names, words.datacenter)
    door = door_of(words, engine)
    say_no_way(door, screen)
    hosts = _hosts(engine, domains)
    matrix = matrix_of(
        engine,
        [
            (host, row_of(engine, host, report, domains))
            for host, report in asked(hosts, door, screen)
        ],
        domains,
    )
    if screen.for_people and not domains:
        screen.line("There is no NFS storage domain in a data center.")
    else:
        show_matrix(screen, matrix)
    return 3 if matrix.worst in (FAIL, UNKNOWN) else 0


def _hosts(engine: Engine, domains: list[Domain]) -> list[Host]:
    """Return the hosts of the domains' data centers: others have nothing to show."""
    centers = {domain.data_center for domain in domains}
    inside = {c.id for c in engine.clusters if c.data_center in centers}
    return [host for host in engine.hosts if host.cluster in inside]
