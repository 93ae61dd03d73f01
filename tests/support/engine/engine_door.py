# SPDX-License-Identifier: GPL-2.0-or-later
"""Provide access to the double's simulated hosts, in the form of that to real hosts.

``DoubleDoor`` uses a world in this process, ``HttpDoor`` one that another process
serves beside its double (``serve_hosts``), so that the tool can be killed without the
world.
"""

from __future__ import annotations

import dataclasses
import json
import pickle
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Optional, TypeVar, Union

import requests
import yaml
from engine_double import EngineDouble, SimHost, World
from engine_double.answers import Answer

from ovirt_rdma.engine_sdk_tools.hosts.ansible import (
    NOT_PREPARED,
    SENTINEL,
    WITHOUT_HARDWARE,
    Prepared,
    judged,
)
from ovirt_rdma.engine_sdk_tools.hosts.report import HostDone, HostReport, Pushed
from ovirt_rdma.engine_sdk_tools.model import Host
from ovirt_rdma.host import __version__
from ovirt_rdma.host.changes.journal import Ledger
from ovirt_rdma.host.changes.run import ChangeStatus
from ovirt_rdma.host.facts import model
from ovirt_rdma.host.paths import POLICY_YAML
from ovirt_rdma.host.policy.forms import PolicyProblem
from ovirt_rdma.host.policy.load import PolicyFiles
from ovirt_rdma.host.policy.model import Policy
from ovirt_rdma.host.policy.model import digest as digest_of
from ovirt_rdma.host.services.enablement import (
    BY_LAUNCHER,
    BY_STOCK,
    VdsmdProcess,
)
from ovirt_rdma.host.system.json_codec import plain
from support.engine.engine_host_facts import facts_of
from support.engine.policy_files import joined, split
from support.engine.told_hosts import versions

T = TypeVar("T")
_INSTALL = "install the package ovirt-rdma-host there"


