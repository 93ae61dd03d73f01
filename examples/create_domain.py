# SPDX-License-Identifier: GPL-2.0-or-later
"""Creates an NFS domain that hosts mount over RDMA, and verifies the mounts."""

import os
import sys

from ovirt_rdma.engine_sdk_tools.api.auth import from_sources
from ovirt_rdma.engine_sdk_tools.api.request import Listener
from ovirt_rdma.engine_sdk_tools.api.session import Session
from ovirt_rdma.engine_sdk_tools.domains.create import (
    DomainRequest,
    create_domain,
    plan_domain_create,
    unverified_sentence,
)
from ovirt_rdma.engine_sdk_tools.hosts.ansible import Access, AnsibleHosts, default_key
from ovirt_rdma.engine_sdk_tools.reader import read_engine
from ovirt_rdma.host.errors import Problem

name, export, data_center = sys.argv[1:]

with Session(from_sources(os.environ)) as session:
    engine = read_engine(session)
    hosts = AnsibleHosts(Access(key=default_key()))
    up = [host for host in engine.hosts if host.status == "up"]
    try:
        # Changes nothing; raises ChecksFailed, which lists every problem.
        plan = plan_domain_create(
            engine, hosts.reports(up), DomainRequest(name, export, data_center)
        )
        for warning in plan.warnings:
            print(f"warning: {warning}")
        # Rolls back if a part fails.
        made = create_domain(session, hosts, plan, Listener())
    except Problem as problem:
        print(problem)
        print(f"fix: {problem.fix}")
        sys.exit(problem.exit_code)

for host in made.hosts:
    print(f"{host.host}: {host.cell.sentence}")
# Hosts whose mount is unknown; the engine finds out later.
print(unverified_sentence(made.hosts) or "verified on all hosts")
sys.exit(made.exit_code)
