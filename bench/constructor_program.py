# SPDX-License-Identifier: GPL-2.0-or-later
"""Run the pyperf program of :mod:`bench.constructor`: VDSM_SOURCE and our class."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyperf
from support.storage.vdsm_under_test import load_vdsm

from bench import thousand_rules
from bench.constructor import CASES, CHOICE, PROGRAM, STOCK
from bench.thousand_rules import FIRST
from ovirt_rdma.host.collect.collector import HostReader
from ovirt_rdma.host.export import Export, MountOptions
from ovirt_rdma.host.policy.model import rule_for
from ovirt_rdma.host.policy.store import PolicySource, store
from ovirt_rdma.storage.readiness import READY, ProbeContext, Readiness, Step
from ovirt_rdma.storage.transport import choose
from ovirt_rdma.storage.vdsm.connection import connection_class, load
from ovirt_rdma.storage.vdsm.export import Shared


def main() -> None:
    """Run the pyperf program."""
    runner = pyperf.Runner(program_args=("-m", PROGRAM))
    vdsm = load_vdsm()
    shape = load()
    shared = Shared(ProbeContext(HostReader("/")))
    with tempfile.TemporaryDirectory() as name, vdsm.fresh(Path(name)):
        runner.bench_func(STOCK, _maker(shape.nfs_connection, FIRST))
        for case, rules, export in CASES:
            path = Path(name) / f"policy-{rules}.json"
            if rules is not None:
                store(thousand_rules.policy(rules), "policy.yaml", path)
            ours = connection_class(shape, PolicySource(path).current, shared)
            runner.bench_func(case, _maker(ours, export))
    runner.bench_func(CHOICE, _choosing())


def _maker(connection: Any, export: str) -> Callable[[], Any]:
    return lambda: connection(id="1", export=export, version="4.2")


def _choosing() -> Callable[[], Any]:
    match = rule_for(thousand_rules.policy(1), Export.parse(FIRST))
    if match is None:
        raise AssertionError(f"the first rule does not name {FIRST}")
    ready = Readiness((Step("listener", READY, "it accepts RDMA connections"),))
    return lambda: choose(match, MountOptions(), ready, tcp_ipv6=None)


if __name__ == "__main__":
    main()
