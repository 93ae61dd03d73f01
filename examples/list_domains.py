# SPDX-License-Identifier: GPL-2.0-or-later
"""Lists file storage domains: the transport requested by the engine, and in use."""

import os

from ovirt_rdma.engine_sdk_tools.api.auth import from_sources
from ovirt_rdma.engine_sdk_tools.api.session import Session
from ovirt_rdma.engine_sdk_tools.domains.transport import domain_rows, file_domains
from ovirt_rdma.engine_sdk_tools.hosts.ansible import AnsibleHosts
from ovirt_rdma.engine_sdk_tools.hosts.inventory import Access, default_key
from ovirt_rdma.engine_sdk_tools.hosts.report import reports_of
from ovirt_rdma.engine_sdk_tools.reader import read_engine

# The engine is read once, into plain data.
with Session(from_sources(os.environ)) as session:
    engine = read_engine(session)

# Reports arrive a few at a time; only one word per domain is kept of each.
reports = reports_of(engine.hosts, AnsibleHosts(Access(key=default_key())))
for row in domain_rows(engine, file_domains(engine), reports):
    in_use = ", ".join(f"{word} on {number}" for word, number in row.in_use.items())
    print(f"{row.domain.name}: the engine asks for {row.by_row}; in use: {in_use}")
