# SPDX-License-Identifier: GPL-2.0-or-later
"""Serve the engine of :mod:`bench.engine_fleet` in a separate process.

``python -m bench.engine_world FOLDER HOSTS LATENCY_MS DOMAINS`` writes the output of
each host's ``ovirt-rdma-host`` to FOLDER, then serves the tests' engine double until
SIGTERM, and prints its URL. SEEN, beside the API, returns what it has served. The hosts
have the add-on and the domains over RDMA, without a problem for any verb to report.
"""

from __future__ import annotations

import argparse
import json
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from engine_double import EngineDouble, World, routing, sample_world
from engine_double.answers import Answer
from engine_double.hosts import our_hooks
from engine_double.views import connection_view, domain_view, followed
from engine_double.world import SimDataCenter, SimDomain
from ovirtsdk4 import types
from support.engine.engine_door import DoubleDoor, report_document

from ovirt_rdma.engine_sdk_tools.model import Host

SEEN = "/bench/seen"
# In FOLDER; a host's files are beside it.
POLICY_FILE = "policy.yaml"
POLICY = """\
version: 1
nfs:
  rules:
    - name: fleet
      server: nfs1.example.com
      path: "*"
      transport: require-rdma
"""


def world_of(hosts: int, domains: int) -> World:
    """Return the hosts with this number of domains, and the engine's view of them."""
    names = [f"data{number}" for number in range(1, domains + 1)]
    world = sample_world(hosts=hosts, domains=names, addon=True)
    for number, host in enumerate(world.hosts.values(), 1):
        host.hooks = our_hooks()
        host.policy_text = POLICY
        host.mounts = dict.fromkeys(host.mounts, "rdma")
        high, low = divmod(number, 250)
        ib0 = host.nic("ib0")
        ib0.address, ib0.netmask = f"10.0.{high}.{low + 1}", "255.255.0.0"
    return world


def write_dumps(world: World, folder: Path) -> None:
    """Write each host's facts, status and policy in the form of --facts-dir."""
    (folder / POLICY_FILE).write_text(POLICY, encoding="utf-8")
    door = DoubleDoor(world)
    for host in world.hosts.values():
        asked = Host(host.id, host.name, host.address, host.cluster, host.status)
        document = report_document(door.reports([asked])[host.name])
        for part in ("facts", "status"):
            text = json.dumps(document[part])
            (folder / f"{host.name}.{part}.json").write_text(text, encoding="utf-8")
        (folder / f"{host.name}.policy.yaml").write_text(POLICY, encoding="utf-8")


# The words that ovirt.ovirt's modules send with each list; a search is for all.
_WORDS = {"search", "max", "case_sensitive", "filter", "all_content", "follow"}
# The links that the rival follows besides those that the product does.
_LINKS = {"/datacenters": "storage_domains", "/storagedomains": "storage_connections"}


@followed("datacenters", "storage_domains")
def _domains_of(world: World, centre: SimDataCenter) -> list[types.StorageDomain]:
    found = world.domains_of(centre.id)
    return [domain_view(world, one, centre.id) for one in found]


@followed("storagedomains", "storage_connections")
def _connections_of(world: World, domain: SimDomain) -> list[types.StorageConnection]:
    return [connection_view(world, world.connections[domain.connection or ""])]


def know_the_rival() -> None:
    """Let the double answer what the rival sends; it knows the product's words only."""
    for route in routing.ROUTES:
        if route.method == "GET":
            links = {_LINKS[route.path]} if route.path in _LINKS else set()
            object.__setattr__(route, "query", route.query | _WORDS)
            object.__setattr__(route, "follow", route.follow | links)


def serve_seen(double: EngineDouble) -> None:
    """Serve at SEEN: the calls so far, the CPU seconds, and the unknown requests."""

    def answer(
        method: str, target: str, headers: Mapping[str, str], raw: bytes
    ) -> Answer:
        seen = {
            "calls": len(double.requests),
            "cpu_s": time.process_time(),
            "strict_errors": double.strict_errors,
        }
        return Answer(200, json.dumps(seen).encode(), "application/json")

    double.beside[SEEN] = answer


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(prog="bench.engine_world")
    parser.add_argument("folder", type=Path)
    parser.add_argument("hosts", type=int)
    parser.add_argument("latency_ms", type=float)
    parser.add_argument("domains", type=int)
    args = parser.parse_args(arguments)
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: ended.set())
    world = world_of(args.hosts, args.domains)
    write_dumps(world, args.folder)
    know_the_rival()
    with EngineDouble(world, args.latency_ms / 1000) as double:
        serve_seen(double)
        print(double.url, flush=True)
        ended.wait()


if __name__ == "__main__":
    main()
