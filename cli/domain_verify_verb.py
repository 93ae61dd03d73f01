# SPDX-License-Identifier: GPL-2.0-or-later
"""``domain verify``: over what each host reaches each domain, proven, as a matrix."""

from __future__ import annotations

from argparse import Namespace

from ovirt_rdma.cli.asked_hosts import asked, say_no_way
from ovirt_rdma.cli.engine_session import door_of, opened
from ovirt_rdma.cli.matrix_table import show_matrix
from ovirt_rdma.cli.screen import Screen
from ovirt_rdma.engine_sdk_tools.domain_rows import domains_to_verify
from ovirt_rdma.engine_sdk_tools.domain_transport import (
    matrix_of,
    row_of,
)
from ovirt_rdma.engine_sdk_tools.engine_facts import Domain, Engine, Host
from ovirt_rdma.engine_sdk_tools.engine_reader import read_engine
from ovirt_rdma.engine_sdk_tools.matrix import FAIL, UNKNOWN


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
