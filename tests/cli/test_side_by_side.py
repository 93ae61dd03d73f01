# SPDX-License-Identifier: GPL-2.0-or-later
"""Two commands on one machine at the same time: neither disturbs the other.

The first one is stopped in the middle, at a program that it runs, until the second one
has ended; so nothing depends on time.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
from engine_double import EngineDouble, sample_world
from support.engine.engine_command_line import Clock, access
from support.engine.engine_door import DoubleDoor
from support.engine.host_deploy import make_collection

from ovirt_rdma.cli.engine import session as cli_session
from ovirt_rdma.cli.engine.main import main
from ovirt_rdma.cli.host import check, runs
from ovirt_rdma.cli.host.main import main as host_main
from ovirt_rdma.engine_sdk_tools.api.session import Session
from ovirt_rdma.engine_sdk_tools.conversion.model import StateFolder
from ovirt_rdma.engine_sdk_tools.hosts import ansible_run, deploy_hook
from ovirt_rdma.engine_sdk_tools.hosts.ansible_run import search_path
from ovirt_rdma.engine_sdk_tools.hosts.deploy_hook import PostTasksFile
from ovirt_rdma.host.collect.collector import HostReader

pytestmark = pytest.mark.engine

LIMIT_S = 300
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBlO9k2T9OTp5xF8WmyGmq7cXbyCcGEZc3X5zC0b5nBB"
# Says that it has been started, and is the real program as soon as it may.
GATE = """#!/bin/sh
touch {gate}.started
read -r go <{gate}.go
exec {program} "$@"
"""
# The engine's project, with its ansible.cfg, is the first argument.
COMMAND = """
import sys
from ovirt_rdma.cli.engine.main import main
from ovirt_rdma.engine_sdk_tools.hosts import deploy_hook
from ovirt_rdma.engine_sdk_tools.hosts.deploy_hook import PostTasksFile
# The user of an engine on this machine may not enter the test's folder.
deploy_hook.ENGINE_USER = "nobody-of-an-engine"
check, project = deploy_hook.check_syntax, sys.argv.pop(1)
deploy_hook.check_syntax = lambda content, beside: check(content, beside, project)
sys.exit(main())
"""


class Machine:
    """An engine machine with the real Ansible, on which several commands run.
    ``status`` and ``check`` are the arguments of two of them.
    """

    def __init__(self, top: Path, double: EngineDouble) -> None:
        self.top = top
        for name in ("tmp", "project", "gates"):
            (top / name).mkdir()
        (top / "project" / "ansible.cfg").write_text("[defaults]\n")
        (top / "key").touch(0o600)
        (top / "post_tasks.yml").write_text("- name: theirs\n  command: /bin/true\n")
        make_collection(top / "collections")
        self.status = ("deploy-hook", "status", "--file", str(top / "post_tasks.yml"))
        self.check = ("hosts", "check", "--ssh-key", str(top / "key"))
        self._environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith("OVIRT_")},
            **access(double),
            "PYTHONPATH": ":".join(filter(None, sys.path)),
            "HOME": str(top),
            "TMPDIR": str(top / "tmp"),
            "OVIRT_RDMA_COLLECTIONS": str(top / "collections"),
        }

    def start(self, *words: str, stops_at: str = "") -> subprocess.Popen[str]:
        """Start a command; with ``stops_at``, return when it has started that program,
        which waits for :meth:`go_on`.
        """
        environment = dict(self._environment)
        if stops_at:
            folder = self.top / "gates"
            os.mkfifo(folder / f"{stops_at}.go")
            real = shutil.which(stops_at, path=search_path())
            (folder / stops_at).write_text(
                GATE.format(gate=folder / stops_at, program=real)
            )
            (folder / stops_at).chmod(0o755)
            environment["PATH"] = f"{folder}:{environment['PATH']}"
        process = subprocess.Popen(
            [sys.executable, "-c", COMMAND, str(self.top / "project"), *words],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        end = time.monotonic() + LIMIT_S
        while stops_at and not (folder / f"{stops_at}.started").exists():
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < end, f"{stops_at} was not started"
            time.sleep(0.02)
        return process

    def go_on(self, stops_at: str) -> None:
        # Open at both ends, so that this waits for nobody.
        gate = os.open(self.top / "gates" / f"{stops_at}.go", os.O_RDWR)
        os.write(gate, b"go\n")

    def ended(self, process: subprocess.Popen[str]) -> tuple[int, str, str]:
        out, err = process.communicate(timeout=LIMIT_S)
        assert "Traceback" not in err
        return process.returncode, out, err


@pytest.fixture
def machine(tmp_path):
    world = sample_world(hosts=1, addon=True)
    for host in world.hosts.values():
        # Nothing listens there.
        host.public_key, host.address = KEY, "127.0.0.2"
    with EngineDouble(world) as double:
        yield Machine(tmp_path, double)


@pytest.mark.parametrize("program", ["ansible-playbook", "ansible-runner"])
def test_a_check_of_the_hook_and_of_hosts(machine, program):
    """With the real ansible-playbook: whichever comes first completes."""
    runs = {"ansible-playbook": machine.status, "ansible-runner": machine.check}
    (other,) = (words for words in runs.values() if words != runs[program])
    alone = {words: machine.ended(machine.start(*words)) for words in runs.values()}
    assert "refuses" not in str(alone[machine.status])
    first = machine.start(*runs[program], stops_at=program)
    second = machine.ended(machine.start(*other))
    machine.go_on(program)
    assert machine.ended(first)[:2] == alone[runs[program]][:2]
    assert second[:2] == alone[other][:2]
    assert list((machine.top / "tmp").iterdir()) == []


ENGINE_VERBS = (
    ("domain", "list"),
    ("domain", "verify", "data1"),
    ("domain", "convert", "data1", "--to", "rdma", "--rolling", "-y"),
    ("domain", "heal", "data1", "-y"),
    ("domain", "revert", "data1", "-y"),
    ("hosts", "list"),
    ("hosts", "check"),
    ("hosts", "prepare", "-y"),
    ("network", "create", "storage2", "--datacenter", "dc1", "--mtu", "2044", "-y"),
    ("policy", "push", "policy.yaml", "--hosts", "host01,host02", "-y"),
    ("policy", "diff", "policy.yaml"),
    ("report", "report.html", "--replace"),
    ("deploy-hook", "install", "--file", "post_tasks.yml"),
    ("deploy-hook", "status", "--file", "post_tasks.yml"),
    ("deploy-hook", "remove", "--file", "post_tasks.yml"),
)
CHANGE_HOSTS = {"convert", "heal", "revert", "prepare"}


class Pausing(DoubleDoor):
    """Hosts whose answers take as long as another command runs."""

    def __init__(self, world, pause):
        super().__init__(world)
        self.pause = pause

    @contextlib.contextmanager
    def _run(self):
        with ansible_run.private_folder() as folder:
            inventory = Path(folder, "inventory")
            inventory.write_text("secret")
            self.pause()
            yield
            assert inventory.read_text() == "secret"

    def reports(self, hosts, done=None):
        with self._run():
            return super().reports(hosts, done)

    def push_policy(self, hosts, text, done=None):
        with self._run():
            return super().push_policy(hosts, text, done)

    def prepare(self, hosts, variables, done=None):
        with self._run():
            return super().prepare(hosts, variables, done)


class Console:
    """Runs verbs of ovirt-rdma in this process; ``within`` runs in the middle of the
    next one, where it has read the engine or its file, or asks hosts.
    """

    def __init__(self, double, top, monkeypatch):
        self.within = []
        self.door = Pausing(double.world, self.pause)
        states = StateFolder(Path(tempfile.mkdtemp(dir=top)))
        monkeypatch.setattr(cli_session, "conversion_states", lambda: states)
        monkeypatch.setattr(tempfile, "tempdir", str(top / "tmp"))
        monkeypatch.setattr(deploy_hook, "check_syntax", lambda *words: self.pause())
        clock = Clock()
        for kind, name in (
            *((Session, "read"), (Session, "close")),
            *((PostTasksFile, "read"), (PostTasksFile, "replace")),
        ):
            monkeypatch.setattr(kind, name, self._after_pause(getattr(kind, name)))
        monkeypatch.setattr(
            cli_session,
            "Session",
            lambda settings: Session(settings, clock=clock, sleep=clock.sleep),
        )
        for name, value in access(double).items():
            monkeypatch.setenv(name, value)

    def _after_pause(self, real):
        def pausing(*words, **more):
            self.pause()
            return real(*words, **more)

        return pausing

    def pause(self):
        if self.within and threading.current_thread() is threading.main_thread():
            self.within.pop()()

    def run(self, words):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(words, self.door)
        shown = f"{words}: {out.getvalue()}{err.getvalue()}"
        assert "Traceback" not in shown
        assert "bug" not in shown
        return int(code), shown


@pytest.mark.parametrize("number", range(len(ENGINE_VERBS)))
def test_each_two_verbs_of_the_engine(tmp_path, monkeypatch, number):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tmp").mkdir()
    (tmp_path / "policy.yaml").write_text("version: 1\n")
    make_collection(tmp_path / "collections")
    monkeypatch.setenv("OVIRT_RDMA_COLLECTIONS", str(tmp_path / "collections"))
    first = ENGINE_VERBS[number]
    for second in ENGINE_VERBS[number:]:
        (tmp_path / "post_tasks.yml").write_text("- name: a\n  command: /bin/true\n")
        world = sample_world(hosts=2, domains=("data1",), addon=True)
        codes: list[tuple[int, str]] = []
        with monkeypatch.context() as patched, EngineDouble(world) as double:
            console = Console(double, tmp_path, patched)

            def between(console=console, words=second, codes=codes):
                codes.append(console.run(words))

            console.within = [between]
            codes.append(console.run(first))
            assert double.strict_errors == []
        assert len(codes) == 2, "the second did not run within the first"
        # Of two that change the same, one may be kept off, and one works.
        busy = [shown for code, shown in codes if code == 75]
        same = {first[:1], second[:1]} == {("deploy-hook",)}
        assert len(busy) <= (same or {first[1], second[1]} <= CHANGE_HOSTS), busy
        for code, shown in codes:
            # Of two that make one network, the engine refuses one.
            refused = code == 1 and "already used" in shown and first == second
            assert refused or code in (0, 3, 4, 75), shown
        assert list((tmp_path / "tmp").iterdir()) == []


HOST_VERBS = (
    ("facts",),
    ("check",),
    ("plan",),
    ("apply",),
    ("revert",),
    ("history",),
    ("status",),
    ("policy", "show"),
    ("policy", "load", "p.yaml"),
    ("enable", "--mode", "host"),
    ("disable",),
    ("nfs", "list"),
)


@pytest.mark.parametrize("first", HOST_VERBS, ids=" ".join)
def test_each_two_verbs_of_the_host(ready, monkeypatch, first):
    """The second runs where the first asks its first tool, or else after it."""

    def run(words):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = int(host_main([*words, "--root", str(ready.root)]))
        shown = f"{words}: {code} {out.getvalue()}{err.getvalue()}"
        assert "Traceback" not in shown
        assert code in (0, 3, 4, 75), shown

    monkeypatch.chdir(ready.root)
    real = ready.fake.run
    within = []

    def pausing(*words, **more):
        if within and threading.current_thread() is threading.main_thread():
            run(within.pop())
        return real(*words, **more)

    monkeypatch.setattr(runs, "TOOLS", pausing)
    monkeypatch.setattr(check, "HostReader", lambda root: HostReader(root, pausing))
    for second in HOST_VERBS[HOST_VERBS.index(first) :]:
        within[:] = [second]
        run(first)
        for words in within:
            run(words)
    within.clear()
    run(("revert",))
    run(("apply",))
    assert ready("plan", "--exit-code").code == 0