class DoubleDoor:
    """A HostAccess to the hosts of a world.

    Hosts without the add-on give no report, unless they have ``host.more["package"]``:
    then the command exists, but nothing is enabled. ``fail_push`` has the error of a
    push by the host's name; it fails before anything is written. ``pushes`` are the
    successful ones, in order: (host, text), and ``asked`` the hosts of each report or
    push together. ``health`` and ``paths`` have those parts of the
    status by the host's name; nobody watches the mounts of others.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.fail_push: dict[str, str] = {}
        self.pushes: list[tuple[str, Optional[str]]] = []
        self.prepared: list[tuple[str, dict[str, Any]]] = []
        self.asked: list[list[str]] = []
        self.health: dict[str, dict[str, Any]] = {}
        self.paths: dict[str, dict[str, Any]] = {}

    def reports(
        self, hosts: Sequence[Host], done: Optional[HostDone] = None
    ) -> dict[str, HostReport]:
        return self._each(hosts, done, self._report)

    def push_policy(
        self,
        hosts: Sequence[Host],
        policy: Union[str, PolicyFiles, None],
        done: Optional[HostDone] = None,
    ) -> dict[str, Pushed]:
        return self._each(hosts, done, lambda name: self._push(name, policy))

    def prepare(
        self,
        hosts: Sequence[Host],
        variables: Mapping[str, Any],
        done: Optional[HostDone] = None,
    ) -> dict[str, Prepared]:
        return self._each(hosts, done, lambda name: self._prepare(name, variables))

    def _each(
        self, hosts: Sequence[Host], done: Optional[HostDone], ask: Callable[[str], T]
    ) -> dict[str, T]:
        self.asked.append([host.name for host in hosts])

        def locked(name: str) -> T:
            with self.world.lock:
                return ask(name)

        return _each(hosts, done, locked)

    def _prepare(self, name: str, variables: Mapping[str, Any]) -> Prepared:
        host = self.world.host(name)
        self.prepared.append((name, dict(variables)))
        if not host.reachable:
            problem = f"{host.address} does not answer over SSH"
            return Prepared(name, problem=problem)
        names = run_role(host, variables)
        last = names[-1]
        if NOT_PREPARED in last:
            problem = last.partition("[ERROR] ")[2]
            return Prepared(name, "", last, f"ovirt-rdma: apply the policy: {problem}")
        sentinel = last if last.startswith(SENTINEL) else ""
        return judged(
            Prepared(
                name, sentinel, last, no_hardware=last.startswith(WITHOUT_HARDWARE)
            )
        )

    def _report(self, name: str) -> HostReport:
        host = self.world.host(name)
        problem = _unreachable(host)
        if problem:
            return HostReport(name, problem=problem, fix=_fix(host))
        read_at = 1_700_000_000.0
        return HostReport(
            name,
            facts_of(self.world, host),
            {
                **status_document(host),
                "health": self.health.get(name),
                "paths": self.paths.get(name),
            },
            split(host.policy_text).file,
            read_at,
        )

    def _push(self, name: str, pushed: Union[str, PolicyFiles, None]) -> Pushed:
        host = self.world.host(name)
        if not isinstance(pushed, PolicyFiles):
            pushed = PolicyFiles(pushed, split(host.policy_text).drop_ins)
        text = joined(*pushed)
        problem = _unreachable(host)
        if problem:
            return Pushed(name, problem=problem, fix=_fix(host))
        if name in self.fail_push:
            return Pushed(name, problem=self.fail_push[name], fix="look at the host")
        try:
            policy = _policy(text)
        except PolicyProblem as wrong:
            return Pushed(name, problem=str(wrong), fix=wrong.fix)
        host.policy_text = text
        self.pushes.append((name, text))
        digest = digest_of(policy) if policy is not None else None
        alone = _policy(pushed.file)
        return Pushed(name, digest, digest_of(alone) if alone is not None else None)


def run_role(host: SimHost, variables: Mapping[str, Any]) -> list[str]:
    """Do to the host what the role does; return the names of the tasks that succeed.

    ``host.more["role"]`` spoils it: ``fails`` (the text of a failure), ``no_hardware``,
    ``no_sentinel``, ``other_policy`` (YAML that is loaded in place of the given one).
    """
    spoilt = host.more.get("role", {})
    names = ["ovirt-rdma: install the package"]
    host.more["package"] = True
    if spoilt.get("no_hardware"):
        return [*names, f"{WITHOUT_HARDWARE}, nothing was loaded"]
    if spoilt.get("fails"):
        return [*names, f"{NOT_PREPARED} [ERROR] {spoilt['fails']}"]
    path = variables.get("ovirt_rdma_policy_file")
    old = split(host.policy_text)
    file = Path(path).read_text("utf-8") if path else old.file
    if variables.get("ovirt_rdma_policy"):
        file = yaml.safe_dump(variables["ovirt_rdma_policy"])
    file = spoilt.get("other_policy", file)
    host.policy_text = joined(file, old.drop_ins)
    host.addon = True
    names += ["ovirt-rdma: place and load the policy", "ovirt-rdma: check the host"]
    if spoilt.get("no_sentinel"):
        return names
    # The file_digest of host_deploy/plugins/modules/policy.py.
    policy = _policy(file)
    digest = "" if policy is None else digest_of(policy)
    return [*names, f"{SENTINEL} (ovirt-rdma 0.9, policy {digest})"]


def status_document(host: SimHost) -> dict[str, Any]:
    """Return the output of ``ovirt-rdma-host status -o json`` on the host."""
    policy = _policy(host.policy_text)
    digest = digest_of(policy) if policy is not None else None
    on = host.addon
    link = "ours" if on else "absent"
    program = BY_LAUNCHER if on and not host.stock_because else BY_STOCK
    loaded = policy is not None
    process = VdsmdProcess(
        1234,
        program,
        host.stock_because or None,
        __version__ if program == BY_LAUNCHER else None,
    )
    content: dict[str, Any] = {
        "enabled": {
            "mode": "vdsmd" if on else None,
            "marker": link,
            "link": link,
            "overrides": [],
        },
        "package": {"launcher": True, "dropin": True},
        "running": dataclasses.asdict(process),
        "policy": {
            "loaded": loaded,
            "digest": digest,
            "source": POLICY_YAML if loaded else None,
            "loaded_at": "2026-01-01T00:00:00Z" if loaded else None,
            "rules": len(policy.nfs.rules) if policy else 0,
            "problem": None,
            "fix": "",
            "copy_problem": None,
        },
        "advice": [],
    }
    content["policy"]["drop_ins"] = split(host.policy_text).drop_ins
    return {
        "schema_version": 1,
        "kind": "status",
        "version": __version__,
        **content,
        "versions": plain(versions(digest, program)),
        "degraded": [],
        "health": None,
        "paths": None,
        "changes": json.loads(json.dumps(ChangeStatus(Ledger()).document(digest))),
        "at_work": None,
        "problems": [],
    }


def report_document(report: HostReport) -> dict[str, Any]:
    """Return a report as JSON."""
    document = dataclasses.asdict(dataclasses.replace(report, facts=None))
    if report.facts is not None:
        document["facts"] = model.to_json_dict(report.facts)
    return document


# Beside the engine's API, in place of SSH.
WAY = "/test-hosts/"


def serve_hosts(double: EngineDouble, door: Any) -> None:
    """Serve ``door`` beside the engine's API, for HttpDoor."""

    def answer(
        method: str, target: str, headers: Mapping[str, str], raw: bytes
    ) -> Answer:
        name, *words = pickle.loads(raw)
        ask = getattr(door, target.removeprefix(WAY))
        said = ask([SimpleNamespace(name=name)], *words)[name]
        return Answer(200, pickle.dumps(said), "application/octet-stream")

    double.beside[WAY] = answer


