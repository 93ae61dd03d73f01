# SPDX-License-Identifier: GPL-2.0-or-later
"""Ask SERVERS NFS servers for RDMA as vdsmd does: FOLDER SERVERS together|in-turn.

Each second server is dead. Prints JSON: seconds, CPU seconds of this process and of its
children, the highest resident memory in bytes, and how many servers were ready.

The host is a folder with every file in the kernel's form. ``ip`` is stood in for by
``echo``, and the child that asks a server over RDMA by a script of the same protocol:
it answers at once, or never, as the kernel does for a dead server.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bench.large_host import large_host
from ovirt_rdma.host.collect.collector import HostReader
from ovirt_rdma.host.export import Export, MountOptions
from ovirt_rdma.host.policy.load import parse_policy
from ovirt_rdma.host.policy.model import rule_for
from ovirt_rdma.host.system.commands import run_command
from ovirt_rdma.storage import readiness
from ovirt_rdma.storage.readiness import READY, ProbeContext, ServerReadiness
from ovirt_rdma.storage.vdsm.connection import in_order_of_answers
from ovirt_rdma.storage.vdsm.export import NamedExport, Shared

TOGETHER, IN_TURN = "together", "in-turn"

# The last number of a dead server's address is even.
_PROBE = """\
import json, sys, time
print("ready", flush=True)
if int(sys.argv[1].rpartition(".")[2]) % 2 == 0:
    time.sleep(600)
print(json.dumps({"verdict": "listening", "detail": "accepts"}), flush=True)
"""
_POLICY = """\
version: 1
nfs:
  rules:
    - server: 10.0.1.0/24
      transport: prefer-rdma
"""
_OWN = ("ib0", "10.0.1.2")
_FIRST = 11


class _Counted(NamedExport):
    """An export that keeps the server it asked."""

    def ask_server(self) -> ServerReadiness:
        self.asked = super().ask_server()
        return self.asked


def main(arguments: Sequence[str]) -> None:
    """Ask the servers; print the result."""
    folder, servers, how = Path(arguments[0]), int(arguments[1]), arguments[2]
    script = folder / "probe.py"
    script.write_text(_PROBE, encoding="ascii")
    readiness.PROBE = script
    exports = _exports(folder / "root", servers)
    began, before = time.perf_counter(), _cpu_s()
    if how == TOGETHER:
        for _ in in_order_of_answers(exports):
            pass
    else:
        for export in exports:
            export.ask_ahead(export.ask_server())
    seconds, cpu_s = time.perf_counter() - began, _cpu_s() - before
    status = Path("/proc/self/status").read_text(encoding="ascii")
    highest = re.search(r"VmHWM:\s+(\d+) kB", status)
    if highest is None:
        raise AssertionError("no VmHWM")
    ready = sum(export.asked.readiness().verdict == READY for export in exports)
    result = {
        "seconds": seconds,
        "cpu_s": cpu_s,
        "memory": int(highest[1]) * 1024,
        "ready": ready,
    }
    print(json.dumps(result))


def _exports(root: Path, servers: int) -> list[_Counted]:
    host = large_host(root, 1)
    addresses = [f"10.0.1.{_FIRST + number}" for number in range(servers)]
    for address in addresses:
        host.route(address, *_OWN)

    def run(argv: Sequence[str]) -> str:
        text = host.runner(argv)
        # So that it costs a process.
        run_command(["/bin/echo", text])
        return text

    policy = parse_policy(_POLICY, "policy.yaml").policy
    shared = Shared(ProbeContext(HostReader(host.path, run)))
    exports = []
    for address in addresses:
        export = Export.parse(f"{address}:/vm")
        match = rule_for(policy, export)
        if match is None:
            raise AssertionError(f"no rule names {export}")
        exports.append(_Counted(export, match, MountOptions(), "4.2", shared))
    return exports


def _cpu_s() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


if __name__ == "__main__":
    main(sys.argv[1:])
