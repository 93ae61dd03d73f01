# SPDX-License-Identifier: GPL-2.0-or-later
"""The loop of the daemon: when tasks run, and what those that fail or hang do to it."""

from __future__ import annotations

import errno
import os
import pickle
import signal
import socket
import subprocess
import threading
import time

import pytest

from ovirt_rdma.host.daemon.loop import (
    FAILED,
    GRACE_S,
    HANGS,
    LONGEST_TURN_S,
    OFF,
    OK,
    PROBLEM,
    WAITS,
    Daemon,
    Result,
    Task,
    read_daemon,
    run_once,
    seconds_since_start,
    tell_systemd,
)
from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.paths import DAEMON_JSON, ENABLED, POLICY_JSON, under
from ovirt_rdma.host.policy.model import NfsPolicy, Policy
from ovirt_rdma.host.policy.store import copy_of, store
from ovirt_rdma.host.services.enablement import MODE_HOST, marker_text
from ovirt_rdma.host.system.lock import LockHeld
from ovirt_rdma.host.system.signals import StopSignal
from ovirt_rdma.host.system.tree import start_of

pytestmark = pytest.mark.hypervisor


class Fake(Task):
    """A task that is wanted with ``health_interval``; ``do`` is what it does."""

    off = "the policy has no health_interval"
    carried = ("runs",)

    def __init__(self, name="fake", do=None, **settings):
        self.name, self.do = name, do
        self.runs, self.prepared, self.ended = 0, 0, False
        for key, value in settings.items():
            setattr(self, key, value)

    def interval(self, policy):
        return policy.nfs.health_interval

    def prepare(self):
        self.prepared += 1

    def run(self, turn):
        self.runs += 1
        return self.do(turn) if self.do else Result("done")

    def end(self):
        self.ended = True


class FakeChild:
    """A run in no process: it ends when ``end`` is called, or when it is killed."""

    def __init__(self, stage, task, stored, note):
        self.stage, self.task, self.note = stage, task, note
        self.turn_policy = stored
        self.file, self.signals, self.data = -1, [], None
        self.dies = True

    def ended(self):
        return self.data

    def end(self, result=None, *, carried=None, state=OK):
        sent = (state, result or Result("done"), carried or {})
        self.data = pickle.dumps(sent)

    def send(self, number):
        self.signals.append(number)
        if number == signal.SIGKILL and self.dies:
            self.data = b""


class Stage:
    """An enabled host, and the daemon with a clock of ours and no processes."""

    def __init__(self, root, *tasks):
        self.root, self.now = root, 1000.0
        self.notes, self.told, self.children = [], [], []
        self.enable()
        self.policy(10)
        self.tasks = tasks or (Fake(),)
        self.daemon = Daemon(
            str(root),
            self.tasks,
            self.notes.append,
            clock=lambda: self.now,
            start=self.start,
            tell=self.told.append,
        )

    def enable(self):
        under(self.root, ENABLED).parent.mkdir(parents=True, exist_ok=True)
        under(self.root, ENABLED).write_text(marker_text(MODE_HOST))

    def policy(self, interval):
        policy = Policy(nfs=NfsPolicy((), interval))
        store(policy, "test", under(self.root, POLICY_JSON))

    def start(self, task, stored, note):
        self.children.append(FakeChild(self, task, stored, note))
        return self.children[-1]

    def turn(self, seconds=0.0):
        self.now += seconds
        return self.daemon.turn()

    def ran(self, result=None, **sent):
        """Turn, end the newest run, and turn."""
        self.turn()
        self.children[-1].end(result, **sent)
        self.turn()

    def runs(self, name="fake"):
        return [child for child in self.children if child.task.name == name]

    def state(self, name="fake"):
        tasks = read_daemon(self.root).tasks
        return next(task for task in tasks if task.name == name)


@pytest.fixture
def stage(tmp_path):
    return Stage(tmp_path)


# When tasks run


def test_runs_begin_at_a_fixed_rate(stage):
    for number in range(3):
        assert stage.turn() <= LONGEST_TURN_S
        assert len(stage.children) == number + 1
        stage.children[-1].end()
        # The run takes 3 s.
        assert stage.turn(3) == 7.0
        stage.now += 7
    stage.turn()
    assert len(stage.children) == 4


