# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ``status``: what is installed is not taken for what runs."""

from __future__ import annotations

import os
import platform

import pytest
from support.fakes.fake_processes import VDSM, run_process

from ovirt_rdma.host import __version__
from ovirt_rdma.host.daemon.loop import DaemonState, write_daemon
from ovirt_rdma.host.paths import (
    DAEMON_JSON,
    ENABLED,
    LAUNCHER,
    POLICY_COPY,
    POLICY_JSON,
    STARTED,
    STOCK_VDSMD,
    under,
)
from ovirt_rdma.host.services.enablement import marker_text
from ovirt_rdma.host.system.tree import start_of


def write(host, path, text):
    under(host.root, path).parent.mkdir(parents=True, exist_ok=True)
    under(host.root, path).write_text(text)


@pytest.fixture
def vdsmd(host):
    """Let ``script`` run vdsmd, with this note of the launcher, in mode ``mode``."""

    def run(script, note="", mode="vdsmd"):
        run_process(host.root, 700, "/usr/bin/python3", script, user=VDSM)
        ticks = 50 * os.sysconf("SC_CLK_TCK")
        write(host, "/proc/700/stat", f"700 (vdsmd) S {'0 ' * 18}{ticks} 0\n")
        write(host, "/proc/stat", "btime 1700000000\n")
        write(host, STARTED, note)
        if mode:
            write(host, ENABLED, marker_text(mode))

    return run


def daemon(host, version):
    start = start_of(os.getpid())
    under(host.root, DAEMON_JSON).parent.mkdir(parents=True, exist_ok=True)
    write_daemon(host.root, DaemonState(os.getpid(), start, version, None, "", ()))


def document(host):
    return host("status", "-o", "json").document["versions"]


def test_what_is_installed(host):
    write(host, "/proc/sys/kernel/osrelease", "5.14.0-427.el9.x86_64\n")
    found = document(host)
    assert (found["add_on"], found["python"]) == (
        __version__,
        platform.python_version(),
    )
    assert found["kernel"] == "5.14.0-427.el9.x86_64"
    assert (found["vdsmd"], found["daemon"], found["policy"]) == (None, None, None)


def test_what_vdsmd_has_loaded(host, vdsmd):
    vdsmd(LAUNCHER, f"700 launcher {__version__}\n")
    assert document(host)["vdsmd"] == {
        "pid": 700,
        "since": 1700000050,
        "version": __version__,
        "restart_needed": False,
    }
    shown = host("status").out
    assert "of the add-on" not in shown
    assert f"the launcher (process 700), version {__version__}" in shown


def test_an_update_needs_a_restart_of_vdsmd(host, vdsmd):
    vdsmd(LAUNCHER, "700 launcher 0.1.9\n")
    found = document(host)["vdsmd"]
    assert (found["version"], found["restart_needed"]) == ("0.1.9", True)
    assert (
        "vdsmd.service still runs version 0.1.9 of the add-on, and "
        f"{__version__} is installed.\n"
        "fix: systemctl restart vdsmd (running VMs and mounts stay)\n"
    ) in host("status").out


@pytest.mark.parametrize("note", ["", "699 launcher 0.2.0\n", "700 launcher new\n"])
def test_a_version_that_is_unknown_is_not_the_installed_one(host, vdsmd, note):
    vdsmd(LAUNCHER, note)
    found = document(host)["vdsmd"]
    assert (found["version"], found["restart_needed"]) == (None, None)
    assert (
        "Whether vdsmd.service has loaded the installed version of the add-on is "
        "unknown.\nfix: systemctl restart vdsmd"
    ) in host("status").out


@pytest.mark.parametrize(
    ("script", "mode", "needed"),
    [
        (STOCK_VDSMD, None, False),
        (STOCK_VDSMD, "host", False),
        (STOCK_VDSMD, "vdsmd", True),
        (LAUNCHER, "host", True),
        (LAUNCHER, None, True),
    ],
)
def test_vdsmd_may_not_be_the_one_of_the_mode(host, vdsmd, script, mode, needed):
    vdsmd(script, f"700 launcher {__version__}\n", mode)
    found = document(host)["vdsmd"]
    version = "stock" if script == STOCK_VDSMD else __version__
    assert (found["version"], found["restart_needed"]) == (version, needed)


@pytest.mark.parametrize(("mode", "needed"), [("vdsmd", None), ("host", False)])
def test_whether_the_launcher_would_start_stock_again_is_unknown(
    host, vdsmd, mode, needed
):
    vdsmd(STOCK_VDSMD, "700 stock VDSM has changed\n", mode)
    found = document(host)["vdsmd"]
    assert (found["version"], found["restart_needed"]) == ("stock", needed)


def test_what_the_daemon_has_loaded(host):
    daemon(host, __version__)
    found = document(host)["daemon"]
    assert (found["version"], found["restart_needed"]) == (__version__, False)
    daemon(host, "0.1.9")
    assert document(host)["daemon"]["restart_needed"] is True
    assert (
        "ovirt-rdmad.service still runs version 0.1.9 of the add-on, and "
        f"{__version__} is installed.\nfix: systemctl restart ovirt-rdmad\n"
    ) in host("status").out


def test_a_daemon_whose_state_cannot_be_read_is_unknown(host):
    write(host, DAEMON_JSON, "{")
    found = document(host)
    assert found["daemon"]["version"] is found["daemon"]["restart_needed"] is None
    shown = host("status")
    assert "daemon.json" in shown.out + shown.err


def test_the_policy(host):
    write(host, "/p.yaml", "version: 1\n")
    host("policy", "load", str(host.root / "p.yaml"))
    digest = document(host)["policy"]
    assert digest == host("status", "-o", "json").document["policy"]["digest"]
    for path in (POLICY_JSON, POLICY_COPY):
        under(host.root, path).write_text("{")
    assert document(host)["policy"] is None


def test_the_package_is_read_from_its_files(host, vdsmd, monkeypatch):
    """A daemon of an earlier version runs the exporter, and has that in memory."""
    monkeypatch.setattr("ovirt_rdma.host.__version__", "0.1.9")
    vdsmd(LAUNCHER, "700 launcher 0.1.9\n")
    found = document(host)
    assert found["add_on"] == __version__
    assert found["vdsmd"]["restart_needed"] is True


def test_a_package_that_cannot_be_read_is_unknown(host, vdsmd, monkeypatch):
    monkeypatch.setattr(
        "ovirt_rdma.host.daemon.versions.installed_version", lambda: None
    )
    vdsmd(LAUNCHER, f"700 launcher {__version__}\n")
    found = document(host)
    assert found["add_on"] is found["vdsmd"]["restart_needed"] is None
    said = "the version of the installed package cannot be read"
    assert said in host("status").err