class HttpDoor:
    """The same over HTTP, at the double's ``url``."""

    def __init__(self, url: str) -> None:
        self._url = f"{url.split('/ovirt-engine')[0]}{WAY}"
        self._http = requests.Session()
        # Without the proxy settings of this machine's user.
        self._http.trust_env = False

    def reports(
        self, hosts: Sequence[Host], done: Optional[HostDone] = None
    ) -> dict[str, HostReport]:
        return self._each("reports", hosts, done)

    def push_policy(
        self,
        hosts: Sequence[Host],
        policy: Union[str, PolicyFiles, None],
        done: Optional[HostDone] = None,
    ) -> dict[str, Pushed]:
        return self._each("push_policy", hosts, done, policy)

    def prepare(
        self,
        hosts: Sequence[Host],
        variables: Mapping[str, Any],
        done: Optional[HostDone] = None,
    ) -> dict[str, Prepared]:
        return self._each("prepare", hosts, done, dict(variables))

    def _each(
        self, what: str, hosts: Sequence[Host], done: Optional[HostDone], *words: Any
    ) -> dict[str, Any]:
        def ask(name: str) -> Any:
            asked = pickle.dumps((name, *words))
            reply = self._http.post(f"{self._url}{what}", data=asked, timeout=60)
            reply.raise_for_status()
            return pickle.loads(reply.content)

        return _each(hosts, done, ask)


def _each(
    hosts: Sequence[Host], done: Optional[HostDone], ask: Callable[[str], T]
) -> dict[str, T]:
    """Return what ``ask`` says of each host, and call ``done`` after each."""
    found = {}
    for host in hosts:
        found[host.name] = ask(host.name)
        if done is not None:
            done(host.name)
    return found


def _policy(text: Optional[str]) -> Optional[Policy]:
    return None if text is None else split(text).parsed(POLICY_YAML).policy


def _unreachable(host: SimHost) -> str:
    if not host.reachable:
        return f"{host.address} does not answer over SSH"
    if not host.addon and not host.more.get("package"):
        return f"the command ovirt-rdma-host is missing on {host.address}"
    return ""


def _fix(host: SimHost) -> str:
    return _INSTALL if host.reachable else f"try: ssh root@{host.address}"


if __name__ == "__main__":
    # As the program, with access to the hosts of another process.
    from ovirt_rdma.cli.engine.main import main

    raise SystemExit(main(sys.argv[2:], HttpDoor(sys.argv[1])))
