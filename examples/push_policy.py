# SPDX-License-Identifier: GPL-2.0-or-later
"""Sends a policy file to all hosts that are up, and loads it there."""

import os
import sys
from pathlib import Path

from ovirt_rdma.engine_sdk_tools.api.auth import from_sources
from ovirt_rdma.engine_sdk_tools.api.session import Session
from ovirt_rdma.engine_sdk_tools.fleet.policy_push import plan_policy_push, push_policy
from ovirt_rdma.engine_sdk_tools.hosts.ansible import Access, AnsibleHosts, default_key
from ovirt_rdma.engine_sdk_tools.reader import read_engine

(file,) = sys.argv[1:]

with Session(from_sources(os.environ)) as session:
    engine = read_engine(session)

up = [host for host in engine.hosts if host.status == "up"]
# Raises PolicyProblem with every mistake in the file; no host is asked then.
plan = plan_policy_push(up, Path(file).read_text(encoding="utf-8"), file)

result = push_policy(AnsibleHosts(Access(key=default_key())), plan)
for pushed in result.pushed.values():
    # The digest of the policy that the host reports as loaded.
    print(f"{pushed.host}: {pushed.problem or pushed.digest}")
sys.exit(5 if result.failed else 0)