def test_a_run_that_takes_longer_than_its_interval_is_not_started_twice(stage):
    stage.turn()
    for _ in range(5):
        stage.turn(10)
    assert len(stage.children) == 1
    stage.children[0].end()
    assert stage.turn() == 1.0
    stage.turn(1)
    assert len(stage.children) == 2


def test_one_that_is_due_while_another_runs_is_run(tmp_path):
    stage = Stage(tmp_path, Fake("slow"), Fake("quick"))
    stage.turn()
    (quick,) = stage.runs("quick")
    quick.end()
    stage.turn(1)
    stage.turn(9)
    assert (len(stage.runs("slow")), len(stage.runs("quick"))) == (1, 2)


def test_a_result_may_say_when_the_next_run_is_due(stage):
    stage.turn()
    stage.children[0].end(Result("late", next_s=3))
    assert stage.turn(2) == 3.0


def test_the_first_run_may_wait(tmp_path):
    stage = Stage(tmp_path, Fake(first_s=300))
    assert stage.turn() == LONGEST_TURN_S
    assert stage.state().state == WAITS
    stage.turn(299)
    assert stage.children == []
    stage.turn(1)
    assert len(stage.children) == 1


def test_what_a_run_carries_is_there_in_the_next_one(stage):
    stage.ran(carried={"runs": 7})
    assert stage.tasks[0].runs == 7


def test_a_run_gets_the_policy_in_force_and_one_that_changes_the_host_its_file(
    tmp_path,
):
    stage = Stage(tmp_path, Fake("looks"), Fake("changes", changes_host=True))
    under(tmp_path, POLICY_JSON).write_text("{")
    stage.turn()
    stage.turn(60)
    (looks,), (changes,) = stage.runs("looks"), stage.runs("changes")
    assert looks.turn_policy.policy.nfs.health_interval == 10
    assert changes.turn_policy is None
    (problem,) = stage.notes
    assert "policy.json" in problem
    assert "its copy is used" in problem
    assert "policy.json" in read_daemon(tmp_path).policy_problem


def test_what_only_keeps_connections_goes_on_with_the_copy(tmp_path):
    stage = Stage(tmp_path, Fake("keeps", changes_host=True, uses_copy=True))
    under(tmp_path, POLICY_JSON).write_text("{")
    stage.turn()
    stage.turn(60)
    stage.runs("keeps")[-1].end()
    stage.turn()
    assert stage.children[-1].turn_policy.policy.nfs.health_interval == 10
    assert stage.state("keeps").state == OK


@pytest.mark.parametrize("changes_host", [False, True])
def test_a_policy_that_cannot_be_used_is_not_one_that_does_not_want_the_task(
    tmp_path, changes_host
):
    stage = Stage(tmp_path, Fake(changes_host=changes_host))
    path = under(tmp_path, POLICY_JSON)
    path.write_text("{")
    if not changes_host:  # which uses the copy
        copy_of(path).unlink()
    stage.turn()
    stage.turn(60)
    stage.children[-1].end()
    stage.turn()
    state = stage.state()
    assert (state.state, state.due_s) == (WAITS, None)
    assert state.sentence == "the policy's file cannot be used"
    stage.policy(10)
    stage.turn()
    stage.turn(60)
    stage.children[-1].end()
    stage.turn()
    assert (stage.state().state, stage.state().sentence) == (OK, "done")


# Another policy


def test_another_policy_is_followed_at_once(stage):
    stage.ran()
    stage.policy(20)
    stage.turn(1)
    assert len(stage.children) == 2
    stage.children[1].end()
    stage.turn()
    assert stage.state().due_s == 1021.0


def test_another_policy_during_a_run_means_another_run(stage):
    stage.turn()
    stage.policy(20)
    stage.turn(1)
    assert len(stage.children) == 1
    stage.children[0].end()
    stage.turn(1)
    stage.turn()
    assert len(stage.children) == 2


def test_a_task_that_changes_the_host_leaves_apply_its_time(tmp_path):
    stage = Stage(tmp_path, Fake(changes_host=True))
    stage.turn()
    stage.children[0].end()
    stage.policy(20)
    stage.turn(5)
    stage.turn(19)
    assert len(stage.children) == 1
    stage.turn(1)
    assert len(stage.children) == 2


def test_a_task_that_the_policy_wants_no_more_runs_once_to_tidy_up(stage):
    stage.ran()
    stage.policy(None)
    stage.turn()
    stage.children[1].end()
    assert stage.turn() == LONGEST_TURN_S
    assert (stage.state().state, stage.state().due_s) == (OFF, None)
    assert stage.state().sentence == "the policy has no health_interval"
    stage.turn(10_000)
    assert len(stage.children) == 2
    stage.policy(10)
    stage.turn()
    assert len(stage.children) == 3


