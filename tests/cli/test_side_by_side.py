# SPDX-License-Identifier: GPL-2.0-or-later
"""Two commands on one machine at the same time: neither disturbs the other.

The first one is stopped in the middle, at a program that it runs, until the second one
has ended; so nothing depends on time.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from engine_double import EngineDouble, sample_world
from support.engine.engine_command_line import access
from support.engine.host_deploy import make_collection

from ovirt_rdma.engine_sdk_tools.hosts.ansible_run import search_path

pytestmark = pytest.mark.engine

LIMIT_S = 300
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBlO9k2T9OTp5xF8WmyGmq7cXbyCcGEZc3X5zC0b5nBB"
# Says that it has been started, and is the real program as soon as it may.
GATE = """#!/bin/sh
echo started >{gate}.started
read -r go <{gate}.go
exec {program} "$@"
"""
# The engine's project, with its ansible.cfg, is the first argument.
COMMAND = """
import sys
from ovirt_rdma.cli.engine.main import main
from ovirt_rdma.engine_sdk_tools.deploy_hook import context
check, project = context.check_syntax, sys.argv.pop(1)
context.check_syntax = lambda content, beside: check(content, beside, project)
sys.exit(main())
"""


class Machine:
    """An engine machine with the real Ansible, on which several commands run. ``lint``
    and ``check`` are the arguments of two of them.
    """

    def __init__(self, top: Path, double: EngineDouble) -> None:
        self.top = top
        for name in ("tmp", "project", "gates"):
            (top / name).mkdir()
        (top / "project" / "ansible.cfg").write_text("[defaults]\n")
        (top / "key").touch(0o600)
        (top / "post_tasks.yml").write_text("- name: theirs\n  command: /bin/true\n")
        make_collection(top / "collections")
        self.lint = ("deploy-hook", "lint", "--file", str(top / "post_tasks.yml"))
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
            for part in ("started", "go"):
                os.mkfifo(folder / f"{stops_at}.{part}")
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
        if stops_at:
            assert (folder / f"{stops_at}.started").read_text() == "started\n"
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
    """With the real ansible-playbook: whichever comes first goes on to its end."""
    runs = {"ansible-playbook": machine.lint, "ansible-runner": machine.check}
    (other,) = (words for words in runs.values() if words != runs[program])
    alone = {words: machine.ended(machine.start(*words)) for words in runs.values()}
    assert alone[machine.lint][0] == 0
    first = machine.start(*runs[program], stops_at=program)
    second = machine.ended(machine.start(*other))
    machine.go_on(program)
    assert machine.ended(first)[:2] == alone[runs[program]][:2]
    assert second[:2] == alone[other][:2]
    assert list((machine.top / "tmp").iterdir()) == []
