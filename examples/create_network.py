# SPDX-License-Identifier: GPL-2.0-or-later
"""Creates a network for IPoIB, with the largest MTU that all hosts' ports support."""

import os
import sys

from ovirt_rdma.engine_sdk_tools.api.auth import from_sources
from ovirt_rdma.engine_sdk_tools.api.request import Listener
from ovirt_rdma.engine_sdk_tools.api.session import Session
from ovirt_rdma.engine_sdk_tools.hosts.ansible import Access, AnsibleHosts, default_key
from ovirt_rdma.engine_sdk_tools.networks.create import (
    NetworkRequest,
    create_network,
    plan_network_create,
)
from ovirt_rdma.engine_sdk_tools.reader import read_engine

name, data_center = sys.argv[1:]

with Session(from_sources(os.environ)) as session:
    engine = read_engine(session, networks=True, attachments=True)
    reports = AnsibleHosts(Access(key=default_key())).reports(engine.hosts)
    plan = plan_network_create(engine, reports, NetworkRequest(name, data_center))
    print(f"MTU {plan.mtu}: {plan.because}")
    made = create_network(session, plan, Listener())

print(f"{name} is in {', '.join(made.joined) or 'no further cluster'}")
