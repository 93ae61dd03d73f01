# SPDX-License-Identifier: GPL-2.0-or-later
"""Test the launcher ``vdsmd`` without faults, in separate processes."""

from __future__ import annotations

import os
import signal
import time

import pytest
from support.storage.launcher_host import LAUNCHER, Host

import ovirt_rdma.host
from ovirt_rdma.storage.vdsm import connection, launch

pytestmark = pytest.mark.hypervisor

VERSION = f"ovirt-rdma {ovirt_rdma.host.__version__}"


@pytest.fixture
def host(loaded_vdsm, tmp_path):
    made = Host(tmp_path, loaded_vdsm.path)
    yield made
    made.close()


def test_runs_vdsms_main_with_our_class_registered(host):
    ran = host.start()
    assert ran["ran"] == "main"
    assert ran["ours"]
    assert ran["module"] == "ovirt_rdma.storage.vdsm.connection"
    assert host.log == [f"ovirt-rdma: NFS connections are made by {VERSION}"]


def test_children_of_vdsmd_get_the_environment_of_stock(host):
    ran = host.start()
    assert ran["environment"] == host.as_started()
    assert ran["sys.path"][:2] == [str(host.stock.parent)] * 2
    assert not any("launcher" in folder for folder in ran["sys.path"])


def test_a_pythonpath_of_the_admin_is_kept(host):
    whole = host.environment()["PYTHONPATH"] + ":relative/folder:"
    ran = host.start(PYTHONPATH=whole)
    assert ran["ran"] == "main"
    assert ran["environment"]["PYTHONPATH"] == f"{host.stock.parent}:{whole}"


@pytest.mark.parametrize(
    "failure, code",
    [
        ("raise SystemExit(3)", 3),
        ("raise SystemExit", 0),
        ("raise RuntimeError('VDSM failed')", 1),
        ("import signal, os; os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
    ],
)
def test_the_end_of_vdsms_main_is_vdsms_own(host, failure, code):
    host.change_vdsm("vdsmd", f"def main(): {failure}")
    ended, out, err = host.run([str(host.launcher)], host.as_started())
    assert ended == code
    assert out == ""  # no second start
    assert ("VDSM failed" in err) is (code == 1)
    (line,) = host.log
    assert "NFS connections are made by" in line


def test_vdsmd_waits_for_ports_that_are_coming_up(vdsm, tmp_path, monkeypatch):
    taken = []
    monkeypatch.setattr(launch, "_check_enabled", lambda marker: None)
    monkeypatch.setattr(launch, "install", lambda *arguments: taken.append(arguments))
    launch.prepare(str(tmp_path))
    ((_, _, shared),) = taken
    assert shared.surroundings.sleep is time.sleep


def test_the_launcher_is_alone_in_its_folder_and_executable():
    assert [path.name for path in LAUNCHER.parent.iterdir()] == ["vdsmd"]
    assert os.access(LAUNCHER, os.X_OK)


def test_the_shape_check_takes_the_vdsm_under_test(vdsm):
    loaded = connection.load()
    assert loaded.nfs_connection is vdsm.storage_server.NFSConnection
    assert callable(connection.load_main())