def test_what_runs_need_is_loaded_only_while_the_policy_wants_them(tmp_path):
    """Each run is a fork, which would have to load it again."""
    task = Fake()
    stage = Stage(tmp_path, task)
    stage.policy(None)
    stage.turn()
    assert (len(stage.runs()), task.prepared) == (1, 0)
    stage.runs()[0].end()
    stage.policy(10)
    stage.turn()
    assert (len(stage.runs()), task.prepared) == (2, 1)


def test_a_policy_that_did_not_change_is_read_once(stage, monkeypatch):
    stage.turn()
    monkeypatch.setattr("ovirt_rdma.host.policy.store.in_force", None)
    stage.turn(10)


def test_reload_runs_all_tasks_now(tmp_path):
    stage = Stage(tmp_path, Fake(), Fake("later", first_s=300))
    stage.ran()
    stage.daemon.hurry()
    stage.turn(1)
    assert [len(stage.runs(name)) for name in ("fake", "later")] == [2, 1]


# Tasks that fail or hang


def failed(stage, sentence="no"):
    """A run that raises."""
    stage.ran(Result(sentence), state=FAILED)


def test_what_is_wrong_is_told_once_and_when_it_is_over(stage):
    for _ in range(3):
        failed(stage)
        assert stage.state().state == FAILED
        stage.now += 10
    assert stage.notes == ["fake: failed: no"]
    stage.ran()
    assert stage.notes == ["fake: failed: no", "fake: works again"]
    stage.now += 10
    failed(stage)
    assert stage.notes[2:] == ["fake: failed: no"]


def test_problems_are_told_once(stage):
    for problems in (("a",), ("a", "b"), ("a", "b"), (), ("a",)):
        stage.ran(Result("done", problems))
        assert stage.state().state == (PROBLEM if problems else OK)
        stage.now += 10
    assert stage.notes == ["fake: a", "fake: b", "fake: a"]


def test_a_task_whose_process_was_killed_is_run_again(stage):
    stage.turn()
    stage.children[0].send(signal.SIGKILL)
    stage.turn(1)
    assert stage.state().state == FAILED
    assert "ended without a result" in stage.state().sentence
    stage.turn(9)
    assert len(stage.children) == 2


def test_one_that_does_not_end_in_time_is_killed_and_the_others_go_on(tmp_path):
    stage = Stage(tmp_path, Fake("slow", deadline_s=15), Fake("quick"))
    for _ in range(4):
        stage.turn()
        stage.runs("quick")[-1].end()
        stage.turn(5)
        stage.now += 5
    assert len(stage.runs("quick")) == 4
    first = stage.runs("slow")[0]
    assert first.signals == [signal.SIGKILL]
    assert stage.state("slow").state == FAILED
    assert "did not end within 15 s" in stage.notes[0]
    assert len(stage.runs("slow")) == 2


def test_one_that_cannot_be_killed_is_left_alone_and_not_started_again(tmp_path):
    stage = Stage(tmp_path, Fake("hung", deadline_s=15), Fake("quick"))
    stage.turn()
    (hung,) = stage.runs("hung")
    hung.dies = False
    for _ in range(100):
        stage.runs("quick")[-1].end()
        assert stage.turn(5) <= LONGEST_TURN_S
    assert hung.signals == [signal.SIGKILL]
    assert len(stage.runs("hung")) == 1
    assert stage.state("hung").state == HANGS
    assert stage.daemon.turn() > 0
    (note,) = stage.notes
    assert "hung: it did not end within 15 s, and cannot be killed" in note
    assert len(stage.runs("quick")) > 40
    # The server is there again.
    hung.data = b""
    stage.turn(1)
    stage.turn(1)
    assert len(stage.runs("hung")) == 2
    stage.runs("hung")[-1].end()
    stage.turn()
    assert stage.notes[-1] == "hung: works again"


def test_a_task_that_changes_the_host_is_asked_to_end_first(tmp_path):
    stage = Stage(tmp_path, Fake(changes_host=True, deadline_s=15))
    stage.turn()
    stage.turn(15)
    (child,) = stage.children
    assert child.signals == [signal.SIGTERM]
    stage.turn(GRACE_S - 1)
    assert child.signals == [signal.SIGTERM]
    stage.turn(1)
    assert child.signals == [signal.SIGTERM, signal.SIGKILL]


