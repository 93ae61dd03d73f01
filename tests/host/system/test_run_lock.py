# SPDX-License-Identifier: GPL-2.0-or-later
"""Only one run at a time changes a host; commands that only read never wait."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import threading

import pytest
from support.fakes.fake_enablement import Host

from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.paths import RUN_LOCK, under
from ovirt_rdma.host.services.enablement import read_status
from ovirt_rdma.host.system.lock import LockHeld, holder_of, one_run


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path)


@pytest.mark.parametrize("mode", ["vdsmd", "host"])
@pytest.mark.parametrize("verb", ["enable", "disable"])
def test_a_second_run_is_turned_away_and_changes_nothing(host, verb, mode):
    if verb == "disable":
        host.enable(mode)
    before = host.tree()
    with one_run(host.root, by="apply"), pytest.raises(LockHeld) as caught:
        host.enable(mode) if verb == "enable" else host.disable()
    assert caught.value.exit_code == 75
    assert str(caught.value).startswith(
        "another run of ovirt-rdma-host is changing this host: apply (process "
        f"{os.getpid()}, since 20"
    )
    assert host.tree() == before
    assert (host.enable(mode) if verb == "enable" else host.disable()).steps


def test_what_reads_takes_no_lock(host):
    read_status(host.root)
    assert not under(host.root, RUN_LOCK).exists()
    with one_run(host.root):
        read_status(host.root)


def test_it_waits_as_long_as_it_is_told_to(host):
    held, let_go = threading.Event(), threading.Event()

    def other():
        with one_run(host.root):
            held.set()
            let_go.wait(120)

    thread = threading.Thread(target=other)
    thread.start()
    assert held.wait(120)
    with pytest.raises(LockHeld), one_run(host.root, 0.2):
        pass
    threading.Timer(0.1, let_go.set).start()
    with one_run(host.root, 20):
        assert let_go.is_set()
    thread.join()


def test_a_killed_run_holds_nothing(host):
    child = os.fork()
    if child == 0:
        with one_run(host.root):
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert host.enable().steps


def test_nobody_but_root_can_hold_it(host):
    before = os.umask(0o077)
    try:
        host.enable()
    finally:
        os.umask(before)
    path = under(host.root, RUN_LOCK)
    assert path.stat().st_mode & 0o777 == 0o600
    # The folder has vdsmd's marks of mounts too.
    assert path.parent.stat().st_mode & 0o777 == 0o755


def test_a_lock_that_cannot_be_opened_is_a_sentence(host):
    host.link(RUN_LOCK, "/nowhere")
    with pytest.raises(Problem) as caught:
        host.enable()
    assert f"{under(host.root, RUN_LOCK)} cannot be opened: " in str(caught.value)
    assert caught.value.fix.startswith("remove the symbolic link")
    assert caught.value.exit_code == 1


@pytest.mark.parametrize(
    ("number", "fix"),
    [
        (errno.ENOLCK, "find out why the kernel has no memory for locks"),
        (errno.ENOSPC, "free space on the file system of {folder}"),
        (errno.EIO, "check the disk of {folder}, which has errors: journalctl -k"),
    ],
)
def test_a_lock_that_cannot_be_taken_is_a_sentence(host, monkeypatch, number, fix):
    def fails(descriptor, operation):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", fails)
    with pytest.raises(Problem) as caught:
        host.enable()
    path = under(host.root, RUN_LOCK)
    assert str(caught.value) == (
        f"{path} cannot be locked: {os.strerror(number)}; nothing was changed"
    )
    assert caught.value.fix == fix.format(folder=path.parent)
    assert (caught.value.exit_code, host.tree()) == (1, host.tree())


@pytest.mark.parametrize(
    ("number", "fix"),
    [
        (errno.EROFS, "the file system of {folder} is read-only: make it writable"),
        (errno.ENOSPC, "free space on the file system of {folder}"),
        (errno.EACCES, "run this command as root"),
    ],
)
def test_what_to_do_is_about_what_is_wrong(host, monkeypatch, number, fix):
    really = os.open

    def fails(path, *words, **more):
        if str(path).endswith(RUN_LOCK):
            raise OSError(number, os.strerror(number))
        return really(path, *words, **more)

    monkeypatch.setattr(os, "open", fails)
    with pytest.raises(Problem, match="cannot be opened") as caught:
        host.enable()
    assert caught.value.fix == fix.format(folder=under(host.root, RUN_LOCK).parent)


def test_a_lock_file_that_cannot_be_written_is_no_reason_not_to_go_on(
    host, monkeypatch
):
    def full(*words):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    assert host.enable().steps
    with one_run(host.root):
        assert holder_of(host.root) is None


class TestHolder:
    def test_it_is_told_while_it_holds_the_lock(self, host):
        assert holder_of(host.root) is None
        with one_run(host.root, by="policy load"):
            holder = holder_of(host.root)
            assert (holder.pid, holder.by) == (os.getpid(), "policy load")
            assert str(holder).startswith(f"policy load (process {os.getpid()}, since")
            assert not holder.stopped
        # The text that it has left is ignored.
        assert under(host.root, RUN_LOCK).stat().st_size
        assert holder_of(host.root) is None

    def test_an_earlier_holder_that_still_runs_is_not_taken_for_it(self, host):
        with one_run(host.root, by="apply"):
            noted = under(host.root, RUN_LOCK).read_bytes()
        child = os.fork()
        if child == 0:
            with one_run(host.root, by="revert"):
                under(host.root, RUN_LOCK).write_bytes(noted)
                os.kill(os.getpid(), signal.SIGSTOP)
            os._exit(0)
        os.waitpid(child, os.WUNTRACED)
        try:
            assert holder_of(host.root) is None
            # Also while it has the file open and waits for the lock.
            with under(host.root, RUN_LOCK).open("rb"):
                assert holder_of(host.root) is None
            with pytest.raises(LockHeld), one_run(host.root):
                pass
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)

    def test_one_with_the_same_id_is_not_taken_for_it(self, host):
        with one_run(host.root, by="apply"):
            path = under(host.root, RUN_LOCK)
            noted = json.loads(path.read_bytes())
            path.write_text(json.dumps({**noted, "start": noted["start"] - 1}))
            assert holder_of(host.root) is None
            path.write_text(json.dumps(noted))
            assert holder_of(host.root)

    @pytest.mark.parametrize(
        "text",
        ["", "{", "[]", "1", "{}", '{"pid": -1}', "[" * 999, "\udcff", "9" * 900],
    )
    def test_odd_text_in_the_file_says_nothing(self, host, text):
        with one_run(host.root, by="apply"):
            path = under(host.root, RUN_LOCK)
            path.write_bytes(text.encode("utf-8", "surrogateescape"))
            assert holder_of(host.root) is None
            for key in ("pid", "start", "by", "since"):
                for odd in (None, [], "x" * 99 if key != "by" else 1, 1e99, True):
                    noted = {"pid": os.getpid(), "start": 1, "by": "x", "since": 1}
                    path.write_text(json.dumps({**noted, key: odd}))
                    assert holder_of(host.root) is None

    def test_the_longest_name_of_a_run_fits(self, host):
        with one_run(host.root, by="\u20ac" * 1000):
            assert holder_of(host.root).by.startswith("\u20ac")
