# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ovirt-rdma in its own process, with the engine double in this one.

It can be killed, interrupted or paused at one of its changes, before the engine makes
it or after.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from engine_double import Fault

from ovirt_rdma.cli.engine import session as cli_session
from ovirt_rdma.engine_sdk_tools.conversion.model import StateFolder
from support.engine.engine_command_line import access, run_engine
from support.engine.engine_door import WAY, DoubleDoor, serve_hosts

EXPORT = "nfs1.example.com:/exports/data1"
ROLLING = ("domain", "convert", "data1", "--to", "rdma", "--rolling", "-y")
OFFLINE = ("domain", "convert", "data1", "--to", "rdma", "--allow-datacenter-down")
OFFLINE = (*OFFLINE, "-y")
REVERT = ("domain", "revert", "data1", "-y")
# The command with the hosts of the double, a state folder of the test, and waits that
# take no time.
PROGRAM = """
import signal, sys, time
from pathlib import Path
from support.engine.engine_door import HttpDoor
from ovirt_rdma.cli.engine import session as cli_session
from ovirt_rdma.cli.engine.main import main
from ovirt_rdma.engine_sdk_tools.conversion.model import StateFolder
from ovirt_rdma.engine_sdk_tools.hosts import deploy_hook
signal.signal(signal.SIGINT, signal.default_int_handler)
url, folder, policy, *words = sys.argv[1:]
deploy_hook.policy_of_engine = lambda: {"ovirt_rdma_policy_file": policy}
deploy_hook.read_settings = lambda collection: {}
cli_session.conversion_states = lambda: StateFolder(Path(folder))
brief = lambda seconds: time.sleep(min(seconds, 0.01))
true_session = cli_session.Session
cli_session.Session = lambda settings: true_session(settings, sleep=brief)
raise SystemExit(main(words, HttpDoor(url)))
"""
LIMIT_S = 300


@dataclass(frozen=True)
class Meanwhile(Fault):
    """Calls ``act`` at a change, before it is made or after (``applied``), and gives no
    answer.
    """

    act: Callable[[], None]
    applied: bool = False

    def answer(self):
        self.act()


class Site:
    """The double, its hosts, and the command in its own process or here.

    ``acts`` are the changes so far, of the engine's objects and the hosts' policies.
    ``policy`` is the file for ``hosts prepare``.
    """

    policy: object = ""

    def __init__(self, capsys, double, folder):
        self._capsys = capsys
        self.double, self.world, self.folder = double, double.world, folder
        self.door = DoubleDoor(double.world)
        self.acts: list[str] = []
        self._at: dict[int, Meanwhile] = {}
        self._held: dict[int, Callable[[], None]] = {}
        self._gate = threading.Lock()
        self._spring = double.traps.spring
        double.traps.spring = self._sprung
        serve_hosts(double, self.door)
        self._over_ssh = double.beside[WAY]
        double.beside[WAY] = self._served

    def at(self, number: int, act: Callable[[], None], *, applied: bool) -> None:
        """Call ``act`` at the change of this number, from 0."""
        self._at[number] = Meanwhile(act, applied)

    def here(self, *words):
        """Run the command in this process, as the next run."""
        states = StateFolder(self.folder)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(cli_session, "conversion_states", lambda: states)
            return run_engine(self._capsys, self.double, self.door, *words)

    def start(self, *words) -> subprocess.Popen[str]:
        places = (self.double.url, str(self.folder), str(self.policy))
        command = (sys.executable, "-c", PROGRAM, *places)
        return subprocess.Popen(
            (*command, *words),
            env={**os.environ, **access(self.double), "PYTHONPATH": python_path()},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def ended(self, sign: int, number: int, *words, applied: bool):
        """Run the command until its change ``number``, and send it a signal there;
        return its exit code and output.
        """

        def end() -> None:
            started.wait(LIMIT_S)
            running[0].send_signal(sign)
            if sign == signal.SIGKILL:
                running[0].wait(LIMIT_S)

        self.at(number, end, applied=applied)
        running: list[subprocess.Popen[str]] = []
        started = threading.Event()
        running.append(self.start(*words))
        started.set()
        out, err = running[0].communicate(timeout=LIMIT_S)
        return running[0].returncode, out, err

    def killed(self, number: int, *words, applied: bool) -> None:
        """Run the command until its change ``number``, and kill it there."""
        found = self.ended(signal.SIGKILL, number, *words, applied=applied)
        assert found[0] == -signal.SIGKILL, found
        assert len(self.acts) == number + 1

    @contextlib.contextmanager
    def held(self, number: int, *words, code: int = 0):
        """Hold the command before its change ``number``; in the end it has to return
        ``code``, and the list that is yielded gets what it says.
        """
        reached, go_on = threading.Event(), threading.Event()

        def hold() -> None:
            reached.set()
            go_on.wait(LIMIT_S)

        self._held[number] = hold
        first, said = self.start(*words), []
        try:
            assert reached.wait(LIMIT_S)
            yield said
        finally:
            go_on.set()
            out, err = first.communicate(timeout=LIMIT_S)
            said.append(err)
        assert first.returncode == code, (out, err)

    def count(self, *words) -> int:
        """Return the number of changes that the command makes here."""
        before = len(self.acts)
        done = self.here(*words)
        assert done.code == 0, done
        return len(self.acts) - before

    def is_converted(self) -> None:
        self.is_all("rdma")
        row = self.world.connection_of("data1")
        assert row.mount_options == "proto=rdma,port=20049"

    def is_all(self, transport) -> None:
        """Check that hosts and domain are up and mounted over this transport."""
        self.world.settle()
        for host in self.world.hosts.values():
            assert (host.name, host.status) == (host.name, "up")
            assert host.mounts == {EXPORT: transport}
        assert self.world.domain("data1").status == "active"
        assert self.double.strict_errors == []

    def _sprung(self, method, path):
        if method != "GET" and path.startswith(OBJECTS):
            happens = self._next(f"{method} {path}")
            if happens is not None:
                return happens
        return self._spring(method, path)

    def _served(self, method, target, headers, raw):
        happens = self._next(target) if target == f"{WAY}push_policy" else None
        if happens is None:
            return self._over_ssh(method, target, headers, raw)
        if happens.applied:
            self._over_ssh(method, target, headers, raw)
        return happens.answer()

    def _next(self, what):
        with self._gate:
            number = len(self.acts)
            self.acts.append(what)
            act = self._held.pop(number, None)
        if act is not None:
            act()
        return self._at.pop(number, None)


# The objects that a conversion changes; jobs and events only show it.
OBJECTS = ("/hosts/", "/storageconnections/", "/datacenters/", "/clusters/")


def python_path():
    """Return the import path of this process, which has the double."""
    return os.pathsep.join(path for path in sys.path if path)


# Of two hosts: policy, maintenance and activation each; the storage connection; the
# begin and the end of the cluster's upgrade.
ROLLING_ACTS = 9
