# SPDX-License-Identifier: GPL-2.0-or-later
"""Test the lab's daemonAdapter, and VDSM's own if VDSM_SOURCE is set."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.storage.vdsm_fixtures import loaded_vdsm
from support.storage.vdsm_under_test import VdsmUnderTest

from lab.vdsm_packages import CHECKOUT

pytestmark = pytest.mark.selftest

__all__ = ["loaded_vdsm"]

SOURCE = os.environ.get("VDSM_SOURCE")
ADAPTERS = {"lab": CHECKOUT / "lab/vdsm_host/daemonAdapter"}
if SOURCE:
    ADAPTERS["VDSM"] = Path(SOURCE).resolve() / "init/daemonAdapter"

PROGRAM = f"""#!{sys.executable}
import json, os, sys
umask = os.umask(0)
with open(sys.argv[1], "w") as file:
    json.dump({{"argv": sys.argv, "environment": dict(os.environ), "umask": umask,
        "nice": os.nice(0), "folder": os.getcwd(), "session": os.getsid(0),
        "files": [os.readlink(f"/proc/self/fd/{{n}}") for n in (0, 1, 2)],
        "flags": open("/proc/self/fdinfo/2").read().split()[3]}}, file)
"""
# As with an installed package, without PYTHONPATH.
RUN = """
import runpy, sys
sys.path.insert(0, sys.argv.pop(1))
from vdsm.config import config
config.set("vars", "vdsm_nice", "2")
config.set("vars", "libvirt_env_variable_log_filters", "1:qemu")
sys.argv.pop(0)
sys.exit(runpy.run_path(sys.argv[0], run_name="__main__"))
"""


@dataclass
class Daemon:
    """One daemonAdapter, and a program that it starts."""

    adapter: Path
    vdsm_path: Path
    folder: Path

    def __post_init__(self) -> None:
        self.program = self.folder / "its folder/program"
        self.program.parent.mkdir()
        self.program.write_text(PROGRAM)
        self.program.chmod(0o755)
        self.said = self.folder / "said"

    def run(
        self, *words: str, environment: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", RUN, str(self.vdsm_path), str(self.adapter)]
        path = {"PATH": os.environ["PATH"], "LC_ALL": "POSIX"}
        return subprocess.run(
            [*command, *words],
            env={**path, **(environment or {})},
            cwd=self.folder,
            umask=0o027,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def told(self) -> dict[str, Any]:
        said: dict[str, Any] = json.loads(self.said.read_text())
        return said


@pytest.fixture(params=sorted(ADAPTERS))
def daemon(
    request: pytest.FixtureRequest, loaded_vdsm: VdsmUnderTest, tmp_path: Path
) -> Daemon:
    return Daemon(ADAPTERS[request.param], loaded_vdsm.path, tmp_path)


def test_the_program_gets_its_arguments_and_our_process(daemon: Daemon) -> None:
    options = ["-1", "x", "--syslog", "", "two words"]
    done = daemon.run(str(daemon.program), str(daemon.said), *options)
    assert done.returncode == 0, done.stderr
    told = daemon.told()
    assert told["argv"] == [str(daemon.program), str(daemon.said), *options]
    assert (told["umask"], told["nice"]) == (0o027, min(os.nice(0) + 2, 19))
    assert told["folder"] == str(daemon.folder)
    assert told["session"] == os.getsid(0)


@pytest.mark.parametrize("before", [None, "", "/a:/b"])
def test_the_environment(daemon: Daemon, before: str | None) -> None:
    given = {"KEPT": "1", "LIBVIRT_DEBUG": "4"}
    if before is not None:
        given["PYTHONPATH"] = before
    daemon.run(str(daemon.program), str(daemon.said), environment=given)
    folder = str(daemon.program.parent)
    assert daemon.told()["environment"] == {
        "PATH": os.environ["PATH"],
        "KEPT": "1",
        "LC_ALL": "C.UTF8",
        "LIBVIRT_DEBUG": "",
        "LIBVIRT_LOG_FILTERS": "1:qemu",
        "LIBVIRT_LOG_OUTPUTS": "",
        "PYTHONPATH": folder if before is None else f"{folder}:{before}",
    }


def test_redirections_append_and_make_files_for_us_alone(daemon: Daemon) -> None:
    files = [daemon.folder / name for name in ("in", "out", "err")]
    for file in files[:2]:
        file.write_text("there\n")
    words = [w for n, file in enumerate(files) for w in (f"-{n}", str(file))]
    done = daemon.run(*words, str(daemon.program), str(daemon.said))
    assert (done.stdout, done.stderr) == ("", "")
    assert daemon.told()["files"] == [str(file) for file in files]
    assert int(daemon.told()["flags"], 8) & os.O_APPEND
    assert files[2].stat().st_mode & 0o777 == 0o600
    assert files[1].read_text() == "there\n"
