# SPDX-License-Identifier: GPL-2.0-or-later
"""Verifies the transport of each NFS domain on each host; exits with 3 on a failure."""

import os
import sys

from ovirt_rdma.engine_sdk_tools.api.auth import from_sources
from ovirt_rdma.engine_sdk_tools.api.session import Session
from ovirt_rdma.engine_sdk_tools.domains.transport import domains_to_verify, verify
from ovirt_rdma.engine_sdk_tools.hosts.ansible import Access, AnsibleHosts, default_key
from ovirt_rdma.engine_sdk_tools.hosts.report import reports_of
from ovirt_rdma.engine_sdk_tools.model import FAIL, UNKNOWN
from ovirt_rdma.engine_sdk_tools.reader import read_engine

with Session(from_sources(os.environ)) as session:
    engine = read_engine(session)

domains = domains_to_verify(engine, names=())
hosts = AnsibleHosts(Access(key=default_key()))

# A matrix has a verdict in each cell; docs/matrix.md describes it.
matrix = verify(engine, reports_of(engine.hosts, hosts), domains)
for host, cells in zip(matrix.rows, matrix.cells):
    for domain, cell in zip(matrix.columns, cells):
        if cell.verdict in (FAIL, UNKNOWN):
            print(f"{host.name}, {domain.name}: {cell.sentence}")
            print(f"  fix: {cell.fix}")
# No data is no proof: unknown never counts as good.
sys.exit(3 if matrix.worst in (FAIL, UNKNOWN) else 0)
