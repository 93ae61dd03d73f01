# SPDX-License-Identifier: GPL-2.0-or-later
"""Test provisioning: the output of apt, the folders, and missing parts."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from lab import cache, provision
from lab.layer import GUEST_PACKAGES, KERNELS, asked_kernel, layer_key
from lab.nfs_server import configuration
from lab.packages import Apt, parse_kernel_headers, parse_kernel_image, parse_simulation
from lab.problem import LabProblem, NotProvisioned

pytestmark = pytest.mark.selftest

INSTALLER = Path(__file__).resolve().parents[2] / "tools/install-debian-packages"


def test_names_and_versions_of_a_simulated_installation() -> None:
    text = (
        "NOTE: This is only a simulation!\n"
        "Inst libc6 (2.36-9+deb12u14 Debian:12.15/oldstable [amd64]) []\n"
        "Inst dmsetup [2:1.0-1] (2:1.02.185-2 Debian:12/stable, Sec:12 [amd64])\n"
        "Inst libfoo:i386 (1.0 Debian:12/stable [i386])\n"
        "Conf libc6 (2.36-9+deb12u14 Debian:12.15/oldstable [amd64])\n"
    )
    assert parse_simulation(text) == {
        "libc6": "2.36-9+deb12u14",
        "dmsetup": "2:1.02.185-2",
        "libfoo": "1.0",
    }


def test_the_kernel_that_the_metapackage_means() -> None:
    text = "Package: linux-image-amd64\nDepends: linux-image-6.1.0-56-amd64 (= 6.1-2)\n"
    assert parse_kernel_image(text, "linux-image-amd64") == "linux-image-6.1.0-56-amd64"
    with pytest.raises(LabProblem, match="linux-image-amd64 depends on no kernel"):
        parse_kernel_image("Package: linux-image-amd64\n", "linux-image-amd64")


def test_the_headers_are_taken_without_the_compiler() -> None:
    text = (
        "Package: linux-headers-6.1.0-56-amd64\n"
        "Depends: linux-headers-6.1.0-56-common (= 6.1-2), linux-kbuild-6.1 (>= 6.1-2),"
        " linux-compiler-gcc-12-x86\n"
        "Description: for linux-headers-9\n"
    )
    wanted = ["linux-headers-6.1.0-56-common", "linux-kbuild-6.1"]
    assert parse_kernel_headers(text) == wanted


def test_a_layer_is_made_again_for_other_packages_or_another_release() -> None:
    key = layer_key("bookworm", "linux", ("a", "b"))
    assert key == layer_key("bookworm", "linux", ("b", "a"))
    others = {
        layer_key("trixie", "linux", ("a", "b")),
        layer_key("bookworm", "linux-2", ("a", "b")),
        layer_key("bookworm", "linux", ("a",)),
    }
    assert len({key, *others}) == 4


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


def test_a_suite_of_its_own_is_asked_for_and_signed_by_debian(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    program(programs, "apt-get", f'printf "%s\\n" "$@" >> {tmp_path}/asked')
    monkeypatch.setenv("PATH", str(programs))
    folder = tmp_path / "apt"
    folder.mkdir()
    assert Apt(folder, "trixie").closure(["nfs-common"]) == {}
    asked = (tmp_path / "asked").read_text().splitlines()
    assert asked.count(f"Dir::Etc::sourcelist={folder}/sources.list") == 2
    assert asked.count("Dir::Etc::sourceparts=/dev/null") == 2
    assert asked.count(f"Dir::State::lists={folder}/lists") == 2
    (line,) = (folder / "sources.list").read_text().splitlines()
    assert "signed-by=/usr/share/keyrings/debian-archive-keyring.gpg" in line
    assert line.endswith(" trixie main")


def test_a_kernel_that_the_lab_has_not_is_one_sentence(
    debian_machine: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("OVIRT_RDMA_LAB_KERNEL", "5.14")
    assert provision.main() == 1
    text = "lab: OVIRT_RDMA_LAB_KERNEL is '5.14'; it can be 6.1 or 6.12\n"
    assert capsys.readouterr().err == text


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


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        ({"OVIRT_RDMA_CACHE": "/a", "XDG_CACHE_HOME": "/b"}, "/a"),
        ({"XDG_CACHE_HOME": "/b"}, "/b/ovirt-rdma"),
        ({"HOME": "/h"}, "/h/.cache/ovirt-rdma"),
    ],
)
def test_where_downloads_are_kept(
    environment: dict[str, str], folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OVIRT_RDMA_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert cache.cache_folder() == Path(folder)


def layer(folder: Path, key: str) -> cache.Provision:
    """Make the parts of a layer that guests need."""
    root = folder / f"layer-{key}"
    made = cache.Provision(key, root, root / "vmlinux", "6.1.0")
    made.modules.mkdir(parents=True)
    made.kernel.touch()
    return made


def test_without_a_home_folder_the_setting_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("OVIRT_RDMA_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 3999999)
    with pytest.raises(NotProvisioned, match=r"user 3999999.*set OVIRT_RDMA_CACHE"):
        cache.provisioned()


def test_what_was_written_down_is_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OVIRT_RDMA_CACHE", str(tmp_path))
    made = layer(tmp_path, cache.wanted_key())
    cache.record(made)
    assert cache.provisioned() == made
    made.kernel.unlink()
    with pytest.raises(NotProvisioned, match="not complete"):
        cache.provisioned()


@pytest.mark.parametrize("text", [None, "", "[]", json.dumps({"key": "k"}), "\0"])
def test_a_record_of_no_use_says_what_to_run(
    text: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OVIRT_RDMA_CACHE", str(tmp_path))
    if text is not None:
        cache.record_of(cache.wanted_key()).write_text(text)
    with pytest.raises(NotProvisioned, match=r"provisioned-\w+.json.*lab.provision"):
        cache.provisioned()


@pytest.fixture
def debian_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Simulate a machine with QEMU and apt for provisioning; return the cache."""
    programs = tmp_path / "bin"
    programs.mkdir()
    debian(programs, uid=1000, installed=" ".join(provision.HOST_PACKAGES))
    program(programs, "dpkg-deb", "exit 1")
    (programs / "bash").symlink_to("/bin/bash")
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setenv("OVIRT_RDMA_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_two_checkouts_keep_their_layers_in_one_cache(
    debian_machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []

    def make(folder: Path, key: str) -> cache.Provision:
        made.append(key)
        return layer(folder, key)

    monkeypatch.setattr(provision, "make_layer", make)
    ours = provision.provision()
    monkeypatch.setattr(cache, "GUEST_PACKAGES", (*GUEST_PACKAGES, "more"))
    with pytest.raises(NotProvisioned):
        cache.provisioned()
    theirs = provision.provision()
    assert ours.key != theirs.key
    assert cache.provisioned() == theirs
    monkeypatch.setattr(cache, "GUEST_PACKAGES", GUEST_PACKAGES)
    assert provision.provision() == cache.provisioned() == ours
    assert made == [ours.key, theirs.key]


def test_a_cache_folder_that_cannot_be_made_is_one_sentence(
    debian_machine: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    debian_machine.write_text("a file")
    monkeypatch.setenv("OVIRT_RDMA_CACHE", f"{debian_machine}/below")
    assert provision.main() == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert f"cannot be kept in {debian_machine}/below (" in line
    assert "set OVIRT_RDMA_CACHE to another folder" in line


def test_a_full_disk_is_said_before_anything_is_fetched(
    debian_machine: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Usage:
        free = 12 << 20

    monkeypatch.setattr("shutil.disk_usage", lambda _: Usage)
    assert provision.main() == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert f"MB in {debian_machine}, and 12 MB are free" in line
    assert "OVIRT_RDMA_CACHE" in line


def test_the_listener_is_in_the_servers_configuration_only_if_wanted() -> None:
    assert "rdma=y\nrdma-port=20049\n" in configuration(20049)
    assert "rdma" not in configuration(None)


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
