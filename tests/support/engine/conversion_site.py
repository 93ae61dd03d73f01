# SPDX-License-Identifier: GPL-2.0-or-later
"""Provide a site for conversions without a network: the engine double's world.

Changes arrive as the SDK writes them, through the double's strict routing; readings
come from its world directly. Every act is counted, so that a test can kill the
conversion before or after any of them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Optional

from engine_double import EngineDouble, World
from engine_double.double import SeenRequest
from engine_double.views import cluster_view, connection_view
from ovirtsdk4 import Error, types
from ovirtsdk4.reader import Reader

from ovirt_rdma.engine_sdk_tools.api.auth import WebAnswer
from ovirt_rdma.engine_sdk_tools.api.request import (
    BUSY,
    MISSING,
    TIMEOUT,
    Call,
    EngineProblem,
    Listener,
    LostAnswer,
    Read,
    TimeoutProblem,
    engine_problem_of,
    wire_form,
)
from ovirt_rdma.engine_sdk_tools.api.session import BUSY_S
from ovirt_rdma.engine_sdk_tools.hosts.report import HostReport, Pushed
from ovirt_rdma.engine_sdk_tools.model import (
    DataCenter,
    Domain,
    Engine,
    Host,
    StorageConnection,
)
from ovirt_rdma.engine_sdk_tools.reader import cluster_of
from ovirt_rdma.host.facts.model import Facts, Modules, NfsMount, load
from ovirt_rdma.host.policy.load import PolicyFiles
from ovirt_rdma.host.policy.model import digest
from support.engine.policy_files import joined, split
from support.killed import Killed

# Between two looks of a wait.
_EVERY_S = 60.0


class Site:
    """Session, host access and state file in one. ``kill_at`` is the number of the act,
    from 0, before or after (``after``) which it is killed or (``lose``) loses the
    answer.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.correlation_id = "tests"
        self.url = "http://double"
        self.listener: Listener = Listener()
        self.double = EngineDouble(world)
        self.double._server.server_close()
        self.acts: list[str] = []
        self.kill_at: Optional[int] = None
        # A process that was killed does nothing more.
        self.dead = False
        self.after = False
        self.lose = False
        # Where it was interrupted: the number of the act, and the act.
        self.cut: Optional[tuple[int, str]] = None
        self.stored: Any = None
        self.calls: list[Call] = []
        self.performed = self.calls
        self.pushes_fail: set[str] = set()
        # Hosts on which a pushed policy is not loaded; the loaded policy, by host.
        self.loads_fail: set[str] = set()
        self.in_force: dict[str, Optional[str]] = {}
        # Called right before the first act with this prefix.
        self.meanwhile: dict[str, Callable[[], object]] = {}
        self.now = 1000.0

    # -- dying

    def alive(self) -> None:
        """Continue without another kill, as the next process."""
        self.kill_at = None
        self.dead = False

    def die(self) -> None:
        """Kill the run, as at ``kill_at``."""
        self.dead = True
        raise Killed

    def _check_alive(self) -> None:
        if self.dead:
            raise Killed

    def _before(self, what: str) -> None:
        self._check_alive()
        self.acts.append(what)
        for prefix in [one for one in self.meanwhile if what.startswith(one)]:
            self.meanwhile.pop(prefix)()
        if self.kill_at == len(self.acts) - 1 and not self.after and not self.lose:
            self._cut_off()
            self.dead = True
            raise Killed(what)

    def _after(self) -> None:
        if self.kill_at != len(self.acts) - 1:
            return
        if self.lose and self.acts[-1].startswith("perform"):
            self._cut_off()
            raise LostAnswer(EngineProblem("id", "a change", "it is lost", TIMEOUT))
        if self.after:
            self._cut_off()
            self.dead = True
            raise Killed(self.acts[-1])

    def _cut_off(self) -> None:
        self.cut = len(self.acts) - 1, self.acts[-1]

    # -- session

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def read(self, read: Read, *, patience_s: Optional[float] = None) -> Any:
        self._check_alive()
        form = wire_form(read)
        return Reader.read(self._send(form, read.doing).body)

    def read_all(self, reads: Sequence[Read]) -> list[Any]:
        results: list[Any] = []
        for read in reads:
            try:
                results.append(self.read(read))
            except EngineProblem as problem:
                if problem.kind != MISSING:
                    raise
                results.append(problem)
        return results

    def perform(
        self,
        call: Call,
        *,
        patience_s: Optional[float] = None,
        before: Callable[[], None] = lambda: None,
    ) -> Any:
        self._before(f"perform {call.doing}")
        until = self.now + (BUSY_S if patience_s is None else patience_s)
        while True:
            before()
            try:
                result = _result(self._send(wire_form(call), call.doing))
            except EngineProblem as problem:
                if problem.kind != BUSY or self.now >= until:
                    raise
                self.sleep(_EVERY_S)
            else:
                break
        self.calls.append(call)
        self._after()
        return result

    def report_progress(
        self, call: Call, *, patience_s: float = 0.0, twice: bool = False
    ) -> Any:
        """No act: a job only shows what the run does."""
        return _result(self._send(wire_form(call), call.doing))

    def _send(self, form: Any, doing: str) -> Any:
        query = {**form.query, "correlation_id": self.correlation_id}
        body = form.body or ""
        if isinstance(body, bytes):
            body = body.decode()
        seen = SeenRequest(form.method, form.path, query, body, {})
        answer = self.double._carry_out(seen, body.encode())
        assert not self.double.strict_errors
        if answer.status >= 400:
            said = Reader.read(answer.body) if answer.body else None
            # As in ovirtsdk4, a failed action contains its fault.
            fault = said.fault if isinstance(said, types.Action) else said
            error = Error("", code=answer.status, fault=fault)
            sent = WebAnswer(answer.status, "a body", "application/xml")
            raise engine_problem_of(error, doing, "of tests", sent)
        return answer

    def wait_until(self, read: Read, test: Any, doing: str, timeout_s: float) -> Any:
        self._before(f"wait {doing}")
        until = self.now + timeout_s
        while self.now < until:
            found = self.read(read)
            said = test(found)
            if said is not None:
                self._after()
                return said
            self.sleep(_EVERY_S)
        what = f"it is not done; last seen: {found.status}"
        raise TimeoutProblem("engine-wait-timeout", doing, what, TIMEOUT)

    # -- keeper

    def write(self, state: Any) -> None:
        self._before("write")
        self.stored = state
        self._after()

    # -- door

    def reports(self, hosts: Sequence[Host], done: Any = None) -> dict[str, HostReport]:
        self._before("look")
        found = {host.name: self._report(host.name) for host in hosts}
        self._after()
        return found

    def _report(self, name: str) -> HostReport:
        if name not in {host.name for host in self.world.hosts.values()}:
            return HostReport(name, problem=f"{name} cannot be reached")
        report = report_of(self.world, name)
        if name not in self.in_force or report.status is None:
            return report
        digest = digest_of(self.in_force[name])
        policy = {**report.status["policy"], "loaded": True, "digest": digest}
        return replace(report, status={**report.status, "policy": policy})

    def push_policy(
        self,
        hosts: Sequence[Host],
        policy: PolicyFiles,
        done: Any = None,
    ) -> dict[str, Pushed]:
        text = joined(*policy)
        self._before("push")
        result = {}
        for host in hosts:
            there = self.world.host(host.name)
            before = there.policy_text
            if host.name in self.pushes_fail or not there.reachable:
                result[host.name] = Pushed(host.name, problem="no route to host")
                continue
            there.policy_text = text
            if host.name in self.loads_fail:
                self.in_force.setdefault(host.name, before)
                result[host.name] = Pushed(host.name, problem="it was cut off")
                continue
            self.in_force.pop(host.name, None)
            digest = digest_of(text)
            result[host.name] = Pushed(host.name, digest)
        self._after()
        return result


