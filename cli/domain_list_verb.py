# SPDX-License-Identifier: GPL-2.0-or-later
"""``domain list``: the storage domains on files, what is asked for, what is in use."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

from ovirt_rdma.cli.asked_hosts import asked
from ovirt_rdma.cli.engine_session import door_of, opened
from ovirt_rdma.cli.hosts_alike import OnHost, said_once
from ovirt_rdma.cli.screen import Screen
from ovirt_rdma.engine_sdk_tools.domain_rows import (
    DomainRow,
    domain_rows,
    file_domains,
)
from ovirt_rdma.engine_sdk_tools.engine_facts import Host, status_label
from ovirt_rdma.engine_sdk_tools.engine_reader import read_engine
from ovirt_rdma.engine_sdk_tools.host_report import HostReport
from ovirt_rdma.engine_sdk_tools.names import data_center_named

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
