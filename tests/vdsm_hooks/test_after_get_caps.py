# SPDX-License-Identifier: GPL-2.0-or-later
"""Check that after_get_caps only adds NFS_RDMA to the capabilities."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
from support.host.hook_host import ENTRIES, NAME, HookHost

from ovirt_rdma.host.daemon.tasks import text_of_caps
from ovirt_rdma.host.paths import CAPS_JSON, under

pytestmark = pytest.mark.hypervisor

POINT = "after_get_caps"
CAPS = {
    "kvmEnabled": "true",
    "cpuSpeed": 2399.987,
    "big": 2**70,
    "odd": ["\u20ac", "\ud800", "\x00", None, True, {}],
    "additionalFeatures": ["libgfapi_supported", "GLUSTER_SNAPSHOT"],
    "hooks": {POINT: {"50_ovirt_rdma": {"checksum": "ab" * 32}}},
}


@pytest.fixture
def host(host):
    host.only(POINT)
    host.enable("vdsmd")
    host.caps("NFS_RDMA")
    return host


def with_features(*features):
    return {**CAPS, "additionalFeatures": list(features)}


def test_it_is_added_at_the_end_and_all_else_stays(vdsm, host):
    found = vdsm.after_get_caps(CAPS)
    assert found == with_features("libgfapi_supported", "GLUSTER_SNAPSHOT", "NFS_RDMA")
    assert list(found) == list(CAPS)
    assert type(found["cpuSpeed"]) is float


def test_it_is_not_added_again(vdsm, host):
    caps = with_features("NFS_RDMA", "other")
    assert vdsm.after_get_caps(caps) == caps


def test_what_the_unit_writes_is_what_the_hook_reads(vdsm, host):
    host.write(CAPS_JSON, text_of_caps())
    assert vdsm.after_get_caps(with_features()) == with_features("NFS_RDMA")


def test_caps_of_a_real_size(vdsm, host):
    caps = {**CAPS, "vmList": ["x" * 50] * 900}
    found = vdsm.after_get_caps(caps)
    assert found["additionalFeatures"][-1] == "NFS_RDMA"
    assert found["vmList"] == caps["vmList"]


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "{",
        "[]",
        "7",
        '"NFS_RDMA"',
        "[" * 100000,
        '{"schema_version": 2, "additionalFeatures": ["NFS_RDMA"]}',
        '{"additionalFeatures": ["NFS_RDMA"]}',
        '{"schema_version": 1, "additionalFeatures": "NFS_RDMA"}',
        '{"schema_version": 1, "additionalFeatures": [7]}',
        '{"schema_version": 1, "additionalFeatures": []}',
    ],
)
def test_without_a_file_of_our_form_the_caps_stay(vdsm, host, text):
    under(host.root, CAPS_JSON).unlink()
    if text is not None:
        host.write(CAPS_JSON, text)
    assert vdsm.after_get_caps(CAPS) == CAPS


@pytest.mark.parametrize(
    "caps",
    [
        {},
        [],
        None,
        "caps",
        {"additionalFeatures": None},
        {"additionalFeatures": "NFS"},
        {"additionalFeatures": {"a": 1}},
        {"additionalFeatures": ["a", 7]},
    ],
)
def test_odd_caps_stay(vdsm, host, caps):
    assert vdsm.after_get_caps(caps) == caps


def test_without_the_marker(vdsm, host):
    (host.root / "etc/ovirt-rdma/enabled").unlink()
    assert vdsm.after_get_caps(CAPS) == CAPS


def test_it_needs_no_package(vdsm, host):
    shutil.rmtree(host.package.parent)
    assert "NFS_RDMA" in vdsm.after_get_caps(CAPS)["additionalFeatures"]


@pytest.mark.parametrize("text", ["", "{", '{"additionalFeatures": ["a"]', "\udcff"])
def test_a_data_file_that_is_broken_stays_as_it_is(host, tmp_path, text):
    file = tmp_path / "hook.json"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    inode = file.stat().st_ino
    done = call(host, file)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert file.read_bytes() == text.encode("utf-8", "surrogateescape")
    assert file.stat().st_ino == inode


def call(host, file, **how):
    return subprocess.run(
        [host.entry(POINT)],
        env={"_hook_json": str(file)},
        capture_output=True,
        check=False,
        **how,
    )


def test_files_that_never_end_or_never_come_are_given_up(host, tmp_path):
    file = tmp_path / "hook.json"
    file.write_text(json.dumps(CAPS))
    under(host.root, CAPS_JSON).unlink()
    os.mkfifo(under(host.root, CAPS_JSON))
    started = time.monotonic()
    # It is open for writing, so that it is neither empty nor at its end.
    held = os.open(under(host.root, CAPS_JSON), os.O_RDWR)
    assert call(host, file).returncode == 0
    os.close(held)
    under(host.root, CAPS_JSON).unlink()
    under(host.root, CAPS_JSON).symlink_to("/dev/zero")
    assert call(host, file).returncode == 0
    assert time.monotonic() - started < 60
    assert json.loads(file.read_text()) == CAPS


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become the user vdsm")
class TestAsVdsm:
    """The hook runs as uid 36, as VDSM calls it; the data folder is like /tmp."""

    @pytest.fixture
    def folder(self):
        # Not TMPDIR, which other users may have no access to.
        with tempfile.TemporaryDirectory(dir="/tmp") as name:
            Path(name).chmod(0o755)
            data = Path(name) / "tmp"
            data.mkdir()
            data.chmod(0o1777)
            yield Path(name)

    @pytest.fixture
    def host(self, folder):
        if not os.access("/usr/bin/python3", os.X_OK):
            pytest.skip("no /usr/bin/python3, which all users can run")
        host = HookHost(folder / "root")
        # The tests' own Python may be in a folder that only root can read.
        shutil.copy(ENTRIES / POINT / NAME, host.entry(POINT))
        host.enable("vdsmd")
        host.caps("NFS_RDMA")
        return host

    def call(self, host, file):
        os.chown(file, 36, 36)
        file.chmod(0o600)
        return call(host, file, user=36, group=36, extra_groups=[])

    def test_the_file_is_vdsms_afterwards(self, host, folder):
        file = folder / "tmp/hook.json"
        file.write_text(json.dumps(CAPS))
        done = self.call(host, file)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
        assert "NFS_RDMA" in json.loads(file.read_text())["additionalFeatures"]
        assert (file.stat().st_uid, stat.S_IMODE(file.stat().st_mode)) == (36, 0o600)
        assert [entry.name for entry in file.parent.iterdir()] == ["hook.json"]

    def test_a_folder_that_cannot_be_written_to(self, host, folder):
        file = folder / "tmp/hook.json"
        file.write_text(json.dumps(CAPS))
        file.parent.chmod(0o755)
        done = self.call(host, file)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
        assert json.loads(file.read_text()) == CAPS
        assert [entry.name for entry in file.parent.iterdir()] == ["hook.json"]

    def test_our_file_may_be_unreadable(self, host, folder):
        file = folder / "tmp/hook.json"
        file.write_text(json.dumps(CAPS))
        under(host.root, CAPS_JSON).chmod(0o600)
        assert self.call(host, file).returncode == 0
        assert json.loads(file.read_text()) == CAPS