def _result(answer: Any) -> Any:
    """Return what the SDK's method returns: the object, None for an action."""
    found = Reader.read(answer.body) if answer.body else None
    return None if isinstance(found, types.Action) else found


@functools.lru_cache(256)
def digest_of(text: Optional[str]) -> str:
    return digest(split(text).parsed("x").policy)


_RDMA = load(Path(__file__).parents[2] / "data/facts/rxe-one-mount.json")


def report_of(world: World, name: str) -> HostReport:
    """Return the host's report over SSH, even if it is in maintenance."""
    host = world.host(name)
    if not host.reachable or host.status == "down":
        return HostReport(name, problem=f"{name} cannot be reached")
    rows = {row.export: row for row in world.connections.values()}
    mounts = tuple(
        NfsMount(
            source=export,
            mountpoint=f"/rhev/data-center/mnt/{export.replace('/', '_')}",
            options="rw",
            version=(rows[export].nfs_version or "").lstrip("v").replace("_", "."),
            protocol=transport,
            port=20049 if transport == "rdma" else None,
            address=export.rpartition(":")[0],
            protocols=(transport,),
        )
        for export, transport in sorted(host.mounts.items())
    )
    facts = Facts(
        hostname=name,
        kernel_release="6.1",
        uptime_s=1000.0,
        rdma_devices=_RDMA.rdma_devices if host.rdma_ready else (),
        modules=Modules(loaded=("rpcrdma",), available=("rpcrdma",)),
        nfs_mounts=mounts,
    )
    status = None
    if host.addon:
        policy = {"loaded": False, "digest": None}
        if host.policy_text is not None:
            digest = digest_of(host.policy_text)
            policy = {"loaded": True, "digest": digest}
        policy["drop_ins"] = split(host.policy_text).drop_ins
        status = {"enabled": {"mode": "vdsmd"}, "policy": policy}
    return HostReport(name, facts, status, split(host.policy_text).file)


def engine_of(site: Any) -> Engine:
    """Return the engine as read completely; operations in progress advance."""
    world = site.world
    rows = {
        row.id: StorageConnection(
            id=row.id,
            type=row.type,
            address=row.address or None,
            # As the engine shows it, see views.py.
            path=connection_view(world, row).path,
            nfs_version=row.nfs_version,
            mount_options=row.mount_options or "",
        )
        for row in world.connections.values()
    }
    hosts = tuple(
        Host(
            id=host.id,
            name=host.name,
            address=host.address,
            cluster=host.cluster,
            status=host.status,
            spm="spm" if host.spm else "none",
            vms=len(host.vms),
        )
        for host in world.hosts.values()
    )
    domains = tuple(
        Domain(
            id=domain.id,
            name=domain.name,
            type=domain.type,
            storage_type=domain.storage_type,
            data_center=domain.data_center,
            status=domain.status,
            master=domain.master,
            hosted_engine=domain.hosted_engine,
            connection=rows.get(domain.connection or ""),
        )
        for domain in world.domains.values()
    )
    for name in (*world.hosts, *world.domains):
        world.transitions.shown(name)
    return Engine(
        url="http://double",
        version=world.version,
        data_centers=tuple(
            DataCenter(c.id, c.name, c.status, c.version)
            for c in world.data_centers.values()
        ),
        clusters=tuple(
            cluster_of(cluster_view(world, c)) for c in world.clusters.values()
        ),
        hosts=hosts,
        domains=domains,
        connections=tuple(rows.values()),
    )
