# SPDX-License-Identifier: GPL-2.0-or-later
"""Creates a network for IPoIB, with the largest MTU that all hosts' ports support."""

import os
import sys

from ovirt_rdma.engine_sdk_tools.ansible_hosts import AnsibleHosts
from ovirt_rdma.engine_sdk_tools.engine_reader import read_engine
from ovirt_rdma.engine_sdk_tools.inventory import Access, default_key
from ovirt_rdma.engine_sdk_tools.network_create import (
    NetworkRequest,
    plan_network_create,
)
from ovirt_rdma.engine_sdk_tools.network_create_run import create_network
from ovirt_rdma.engine_sdk_tools.progress import Silent
from ovirt_rdma.engine_sdk_tools.session import Session
from ovirt_rdma.engine_sdk_tools.settings import Flags, from_sources

name, data_center = sys.argv[1:]

with Session(from_sources(Flags(), os.environ)) as session:
    engine = read_engine(session, networks=True, attachments=True)
    reports = AnsibleHosts(Access(key=default_key())).reports(engine.hosts)
    plan = plan_network_create(engine, reports, NetworkRequest(name, data_center))
    print(f"MTU {plan.mtu}: {plan.because}")
    made = create_network(session, plan, Silent())

print(f"{name} is in {', '.join(made.joined) or 'no further cluster'}")
