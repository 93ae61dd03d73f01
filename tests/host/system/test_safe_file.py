# SPDX-License-Identifier: GPL-2.0-or-later
"""A read of any path ends, and an error says why there is no content."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from support.odd_files import KINDS, bounded, put

from ovirt_rdma.host.system.safe_file import (
    exists,
    names_of_others,
    read_file,
    read_file_of_others,
    read_named,
)


@pytest.fixture
def theirs(tmp_path):
    """A folder that others can write, beside one of ours."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    (tmp_path / "ours").mkdir()
    (tmp_path / "ours/secret").write_text("root's")
    return folder


def descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


def why_not(call, *words):
    with bounded(), pytest.raises(OSError) as caught:
        call(*words)
    return caught.value.strerror


WHY = {
    "pipe": "it is a named pipe, not a regular file",
    "zeros": "it is a device, not a regular file",
    "device": "it is a device, not a regular file",
    "sparse": "it has more than 16777216 bytes",
    "folder": "Is a directory",
    "socket": "it is a socket, not a regular file",
}
WHY_OF_OTHERS = {
    **WHY,
    "zeros": "it is a symbolic link, not a regular file",
    "secret": "it is a symbolic link, not a regular file",
    "sparse": "it has more than 1048576 bytes",
}


@pytest.mark.parametrize("kind", WHY)
def test_what_is_no_file_of_ours_is_refused(tmp_path, kind):
    path = tmp_path / "file"
    put(path, kind)
    assert why_not(read_file, path) == WHY[kind]


@pytest.mark.parametrize("kind", WHY_OF_OTHERS)
def test_what_is_no_file_of_others_is_refused(theirs, kind):
    path = theirs / "file"
    put(path, kind)
    why = why_not(read_file_of_others, str(theirs), str(path))
    assert why == WHY_OF_OTHERS[kind]
    assert exists(str(theirs), str(path))


def test_files_of_the_kernel_have_no_size():
    assert read_file("/proc/self/mountinfo")
    assert Path("/proc/self/mountinfo").stat().st_size == 0
    assert why_not(read_file, "/proc/self/mountinfo", 10) == (
        "it has more than 10 bytes"
    )


def test_exactly_as_much_as_there_may_be(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    assert read_file(path, 10) == read_named(path, 10) == b"0123456789"
    for read in (read_file, read_named):
        assert why_not(read, path, 9) == "it has more than 9 bytes"


def test_a_file_that_is_masked_is_empty(tmp_path):
    path = tmp_path / "90-c.rules"
    path.symlink_to("/dev/null")
    assert read_file(path) == b""


def test_a_lease_of_somebody_elses_is_not_waited_for(theirs):
    path = theirs / "file"
    path.write_text("x")
    holds = (
        "import fcntl,os,signal,sys\n"
        "signal.signal(signal.SIGIO, signal.SIG_IGN)\n"
        f"fd = os.open({str(path)!r}, os.O_RDWR)\n"
        "fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)\n"
        "print('leased', flush=True)\n"
        "sys.stdin.read()\n"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", holds], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert other.stdout.readline() == b"leased\n"
        for call in ((read_file, path), (read_file_of_others, str(theirs), str(path))):
            assert why_not(*call) == "Resource temporarily unavailable"
    finally:
        other.send_signal(signal.SIGKILL)
        other.communicate()


@pytest.mark.parametrize(
    "target", ["{ours}", "../ours", "/etc", "netconf", "/proc/self/root/etc"]
)
def test_no_link_on_the_way_leads_out(theirs, tmp_path, target):
    (theirs / "netconf").symlink_to(target.format(ours=tmp_path / "ours"))
    for path in ("netconf/secret", "netconf/hostname"):
        why = why_not(read_file_of_others, str(theirs), str(theirs / path))
        assert "symbolic link" in why
        assert exists(str(theirs), str(theirs / path))
    why = why_not(names_of_others, str(theirs), str(theirs / "netconf"))
    assert why == "it is a symbolic link, not a folder"


def test_vdsms_own_links_are_followed(theirs):
    """network/netconfpersistence.py creates them with an absolute target."""
    (theirs / "staging/netconf.Xy3/nets").mkdir(parents=True)
    (theirs / "staging/netconf.Xy3/nets/a").write_text("{}")
    link = theirs / "staging/netconf"
    for target in (str(theirs / "staging/netconf.Xy3"), "netconf.Xy3", "./netconf.Xy3"):
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        nets = str(link / "nets")
        assert names_of_others(str(theirs), nets) == ["a"]
        assert read_file_of_others(str(theirs), f"{nets}/a") == b"{}"


def test_what_is_not_there(theirs):
    for path in ("file", "file/below", "folder/file"):
        (theirs / "folder").mkdir(exist_ok=True)
        assert not exists(str(theirs), str(theirs / path))
    assert not exists(str(theirs / "gone"), str(theirs / "gone/file"))


def test_a_folder_of_others_has_a_largest_size(theirs):
    for number in range(5):
        (theirs / f"{number}").touch()
    assert names_of_others(str(theirs), str(theirs), 5) == list("01234")
    why = why_not(names_of_others, str(theirs), str(theirs), 4)
    assert why == "it has more than 4 names"


def test_no_descriptor_stays_open(theirs):
    (theirs / "a").mkdir()
    (theirs / "a/up").symlink_to("../..")
    (theirs / "round").symlink_to("round")
    put(theirs / "a/pipe", "pipe")
    before = descriptors()
    for path in ("a/pipe", "a/up/x", "round/x", "a/none", "a"):
        why_not(read_file_of_others, str(theirs), str(theirs / path))
    assert descriptors() == before


def test_a_pipe_that_a_person_names_is_read(tmp_path):
    reading, writing = os.pipe()
    os.write(writing, b"x" * 10)
    os.close(writing)
    fcntl.fcntl(reading, fcntl.F_SETFD, 0)
    assert read_named(f"/proc/self/fd/{reading}") == b"x" * 10
    os.close(reading)
    assert why_not(read_named, "/dev/zero") == "it is a device, not a regular file"
    assert read_named("/dev/null") == b""


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "deep"])
def test_no_device_pipe_or_socket_is_ever_opened(theirs, monkeypatch, kind):
    """To open one can have an effect: a watchdog is armed, a log is consumed."""
    path = theirs / "file"
    put(path, kind)
    opened, real = set(), os.open

    def spy(name, flags, *more, **keys):
        descriptor = real(name, flags, *more, **keys)
        if not flags & os.O_PATH:
            opened.add(stat.S_IFMT(os.fstat(descriptor).st_mode))
        return descriptor

    monkeypatch.setattr(os, "open", spy)
    calls = [
        (read_file, path),
        (read_file_of_others, str(theirs), str(path)),
    ]
    # Pipes are for what a person names.
    if kind != "pipe":
        calls.append((read_named, path, 1 << 20))
    for call, *words in calls:
        with bounded(), contextlib.suppress(OSError):
            call(*words)
    assert opened <= {stat.S_IFREG}
