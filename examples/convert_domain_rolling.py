# SPDX-License-Identifier: GPL-2.0-or-later
"""Moves a domain to RDMA, host by host, while virtual machines run.

Run it again to resume a conversion that was interrupted or has stopped.
"""

import os
import sys

from ovirt_rdma.engine_sdk_tools.api.progress import NoProgress
from ovirt_rdma.engine_sdk_tools.api.session import Session
from ovirt_rdma.engine_sdk_tools.api.settings import Flags, from_sources, state_folder
from ovirt_rdma.engine_sdk_tools.conversion.model import CONVERTED, FINISHED
from ovirt_rdma.engine_sdk_tools.conversion.plan import plan_convert, plan_resume
from ovirt_rdma.engine_sdk_tools.conversion.preflight import ConversionRequest
from ovirt_rdma.engine_sdk_tools.conversion.run import carry_out
from ovirt_rdma.engine_sdk_tools.conversion.state_file import StateFolder
from ovirt_rdma.engine_sdk_tools.hosts.ansible import AnsibleHosts
from ovirt_rdma.engine_sdk_tools.hosts.inventory import Access, default_key
from ovirt_rdma.engine_sdk_tools.names import domain_named
from ovirt_rdma.engine_sdk_tools.reader import read_engine

(name,) = sys.argv[1:]
hosts = AnsibleHosts(Access(key=default_key()))
states = StateFolder(state_folder(os.environ, os.geteuid()))

with Session(from_sources(Flags(), os.environ)) as session:
    engine = read_engine(session)
    domain = domain_named(engine, name)
    center = domain.data_center
    # Only one run at a time changes a data center; raises LockHeld if there is one.
    with states.only_run(center):
        reports = hosts.reports(engine.hosts_of(center)).values()
        begun = [
            state
            for state in states.states(center)
            if state.stage not in FINISHED and state.domains[0].id == domain.id
        ]
        if begun:
            plan = plan_resume(begun[0], engine, reports)
        else:
            # Raises Refused or ChecksFailed, which list every problem.
            request = ConversionRequest("rdma", rolling=True)
            plan = plan_convert(engine, [domain], reports, request)
        for step in plan.steps:
            print(step.doing)
        # The state is written before and after each step.
        keeper = states.file_for(plan.state)
        state = carry_out(session, hosts, plan.state, keeper, NoProgress())

print(state.stage + (f": {state.why}" if state.why else ""))
sys.exit(0 if state.stage == CONVERTED else 1)
