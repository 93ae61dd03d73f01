# SPDX-License-Identifier: GPL-2.0-or-later
"""The modules for the engine's side, with the real Ansible and the engine's double."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from engine_double import EngineDouble, sample_world
from support.engine.conversion_process import EXPORT, PROGRAM, python_path
from support.engine.engine_door import DoubleDoor, serve_hosts

pytestmark = [pytest.mark.engine, pytest.mark.hypervisor]

COLLECTION = Path(__file__).resolve().parents[3] / "host_deploy"
PASSWORD = "not-to-be-seen"


class Engine:
    """The double, and playbooks that run a module for it on this machine."""

    def __init__(self, double: EngineDouble, top: Path) -> None:
        self.double, self.world, self.top = double, double.world, top
        self.command = top / "bin/ovirt-rdma"
        self.command.parent.mkdir()
        (top / "program.py").write_text(PROGRAM)
        words = f"{sys.executable} {top}/program.py {double.url} {top}/states ''"
        self.command.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        self.command.chmod(0o755)
        place = top / "ansible_collections/ovirt_rdma"
        place.mkdir(parents=True)
        (place / "host").symlink_to(COLLECTION)
        self.said = ""

    def run(self, module: str, *words: str, **arguments: Any) -> dict[str, Any]:
        """Run ``ansible-playbook WORDS``; return what the module has returned."""
        user = next(iter(self.world.passwords))
        auth = {"url": self.double.url, "username": user, "password": PASSWORD}
        call = {f"ovirt_rdma.host.{module}": {"auth": auth, **arguments}}
        result = self.top / "result.json"
        keep = {"content": "{{ done | to_json }}", "dest": str(result)}
        play = {
            "hosts": "localhost",
            "gather_facts": False,
            "tasks": [
                {**call, "register": "done", "ignore_errors": True},
                {"ansible.builtin.copy": keep, "check_mode": False},
            ],
        }
        (self.top / "play.yml").write_text(json.dumps([play]))
        programs = os.environ.get(
            "OVIRT_RDMA_TEST_ANSIBLE", sysconfig.get_path("scripts")
        )
        done = subprocess.run(
            [
                *(f"{programs}/ansible-playbook", "-i", "localhost,", "-c", "local"),
                *(str(self.top / "play.yml"), "-vvv", *words),
            ],
            env={
                "PATH": f"{self.command.parent}:/usr/bin:/bin",
                "HOME": str(self.top),
                "LC_ALL": "C.UTF-8",
                "ANSIBLE_COLLECTIONS_PATH": str(self.top),
                "PYTHONPATH": python_path(),
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        self.said = done.stdout
        found: dict[str, Any] = json.loads(result.read_text())
        assert PASSWORD not in done.stdout + result.read_text()
        return found


@pytest.fixture(scope="module")
def engine(tmp_path_factory) -> Iterator[Engine]:
    world = sample_world(hosts=2, domains=("data1",), addon=True)
    world.passwords = dict.fromkeys(world.passwords, PASSWORD)
    with EngineDouble(world) as double:
        serve_hosts(double, DoubleDoor(world))
        yield Engine(double, tmp_path_factory.mktemp("engine"))
        assert double.strict_errors == []


def transports(engine: Engine) -> set[str]:
    return {host.mounts[EXPORT] for host in engine.world.hosts.values()}


def test_check_mode_returns_what_the_run_then_does_once(engine):
    """One after the other: each needs what the one before has left."""
    planned = engine.run("domain_transport", "--check", "--diff", names=["data1"])
    assert (planned["changed"], transports(engine)) == (True, {"tcp"})
    assert "moving host02 to maintenance\n" in planned["diff"]["prepared"]
    posted = [call for call in planned["calls"] if call.get("method") == "POST"]
    assert {call["about"] for call in posted} >= {"host01", "host02"}
    assert any("proto=rdma" in call.get("body", "") for call in planned["calls"])

    done = engine.run("domain_transport", names=["data1"])
    assert (done["changed"], transports(engine)) == (True, {"rdma"})
    assert done["sentence"] == "Domain data1 is converted to RDMA"
    assert {(h["host"], h["outcome"]) for h in done["hosts"]} == {
        ("host01", "converted"),
        ("host02", "converted"),
    }

    for words in ((), ("--check",)):
        again = engine.run("domain_transport", *words, names=["data1"])
        assert (again["changed"], again.get("calls", [])) == (False, [])

    engine.world.host("host02").reachable = False
    found = engine.run("domain_info")
    assert (found["changed"], found["worst"]) == (False, "unknown")
    first, second = found["mounts"]
    assert (first["host"], first["domain"]) == ("host01", "data1")
    assert (first["transport"], first["verdict"]) == ("rdma", "ok")
    assert "as requested by rule" in first["reason"]
    assert (second["host"], second["verdict"]) == ("host02", "unknown")
    (sentence,) = found["attention"]
    assert sentence.startswith("host02: host02.example.com does not answer over SSH")
    assert "; fix: " in sentence
    engine.world.host("host02").reachable = True


def test_a_refusal_is_one_sentence_with_a_fix(engine):
    refused = engine.run(
        "domain_transport", names=["data1"], strategy="offline", state="tcp"
    )
    assert refused["failed"] is True
    assert refused["msg"].startswith("no data domain other than data1 is active: ")
    assert "; fix: use --rolling, or --allow-datacenter-down" in refused["msg"]
    assert "\n" not in refused["msg"]
    assert (refused["id"], refused["exit_code"]) == ("refused", 4)


@pytest.mark.parametrize("module", ["domain_transport", "domain_info"])
def test_a_name_is_never_an_option(engine, module):
    refused = engine.run(module, names=["--allow-none"])
    assert refused["failed"] is True
    assert "--allow-none" in refused["msg"]
    assert "unknown arguments" not in refused["msg"]


def test_without_the_package_that_is_the_sentence(engine):
    engine.command.chmod(0o644)
    try:
        missing = engine.run("domain_info")
    finally:
        engine.command.chmod(0o755)
    assert missing["msg"] == (
        "the command ovirt-rdma is missing; fix: install the package ovirt-rdma-engine "
        "on the host"
    )


@pytest.mark.parametrize(
    ("auth", "variables"),
    [
        (None, {}),
        # As ovirt.ovirt.ovirt_auth returns it.
        (
            {"url": "https://e/ovirt-engine/api", "token": "t", "insecure": True},
            {
                "OVIRT_URL": "https://e/ovirt-engine/api",
                "OVIRT_TOKEN": "t",
                "OVIRT_PASSWORD": "",
            },
        ),
        (
            {"hostname": "e", "username": "u", "password": "p", "ca_file": "/ca"},
            {
                "OVIRT_URL": "e",
                "OVIRT_USERNAME": "u",
                "OVIRT_PASSWORD": "p",
                "OVIRT_TOKEN": "",
                "OVIRT_CAFILE": "/ca",
            },
        ),
    ],
)
def test_the_login_of_the_task_goes_before_that_of_the_environment(
    auth, variables, monkeypatch
):
    place = "ansible_collections.ovirt_rdma.host.plugins.module_utils"
    for name in ("host_command", "engine_command"):
        source = COLLECTION / f"plugins/module_utils/{name}.py"
        spec = importlib.util.spec_from_file_location(f"{place}.{name}", source)
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, f"{place}.{name}", module)
        spec.loader.exec_module(module)
    assert module.environment(auth) == variables
