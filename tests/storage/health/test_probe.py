# SPDX-License-Identifier: GPL-2.0-or-later
"""Test the child processes that ask servers, with real ones, also such that hang."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from ovirt_rdma.storage.health import probe
from ovirt_rdma.storage.health.probe import (
    AT_ONCE,
    PROBE_S,
    VDSM_UID,
    Answer,
    Asked,
    Probes,
    comm_of,
    monitored_file,
    read_block,
)

pytestmark = pytest.mark.hypervisor

DOMAIN = "5e2b1f6e-0f7c-4a52-9d0e-3c1d9b8a7f60"
# Long enough for a busy machine, short for those that never answer.
PATIENT_S, SHORT_S = 60.0, 0.3
# Long enough for a child to write the answer to a lookup on a busy machine.
LOOKED_UP_S = 5.0


@pytest.fixture
def fifo(tmp_path) -> Path:
    """A file whose opening never ends."""
    path = tmp_path / "fifo"
    os.mkfifo(path)
    return path


def ask(work, *mountpoints, timeout_s=PATIENT_S):
    return Probes(work).ask([Asked(place) for place in mountpoints], timeout_s)


def children() -> set[int]:
    """Return the children of this process, zombies too."""
    tasks = Path(f"/proc/{os.getpid()}/task").iterdir()
    return {int(p) for t in tasks for p in (t / "children").read_text().split()}


def test_a_name_that_cannot_exist_is_looked_up(tmp_path):
    answer = Probes().ask([Asked(str(tmp_path))], PATIENT_S)[str(tmp_path)]
    assert answer.error is None
    assert answer.seconds is not None
    assert 0.0 <= answer.seconds < PATIENT_S
    assert not answer.late
    assert list(tmp_path.iterdir()) == []


def test_each_question_has_another_name(tmp_path, monkeypatch):
    asked = []

    def lstat(path):
        asked.append(path)
        raise FileNotFoundError

    monkeypatch.setattr(os, "lstat", lstat)
    for _ in range(3):
        list(probe.ask_server(Asked("/mnt/a")))
    assert len(set(asked)) == 3
    for path in asked:
        assert re.fullmatch(r"/mnt/a/\.ovirt-rdma-[0-9a-f]{24}", path)


@pytest.mark.parametrize("name", ["ESTALE", "EIO", "ENOTDIR"])
def test_an_error_of_the_server_has_its_name(monkeypatch, name):
    def lstat(path):
        raise OSError(getattr(errno, name), "no")

    monkeypatch.setattr(os, "lstat", lstat)
    answer = ask(probe.ask_server, "/mnt/a")["/mnt/a"]
    assert (answer.error, answer.late) == (name, False)


def test_a_refusal_may_be_remembered_so_the_server_is_asked_for_its_space(monkeypatch):
    asked = []

    def lstat(path):
        raise PermissionError(13, "no")

    monkeypatch.setattr(os, "lstat", lstat)
    monkeypatch.setattr(os, "statvfs", asked.append)
    (fields,) = probe.ask_server(Asked("/mnt/a", read=True))
    assert asked == ["/mnt/a"]
    assert fields["error"] == "EACCES"
    assert "read_s" not in fields


def test_a_domain_is_read_where_vdsm_reads_it(tmp_path):
    metadata = tmp_path / DOMAIN / "dom_md/metadata"
    metadata.parent.mkdir(parents=True)
    metadata.write_text("CLASS=Data\n")
    for other in ("ids", "leases", "inbox"):
        (metadata.parent / other).write_text("x")
    (tmp_path / "__DIRECT_IO_TEST__").write_text("x")
    assert monitored_file(str(tmp_path)) == str(metadata)
    answer = Probes().ask([Asked(str(tmp_path), read=True)], PATIENT_S)[str(tmp_path)]
    # A file system without O_DIRECT, such as tmpfs of old kernels, says EINVAL.
    assert answer.read_error in (None, "EINVAL")
    assert answer.read_s is not None


def test_nothing_is_read_without_a_domain(tmp_path):
    (tmp_path / "images").mkdir()
    # A link of a guest's making, and a file in place of a folder.
    (tmp_path / DOMAIN).symlink_to("/proc/self")
    assert monitored_file(str(tmp_path)) is None
    assert monitored_file(str(tmp_path / "gone")) is None
    answer = Probes().ask([Asked(str(tmp_path), read=True)], PATIENT_S)[str(tmp_path)]
    assert (answer.read_s, answer.read_error, answer.error) == (None, None, None)


def test_a_block_is_read_without_the_page_cache(tmp_path, monkeypatch):
    file = tmp_path / "f"
    file.write_bytes(b"x" * 8192)
    flags = []
    really = os.open
    monkeypatch.setattr(
        os, "open", lambda path, flag: flags.append(flag) or really(path, os.O_RDONLY)
    )
    read_block(str(file))
    assert flags[0] & os.O_DIRECT
    assert flags[0] & os.O_ACCMODE == os.O_RDONLY


def test_one_that_hangs_is_given_up_and_others_answer(fifo):
    def work(asked):
        if asked.mountpoint == "/hangs":
            fifo.read_text()
        return [{"seconds": 0.25}]

    before = children()
    begun = time.monotonic()
    answers = ask(work, "/a", "/hangs", "/b", timeout_s=SHORT_S)
    assert time.monotonic() - begun >= SHORT_S
    assert answers == {
        "/a": Answer(seconds=0.25),
        "/b": Answer(seconds=0.25),
        "/hangs": Answer(late=True),
    }
    assert children() == before


def test_the_lookup_counts_although_the_read_hangs(fifo):
    def work(asked):
        yield {"seconds": 0.25, "error": None}
        if asked.read:
            yield {"read_late": True}
        yield {"read_s": float(len(fifo.read_text())), "read_late": False}

    before = children()
    answers = Probes(work).ask([Asked("/a", True), Asked("/b")], LOOKED_UP_S)
    assert answers == {
        "/a": Answer(seconds=0.25, read_late=True),
        # No read has begun: that it is slow to end says nothing of the server.
        "/b": Answer(seconds=0.25),
    }
    assert children() == before


def test_half_a_line_is_no_answer(fifo, monkeypatch):
    monkeypatch.setattr(probe, "_write", lambda w, fields: os.write(w, b'{"seco'))

    def work(asked):
        yield {"seconds": 0.25}
        fifo.read_text()

    answers = Probes(work).ask([Asked("/a", True)], SHORT_S)
    assert answers == {"/a": Answer(late=True)}


@pytest.fixture
def signals(monkeypatch):
    """Which signals were ``asked`` for: none is delivered, before ``end(pid)``."""
    asked, really = [], os.kill

    def end(pid):
        really(pid, signal.SIGKILL)
        os.waitpid(pid, 0)

    monkeypatch.setattr(os, "kill", lambda pid, number: asked.append((pid, number)))
    yield SimpleNamespace(asked=asked, end=end)
    for pid in {pid for pid, _ in asked}:
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            end(pid)


def test_one_that_cannot_be_killed_is_left_alone_and_not_asked_again(fifo, signals):
    """A signal is not delivered to a process in uninterruptible wait."""
    asked = signals.asked
    probes = Probes(lambda one: [{"x": fifo.read_text()}])
    first = probes.ask([Asked("/a")], SHORT_S)
    ((pid, number),) = asked
    assert (number, first) == (signal.SIGKILL, {"/a": Answer(late=True)})
    again = probes.ask([Asked("/a")], PATIENT_S)["/a"]
    assert again.late
    assert again.stuck_s is not None
    assert again.stuck_s >= SHORT_S
    assert len(asked) == 1
    # It ends at last: then the mount is asked again.
    signals.end(pid)
    assert probes.ask([Asked("/a")], SHORT_S) == {"/a": Answer(late=True)}
    assert len(asked) == 2


def test_a_read_that_cannot_be_killed_stops_no_lookup(signals):
    def work(asked):
        if os.geteuid() == 0:
            # As on mounts of VDSM.
            os.setuid(VDSM_UID)
        yield {"seconds": 0.25}
        if asked.read:
            yield {"read_late": True}
            signal.pause()

    probes = Probes(work)
    read = [Asked("/a", read=True)]
    first = probes.ask(read, LOOKED_UP_S)
    assert first == {"/a": Answer(seconds=0.25, read_late=True)}
    ((pid, _),) = signals.asked
    again = probes.ask(read, PATIENT_S)["/a"]
    assert (again.seconds, again.late, again.read_late) == (0.25, False, True)
    assert again.stuck_s is not None
    assert again.stuck_s >= LOOKED_UP_S
    # Who asks for the lookup only gets the lookup only.
    assert probes.ask([Asked("/a")], PATIENT_S) == {"/a": Answer(seconds=0.25)}
    # Another process finds the read by its name.
    comm = Path(f"/proc/{pid}/comm").read_text().strip()
    assert comm == comm_of("/a", reads=True)
    signals.end(pid)


def test_one_that_is_stopped_is_given_up(tmp_path):
    def work(asked):
        os.kill(os.getpid(), signal.SIGSTOP)
        return []

    before = children()
    assert ask(work, "/a", timeout_s=SHORT_S) == {"/a": Answer(late=True)}
    assert children() == before


def test_another_process_sees_the_one_that_hangs(tmp_path):
    """nfs health beside the unit asks a mount no second time."""
    proc = tmp_path / "proc"
    (proc / "812").mkdir(parents=True)
    (proc / "812/comm").write_text(f"{comm_of('/mnt/a')}\n")
    tick = os.sysconf("SC_CLK_TCK")
    started = int((time.clock_gettime(time.CLOCK_BOOTTIME) - 30) * tick)
    stat = f"812 ({comm_of('/mnt/a')}) D 1 {' 0' * 17} {started} 0"
    (proc / "812/stat").write_text(stat)
    probes = Probes(lambda asked: [{"seconds": 0.5}], proc=str(proc))
    answers = probes.ask([Asked("/mnt/a"), Asked("/mnt/b")], PATIENT_S)
    assert answers["/mnt/b"] == Answer(seconds=0.5)
    assert answers["/mnt/a"].late
    assert 25 < (answers["/mnt/a"].stuck_s or 0) < 200
    # It ends, and its number is given to another process.
    (proc / "812/comm").write_text("bash\n")
    assert probes.ask([Asked("/mnt/a")], PATIENT_S)["/mnt/a"] == Answer(seconds=0.5)


def test_a_child_has_nothing_of_its_parent(tmp_path):
    note = tmp_path / "note"

    def work(asked):
        inside = Path("/proc/self")
        files = {str(f.readlink()) for f in (inside / "fd").iterdir() if f.exists()}
        note.write_text(
            "\n".join(
                [
                    str(Path.cwd()),
                    str(os.getsid(0) == os.getpid()),
                    (inside / "comm").read_text().strip(),
                    *sorted(f for f in files if not f.startswith(("pipe:", "/proc/"))),
                ]
            )
        )
        return []

    with (tmp_path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ask(work, "/mnt/a")
    assert note.read_text().split("\n") == [
        "/",
        "True",
        comm_of("/mnt/a"),
        "/dev/null",
    ]


def test_a_lock_of_the_parent_ends_while_a_child_hangs(tmp_path):
    """Whoever starts nfs health must not hold a lock by the child that is left."""
    program = """
