# SPDX-License-Identifier: GPL-2.0-or-later
"""Check that errors of the lab end soon and with a sentence; no guest boots here."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Union

import pytest

from lab import topology, vdsm_daemon
from lab.agent_link import AgentLink
from lab.boot.agent import Agent
from lab.cache import Provision, record, wanted_key
from lab.command import Process, Result
from lab.guest import Guest
from lab.problem import GuestDied, LabProblem
from lab.vdsm_daemon import VdsmDaemon

pytestmark = pytest.mark.selftest


class Here(Guest):
    """A guest that is this machine: its agent and its commands run here."""

    def __init__(self) -> None:
        super().__init__("here")
        ours, self.port = socket.socketpair()
        self._link = AgentLink(ours)
        self.agent = Agent(self.port.fileno())
        self.serving = threading.Thread(target=self.agent.serve, daemon=True)
        self.serving.start()


@pytest.fixture
def here() -> Iterator[Here]:
    guest = Here()
    yield guest
    for process in list(guest.agent._running.values()):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    link = guest._link
    assert link is not None
    while link._waiting.keys() - {0}:
        time.sleep(0.02)
    guest.kill()
    guest.serving.join(10)
    guest.port.close()


def test_commands_that_cannot_start_cost_the_agent_nothing(here: Here) -> None:
    here.run("true", check=True)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        with pytest.raises(LabProblem, match="No such file"):
            here.run(["/nowhere/nothing"])
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert here.run("cat", input="still here").stdout == "still here"


class Hypervisor:
    """Has ``vdsmd`` as stand-in; commands really run, on this machine."""

    systemd = False

    def __init__(self, here: Here, vdsmd: str) -> None:
        self._here = here
        self._vdsmd = vdsmd

    def run(self, *_: object, **__: object) -> Result:
        """Install nothing on this machine; return a unit to readers."""
        return Result(0, "[Service]\nExecStart=/usr/libexec/vdsm/vdsmd\n", "", 0.0)

    def start(self, command: Union[str, list[str]], **_: object) -> Process:
        if isinstance(command, str):
            return self._here.start(command)
        return self._here.start(self._vdsmd)


@pytest.fixture
def free_port(monkeypatch: pytest.MonkeyPatch) -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    monkeypatch.setattr(vdsm_daemon, "PORT", port)
    return port


def test_a_stand_in_that_never_listens_is_killed_and_shown(
    here: Here, free_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vdsm_daemon, "START_TIMEOUT", 1.0)
    hypervisor: Any = Hypervisor(here, "echo hangs as $$ >&2; exec sleep 600")
    match = rf"(?s)does not listen on port {free_port} 1 s after.*hangs as \d+"
    with pytest.raises(LabProblem, match=match) as raised:
        VdsmDaemon(hypervisor).start()
    process = str(raised.value).split()[-1]
    assert not Path(f"/proc/{process}").exists()


def test_a_stand_in_that_ends_says_why(here: Here, free_port: int) -> None:
    hypervisor: Any = Hypervisor(here, "echo no such class >&2; exit 1")
    with pytest.raises(LabProblem, match=r"(?s)vdsmd ended.*no such class"):
        VdsmDaemon(hypervisor).start()


class NeverUp(Guest):
    """Takes a minute to boot, unless it is killed."""

    def power_on(self) -> None:
        self.cut = threading.Event()

    def wait_ready(self, timeout: float = 600.0) -> None:
        self.cut.wait(timeout)
        raise GuestDied(f"{self.name} did not boot")

    def kill(self) -> None:
        self.cut.set()


def test_ctrl_c_ends_a_boot_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topology, "Guest", NeverUp)
    started = time.monotonic()
    ctrl_c = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    ctrl_c.start()
    with pytest.raises(KeyboardInterrupt), topology.two_guests():
        pass
    assert time.monotonic() - started < 300


def test_a_guest_that_does_not_boot_ends_the_other_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class OneNeverUp(NeverUp):
        def wait_ready(self, timeout: float = 600.0) -> None:
            super().wait_ready(0 if self.name == "hypervisor" else timeout)

    monkeypatch.setattr(topology, "Guest", OneNeverUp)
    started = time.monotonic()
    with (
        pytest.raises(GuestDied, match="hypervisor did not boot"),
        topology.two_guests(),
    ):
        pass
    assert time.monotonic() - started < 300


def test_a_machine_that_cannot_start_a_guest_says_where_it_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OVIRT_RDMA_CACHE", str(tmp_path))
    layer = tmp_path / "layer"
    made = Provision(wanted_key(), layer, layer / "vmlinux", "6.1.0")
    made.modules.mkdir(parents=True)
    made.kernel.touch()
    record(made)
    guest = Guest("poor")
    with pytest.raises(LabProblem, match=r"poor cannot be started: .*modules.dep") as e:
        guest.power_on()
    assert f"{tmp_path} (OVIRT_RDMA_CACHE)" in str(e.value)
    assert not guest.running
    with pytest.raises(GuestDied, match="poor is off"):
        guest.wait_ready()
