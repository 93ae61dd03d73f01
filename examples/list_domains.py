# SPDX-License-Identifier: GPL-2.0-or-later
"""Lists file storage domains, with the transport that the engine's options request."""

import os

from ovirt_rdma.engine_sdk_tools.api.auth import from_sources
from ovirt_rdma.engine_sdk_tools.api.session import Session
from ovirt_rdma.engine_sdk_tools.domains.transport import (
    connection_transport,
    file_domains,
)
from ovirt_rdma.engine_sdk_tools.reader import read_engine

# The engine is read once, into plain data.
with Session(from_sources(os.environ)) as session:
    engine = read_engine(session)

for domain in file_domains(engine):
    asked = connection_transport(domain.connection) if domain.connection else "nothing"
    print(f"{domain.name} is {domain.status}: the engine asks for {asked}")
