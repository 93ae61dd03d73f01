# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ``vdsm-tool ovirt-rdma`` with VDSM's vdsm-tool.

With VDSM_SOURCE it is VDSM's own; else a double of what it does with modules
(static/usr/bin/vdsm-tool at fd4b0df20: load_modules, lines 38-90, and main, from 151).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

MODULE = Path(__file__).parents[2] / "rpm/vdsm_tool/ovirt_rdma.py"
SOURCE = os.environ.get("VDSM_SOURCE", "")

_TOOL_INIT = """
class expose:
    def __init__(self, name):
        self.name = name

    def __call__(self, fun):
        fun._vdsm_tool = {"name": self.name}
        return fun


class UsageError(RuntimeError):
    pass
"""
_OTHER = '''
from . import expose


@expose("other")
def other(*args):
    """other
    Another command.
    """
    print("other ran", args)
    return 0
'''
_VDSM_TOOL = """
import getopt, importlib, os, sys, traceback
import vdsm.tool

commands = {}
folder = os.path.dirname(vdsm.tool.__file__)
names = {os.path.splitext(f)[0] for f in os.listdir(folder) if f.endswith(".py")}
for name in sorted(names):
    if name.startswith("_"):
        continue
    try:
        module = importlib.import_module("vdsm.tool." + name)
    except Exception:
        print("syslog:", name, traceback.format_exc().splitlines()[-1])
        continue
    for one in [getattr(module, x) for x in dir(module)]:
        if hasattr(one, "_vdsm_tool"):
            if one._vdsm_tool["name"] in commands:
                print("Warning: ignored")
                continue
            commands[one._vdsm_tool["name"]] = one
opts, args = getopt.getopt(sys.argv[1:], "hl:av", ["help"])
if opts:
    for one in commands.values():
        print("usage:", sys.argv[0], "[options]", one.__doc__.lstrip())
    sys.exit(0)
if not args or args[0] not in commands:
    sys.exit(1)
try:
    sys.exit(commands[args[0]](*args))
except Exception:
    traceback.print_exc()
    sys.exit(1)
"""
_COMMAND = '#!/bin/sh\necho "ran: $*"\nexit 3\n'


class Tool:
    """vdsm-tool with our module, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.modules = folder / "vdsm/tool"
        self.command = folder / "ovirt-rdma-host"
        if SOURCE:
            shutil.copytree(Path(SOURCE, "lib/vdsm/tool"), self.modules)
            text = Path(SOURCE, "static/usr/bin/vdsm-tool").read_text()
            # Debian's syslog is none in a test.
            text = text.replace("syslog.syslog(", "print('syslog:', ")
        else:
            self.modules.mkdir(parents=True)
            (self.modules / "__init__.py").write_text(_TOOL_INIT)
            text = _VDSM_TOOL
        (folder / "vdsm/__init__.py").touch()
        (self.modules / "other.py").write_text(_OTHER)
        (folder / "vdsm-tool").write_text(text)
        self.command.write_text(_COMMAND)
        self.command.chmod(0o755)
        self.write(MODULE.read_text())

    def write(self, text: str) -> None:
        text = text.replace('"/usr/bin/ovirt-rdma-host"', repr(str(self.command)))
        (self.modules / "ovirt_rdma.py").write_text(text)

    def __call__(self, *words: str) -> tuple[int, str, str]:
        done = subprocess.run(
            [sys.executable, "-B", "vdsm-tool", *words],
            cwd=self.folder,
            env={"PYTHONPATH": str(self.folder), "PATH": os.environ["PATH"]},
            capture_output=True,
            text=True,
            check=False,
        )
        out = [
            line for line in done.stdout.splitlines() if "ovirt" in line or "r" in line
        ]
        return done.returncode, "\n".join(out), done.stderr


@pytest.fixture
def tool(tmp_path: Path) -> Tool:
    return Tool(tmp_path)


def test_words_and_exit_code_are_passed_on(tool):
    code, out, err = tool("ovirt-rdma", "status", "-o", "json")
    assert (code, err) == (3, "")
    assert out.splitlines()[-1] == "ran: status -o json"


def test_without_a_verb(tool):
    code, out, _ = tool("ovirt-rdma")
    assert (code, out.splitlines()[-1]) == (3, "ran: ")


def test_help_shows_it(tool):
    code, out, err = tool("--help")
    assert (code, err) == (0, "")
    assert "ovirt-rdma [VERB ...]" in out
    assert "other" in out


def test_command_missing(tool):
    tool.command.unlink()
    code, _, err = tool("ovirt-rdma", "status")
    assert code == 1
    assert err == (
        f"{tool.command} cannot be run: No such file or directory\n"
        "fix: install the package ovirt-rdma-host again\n"
    )


@pytest.mark.parametrize(
    "text", ["", "\0" * 200, "def broken(", MODULE.read_text()[:700]]
)
def test_a_damaged_module_harms_nothing_else(tool, text):
    tool.write(text)
    code, out, _ = tool("other")
    assert code == 0
    assert "other ran" in out


def test_a_vdsm_without_expose(tool):
    text = (tool.modules / "__init__.py").read_text()
    (tool.modules / "other.py").unlink()
    if SOURCE:
        shutil.rmtree(tool.modules)
        tool.modules.mkdir()
        tool.write(MODULE.read_text())
    (tool.modules / "__init__.py").write_text(
        text.replace("class expose", "class exposed")
    )
    code, out, _ = tool("ovirt-rdma")
    assert code == 1
    assert "ran:" not in out
