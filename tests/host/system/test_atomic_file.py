# SPDX-License-Identifier: GPL-2.0-or-later
import errno
import fcntl
import os
import stat
from pathlib import Path

import pytest
from support.killed import killed_at_each_line

from ovirt_rdma.host.system import files
from ovirt_rdma.host.system.files import (
    NotDurable,
    fix_for,
    remove_unfinished,
    write_atomically,
)


@pytest.fixture(params=[0o022, 0o077])
def umask(request):
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.mark.usefixtures("umask")
def test_the_file_has_the_content_and_the_mode_asked_for(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"a longer text of before")
    write_atomically(path, b"new", 0o644)
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert list(tmp_path.iterdir()) == [path]


def test_a_reader_who_has_the_old_file_open_keeps_it(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with path.open("rb") as reader:
        write_atomically(path, b"new", 0o644)
        assert reader.read() == b"old"


def test_a_symlink_is_replaced_and_its_target_left_alone(tmp_path):
    target, path = tmp_path / "target", tmp_path / "file"
    target.write_bytes(b"old")
    path.symlink_to(target)
    write_atomically(path, b"new", 0o600)
    assert not path.is_symlink()
    assert target.read_bytes() == b"old"


@pytest.mark.parametrize("broken", ["write", "fsync", "replace"])
def test_a_failure_leaves_the_old_file_and_nothing_beside_it(
    tmp_path, monkeypatch, broken
):
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def no_space(*_):
        raise OSError(28, "No space left on device")

    data = b"new"
    if broken == "write":
        data = "not bytes"
    elif broken == "fsync":
        monkeypatch.setattr(os, "fsync", no_space)
    else:
        monkeypatch.setattr(type(path), "replace", no_space)
    with pytest.raises((OSError, TypeError)):
        write_atomically(path, data, 0o644)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_file_is_on_disk_before_its_name_and_the_name_before_the_return(
    tmp_path, monkeypatch
):
    """A power cut after the return must not bring the old file back."""
    path = tmp_path / "file"
    path.write_bytes(b"old")
    synced = []
    fsync = os.fsync

    def recorded(descriptor):
        what = "folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file"
        synced.append((what, path.read_bytes()))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", recorded)
    write_atomically(path, b"new", 0o644)
    assert synced == [("file", b"old"), ("folder", b"new")]


def test_a_folder_that_cannot_be_synced_is_told_from_a_file_that_is_not_written(
    tmp_path, monkeypatch
):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    fsync = os.fsync

    def failing(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EIO, "Input/output error")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(NotDurable) as caught:
        write_atomically(path, b"new", 0o644)
    assert path.read_bytes() == b"new"
    assert caught.value.errno == errno.EIO
    assert caught.value.strerror == (
        "it was replaced, but the earlier one may be back after a power cut: "
        "Input/output error"
    )
    assert list(tmp_path.iterdir()) == [path]


def test_killed_anywhere_the_file_is_whole_and_the_next_write_leaves_nothing_beside_it(
    tmp_path,
):
    path = tmp_path / "file"
    left = set()
    for _ in killed_at_each_line(lambda: write_atomically(path, b"new", 0o600), files):
        assert not path.exists() or path.read_bytes() in (b"old", b"new")
        beside = [entry.name for entry in tmp_path.iterdir() if entry != path]
        left.add(len(beside))
        assert len(beside) <= 1
        write_atomically(path, b"old", 0o600)
        assert list(tmp_path.iterdir()) == [path]
    assert left == {0, 1}, "at some points something was left, at others not"
    assert path.read_bytes() == b"new"


def test_what_is_not_surely_ours_and_left_over_stays(tmp_path):
    path = tmp_path / "file"
    names = [
        "file.ovirt-rdma",
        ".file.abcd1234",
        ".file.20261122",
        ".file.backup.ovirt-rdma",
        ".file.ABCD1234.ovirt-rdma",
        "x.file.abcd1234.ovirt-rdma",
        ".file.abcd1234.ovirt-rdma.conf",
    ]
    for name in names:
        (tmp_path / name).write_text("theirs")
    (tmp_path / ".file.folder12.ovirt-rdma").mkdir()
    (tmp_path / ".file.linked12.ovirt-rdma").symlink_to(tmp_path / names[0])
    os.mkfifo(tmp_path / ".file.apipe123.ovirt-rdma")
    before = set(tmp_path.iterdir())
    write_atomically(path, b"new", 0o644)
    assert set(tmp_path.iterdir()) == before | {path}


def test_what_another_user_left_stays(tmp_path, monkeypatch):
    rest = tmp_path / ".file.abcd1234.ovirt-rdma"
    rest.write_text("half")
    monkeypatch.setattr(os, "geteuid", lambda: rest.stat().st_uid + 1)
    remove_unfinished(tmp_path)
    assert rest.exists()
    monkeypatch.undo()
    remove_unfinished(tmp_path)
    assert not rest.exists()


def test_what_is_being_written_stays(tmp_path, monkeypatch):
    """The writer is another process, or another thread of this one."""
    path = tmp_path / "file"
    fsync = os.fsync
    seen = []

    def meanwhile(descriptor):
        if not seen:
            seen.append(list(tmp_path.glob(".file.*.ovirt-rdma")))
            write_atomically(path, b"the other's", 0o644)
            assert list(tmp_path.glob(".file.*.ovirt-rdma")) == seen[0]
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", meanwhile)
    write_atomically(path, b"new", 0o644)
    assert len(seen[0]) == 1
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("when", ["before the lock", "after it was opened"])
def test_a_write_that_is_taken_for_left_over_begins_again(tmp_path, monkeypatch, when):
    path = tmp_path / "file"
    flock = fcntl.flock
    calls = []

    def raced(descriptor, operation):
        calls.append(descriptor)
        if len(calls) == 1 and when == "before the lock":
            (rest,) = tmp_path.glob(".file.*.ovirt-rdma")
            rest.unlink()
        elif len(calls) == 1:
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", raced)
    write_atomically(path, b"new", 0o644)
    assert path.read_bytes() == b"new"
    assert len(calls) >= 2


def test_where_nothing_can_be_locked_files_are_written_and_nothing_is_removed(
    tmp_path, monkeypatch
):
    """For example NFS without a lock daemon."""
    path, rest = tmp_path / "file", tmp_path / ".file.abcd1234.ovirt-rdma"
    rest.write_text("half")

    def no_locks(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    write_atomically(path, b"new", 0o644)
    assert sorted(tmp_path.iterdir()) == [rest, path]


def test_without_replacing_the_first_file_stays(tmp_path):
    path = tmp_path / "file"
    write_atomically(path, b"first", 0o600, replace=False)
    with pytest.raises(FileExistsError):
        write_atomically(path, b"second", 0o600, replace=False)
    assert path.read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("number", "fix"),
    [
        (errno.EACCES, "run this command as root"),
        (errno.EPERM, "run this command as root"),
        (errno.ENOSPC, "free space on the file system of /var/lib/x"),
        (errno.EDQUOT, "free space on the file system of /var/lib/x"),
        (errno.EROFS, "the file system of /var/lib/x is read-only: make it writable"),
        (errno.EIO, "check the disk of /var/lib/x, which has errors: journalctl -k"),
        (
            errno.ENOTDIR,
            "check /var/lib/x: it must be a folder that root can write to",
        ),
    ],
)
def test_what_to_do_fits_the_error(number, fix):
    assert fix_for(OSError(number, ""), Path("/var/lib/x/file")) == fix


def test_it_is_made_in_the_folder_that_it_ends_in(tmp_path, monkeypatch):
    """With SELinux a new file gets the type of its folder, and a rename keeps it."""
    made = []
    rename = Path.replace

    def noted(path, target):
        made.append(path)
        return rename(path, target)

    monkeypatch.setattr(Path, "replace", noted)
    write_atomically(tmp_path / "file", b"new", 0o644)
    assert [path.parent for path in made] == [tmp_path]