def test_a_machine_without_memory_for_a_process(stage, monkeypatch):
    def start(*_):
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(stage.daemon, "_start", start)
    stage.turn()
    assert stage.state().state == FAILED
    assert "Cannot allocate memory" in stage.state().sentence
    monkeypatch.undo()
    stage.turn(10)
    assert len(stage.children) == 1


@pytest.mark.parametrize(
    ("error", "state", "words"),
    [
        (
            ValueError("of\na kind"),
            FAILED,
            "ValueError: of a kind (test_loop.py, line",
        ),
        (Problem("id", "it is full", "free space"), FAILED, "it is full; fix: free"),
        (LockHeld("id", "another run is changing it"), WAITS, "another run"),
        (MemoryError(), FAILED, "MemoryError"),
    ],
)
def test_the_sentence_of_what_a_task_raises(error, state, words):
    def do(turn):
        raise error

    task = Fake(do=do)
    ran, result, carried = run_once(task, None)
    assert (ran, carried) == (state, {"runs": 1})
    assert result.sentence.startswith(words)


HELD = Result("another run is changing this host", next_s=30.0)


def locked(stage):
    """A run that does not get the lock."""
    stage.ran(HELD, state=WAITS)
    stage.now += 30


def test_a_first_run_without_the_lock_says_nothing_of_the_host(stage):
    locked(stage)
    assert (stage.state().state, stage.state().sentence) == (WAITS, HELD.sentence)


def test_what_is_wrong_stays_so_while_another_run_has_the_lock(stage):
    for _ in range(2):
        stage.ran(Result("done", ("a",)))
        stage.now += 10
        locked(stage)
        assert (stage.state().state, stage.state().problems) == (PROBLEM, ("a",))
    assert stage.notes == ["fake: a"]


def test_a_failure_stays_one_while_another_run_has_the_lock(stage):
    for _ in range(2):
        failed(stage)
        stage.now += 10
        locked(stage)
        assert (stage.state().state, stage.state().sentence) == (FAILED, "no")
    assert stage.notes == ["fake: failed: no"]


def test_what_was_well_is_well_while_another_run_has_the_lock(stage):
    stage.ran()
    stage.now += 10
    locked(stage)
    assert (stage.state().state, stage.state().sentence) == (OK, HELD.sentence)


# systemd


def test_systemd_hears_of_the_loop_and_of_nothing_else(stage):
    stage.turn()
    assert "READY=1\n" in stage.told[0]
    for _ in range(5):
        stage.turn(10)
    assert all("WATCHDOG=1\n" in message for message in stage.told)
    assert len(stage.told) == 6


def test_it_is_ready_after_the_first_run_of_an_early_task(tmp_path):
    stage = Stage(tmp_path, Fake(is_early=True), Fake("other"))
    stage.turn()
    stage.turn(5)
    assert not any("READY" in message for message in stage.told)
    stage.runs("fake")[0].end()
    stage.turn()
    assert stage.told[-1].startswith("READY=1")


def test_one_that_hangs_does_not_keep_it_from_being_ready(tmp_path):
    stage = Stage(tmp_path, Fake(is_early=True))
    stage.turn()
    stage.turn(20)
    assert stage.told[-1].startswith("READY=1")


def test_the_status_for_systemctl_names_what_fails(stage):
    failed(stage)
    assert stage.told[-1].endswith("STATUS=fake failed")


def test_systemd_is_told(tmp_path, monkeypatch):
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(path)
        monkeypatch.setenv("NOTIFY_SOCKET", path)
        tell_systemd("READY=1")
        assert systemd.recv(64) == b"READY=1"
    monkeypatch.delenv("NOTIFY_SOCKET")
    tell_systemd("READY=1")


def test_the_age_of_a_process_counts():
    assert 0 < seconds_since_start() < 3600


def test_a_process_that_has_ended_has_no_start():
    child = subprocess.Popen(["sleep", "60"])
    assert start_of(child.pid) > 0
    child.kill()
    child.wait()
    assert start_of(child.pid) is None


# The end


def test_it_ends_when_the_host_is_not_enabled_any_more(stage):
    assert stage.turn() is not None
    under(stage.root, ENABLED).unlink()
    assert stage.turn() is None
    with StopSignal() as stop:
        stage.daemon.run(stop)
    assert stage.tasks[0].ended
    assert not under(stage.root, DAEMON_JSON).exists()


