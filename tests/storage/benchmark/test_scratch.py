# SPDX-License-Identifier: GPL-2.0-or-later
"""Nothing is left behind: after errors, Ctrl-C, SIGKILL, and by the next run."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import signal
import time
from pathlib import Path

import pytest
from support.storage.fake_mount import FakeMount

from ovirt_rdma.host.errors import Problem
from ovirt_rdma.storage.benchmark.scratch import (
    LOCK,
    MOUNT,
    Keeper,
    Scratch,
    end_benchmark,
    engine,
    identity,
)

EXPORT, OPTIONS = "10.0.0.1:/x", "soft,nosharecache,nfsvers=4"
DOMAIN = "c1b2ef3e-0c5e-4f5c-9d3a-6a1b2c3d4e5f"


@pytest.fixture
def mounts(tmp_path):
    return FakeMount(tmp_path)


@pytest.fixture
def scratch(mounts):
    return Scratch(str(mounts.root), mounts, "machine 1")


def _names(folder):
    return sorted(path.name for path in folder.iterdir())


def _in_use(scratch):
    scratch.mount(EXPORT, OPTIONS, over_rdma=True)
    scratch.make(4096)
    Path(scratch.file).write_bytes(b"x" * 4096)


def _is_clean(scratch, mounts):
    run = mounts.root / "run/ovirt-rdma-bench"
    return mounts.is_clean() and _names(run) == ["lock"]


def test_mount_and_folder_are_removed_at_the_end(scratch, mounts):
    with scratch.only_run():
        _in_use(scratch)
        assert scratch.is_mounted()
        assert _names(mounts.server) == [scratch.name]
    assert _is_clean(scratch, mounts)
    assert mounts.commands[0] == (
        f"mount.nfs {EXPORT} {scratch.mountpoint} -o {OPTIONS}"
    )


@pytest.mark.parametrize(
    "error", [Problem("p", "the server is gone"), KeyboardInterrupt]
)
def test_they_are_removed_after_an_error(scratch, mounts, error):
    with pytest.raises((Problem, KeyboardInterrupt)), scratch.only_run():
        _in_use(scratch)
        raise error
    assert _is_clean(scratch, mounts)


def test_the_files_of_others_stay(scratch, mounts):
    (mounts.server / "data").mkdir()
    other = Scratch(str(mounts.root), mounts, "machine 2").name
    (mounts.server / other).mkdir()
    with scratch.only_run():
        _in_use(scratch)
    assert _names(mounts.server) == sorted([other, "data"])


def test_a_dead_server_is_named_and_unmounted(scratch, mounts):
    mounts.dead, mounts.unmoved = True, 2
    with pytest.raises(Problem) as caught, scratch.only_run():
        mounts.dead = False
        _in_use(scratch)
        mounts.dead = True
        raise Problem("bench-fio-failed", "fio failed", "look at the server")
    first, second = str(caught.value).splitlines()
    assert (caught.value.id, first) == ("bench-fio-failed", "fio failed")
    assert second == (
        f"the folder {scratch.name} stays in the export: no answer within 60 s"
    )
    assert not scratch.is_mounted()
    assert [line.split()[:2] for line in mounts.commands[-3:]] == [
        ["umount", str(scratch.mountpoint)],
        ["umount", "-f"],
        ["umount", "-l"],
    ]


def test_a_mount_that_stays_is_reported_and_tried_again(scratch, mounts):
    mounts.unmoved = 3
    with pytest.raises(Problem) as caught, scratch.only_run():
        _in_use(scratch)
    assert caught.value.id == "bench-not-unmounted"
    assert "umount -l" in caught.value.fix
    mounts.unmoved = 0
    with scratch.only_run():
        pass
    assert _is_clean(scratch, mounts)


def test_the_next_run_removes_what_a_power_cut_left(scratch, mounts):
    # The record and the mount are gone with the boot, the folder is on the server.
    left = mounts.server / scratch.name
    left.mkdir()
    (left / "data").write_text("old")
    with scratch.only_run():
        scratch.mount(EXPORT, OPTIONS, over_rdma=False)
        scratch.make(4096)
        assert [path.stat().st_size for path in left.iterdir()] == [4096]
    assert _is_clean(scratch, mounts)


@pytest.mark.parametrize("what", ["folder", "link", "device", "file", "nothing"])
def test_what_took_the_place_of_the_file_is_not_written_to(scratch, mounts, what):
    """Who may write to the export could have fio, as root, overwrite a disk of it."""
    precious = mounts.root / "sda"
    precious.write_text("precious")
    folder = mounts.server / scratch.name
    with pytest.raises(Problem) as caught, scratch.only_run():
        _in_use(scratch)
        scratch.unmount()
        scratch.mount(EXPORT, OPTIONS, over_rdma=False)
        scratch.hold()
        held = Path(scratch.file)
        (folder / "data").rename(folder / "moved")
        if what == "folder":
            folder.rename(mounts.server / "moved")
            folder.symlink_to(mounts.root)
            precious.rename(mounts.root / "data")
            precious = mounts.root / "data"
        elif what == "link":
            (folder / "data").symlink_to(precious)
        elif what == "device":
            os.mkfifo(folder / "data")
        elif what == "file":
            os.link(precious, folder / "data")
        # What is open stays what it was.
        held.write_text("x")
        scratch.unmount()
        scratch.mount(EXPORT, OPTIONS, over_rdma=False)
        scratch.hold()
    assert caught.value.id == "bench-scratch-replaced"
    assert precious.read_text() == "precious"


def test_the_file_is_made_in_the_folder_of_the_export_only(
    scratch, mounts, monkeypatch
):
    """A link in place of the folder, made between the removal and the new file."""
    (mounts.root / "elsewhere").mkdir()
    make = type(scratch.folder).mkdir

    def mkdir(path, mode=0o777, parents=False, exist_ok=False):
        if path == scratch.folder:
            path.symlink_to(mounts.root / "elsewhere")
        else:
            make(path, mode, parents, exist_ok)

    monkeypatch.setattr(type(scratch.folder), "mkdir", mkdir)
    with pytest.raises(Problem, match="Not a directory"), scratch.only_run():
        scratch.mount(EXPORT, OPTIONS, over_rdma=False)
        scratch.make(4096)
    assert _names(mounts.root / "elsewhere") == []


def test_a_folder_that_somebody_mounted_in_the_export_gets_no_file(
    scratch, mounts, monkeypatch
):
    """fio would measure, and fill, another file system."""
    opened = os.open

    def other(path, flags, *args, **kwargs):
        return opened("/proc" if path == scratch.name else path, flags, *args, **kwargs)

    with pytest.raises(Problem) as caught, scratch.only_run():
        scratch.mount(EXPORT, OPTIONS, over_rdma=False)
        monkeypatch.setattr(os, "open", other)
        scratch.make(4096)
    assert os.strerror(errno.EXDEV) in str(caught.value)


def _until(condition):
    """Wait for another process; the limit only ends a test that has failed."""
    for _ in range(3000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it did not happen within 30 s")


def _child(scratch, mounts):
    """Start a process in which a benchmark is running a program; return both ids."""
    noted = mounts.root / "pid"
    child = _fork(scratch, noted)
    _until(noted.exists)
    return child, int(noted.read_text())


def _fork(scratch, noted):
    """Start the process; the program writes its id to ``noted``."""
    child = os.fork()
    if child == 0:
        try:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            with scratch.only_run():
                _in_use(scratch)
                shell = f"echo $$ > {noted}.new && mv {noted}.new {noted} && sleep 600"
                scratch.fio(["sh", "-c", shell], 600)
        finally:
            os._exit(1)
    return child


def _gone(pid):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        # A zombie of a container's init counts as ended.
        return ") Z " in Path(f"/proc/{pid}/stat").read_text()
    return True


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_nothing_is_left_after_a_kill(scratch, mounts, number):
    child, program = _child(scratch, mounts)
    os.kill(child, number)
    os.waitpid(child, 0)
    _until(lambda: _is_clean(scratch, mounts))
    _until(lambda: _gone(program))
    # The keeper has ended too: the lock is free.
    _until(lambda: _free(scratch))


def test_a_program_that_the_keeper_does_not_know_never_starts(
    scratch, mounts, monkeypatch
):
    pipe, written = os.pipe()

    def killed(keeper, pid):
        os.write(written, b"%d" % pid)
        os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(Keeper, "watch", killed)
    noted = mounts.root / "pid"
    os.waitpid(_fork(scratch, noted), 0)
    program = int(os.read(pipe, 20))
    os.close(pipe)
    os.close(written)
    _until(lambda: _gone(program))
    _until(lambda: _is_clean(scratch, mounts))
    assert not noted.exists()


def _free(scratch):
    try:
        with scratch.only_run():
            return True
    except Problem:
        return False


def test_two_benchmarks_do_not_measure_each_other(scratch, mounts):
    other = Scratch(str(mounts.root), mounts)
    with scratch.only_run(), pytest.raises(Problem) as caught, other.only_run():
        pass
    assert (caught.value.id, caught.value.exit_code) == ("bench-other-run", 75)


def test_a_mount_that_fails_says_what_mount_nfs_meant(scratch, mounts):
    mounts.refusals = {"rdma": "mount.nfs: Connection refused for 10.0.0.1:/x on /m"}
    with pytest.raises(Problem) as caught, scratch.only_run():
        scratch.mount(EXPORT, "proto=rdma", over_rdma=True)
    assert caught.value.id == "bench-mount-failed"
    assert "nothing listens on the port" in str(caught.value)
    assert "rdma=y" in caught.value.fix
    assert _is_clean(scratch, mounts)


def test_a_storage_domain_is_seen(scratch, mounts):
    (mounts.server / DOMAIN / "dom_md").mkdir(parents=True)
    (mounts.server / "c1b2ef3e-0c5e-4f5c-9d3a-6a1b2c3d4e50").mkdir()
    with scratch.only_run():
        scratch.mount(EXPORT, OPTIONS, over_rdma=True)
        assert scratch.domain() == DOMAIN


def test_a_folder_that_cannot_be_read_is_no_domain_and_no_free_export(scratch, mounts):
    (mounts.server / DOMAIN).mkdir()
    # A loop of links answers ELOOP, as a dead server answers EIO.
    (mounts.server / DOMAIN / "dom_md").symlink_to("dom_md")
    with scratch.only_run():
        scratch.mount(EXPORT, OPTIONS, over_rdma=True)
        assert scratch.domain() is None
        mounts.server.rename(mounts.root / "moved")
        with pytest.raises(
            Problem, match="the export cannot be measured: No such file"
        ):
            scratch.domain()
        with pytest.raises(
            Problem, match="the export cannot be measured: No such file"
        ):
            scratch.free_space()
        (mounts.root / "moved").rename(mounts.server)


@pytest.mark.parametrize(
    "command, id, words",
    [
        (["/no/fio"], "bench-fio-missing", "fio cannot be run: "),
        (["sh", "-c", "kill -9 $$"], "bench-fio-incomplete", "signal 9 ended it"),
        (
            [
                "sh",
                "-c",
                "echo 'fio: pid=1, err=28: No space left on device' >&2; exit 1",
            ],
            "bench-fio-failed",
            "No space left on device",
        ),
        (
            ["sh", "-c", "echo 'fio: engine libaio not loadable' >&2; exit 1"],
            "bench-fio-incomplete",
            "engine libaio not loadable",
        ),
    ],
)
def test_a_fio_that_does_not_measure_is_one_sentence(scratch, command, id, words):
    with pytest.raises(Problem) as caught:
        scratch.fio(command, 1)
    assert caught.value.id == id
    assert words in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_a_server_that_is_too_slow_is_named(scratch):
    # A tenth of a second: 60 more are allowed than the run should take.
    with pytest.raises(Problem) as caught:
        scratch.fio(["sleep", "600"], 0.1 - 60)
    assert caught.value.id == "bench-too-slow"
    assert "still running after 0.1 s" in str(caught.value)


def test_fio_without_package_is_named():
    def run(argv, timeout_s):
        from ovirt_rdma.host.system.commands import NotInstalled

        raise NotInstalled("No such file or directory")

    with pytest.raises(Problem) as caught:
        engine(run)
    assert caught.value.fix == "install it: dnf install fio fio-engine-libaio"


def _raising(number):
    def raises(*args, **kwargs):
        raise OSError(number, os.strerror(number))

    return raises


@pytest.mark.parametrize(
    "number, owner, name, fix",
    [
        (errno.EACCES, os, "open", "run this command as root"),
        (errno.EROFS, os, "open", "mount /run writable"),
        (errno.ENOSPC, os, "open", "free space in /run"),
        (errno.ENOLCK, fcntl, "flock", "find out why the kernel has no memory"),
        (errno.ENOSPC, Path, "touch", "free space in /run"),
    ],
)
def test_a_folder_that_cannot_be_used_is_one_sentence(
    scratch, mounts, monkeypatch, number, owner, name, fix
):
    with pytest.raises(Problem) as caught, monkeypatch.context() as patched:
        patched.setattr(owner, name, _raising(number))
        with scratch.only_run():
            scratch.mount(EXPORT, OPTIONS, over_rdma=True)
    assert caught.value.id == "bench-folder-unusable"
    assert os.strerror(number) in str(caught.value)
    assert caught.value.fix.startswith(fix)
    assert mounts.is_clean()


def test_only_root_may_enter_the_folder_whatever_the_umask(scratch, mounts):
    earlier = os.umask(0)
    try:
        with scratch.only_run():
            _in_use(scratch)
            for path in (mounts.root / LOCK[1:]).parent, scratch.folder:
                assert path.stat().st_mode & 0o777 == 0o700
    finally:
        os.umask(earlier)


def test_a_long_table_of_mounts_keeps_nothing_mounted(scratch, mounts):
    with scratch.only_run():
        _in_use(scratch)
        line = f"99 28 0:53 / /{'x' * 4000} rw - tmpfs tmpfs rw\n"
        text = mounts.mountinfo.read_text()
        mounts.mountinfo.write_text(line * 5000 + text)
    assert f" {scratch.mountpoint} " not in mounts.mountinfo.read_text()
    assert _names(mounts.server) == []


def test_a_table_of_mounts_that_cannot_be_read_is_one_sentence(scratch, mounts):
    with pytest.raises(Problem) as caught, scratch.only_run():
        _in_use(scratch)
        mounts.mountinfo.rename(mounts.root / "mountinfo")
    assert caught.value.id == "bench-folder-unusable"
    (mounts.root / "mountinfo").rename(mounts.mountinfo)
    # The record is still there, so the next run removes all.
    end_benchmark(str(mounts.root), mounts)
    assert not scratch.is_mounted()


def test_what_was_killed_is_removed_with_the_package(mounts):
    left = Scratch(str(mounts.root), mounts, identity(str(mounts.root)))
    with contextlib.suppress(KeyboardInterrupt), left.only_run():
        _in_use(left)
        left._keeper.end()
        left._keeper = None
        left.clean = lambda: None  # killed: nothing of it runs
        raise KeyboardInterrupt
    assert left.is_mounted()
    (mounts.server / "disk").write_text("of a virtual machine")
    end_benchmark(str(mounts.root), mounts)
    assert not left.is_mounted()
    assert _names(mounts.server) == ["disk"]


def test_a_benchmark_that_runs_is_ended_with_the_package(scratch, mounts):
    child, program = _child(scratch, mounts)
    end_benchmark(str(mounts.root), mounts)
    os.waitpid(child, 0)
    assert _is_clean(scratch, mounts)
    _until(lambda: _gone(program))


def test_without_a_benchmark_nothing_is_made(mounts):
    end_benchmark(str(mounts.root), mounts)
    assert not (mounts.root / MOUNT[1:]).parent.exists()


def test_no_script_of_the_package_removes_where_exports_are_mounted():
    spec = (Path(__file__).parents[3] / "rpm/ovirt-rdma.spec").read_text()
    removed = re.findall(r"\brm -rf (\S+)", spec)
    assert removed == ["/run/ovirt-rdma"]
    assert not any(f"{MOUNT}/".startswith(f"{one}/") for one in removed)


def test_hosts_have_folders_of_their_own(tmp_path):
    """Copies of one disk have one machine-id."""
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/machine-id").write_text("0123456789abcdef0123456789abcdef\n")
    firmware = tmp_path / "sys/class/dmi/id/product_uuid"
    firmware.parent.mkdir(parents=True)
    found = set()
    for uuid in ("4c4c4544-0000", "4c4c4544-0001"):
        firmware.write_text(f"{uuid}\n")
        found.add(identity(str(tmp_path)))
    assert len(found) == 2
    assert identity(str(tmp_path)) in found
    assert identity(str(tmp_path / "none")) == os.uname().nodename
    names = {Scratch(identity=one).name for one in ("a", "b")}
    assert len(names) == 2
    assert all(name.startswith(".ovirt-rdma-bench-") for name in names)
