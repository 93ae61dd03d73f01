# SPDX-License-Identifier: GPL-2.0-or-later
"""The engine's post-tasks file on disk: atomic, locked, with its attributes."""

from __future__ import annotations

import errno
import os
import stat

import pytest

from ovirt_rdma.engine_sdk_tools.hosts import deploy_hook
from ovirt_rdma.engine_sdk_tools.hosts.deploy_hook import (
    PostTasksFile,
    PostTasksProblem,
)
from ovirt_rdma.host.system import files
from ovirt_rdma.host.system.lock import LockHeld

pytestmark = pytest.mark.hypervisor

OLD, NEW = b"- name: old\n", b"- name: new\n"


@pytest.fixture
def path(tmp_path):
    found = tmp_path / "post.yml"
    found.write_bytes(OLD)
    return found


def file(path):
    return PostTasksFile(str(path))


def names(path):
    return sorted(each.name for each in path.parent.iterdir())


def test_the_old_content_is_kept_beside_it(path):
    found = file(path)
    found.replace(found.read(), NEW)
    assert path.read_bytes() == NEW
    assert found.backup.read_bytes() == OLD
    assert names(path) == ["post.yml", "post.yml.before-ovirt-rdma"]


def test_mode_owner_and_attributes_stay(path):
    path.chmod(0o640)
    owned = os.geteuid() == 0
    if owned:
        os.chown(path, 108, 109)
    try:
        os.setxattr(path, "user.test", b"label")
        labelled = True
    except OSError:
        labelled = False
    found = file(path)
    found.replace(OLD, NEW)
    for each in (path, found.backup):
        status = each.stat()
        assert stat.S_IMODE(status.st_mode) == 0o640
        if owned:
            assert (status.st_uid, status.st_gid) == (108, 109)
        if labelled:
            assert os.getxattr(each, "user.test") == b"label"


def test_a_link_stays_a_link(path, tmp_path):
    link = tmp_path / "etc" / "link.yml"
    link.parent.mkdir()
    link.symlink_to(path)
    found = file(link)
    found.replace(found.read(), NEW)
    assert link.is_symlink()
    assert path.read_bytes() == NEW


def test_a_missing_file_is_made_and_deleted(tmp_path):
    found = file(tmp_path / "new.yml")
    assert found.read() is None
    earlier = os.umask(0o077)
    try:
        found.replace(None, NEW)
    finally:
        os.umask(earlier)
    # The engine's user has to read it, whatever our umask.
    assert stat.S_IMODE((tmp_path / "new.yml").stat().st_mode) == 0o644
    found.replace(NEW, None)
    assert found.read() is None


def looping_link(tmp_path):
    (tmp_path / "l").symlink_to("m")
    (tmp_path / "m").symlink_to("l")
    return tmp_path / "l"


def masked(tmp_path):
    """Its replacement would be a file in place of the device."""
    (tmp_path / "l").symlink_to("/dev/null")
    return tmp_path / "l"


def folder(tmp_path):
    (tmp_path / "d").mkdir()
    return tmp_path / "d"


def fifo(tmp_path):
    os.mkfifo(tmp_path / "f")
    return tmp_path / "f"


@pytest.mark.parametrize(
    ("make", "id"),
    [
        (looping_link, "post-tasks-not-accessible"),
        (masked, "post-tasks-no-file"),
        (folder, "post-tasks-no-file"),
        (fifo, "post-tasks-no-file"),
        (lambda path: path / "no" / "x.yml", "post-tasks-no-engine"),
    ],
)
def test_what_is_no_file_is_one_sentence(tmp_path, make, id):
    with pytest.raises(PostTasksProblem) as caught:
        file(make(tmp_path)).read()
    assert caught.value.id == id
    assert caught.value.fix


def test_an_editor_that_was_faster_wins(path):
    found = file(path)
    before = found.read()
    path.write_bytes(b"- name: edited\n")
    with pytest.raises(PostTasksProblem, match="somebody else"):
        found.replace(before, NEW)
    assert path.read_bytes() == b"- name: edited\n"


def test_a_large_file_is_refused(path, monkeypatch):
    monkeypatch.setattr(deploy_hook, "_MOST_BYTES", 5)
    with pytest.raises(PostTasksProblem, match="more than"):
        file(path).read()


def test_one_run_at_a_time(path):
    with file(path).locked(), pytest.raises(LockHeld) as caught, file(path).locked():
        pass
    assert caught.value.exit_code == 75


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES])
@pytest.mark.parametrize("step", ["fsync", "setxattr", "fchmod"])
def test_a_failed_write_leaves_the_file_as_it_was(path, monkeypatch, step, number):
    def full(*arguments, **words):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(files.os, step, full)
    if step == "setxattr":
        monkeypatch.setattr(files.os, "listxattr", lambda *a, **k: ["user.x"])
        monkeypatch.setattr(files.os, "getxattr", lambda *a, **k: b"")
    with pytest.raises(PostTasksProblem, match=os.strerror(number)):
        file(path).replace(OLD, NEW)
    monkeypatch.undo()
    assert path.read_bytes() == OLD
    assert names(path) == ["post.yml"]


@pytest.mark.parametrize("after", [NEW, None])
def test_a_change_that_may_not_be_on_disk_is_not_said_to_be_missing(
    path, monkeypatch, after
):
    """R11 of the third review: an error of the last fsync, after the rename."""
    found = file(path)
    found.replace(OLD, OLD)  # its backup is there
    monkeypatch.setattr(files, "remove_unfinished", lambda folder: None)
    real = os.fsync

    def sync(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode) and found.read() != OLD:
            raise OSError(errno.EIO, "Input/output error")
        real(descriptor)

    monkeypatch.setattr(files.os, "fsync", sync)
    with pytest.raises(PostTasksProblem) as caught:
        found.replace(OLD, after)
    assert str(caught.value) == (
        f"cannot write {path}: it was replaced, but the earlier one may be back after "
        "a power cut: Input/output error"
    )
    assert "journalctl -k" in caught.value.fix
    assert (path.read_bytes() if path.exists() else None) == after
