# SPDX-License-Identifier: GPL-2.0-or-later
"""A sample world on a port, for sessions, benchmarks, and tests that kill the tool.

    PYTHONPATH=tests python -m engine_double.serve --hosts 12

Prints the API's address, and serves until it is ended. Beside the engine's API there
is ``/test-hosts/``, which stands for SSH: ``engine_door.HttpDoor`` uses it. User
admin@ovirt@internalsso, password ``secret``.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Optional

from engine_double.answers import Answer
from engine_double.double import EngineDouble
from engine_double.hooks import our_hooks
from engine_double.sample import sample_world

WAY = "/test-hosts/"


@dataclasses.dataclass(frozen=True)
class _Named:
    """A host with the name that a door needs."""

    name: str


def serve_hosts(double: EngineDouble, door: Any) -> None:
    """Serve ``door`` next to the engine's API, for HttpDoor."""
    from support.engine.engine_door import report_document

    from ovirt_rdma.host.policy.drop_ins import PolicyFiles

    def answer(
        method: str, target: str, headers: Mapping[str, str], raw: bytes
    ) -> Answer:
        words = json.loads(raw)
        hosts = [_Named(words["host"])]
        if (method, target) == ("POST", f"{WAY}reports"):
            said = report_document(door.reports(hosts)[words["host"]])
        elif (method, target) == ("POST", f"{WAY}policy"):
            policy = words["policy"]
            if isinstance(policy, list):
                policy = PolicyFiles(*policy)
            answers = door.push_policy(hosts, policy)
            pushed = answers[words["host"]]
            said = dataclasses.asdict(pushed)
        elif (method, target) == ("POST", f"{WAY}prepare"):
            prepared = door.prepare(hosts, words["variables"])[words["host"]]
            said = dataclasses.asdict(prepared)
        else:
            return Answer(404)
        return Answer(200, json.dumps(said).encode("ascii"), "application/json")

    double.beside[WAY] = answer


@contextlib.contextmanager
def served(arguments: Optional[Sequence[str]] = None) -> Iterator[EngineDouble]:
    """Start the double that the program's ``arguments`` request."""
    from support.engine.engine_door import DoubleDoor

    parser = argparse.ArgumentParser(prog="engine_double.serve")
    parser.add_argument("--hosts", type=int, default=12)
    parser.add_argument("--domains", default="data1,data2", help="names, by comma")
    parser.add_argument("--port", type=int, default=0, help="0: any that is free")
    parser.add_argument("--latency-ms", type=float, default=0.0)
    parser.add_argument("--reads-per-stage", type=int, default=1)
    parser.add_argument("--without-addon", action="store_true")
    words = parser.parse_args(arguments)
    world = sample_world(
        hosts=words.hosts,
        domains=words.domains.split(","),
        addon=not words.without_addon,
        reads_per_stage=words.reads_per_stage,
    )
    for host in world.hosts.values():
        host.hooks = our_hooks() if host.addon else []
    with EngineDouble(world, words.latency_ms / 1000, words.port) as double:
        serve_hosts(double, DoubleDoor(world))
        yield double


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Serve until SIGTERM or Ctrl-C; 1 if a client sent an unknown request."""
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: ended.set())
    with served(arguments) as double:
        print(double.url, flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            ended.wait()
    for sentence in double.strict_errors:
        print(sentence, flush=True)
    return 1 if double.strict_errors else 0


if __name__ == "__main__":
    raise SystemExit(main())
