# SPDX-License-Identifier: GPL-2.0-or-later
"""Attaches a network to a nic of all hosts, with addresses counted from a range."""

import os
import sys

from ovirt_rdma.engine_sdk_tools.api.auth import from_sources
from ovirt_rdma.engine_sdk_tools.api.request import Listener
from ovirt_rdma.engine_sdk_tools.api.session import Session
from ovirt_rdma.engine_sdk_tools.hosts.ansible import Access, AnsibleHosts, default_key
from ovirt_rdma.engine_sdk_tools.networks.attach import (
    AttachRequest,
    attach_network,
    plan_network_attach,
)
from ovirt_rdma.engine_sdk_tools.reader import read_engine

name, nic, addresses = sys.argv[1:]

with Session(from_sources(os.environ)) as session:
    engine = read_engine(session, networks=True, nics=True, attachments=True)
    reports = AnsibleHosts(Access(key=default_key())).reports(engine.hosts)
    request = AttachRequest(name, hosts=("*",), nic_match=nic, span=addresses)
    plan = plan_network_attach(engine, reports, request)
    for row in plan.rows:
        print(f"{row.host.name}: {row.act} {row.chosen.target} {row.address}")
    # A host on which the network is not in sync afterwards is rolled back.
    result = attach_network(session, plan, Listener(), batch=2)

for row in result.rows:
    print(f"{row.host}: {row.outcome} {row.sentence}".rstrip())
sys.exit(result.exit_code)
