# SPDX-License-Identifier: GPL-2.0-or-later
"""``python -m bench.engine_world FOLDER HOSTS LATENCY_MS``: the engine that
:mod:`bench.engine_fleet` measures against, in a process of its own.

Writes what each host's ``ovirt-rdma-host`` would print into FOLDER, then serves the
tests' engine double until it is ended, and prints its URL. SEEN, beside the API, tells
what it has served. The hosts have the add-on and four domains over RDMA, as they should
be: both verbs find nothing.
"""

from __future__ import annotations

import argparse
import json
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from engine_double import EngineDouble, World, sample_world
from engine_double.answers import Answer
from engine_double.hooks import hook
from support.engine.engine_door import DoubleDoor, report_document

from bench.rounds import CHECKOUT
from ovirt_rdma.engine_sdk_tools.hosts.hooks import NAME, POINTS
from ovirt_rdma.engine_sdk_tools.model import Host

DOMAINS = ("data1", "data2", "data3", "data4")
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


def world_of(hosts: int) -> World:
    """Return the hosts, and the engine's view of them."""
    world = sample_world(hosts=hosts, domains=DOMAINS, addon=True)
    hooks = [
        hook(point, NAME, (CHECKOUT / "vdsm_hooks" / point / NAME).read_bytes())
        for point in POINTS
    ]
    for number, host in enumerate(world.hosts.values(), 1):
        host.hooks = list(hooks)
        host.policy_text = POLICY
        host.mounts = dict.fromkeys(host.mounts, "rdma")
        high, low = divmod(number, 250)
        ib0 = host.nic("ib0")
        ib0.address, ib0.netmask = f"10.0.{high}.{low + 1}", "255.255.0.0"
    return world


def write_dumps(world: World, folder: Path) -> None:
    """Write each host's facts, status and policy as --facts-dir takes them."""
    (folder / POLICY_FILE).write_text(POLICY, encoding="utf-8")
    door = DoubleDoor(world)
    for host in world.hosts.values():
        asked = Host(host.id, host.name, host.address, host.cluster, host.status)
        document = report_document(door.reports([asked])[host.name])
        for part in ("facts", "status"):
            text = json.dumps(document[part])
            (folder / f"{host.name}.{part}.json").write_text(text, encoding="utf-8")
        (folder / f"{host.name}.policy.yaml").write_text(POLICY, encoding="utf-8")


def tell_seen(double: EngineDouble) -> None:
    """Serve at SEEN: calls so far, CPU seconds so far, and what was not understood."""

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
    words = parser.parse_args(arguments)
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: ended.set())
    world = world_of(words.hosts)
    write_dumps(world, words.folder)
    with EngineDouble(world, words.latency_ms / 1000) as double:
        tell_seen(double)
        print(double.url, flush=True)
        ended.wait()


if __name__ == "__main__":
    main()
