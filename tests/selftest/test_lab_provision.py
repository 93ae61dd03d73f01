# SPDX-License-Identifier: GPL-2.0-or-later
"""Test provisioning: the output of apt, the folders, and missing parts."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from lab import cache
from lab.layer import KERNELS, asked_kernel

pytestmark = pytest.mark.selftest

INSTALLER = Path(__file__).resolve().parents[2] / "tools/install-debian-packages"


def test_each_kernel_has_its_package_and_its_layer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keys = set()
    for wanted, package in {
        "": "linux-image-amd64",
        "6.1": "linux-image-amd64",
        "6.12": "linux-image-6.12-amd64",
    }.items():
        monkeypatch.setenv("OVIRT_RDMA_LAB_KERNEL", wanted)
        assert KERNELS[asked_kernel()] == package
        keys.add(cache.wanted_key())
    assert len(keys) == 2


@pytest.mark.parametrize("asked", ["", "6.12"])
def test_tests_alternate_between_kernels_unless_one_is_asked_for(asked: str) -> None:
    collect = [sys.executable, "-m", "pytest", "--collect-only", "-q", "tests/lab"]
    done = subprocess.run(
        [*collect, "-m", "lab and not faults and not selftest"],
        env={**os.environ, "OVIRT_RDMA_LAB_KERNEL": asked},
        cwd=INSTALLER.parents[1],
        capture_output=True,
        text=True,
        check=True,
    )
    tests = [line for line in done.stdout.splitlines() if "::" in line]
    files: dict[str, set[str]] = {}
    for test in tests:
        kernel = re.search(r"\[(6\.\d+)[]-]", test)
        files.setdefault(test.partition("::")[0], set()).add(
            kernel[1] if kernel else ""
        )
    kinds = [*files.values()]
    if asked:
        assert [kind for kind in kinds if kind != {""}] == []
        return
    assert {"", "6.12"} in kinds
    # What has 6.12 only comes last.
    last = [kind == {"6.12"} for kind in kinds]
    assert any(last)
    assert last == sorted(last)


def run_installer(path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/bash", str(INSTALLER), *words],
        env={"PATH": str(path), "HOME": os.environ.get("HOME", "/")},
        capture_output=True,
        text=True,
        check=False,
    )


def program(folder: Path, name: str, body: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/bash\n{body}\n")
    path.chmod(0o755)


def debian(folder: Path, *, uid: int, installed: str = "") -> None:
    """Make ``folder`` the PATH of a Debian with ``installed``; apt records calls."""
    state = f'[[ " {installed} " == *" ${{@: -1}} "* ]] && echo -n installed || exit 1'
    program(folder, "dpkg-query", state)
    program(folder, "id", f"echo {uid}")
    program(folder, "apt-get", f'echo "$@" >> {folder}/asked')
    program(folder, "env", 'shift; exec "$@"')
    program(folder, "mktemp", f"echo {folder}/log")
    program(folder, "rm", "exit 0")


def test_packages_that_are_there_are_not_mentioned(tmp_path: Path) -> None:
    debian(tmp_path, uid=0, installed="one two")
    done = run_installer(tmp_path, "one", "two")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not (tmp_path / "asked").exists()


def test_missing_packages_are_installed_and_named_with_the_reason(
    tmp_path: Path,
) -> None:
    debian(tmp_path, uid=0, installed="one")
    done = run_installer(tmp_path, "--for", "a good reason", "one", "two")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "Installing for a good reason (apt): two\n"
    asked = (tmp_path / "asked").read_text()
    assert "--no-install-recommends install two" in asked


def test_without_root_and_sudo_the_command_to_run_is_named(tmp_path: Path) -> None:
    debian(tmp_path, uid=1000)
    done = run_installer(tmp_path, "two")
    assert done.returncode == 1
    assert "run as root: apt-get install --no-install-recommends two" in done.stderr


def test_elsewhere_than_on_debian_the_missing_packages_are_named(
    tmp_path: Path,
) -> None:
    done = run_installer(tmp_path, "one", "two")
    assert done.returncode == 1
    assert "lacks: one two; this is not a Debian system" in done.stderr
