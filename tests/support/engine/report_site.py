# SPDX-License-Identifier: GPL-2.0-or-later
"""Make an engine and hosts for reports: racks of equal hosts, and some that differ.

``python -m support.engine.report_site HOSTS FILE.html`` writes a report of such a site,
to look at.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from engine_double import EngineDouble, World, sample_world
from engine_double.hosts import our_hooks
from engine_double.world import SimCluster, new_id

from ovirt_rdma.storage.benchmark.model import Benchmark, Job, Setting, as_document
from ovirt_rdma.storage.benchmark.verdict import verdict
from support.engine.engine_door import DoubleDoor
from support.storage.benchmarks import RDMA, TCP, benchmark, counted, only, rates

DOMAINS = tuple(f"data{number}" for number in range(1, 9))
POLICY = """\
version: 1
nfs:
  rules:
    - name: fleet
      server: nfs1.example.com
      path: "*"
      transport: prefer-rdma
host:
  interfaces:
    - name: all
      match: {link_layer: infiniband}
      transport_mode: datagram
"""
"""A policy whose rule names all domains."""


def site(hosts: int, domains: Sequence[str] = DOMAINS) -> tuple[World, DoubleDoor]:
    """Return a world with ``hosts`` hosts, and the access to them.

    All is well, except: the third host has lost its port, and each 20th mounts a domain
    over TCP; of more than 12 hosts, the 13th does not answer, and each 40th has no
    add-on. From 13 hosts on there are clusters of 60.
    """
    world = sample_world(hosts=hosts, domains=domains, addon=True)
    clusters = list(world.clusters.values())
    networks = clusters[0].networks
    door = DoubleDoor(world)
    for number, host in enumerate(world.hosts.values(), 1):
        if number > 1 and number % 60 == 1:
            name = f"cl{len(clusters) + 1}"
            made = SimCluster(new_id(name), name, clusters[0].data_center)
            made.networks = dict(networks)
            world.clusters[made.id] = made
            clusters.append(made)
        host.cluster = clusters[-1].id
        host.hooks = our_hooks()
        host.policy_text = POLICY
        high, low = divmod(number, 250)
        ib0 = host.nic("ib0")
        ib0.address, ib0.netmask = f"10.0.{high}.{low + 1}", "255.255.0.0"
        host.mounts = dict.fromkeys(host.mounts, "rdma")
        if number % 20 == 3:
            host.mounts[next(iter(host.mounts))] = "tcp"
        if number == 3:
            host.rdma_ready = False
            host.mounts = dict.fromkeys(host.mounts, "tcp")
        if hosts > 12 and number == 13:
            host.reachable = False
        if hosts > 12 and number % 40 == 0:
            host.addon, host.policy_text, host.hooks = False, None, []
            host.mounts = dict.fromkeys(host.mounts, "tcp")
    return world, door


def results(names: Sequence[str]) -> Iterator[Benchmark]:
    """Yield benchmarks of hosts: RDMA is quicker, TCP is, both are equal and uneven."""

    def uneven(job: Job) -> Job:
        factor = (0.6, 1.0, 1.3)[job.repeat - 1]
        rate, its = job.bytes_per_s * factor, job.operations_per_s * factor
        return replace(job, bytes_per_s=rate, operations_per_s=its)

    slow = {"sequential-read": 1e9, "sequential-write": 9e8, "random-read": 9e7}
    rdma4 = Setting("rdma", "4.2", 4)
    kinds = (
        benchmark(only(rdma4, counted(connections=4)), settings=(RDMA, TCP, rdma4)),
        benchmark(rates("rdma", slow), counted("rdma", busiest_cpu=1.0)),
        benchmark(rates("tcp", {"sequential-read": 7.8e9}), uneven),
    )
    for number, name in enumerate(names):
        export = f"nfs1.example.com:/exports/{DOMAINS[number % 2]}"
        yield replace(kinds[number % 3], hostname=f"{name}.example.com", export=export)


def main(hosts: int, file: str) -> None:
    """Write a report with the command."""
    import os
    import tempfile
    from unittest import mock

    from ovirt_rdma.cli.engine.main import main as command
    from support.engine.engine_command_line import access

    world, door = site(hosts, DOMAINS[:2] if hosts < 10 else DOMAINS)
    with (
        tempfile.TemporaryDirectory() as folder,
        EngineDouble(world) as double,
        mock.patch.dict(os.environ, access(double)),
    ):
        words = []
        names = [host.name for host in world.hosts.values()]
        for number, one in enumerate(results(names[: hosts // 5 + 3])):
            path = Path(folder) / f"{number}.json"
            path.write_text(json.dumps(as_document(one, verdict(one))))
            words += ["--bench", str(path)]
        code = command(["report", file, "--replace", *words], door)
        print(json.dumps({"code": code, "strict": double.strict_errors}))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