import fcntl, os, sys, time
from ovirt_rdma.storage.health.probe import Asked, Probes
os.kill = lambda pid, number: None
lock = open(sys.argv[1], "w")
fcntl.flock(lock, fcntl.LOCK_EX)
Probes(lambda asked: time.sleep(60)).ask([Asked("/a")], 0.3)
"""
    path = tmp_path / "lock"
    # Ends at once, although its child has not: the pipes are closed.
    subprocess.run(
        [sys.executable, "-c", program, str(path)],
        check=True,
        capture_output=True,
        timeout=50,
    )
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    for found in Path("/proc").glob("[0-9]*/comm"):
        with contextlib.suppress(OSError):
            if found.read_text().strip() == comm_of("/a"):
                os.kill(int(found.parent.name), signal.SIGKILL)


def test_more_mounts_than_children_at_once():
    places = [f"/mnt/{number}" for number in range(2 * AT_ONCE + 3)]
    answers = ask(lambda asked: [{"seconds": 1.0}], *places)
    assert answers == {place: Answer(seconds=1.0) for place in places}


def test_a_fork_that_fails_is_a_problem(monkeypatch):
    def fork():
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", fork)
    problem = "no process could be started: Resource temporarily unavailable"
    assert ask(probe.ask_server, "/a") == {"/a": Answer(problem=problem)}


@pytest.mark.parametrize(
    "work",
    [
        lambda asked: os._exit(1),
        lambda asked: [],
        lambda asked: os.kill(os.getpid(), signal.SIGSEGV),
    ],
)
def test_a_child_that_ends_without_answer_is_a_problem(work):
    ended = "the process that asked the server ended without answer"
    assert ask(work, "/a") == {"/a": Answer(problem=ended)}


def test_a_child_that_ends_in_the_read_is_a_problem():
    def work(asked):
        yield {"seconds": 0.25}
        yield {"read_late": True}
        os._exit(1)

    ended = "the process that asked the server ended in the read"
    assert ask(work, "/a") == {"/a": Answer(problem=ended)}


def test_a_server_that_is_slow_to_find_the_file_is_not_asked_to_read(
    tmp_path, monkeypatch
):
    def find(mountpoint):
        later = time.monotonic() + PROBE_S / 2
        monkeypatch.setattr(time, "monotonic", lambda: later)
        return str(tmp_path / "metadata")

    monkeypatch.setattr(probe, "monitored_file", find)
    (fields,) = probe.ask_server(Asked(str(tmp_path), read=True))
    assert fields["error"] is None


def test_a_child_that_writes_something_else_is_a_problem():
    wrong = "the process that asked the server wrote no answer"
    work = lambda asked: [{"no such field": 1}]  # noqa: E731
    assert ask(work, "/a") == {"/a": Answer(problem=wrong)}


def test_a_bug_in_the_child_is_a_problem():
    assert ask(lambda asked: 1 / 0, "/a") == {
        "/a": Answer(problem="ZeroDivisionError: division by zero")
    }