@pytest.mark.parametrize(
    "reads", ["pathlib.Path.lstat", "ovirt_rdma.host.services.enablement.read_file"]
)
def test_a_marker_that_cannot_be_read_once_does_not_end_it(stage, monkeypatch, reads):
    def fails(path):
        raise OSError(errno.EIO, "Input/output error", str(path))

    monkeypatch.setattr(reads, fails)
    on = stage.daemon.turn()
    monkeypatch.undo()
    assert on is not None


def test_a_marker_with_another_text_does_not_end_it(stage):
    under(stage.root, ENABLED).write_text("mode: both\n")
    assert stage.turn() is not None


def test_a_task_that_fails_at_the_end_keeps_no_other_from_it(tmp_path, monkeypatch):
    stage = Stage(tmp_path, Fake("first"), Fake("second"))

    def end():
        raise Problem("id", "it cannot be removed")

    monkeypatch.setattr(stage.tasks[0], "end", end)
    stage.daemon.end()
    assert stage.notes == ["first: it cannot be removed"]
    assert stage.tasks[1].ended


# With processes


def hang(turn):
    """Hang as a task that ignores signals."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        time.sleep(1)


def wrong(turn):
    raise ValueError("no")


def say(turn):
    turn.note("here")
    return Result("done", ("odd",))


class Running:
    """The daemon with real processes; ``after`` is called when all have ended once."""

    def __init__(self, root, *tasks):
        self.stage = Stage(root)
        self.lines = root / "lines"
        self.daemon = Daemon(str(root), tasks, self.note)
        self.tasks = tasks

    def note(self, sentence):
        with self.lines.open("a") as file:
            file.write(f"{sentence}\n")

    def run(self, until, number=signal.SIGTERM):
        """Run until ``until`` is true of the tasks' states; then send the signal."""

        def watch():
            end = time.monotonic() + 60
            while time.monotonic() < end and not self.is_so(until):
                time.sleep(0.02)
            os.kill(os.getpid(), number)

        thread = threading.Thread(target=watch)
        with StopSignal() as stop:
            thread.start()
            self.daemon.run(stop)
            thread.join()

    def is_so(self, until):
        state = read_daemon(self.stage.root)
        if state is None:
            return False
        self.found = {task.name: task for task in state.tasks}
        return until(self.found)


def test_processes_that_hang_or_raise_beside_one_that_works(tmp_path):
    running = Running(
        tmp_path, Fake("hangs", hang), Fake("raises", wrong), Fake("works", say)
    )

    def is_over(found):
        return found["raises"].took_s is not None and found["works"].took_s is not None

    running.run(is_over)
    found = running.found
    assert (found["hangs"].state, found["hangs"].took_s) == (WAITS, None)
    assert found["raises"].state == FAILED
    assert found["works"].problems == ("odd",)
    lines = running.lines.read_text().splitlines()
    assert {"works: here", "works: odd"} < set(lines)
    assert any(line.startswith("raises: failed: ValueError: no") for line in lines)
    # What a run has changed of its task came back; all are ended.
    assert [task.runs for task in running.tasks] == [0, 1, 1]
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_a_task_that_changes_the_host_ends_between_two_changes(tmp_path):
    def two_changes(turn):
        (tmp_path / "begun").touch()
        while not turn.stop.wait(0.02):
            pass
        (tmp_path / "finished").touch()
        return Result("done")

    running = Running(tmp_path, Fake("changes", two_changes, changes_host=True))
    running.run(lambda found: (tmp_path / "begun").exists())
    assert (tmp_path / "finished").exists()


def test_a_large_result_comes_whole(tmp_path):
    def large(turn):
        return Result("done", tuple(f"{n} {'x' * 1000}" for n in range(1000)))

    running = Running(tmp_path, Fake("large", large))
    running.run(lambda found: found["large"].took_s is not None)
    assert len(running.found["large"].problems) == 1000


def test_sighup_runs_what_is_not_due(tmp_path):
    task = Fake("later", first_s=300)
    running = Running(tmp_path, task)
    began = threading.Event()

    def poke():
        while read_daemon(tmp_path) is None:
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGHUP)
        began.set()

    thread = threading.Thread(target=poke)
    thread.start()
    running.run(lambda found: began.is_set() and found["later"].took_s is not None)
    thread.join()
    assert task.runs == 1
