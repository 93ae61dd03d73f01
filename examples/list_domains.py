# SPDX-License-Identifier: GPL-2.0-or-later
"""Lists file storage domains: the transport requested by the engine, and in use."""

import os

from ovirt_rdma.engine_sdk_tools.ansible_hosts import AnsibleHosts
from ovirt_rdma.engine_sdk_tools.domain_rows import domain_rows, file_domains
from ovirt_rdma.engine_sdk_tools.engine_reader import read_engine
from ovirt_rdma.engine_sdk_tools.inventory import Access, default_key
from ovirt_rdma.engine_sdk_tools.report_stream import reports_of
from ovirt_rdma.engine_sdk_tools.session import Session
from ovirt_rdma.engine_sdk_tools.settings import Flags, from_sources

# The engine is read once, into plain data.
with Session(from_sources(Flags(), os.environ)) as session:
    engine = read_engine(session)

# Reports arrive a few at a time; only one word per domain is kept of each.
reports = reports_of(engine.hosts, AnsibleHosts(Access(key=default_key())))
for row in domain_rows(engine, file_domains(engine), reports):
    in_use = ", ".join(f"{word} on {number}" for word, number in row.in_use.items())
    print(f"{row.domain.name}: the engine asks for {row.by_row}; in use: {in_use}")
