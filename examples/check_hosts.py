# SPDX-License-Identifier: GPL-2.0-or-later
"""Reports what prevents storage over RDMA on hosts."""

import os

from ovirt_rdma.engine_sdk_tools.api.auth import from_sources
from ovirt_rdma.engine_sdk_tools.api.session import Session
from ovirt_rdma.engine_sdk_tools.fleet.check import (
    check,
    connections_of,
    row_of,
)
from ovirt_rdma.engine_sdk_tools.hosts.ansible import Access, AnsibleHosts, default_key
from ovirt_rdma.engine_sdk_tools.hosts.report import reports_of
from ovirt_rdma.engine_sdk_tools.model import FAIL
from ovirt_rdma.engine_sdk_tools.reader import read_engine

with Session(from_sources(os.environ)) as session:
    # The engine knows the hooks of VDSM on each host.
    engine = read_engine(session, hooks=True)

# Without a policy to compare with, hosts are compared with each other.
policy = None
hosts = AnsibleHosts(Access(key=default_key()))
rows = [
    row_of(host, report, policy, connections_of(engine, host))
    for host, report in reports_of(engine.hosts, hosts)
]
matrix = check(engine, rows, policy)
for host, cells in zip(matrix.rows, matrix.cells):
    failed = [cell for cell in cells if cell.verdict == FAIL]
    print(f"{host.name}: {'ready' if not failed else 'not ready'}")
    for cell in failed:
        # Where the information comes from: the engine, or the host itself.
        print(f"  {cell.source}: {cell.sentence}")
