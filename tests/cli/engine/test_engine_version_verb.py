# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ``version`` on the engine machine, without an engine and without a login."""

from __future__ import annotations

import json
import platform
from importlib import metadata

import pytest

from ovirt_rdma.cli.engine import login
from ovirt_rdma.cli.engine.main import main
from ovirt_rdma.engine_sdk_tools.hosts import deploy_hook
from ovirt_rdma.host import __version__
from ovirt_rdma.host.system.commands import CommandFailed

pytestmark = pytest.mark.engine


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A machine without settings, where these programs answer."""
    monkeypatch.setenv("HOME", str(tmp_path))

    def answers(engine=None, runner=None):
        folder = tmp_path / "bin"
        folder.mkdir()
        for name, text in (("rpm", engine), ("ansible-runner", runner)):
            (folder / name).write_text(
                f"#!/bin/sh\necho {text}\n" if text else "#!/bin/sh\nexit 1\n"
            )
            (folder / name).chmod(0o755)
        monkeypatch.setattr(login, "search_path", lambda: str(folder))
        monkeypatch.setattr(login, "engine_version", lambda: engine)

    return answers


def test_what_is_installed(machine, capsys):
    machine("4.5.7", "2.4.0")
    assert main(["version", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "schema_version": 1,
        "kind": "engine-version",
        "add_on": __version__,
        "engine": "4.5.7",
        "sdk": metadata.version("ovirt-engine-sdk-python"),
        "ansible_runner": "2.4.0",
        "python": platform.python_version(),
    }
    assert main(["version"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [f"ovirt-rdma      {__version__}", "ovirt-engine    4.5.7"]


def test_what_is_not_installed(machine, capsys, monkeypatch):
    machine()
    monkeypatch.setattr(login, "_SDK", "no-such-package")
    assert main(["version"]) == 0
    shown = capsys.readouterr()
    assert shown.out.count("  not found\n") == 3
    assert shown.err == ""


def test_the_engines_version_is_that_of_its_package(monkeypatch):
    asked = []

    def rpm(argv):
        asked.append(argv)
        return "4.5.7"

    monkeypatch.setattr(deploy_hook, "run_command", rpm)
    assert deploy_hook.engine_version() == "4.5.7"
    assert asked[0][-1] == "ovirt-engine"

    def none(argv):
        raise CommandFailed("exit status 1")

    monkeypatch.setattr(deploy_hook, "run_command", none)
    assert deploy_hook.engine_version() is None
