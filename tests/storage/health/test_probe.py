# SPDX-License-Identifier: GPL-2.0-or-later
"""Test the child processes that ask servers, with real ones, also such that hang."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import mmap
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from ovirt_rdma.host.paths import VDSM_MOUNTS
from ovirt_rdma.host.system.tree import VDSM_UID
from ovirt_rdma.storage.health import signs
from ovirt_rdma.storage.health.signs import (
    AT_ONCE,
    PROBE_S,
    Answer,
    Probes,
    monitored_file,
    read_block,
)

pytestmark = pytest.mark.hypervisor

DOMAIN = "5e2b1f6e-0f7c-4a52-9d0e-3c1d9b8a7f60"
# Long enough for a busy machine.
PATIENT_S = 60.0
# By a clock that is stopped until the test lets the deadline pass.
SOON_S = 0.01


class Events:
    """Marks that children leave; as a clock, it passes any deadline once there are
    ``wanted`` of them, so that no test depends on the speed of the machine.
    """

    def __init__(self) -> None:
        self.now, self.wanted = 0.0, 1
        # Children share it, whatever user they become.
        self._marks = mmap.mmap(-1, 256)

    def mark(self, number: int = 0) -> None:
        self._marks[number] = 1

    def __call__(self) -> float:
        self.now += sum(self._marks[:]) >= self.wanted
        return self.now


@pytest.fixture
def events() -> Events:
    return Events()


@pytest.fixture(autouse=True)
def records(tmp_path, monkeypatch, request) -> Path:
    """The folder where processes find the children of others."""
    monkeypatch.setattr(signs, "PROBES", str(tmp_path / "run/probes"))
    if "signals" not in request.fixturenames:
        # A child that was killed ends, however busy the machine is.
        monkeypatch.setattr(signs, "_GONE_S", PATIENT_S)
    return tmp_path / "run/probes"


@pytest.fixture
def fifo(tmp_path) -> Path:
    """A file whose opening never ends."""
    path = tmp_path / "fifo"
    os.mkfifo(path)
    return path


@pytest.fixture
def metadata(tmp_path) -> Path:
    """Where a domain has it; its folder is there."""
    path = tmp_path / DOMAIN / "dom_md/metadata"
    path.parent.mkdir(parents=True)
    return path


def ask(work, *mountpoints, **more):
    return Probes(work).ask(mountpoints, timeout_s=PATIENT_S, **more)


def children() -> set[int]:
    """Return the children of this process, zombies too."""
    tasks = Path(f"/proc/{os.getpid()}/task").iterdir()
    return {int(p) for t in tasks for p in (t / "children").read_text().split()}


def test_a_name_that_cannot_exist_is_looked_up(tmp_path):
    answer = Probes().ask([str(tmp_path)], timeout_s=PATIENT_S)[str(tmp_path)]
    assert answer.error is None
    assert answer.seconds is not None
    assert 0.0 <= answer.seconds < PATIENT_S
    assert not answer.late
    assert list(tmp_path.iterdir()) == []


def test_each_question_has_another_name(monkeypatch):
    lstat = Mock(side_effect=FileNotFoundError)
    monkeypatch.setattr(os, "lstat", lstat)
    for _ in range(3):
        list(signs.ask_server("/mnt/a"))
    asked = [call.args[0] for call in lstat.call_args_list]
    assert len(set(asked)) == 3
    for path in asked:
        assert re.fullmatch(r"/mnt/a/\.ovirt-rdma-[0-9a-f]{24}", path)


@pytest.mark.parametrize("name", ["ESTALE", "EIO", "ENOTDIR"])
def test_an_error_of_the_server_has_its_name(monkeypatch, name):
    error = OSError(getattr(errno, name), "no")
    monkeypatch.setattr(os, "lstat", Mock(side_effect=error))
    answer = ask(signs.ask_server, "/mnt/a")["/mnt/a"]
    assert (answer.error, answer.late) == (name, False)


def test_a_refusal_may_be_remembered_so_the_server_is_asked_for_its_space(monkeypatch):
    asked = []
    monkeypatch.setattr(os, "lstat", Mock(side_effect=PermissionError(13, "no")))
    monkeypatch.setattr(os, "statvfs", asked.append)
    (fields,) = signs.ask_server("/mnt/a", read=True)
    assert asked == ["/mnt/a"]
    assert fields["error"] == "EACCES"
    assert "read_s" not in fields


def test_a_domain_is_read_where_vdsm_reads_it(tmp_path, metadata):
    metadata.write_text("CLASS=Data\n")
    for other in ("ids", "leases", "inbox"):
        (metadata.parent / other).write_text("x")
    (tmp_path / "__DIRECT_IO_TEST__").write_text("x")
    assert monitored_file(str(tmp_path)) == str(metadata)
    answer = ask(signs.ask_server, str(tmp_path), read=True)[str(tmp_path)]
    # A file system without O_DIRECT, such as tmpfs of old kernels, says EINVAL.
    assert answer.read_error in (None, "EINVAL")
    assert answer.read_s is not None


def test_nothing_is_read_without_a_domain(tmp_path):
    (tmp_path / "images").mkdir()
    # A link of a guest's making, and a file in place of a folder.
    (tmp_path / DOMAIN).symlink_to("/proc/self")
    assert monitored_file(str(tmp_path)) is None
    assert monitored_file(str(tmp_path / "gone")) is None
    answer = ask(signs.ask_server, str(tmp_path), read=True)[str(tmp_path)]
    assert (answer.read_s, answer.read_error, answer.error) == (None, None, None)


def test_a_link_is_never_read(tmp_path, metadata):
    secret = tmp_path / "secret"
    secret.write_text("x" * 4096)
    metadata.symlink_to(secret)
    assert monitored_file(str(tmp_path)) is None
    # It is put there after the look.
    with pytest.raises(OSError, match="symbolic links"):
        read_block(str(metadata))


@pytest.mark.parametrize(
    ("mountpoint", "user"),
    [
        (f"{VDSM_MOUNTS}/nas:_data", ["groups []", "gid 36", "uid 36"]),
        ("/mnt/a", []),
    ],
)
def test_a_storage_domain_is_asked_as_vdsm(monkeypatch, mountpoint, user):
    """Its server maps root to nobody, and root must touch nothing that VDSM owns."""
    done = []
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    for name in ("groups", "gid", "uid"):
        note = lambda value, name=name: done.append(f"{name} {value}")  # noqa: E731
        monkeypatch.setattr(os, f"set{name}", note)

    def lstat(path):
        done.append("asked")
        raise FileNotFoundError

    monkeypatch.setattr(os, "lstat", lstat)
    list(signs.ask_server(mountpoint))
    assert done == [*user, "asked"]


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


def test_one_that_hangs_is_given_up_and_others_answer(fifo, events):
    events.wanted = 2

    def work(mountpoint, read):
        if mountpoint == "/hangs":
            fifo.read_text()
        yield {"seconds": 0.25}
        events.mark(ord(mountpoint[1]))

    before = children()
    asked = ["/a", "/hangs", "/b"]
    answers = Probes(work, clock=events).ask(asked, timeout_s=SOON_S)
    assert events.now > SOON_S
    assert answers == {
        "/a": Answer(seconds=0.25),
        "/b": Answer(seconds=0.25),
        "/hangs": Answer(late=True),
    }
    assert children() == before


def test_while_servers_answer_there_is_one_child_at_a_time(monkeypatch):
    """Each takes memory; those of mounts that hang are many at a time."""
    monkeypatch.setattr(signs, "_SOUND_S", PATIENT_S)
    alive = mmap.mmap(-1, 2)

    def work(mountpoint, read):
        alive[0] += 1
        alive[1] = max(alive[1], alive[0])
        yield {"seconds": 0.25}
        alive[0] -= 1

    answers = ask(work, *(f"/{n}" for n in range(9)))
    assert set(answers.values()) == {Answer(seconds=0.25)}
    assert (alive[0], alive[1]) == (0, 1)


def test_the_lookup_counts_although_the_read_hangs(fifo, events):
    events.wanted = 2

    def work(mountpoint, read):
        yield {"seconds": 0.25, "error": None}
        if mountpoint == "/a":
            yield {"read_late": True}
        events.mark(ord(mountpoint[1]))
        yield {"read_s": float(len(fifo.read_text())), "read_late": False}

    before = children()
    probes = Probes(work, clock=events)
    answers = probes.ask(["/a", "/b"], read=True, timeout_s=SOON_S)
    assert answers == {
        "/a": Answer(seconds=0.25, read_late=True),
        # No read has begun: that it is slow to end says nothing of the server.
        "/b": Answer(seconds=0.25),
    }
    assert children() == before


def test_half_a_line_is_no_answer(fifo, events, monkeypatch):
    monkeypatch.setattr(signs, "_write", lambda w, fields: os.write(w, b'{"seco'))

    def work(mountpoint, read):
        yield {"seconds": 0.25}
        events.mark()
        fifo.read_text()

    answers = Probes(work, clock=events).ask(["/a"], read=True, timeout_s=SOON_S)
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


def hangs(fifo, events):
    """Return what a child does that never answers."""

    def work(mountpoint, read):
        events.mark()
        yield {"x": fifo.read_text()}

    return work


@pytest.fixture
def hung(fifo, events, signals) -> int:
    """A child that hangs on /mnt/a, and cannot be killed."""
    Probes(hangs(fifo, events), clock=events).ask(["/mnt/a"], timeout_s=SOON_S)
    ((pid, _),) = signals.asked
    return pid


def answers(mountpoint, read):
    return [{"seconds": 0.5}]


def test_one_that_cannot_be_killed_is_left_alone_and_not_asked_again(
    fifo, events, signals, records
):
    """A signal is not delivered to a process in uninterruptible wait."""
    asked = signals.asked
    probes = Probes(hangs(fifo, events), clock=events)
    first = probes.ask(["/a"], timeout_s=SOON_S)
    ((pid, number),) = asked
    assert (number, first) == (signal.SIGKILL, {"/a": Answer(late=True)})
    again = probes.ask(["/a"], timeout_s=SOON_S)["/a"]
    assert again.late
    assert again.stuck_s is not None
    assert again.stuck_s >= 0.0
    assert len(asked) == 1
    # It ends at last: then the mount is asked again.
    signals.end(pid)
    assert probes.ask(["/a"], timeout_s=SOON_S) == {"/a": Answer(late=True)}
    assert len(asked) == 2
    assert [path.name for path in records.iterdir()] == [str(asked[1][0])]


def test_a_read_that_cannot_be_killed_stops_no_lookup(events, signals):
    def work(mountpoint, read):
        if os.geteuid() == 0:
            # As on mounts of VDSM.
            os.setuid(VDSM_UID)
        yield {"seconds": 0.25}
        if read:
            yield {"read_late": True}
            events.mark()
            signal.pause()

    probes = Probes(work, clock=events)
    first = probes.ask(["/a"], read=True, timeout_s=SOON_S)
    assert first == {"/a": Answer(seconds=0.25, read_late=True)}
    ((pid, _),) = signals.asked
    for other in (probes, Probes(work)):
        again = other.ask(["/a"], read=True, timeout_s=PATIENT_S)["/a"]
        assert (again.seconds, again.late, again.read_late) == (0.25, False, True)
        assert again.stuck_s is not None
        # Who asks for the lookup only gets the lookup only.
        assert other.ask(["/a"], timeout_s=PATIENT_S) == {"/a": Answer(seconds=0.25)}
    signals.end(pid)


def test_one_that_is_stopped_is_given_up(events):
    def work(mountpoint, read):
        events.mark()
        os.kill(os.getpid(), signal.SIGSTOP)
        return []

    before = children()
    probes = Probes(work, clock=events)
    assert probes.ask(["/a"], timeout_s=SOON_S) == {"/a": Answer(late=True)}
    assert children() == before


def test_another_process_sees_the_one_that_hangs(hung, signals, records):
    """A mount has one such child, whichever process began first."""
    again = ask(answers, "/mnt/a", "/mnt/b")
    assert again["/mnt/b"] == Answer(seconds=0.5)
    assert again["/mnt/a"].late
    assert again["/mnt/a"].stuck_s is not None
    signals.end(hung)
    assert ask(answers, "/mnt/a")["/mnt/a"] == Answer(seconds=0.5)
    assert not (records / str(hung)).exists()


def test_its_number_is_given_to_another_process(hung, records):
    record = records / str(hung)
    fields = json.loads(record.read_text())
    record.write_text(json.dumps({**fields, "started": fields["started"] - 1}))
    assert ask(answers, "/mnt/a")["/mnt/a"] == Answer(seconds=0.5)


def test_a_process_of_a_user_is_no_child_of_ours():
    """Any user may give a process any name; only root writes the records."""
    taken = "nfshlth67ad0b02"  # what children were called once
    program = f"printf {taken} > /proc/self/comm; echo; read line"
    with subprocess.Popen(
        ["sh", "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as user:
        assert user.stdout is not None
        user.stdout.readline()
        assert ask(answers, "/mnt/a") == {"/mnt/a": Answer(seconds=0.5)}


def test_only_root_can_read_or_write_the_records(hung, records):
    (record,) = records.iterdir()
    modes = [path.stat().st_mode & 0o777 for path in (records, record)]
    assert modes == [0o700, 0o600]


@pytest.mark.parametrize(
    "content",
    [
        "",
        "7",
        "{}",
        '{"mountpoint": [], "reads": 1, "started": "x"}',
        '{"mountpoint": "/mnt/a", "reads": 1}',
    ],
)
def test_a_damaged_record_is_none(records, content):
    records.mkdir(parents=True)
    (records / str(os.getpid())).write_text(content)
    (records / "other").mkdir()
    assert ask(answers, "/mnt/a")["/mnt/a"] == Answer(seconds=0.5)


def test_without_a_place_for_records_a_process_remembers_its_own(
    fifo, events, signals, records
):
    records.parent.mkdir()
    records.write_text("a file in place of the folder")
    probes = Probes(hangs(fifo, events), clock=events)
    assert probes.ask(["/a"], timeout_s=SOON_S) == {"/a": Answer(late=True)}
    assert probes.ask(["/a"], timeout_s=SOON_S)["/a"].stuck_s is not None


def test_a_child_has_nothing_of_its_parent(tmp_path):
    note = tmp_path / "note"

    def work(mountpoint, read):
        inside = Path("/proc/self")
        files = {str(f.readlink()) for f in (inside / "fd").iterdir() if f.exists()}
        note.write_text(
            "\n".join(
                [
                    str(Path.cwd()),
                    str(os.getsid(0) == os.getpid()),
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
        "/dev/null",
    ]


def test_a_lock_of_the_parent_ends_while_a_child_hangs(tmp_path, records):
    """Whoever starts nfs health must not hold a lock by the child that is left."""
    program = """
