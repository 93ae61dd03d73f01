# SPDX-License-Identifier: GPL-2.0-or-later
"""Make a hypervisor whose vdsmd has our connection class, without kernel or network."""

from __future__ import annotations

import threading

import pytest

from ovirt_rdma.host.paths import DEGRADED_JSON, RUN_MOUNTS, under
from ovirt_rdma.host.policy.model import NfsPolicy, NfsRule, Policy
from ovirt_rdma.storage.mounts import DegradedMarks
from ovirt_rdma.storage.readiness import READY, ProbeContext
from ovirt_rdma.storage.vdsm.connection import load
from ovirt_rdma.storage.vdsm.export import PathLocks, Shared
from ovirt_rdma.storage.vdsm.launch import install
from support.fakes.fake_hosts import soft_roce
from support.storage.fake_network import FakeNetwork

NAS, NAS6 = "10.99.0.2", "fd00:99::2"
GENERAL, ACCESS, MOUNT_FAILED = 100, 469, 477


class CountedWaits(PathLocks):
    """Counts the calls that have begun to wait for another one."""

    def __init__(self) -> None:
        super().__init__()
        self._waits = 0
        self._began = threading.Condition()

    def error_of(self, call, wait_s):
        with self._began:
            self._waits += 1
            self._began.notify_all()
        return super().error_of(call, wait_s)

    def wait_until_waited_for(self, count: int) -> bool:
        with self._began:
            return self._began.wait_for(lambda: self._waits >= count, 60)


class Site:
    """A hypervisor with Soft-RoCE; our class is registered in its vdsmd."""

    def __init__(self, vdsm, kernel) -> None:
        self.vdsm, self.kernel = vdsm, kernel
        self.root = soft_roce(kernel.root)
        self.root.modules(loaded=("rpcrdma",))
        for server in (NAS, NAS6):
            source = "fd00::2" if ":" in server else "10.0.0.2"
            self.root.route(server, "eth0", source)
        self.network = FakeNetwork()
        self.network.rdma = {(NAS, 20049): READY, (NAS6, 20049): READY}
        self.network.tcp = {(NAS, 2049), (NAS, 111), (NAS6, 2049)}
        self.now = 0.0
        self.policy = Policy()
        self.uptime = 3600.0
        self.marks_file = under(kernel.root, DEGRADED_JSON)
        under(kernel.root, RUN_MOUNTS).mkdir(parents=True)
        self.stock = vdsm.storage_server.NFSConnection
        self.start_vdsmd()

    def start_vdsmd(self) -> None:
        """Start vdsmd, or restart it: only its files remain."""
        self.calls = CountedWaits()
        surroundings = ProbeContext(
            self.root.reader(), self.network, self._sleep, lambda: self.now
        )
        self.shared = Shared(
            surroundings,
            locks=self.calls,
            marks=DegradedMarks(self.marks_file),
        )
        registry = self.vdsm.storage_server.ConnectionFactory.registeredConnectionTypes
        registry["nfs"] = self.stock
        install(load(), self.current, self.shared)

    def current(self) -> Policy:
        return self.policy

    def wait_for_callers(self, count: int) -> None:
        """Return once ``count`` calls are running for one path: one works, the others
        wait for it; 60 s at most.
        """
        assert self.calls.wait_until_waited_for(count - 1)

    def _sleep(self, seconds: float) -> None:
        self.now += seconds
        self.root.uptime(self.now)

    def pass_time(self, seconds: int) -> None:
        """Let the host and its mounts grow older."""
        self.uptime += seconds
        self.root.uptime(self.uptime)
        self.kernel.pass_time(seconds)

    def rule(self, transport: str, **more) -> None:
        rule = NfsRule(1, "storage", more.pop("server", NAS), "*", transport, **more)
        self.policy = Policy(nfs=NfsPolicy((rule,)))

    def connect(self, *exports: str, **keys) -> list[int]:
        """Connect all in one call, as the engine does; return the status of each."""
        keys = {"protocol_version": "4.2", **keys}
        definitions = [
            {"id": str(n), "connection": export, **keys}
            for n, export in enumerate(exports)
        ]
        pairs = self.vdsm.connect(*definitions)
        assert [con.id for con, _ in pairs] == [d["id"] for d in definitions]
        return [status for _, status in pairs]

    def local_path(self, export: str) -> str:
        """Return where VDSM mounts ``export``."""
        return str(self.stock(id="1", export=export)._mountCon._getLocalPath())

    @property
    def options(self) -> list[str]:
        return [call.options for call in self.kernel.mounts]


@pytest.fixture
def site(vdsm, kernel) -> Site:
    return Site(vdsm, kernel)