import fcntl, os, sys, time
from ovirt_rdma.storage.health.signs import Probes
os.kill = lambda pid, number: None
lock = open(sys.argv[1], "w")
fcntl.flock(lock, fcntl.LOCK_EX)
Probes(lambda mountpoint, read: time.sleep(60), sys.argv[2]).ask(["/a"], timeout_s=0.3)
"""
    path = tmp_path / "lock"
    # Ends at once, although its child has not: the pipes are closed.
    subprocess.run(
        [sys.executable, "-c", program, str(path), str(records)],
        check=True,
        capture_output=True,
        timeout=50,
    )
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    (record,) = records.iterdir()
    os.kill(int(record.name), signal.SIGKILL)


def test_more_mounts_than_children_at_once():
    places = [f"/mnt/{number}" for number in range(2 * AT_ONCE + 3)]
    answers = ask(lambda mountpoint, read: [{"seconds": 1.0}], *places)
    assert answers == {place: Answer(seconds=1.0) for place in places}


def test_a_fork_that_fails_is_a_problem(monkeypatch):
    error = BlockingIOError(11, "Resource temporarily unavailable")
    monkeypatch.setattr(os, "fork", Mock(side_effect=error))
    problem = "no process could be started: Resource temporarily unavailable"
    assert ask(signs.ask_server, "/a") == {"/a": Answer(problem=problem)}


def ends_in_the_read(mountpoint, read):
    yield {"seconds": 0.25}
    yield {"read_late": True}
    os._exit(1)


ENDED = "the process that asked the server ended "


@pytest.mark.parametrize(
    ("work", "problem"),
    [
        (lambda mountpoint, read: os._exit(1), f"{ENDED}without answer"),
        (lambda mountpoint, read: [], f"{ENDED}without answer"),
        (
            lambda mountpoint, read: os.kill(os.getpid(), signal.SIGSEGV),
            f"{ENDED}without answer",
        ),
        (ends_in_the_read, f"{ENDED}in the read"),
        (
            lambda mountpoint, read: [{"no such field": 1}],
            "the process that asked the server wrote no answer",
        ),
        (lambda mountpoint, read: 1 / 0, "ZeroDivisionError: division by zero"),
    ],
    ids=["exits", "no answer", "a signal", "in the read", "another answer", "a bug"],
)
def test_what_goes_wrong_in_a_child_is_a_problem(work, problem):
    assert ask(work, "/a") == {"/a": Answer(problem=problem)}


def test_a_server_that_is_slow_to_find_the_file_is_not_asked_to_read(
    tmp_path, monkeypatch
):
    def find(mountpoint):
        later = time.monotonic() + PROBE_S / 2
        monkeypatch.setattr(time, "monotonic", lambda: later)
        return str(tmp_path / "metadata")

    monkeypatch.setattr(signs, "monitored_file", find)
    (fields,) = signs.ask_server(str(tmp_path), read=True)
    assert fields["error"] is None
