# SPDX-License-Identifier: GPL-2.0-or-later
"""Run the daemon's tasks, each when it is due: one loop, one thread; and keep their
state in /run/ovirt-rdma/daemon.json.

Each run of a task is a child process, a fork without exec, which costs a millisecond
and shares the memory of the daemon. So a task that fails or hangs stops neither the
loop nor another task. A child that runs beyond its deadline is killed. One that cannot
be killed, because it waits in the kernel, is left alone, and its task is not started
again before it has ended: such processes do not become more, and the loop never waits
for one.

The loop counts seconds after boot, which setting the clock does not change. It writes
the state at each turn; ``daemon status`` reads it. A file whose process has ended says
nothing.
"""

from __future__ import annotations

import contextlib
import math
import os
import pickle
import signal
import socket
import sys
import time
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Callable, NoReturn, Optional, Union

from ovirt_rdma.host import __version__
from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.paths import DAEMON_JSON, DAEMON_UNIT, POLICY_JSON, under
from ovirt_rdma.host.policy.model import Policy
from ovirt_rdma.host.policy.store import FollowedPolicy, StoredPolicy
from ovirt_rdma.host.services.enablement import is_enabled
from ovirt_rdma.host.system.commands import Runner
from ovirt_rdma.host.system.files import write_public
from ovirt_rdma.host.system.json_codec import (
    Envelope,
    Records,
    WrongRecord,
    json_value,
    plain,
)
from ovirt_rdma.host.system.lock import LockHeld
from ovirt_rdma.host.system.safe_file import read_file
from ovirt_rdma.host.system.signals import Stop, StopSignal, default_signals
from ovirt_rdma.host.system.tree import seconds_after_boot, start_of

# The last run of a task: it cannot be ended; it raised an error, or was ended at its
# deadline; it found a problem; all is well.
HANGS, FAILED, PROBLEM, OK = "hangs", "failed", "problem", "ok"
# There was no run yet, or there is no policy that can be used; the policy does not want
# the task.
WAITS, OFF = "waits", "off"
# Problems first, as they are shown.
STATES = (HANGS, FAILED, PROBLEM, WAITS, OK, OFF)
BAD = (HANGS, FAILED, PROBLEM)

DAEMON = Envelope("daemon-state")
NOT_RUNNING = f"{DAEMON_UNIT} is not running, although this host is enabled"
START = f"systemctl status {DAEMON_UNIT}; systemctl start {DAEMON_UNIT}"
_records = Records("the daemon's state")


@dataclass(frozen=True)
class TaskState:
    """A task of the daemon.

    - ``state``: one of STATES; ``sentence``: the result of the last run, or why there
      is none
    - ``problems``: sentences about what is wrong
    - ``began_s``: when the last run began; None if there was none
    - ``took_s``: how long it took; None while it is running
    - ``due_s``: when the next one is due; None: with another policy only
    """

    name: str
    state: str = WAITS
    sentence: str = ""
    problems: tuple[str, ...] = ()
    began_s: Optional[float] = None
    took_s: Optional[float] = None
    due_s: Optional[float] = None


@dataclass(frozen=True)
class DaemonState:
    """The daemon: its process with its start in clock ticks after boot, the version of
    the add-on that it has loaded, the digest of the policy that it follows (None: there
    is none), what is wrong with the policy's file, and its tasks.
    """

    pid: int
    start: int
    version: str
    policy: Optional[str]
    policy_problem: str
    tasks: tuple[TaskState, ...]

    @property
    def worst_first(self) -> list[TaskState]:
        """The tasks, problems first."""
        return sorted(self.tasks, key=lambda task: STATES.index(task.state))


def seconds_since_start() -> float:
    """Return the age of this process: systemd counts from there."""
    started = start_of(os.getpid()) or 0
    return seconds_after_boot() - started / os.sysconf("SC_CLK_TCK")


def write_daemon(root: Union[str, Path], state: DaemonState) -> None:
    """Write the state below ``root``. Raises Problem if that is not possible."""
    write_public(under(root, DAEMON_JSON), DAEMON.text(plain(state)))


def read_daemon(root: Union[str, Path] = "/") -> Optional[DaemonState]:
    """Return the state below ``root``; None if the daemon is not running. Raises
    Problem if the file cannot be used.
    """
    path = under(root, DAEMON_JSON)
    try:
        data = read_file(path)
        state = _records.read(DaemonState, DAEMON.content(json_value(data)))
    except FileNotFoundError:
        return None
    except (OSError, WrongRecord) as error:
        raise Problem(
            "daemon-state-invalid",
            f"{path}: {getattr(error, 'strerror', None) or error}",
            f"systemctl restart {DAEMON_UNIT}",
        ) from error
    return state if start_of(state.pid) == state.start else None


# The longest turn. So long a new policy is not seen, and systemd hears nothing
# (WatchdogSec=60 in the unit).
LONGEST_TURN_S = 10.0
# A task that changes the host is asked to end, and has so long to finish a change.
GRACE_S = 10.0
# A killed process is gone at once, unless it waits in the kernel.
_GONE_S = 1.0
# Another run has the lock, or what a task made could not be taken away.
_AGAIN_S = 30.0
# Between two runs of a task that takes longer than its interval.
_LEAST_S = 1.0
# node_exporter may need what a task does first; so long systemd waits for it.
_READY_S = 20.0
_PART = 1 << 16
_UNUSABLE = "the policy's file cannot be used"

Note = Callable[[str], None]
"""Receives a sentence for the journal."""


def tell_systemd(state: str) -> None:
    """Send ``state`` to systemd; nothing without it. sd_notify(3)."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as to:
        to.sendto(state.encode("ascii", "replace"), address)


@dataclass(frozen=True)
class Turn:
    """What a run of a task gets: the policy, or None; ``note`` for the journal, and
    ``stop``, which says when a run that makes several changes must end between two.
    """

    stored: Optional[StoredPolicy]
    note: Note
    stop: Stop

    @property
    def policy(self) -> Policy:
        """The policy, empty if there is none."""
        return self.stored.policy if self.stored else Policy()


@dataclass(frozen=True)
class Result:
    """The result of a run: a sentence, and sentences about what is wrong, which are
    reported to the journal once. ``next_s``: the next run is due so long after this one
    has ended; None: an interval after this one has begun.
    """

    sentence: str
    problems: tuple[str, ...] = ()
    next_s: Optional[float] = None


class Task:
    """Something that the daemon does again and again, on the host below ``root``.
    ``tools`` runs tools, as for HostReader.

    - ``changes_host``: it is asked to end before it is killed, gets only a policy whose
      file is intact, and leaves `apply` an interval of time after a new policy
    - ``uses_copy``: it gets the copy of a damaged file all the same: it keeps what is
      there alive
    - ``first_s``: the first run is due so long after the start of the daemon
    - ``every_s``: the seconds between the begins of two runs
    - ``deadline_s``: the longest run
    - ``is_early``: systemd waits for its first run
    - ``off``: why there is nothing to do, if :meth:`interval` is None
    - ``carried``: the attributes that a run may change for the next one
    """

    name = ""
    changes_host = False
    uses_copy = False
    first_s = 0.0
    every_s: Optional[float] = None
    deadline_s = 60.0
    is_early = False
    off = ""
    carried: tuple[str, ...] = ()

    def __init__(self, root: str = "/", tools: Optional[Runner] = None) -> None:
        self.root, self.tools = root, tools

    def interval(self, policy: Policy) -> Optional[float]:
        """Return ``every_s`` by this policy; None if it does not want the task, which
        then runs once, to take away what it made before.
        """
        return self.every_s

    def prepare(self) -> None:
        """Load, in the daemon itself, what each run would have to load again."""

    def run(self, turn: Turn) -> Result:
        """Run once, in a child process. Raises Problem, or anything."""
        raise NotImplementedError

    def end(self) -> None:
        """Take away what nobody must take for the present, when the daemon ends."""


class Child:
    """A run of a task in a child process: a fork that sends its result. ``file`` is a
    descriptor that can be read when it has ended.
    """

    def __init__(self, task: Task, stored: Optional[StoredPolicy], note: Note) -> None:
        self.file, writer = os.pipe()
        self._data = b""
        self._closed = False
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        try:
            self._pid = os.fork()
        except OSError:
            os.close(self.file)
            os.close(writer)
            raise
        if self._pid == 0:
            _be_child(task, stored, note, writer)
        os.close(writer)
        os.set_blocking(self.file, False)

    def ended(self) -> Optional[bytes]:
        """Return what it has sent, if it has ended. Never waits."""
        try:
            while not self._closed:
                part = os.read(self.file, _PART)
                self._data += part
                self._closed = not part
        except BlockingIOError:
            return None
        if os.waitpid(self._pid, os.WNOHANG) == (0, 0):
            return None
        os.close(self.file)
        return self._data

    def send(self, number: int) -> None:
        """Send it a signal."""
        os.kill(self._pid, number)


def _be_child(
    task: Task, stored: Optional[StoredPolicy], note: Note, writer: int
) -> NoReturn:
    """Run the task, send the result and what it carries, and end."""
    try:
        default_signals()
        with StopSignal() as stop:
            sent = run_once(task, Turn(stored, note, stop))
        data = memoryview(pickle.dumps(sent))
        while data:
            data = data[os.write(writer, data) :]
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    finally:
        os._exit(0)


Sent = tuple[str, Result, dict[str, Any]]


def run_once(task: Task, turn: Turn) -> Sent:
    """Run the task; return OK, FAILED, or WAITS if another run has the lock, the
    result, and what it carries. Never raises.
    """
    state = OK
    try:
        result = task.run(turn)
    except LockHeld as held:
        state, result = WAITS, Result(held.one_line, next_s=_AGAIN_S)
    except Problem as problem:
        state, result = FAILED, Result(_with_fix(problem))
    except Exception as error:  # noqa: BLE001  (a bug; the others continue)
        place = traceback.extract_tb(error.__traceback__)[-1]
        what = " ".join(f"{type(error).__name__}: {error}".split())
        at = f"{Path(place.filename).name}, line {place.lineno}"
        state, result = FAILED, Result(f"{what} ({at})")
    return state, result, {name: getattr(task, name) for name in task.carried}


def due_after(result: Result, interval: float, began: float, ended: float) -> float:
    """Return when the next run is due. Runs begin at a fixed rate, whatever they take,
    unless their result says otherwise. Pure.
    """
    if result.next_s is not None:
        return ended + result.next_s
    return max(ended + _LEAST_S, began + interval)


def _with_fix(problem: Problem) -> str:
    return (
        f"{problem.one_line}; fix: {problem.fix}" if problem.fix else problem.one_line
    )


@dataclass
class _Entry:
    """A task, the result of its last run, and its present run."""

    task: Task
    due: float
    state: TaskState
    child: Optional[Child] = None
    began: float = 0.0
    asked: Optional[float] = None
    killed: Optional[float] = None
    is_hurried: bool = False
    not_before: float = 0.0
    reported: frozenset[str] = field(default_factory=frozenset)

    @property
    def deadline(self) -> float:
        """When something has to be done about its present run."""
        if self.killed is not None:
            return self.killed + _GONE_S if self.state.state != HANGS else math.inf
        if self.asked is not None:
            return self.asked + GRACE_S
        return self.began + self.task.deadline_s


class Daemon:
    """Runs ``tasks`` on the host below ``root``. ``note`` writes to the journal."""

    def __init__(
        self,
        root: str,
        tasks: Iterable[Task],
        note: Note,
        *,
        clock: Callable[[], float] = seconds_after_boot,
        start: Callable[[Task, Optional[StoredPolicy], Note], Child] = Child,
        tell: Callable[[str], None] = tell_systemd,
    ) -> None:
        self._root, self._note, self._clock = root, note, clock
        self._start, self._tell = start, tell
        self._policy = FollowedPolicy(under(root, POLICY_JSON))
        self._policy.follow()
        self._begun = clock()
        self._entries = [
            _Entry(task, self._begun + task.first_s, TaskState(task.name))
            for task in tasks
        ]
        self._is_ready = False
        self._pid = os.getpid()
        self._started = start_of(self._pid) or 0
        self._report_policy()

    def run(self, stop: StopSignal) -> None:
        """Turn until ``stop``, or until the host is not enabled any more."""
        try:
            while True:
                seconds = self.turn()
                if seconds is None or stop.wait(seconds, self.files):
                    break
                if stop.take_hangup():
                    self.hurry()
        finally:
            self.end()

    @property
    def files(self) -> list[int]:
        """The descriptors that can be read when a run has ended."""
        return [e.child.file for e in self._entries if e.child]

    def turn(self) -> Optional[float]:
        """Do what is due; return the seconds until the next turn, or None if the host
        is not enabled any more.
        """
        if not is_enabled(self._root):
            return None
        if self._policy.follow():
            self._report_policy()
            for entry in self._entries:
                self._follow(entry)
        for entry in self._entries:
            if entry.child is not None:
                self._watch(entry, entry.child)
            if entry.child is None and entry.due <= self._clock():
                self._begin(entry)
        self._publish()
        times = (e.deadline if e.child else e.due for e in self._entries)
        return min(LONGEST_TURN_S, max(0.0, min(times) - self._clock()))

    def hurry(self) -> None:
        """Let each task run now (SIGHUP), or when its present run has ended."""
        for entry in self._entries:
            entry.due, entry.is_hurried = self._clock(), True

    def _follow(self, entry: _Entry) -> None:
        """Let a task follow the new policy."""
        now = self._clock()
        if not entry.task.changes_host:
            entry.due, entry.is_hurried = now, True
            return
        # Whoever loads a policy mostly runs `apply` next, which needs the lock.
        interval = self._interval(entry.task)
        entry.not_before = now + (_AGAIN_S if interval is None else interval)
        entry.due = max(entry.not_before, self._begun + entry.task.first_s)

    def _stored_for(self, task: Task) -> Optional[StoredPolicy]:
        loaded = self._policy.loaded
        needs_file = task.changes_host and not task.uses_copy
        return None if needs_file and loaded.problem else loaded.stored

    def _interval(self, task: Task) -> Optional[float]:
        stored = self._stored_for(task)
        return task.interval(stored.policy if stored else Policy())

    def _begin(self, entry: _Entry) -> None:
        entry.began, entry.asked, entry.killed = self._clock(), None, None
        entry.is_hurried = False
        task = entry.task
        if self._interval(task) is not None:
            task.prepare()
        try:
            entry.child = self._start(task, self._stored_for(task), self._noted(entry))
        except OSError as error:
            why = f"no process could be started: {error.strerror}"
            self._finish(entry, FAILED, Result(why))
            return
        entry.state = replace(entry.state, began_s=entry.began, took_s=None)

    def _noted(self, entry: _Entry) -> Note:
        return lambda sentence: self._note(f"{entry.task.name}: {sentence}")

    def _watch(self, entry: _Entry, child: Child) -> None:
        """Take the result of a run that has ended; end one that is late."""
        data = child.ended()
        if data is not None:
            entry.child = None
            self._take(entry, data)
        elif self._clock() >= entry.deadline:
            if entry.killed is not None:
                self._hang(entry)
            elif entry.task.changes_host and entry.asked is None:
                entry.asked = self._clock()
                child.send(signal.SIGTERM)
            else:
                entry.killed = self._clock()
                child.send(signal.SIGKILL)

    def _take(self, entry: _Entry, data: bytes) -> None:
        try:
            sent: Sent = pickle.loads(data)  # noqa: S301  (by our own child process)
        except (EOFError, pickle.UnpicklingError):
            why = "its process ended without a result"
            if entry.killed is not None or entry.asked is not None:
                why = f"it did not end within {entry.task.deadline_s:.0f} s"
            self._finish(entry, FAILED, Result(f"{why}, and is tried again"))
            return
        state, result, carried = sent
        for name, value in carried.items():
            setattr(entry.task, name, value)
        last = entry.state
        if state == WAITS and last.state in (OK, PROBLEM, FAILED):
            # What the last run found stands.
            state, result = last.state, replace(result, problems=last.problems)
            if state == FAILED:
                result = replace(result, sentence=last.sentence)
        elif state == OK and result.problems:
            state = PROBLEM
        elif state == OK and self._interval(entry.task) is None:
            state = OFF
            if self._policy.loaded.problem and not self._stored_for(entry.task):
                state, result = WAITS, replace(result, sentence=_UNUSABLE)
        self._finish(entry, state, result)

    def _finish(self, entry: _Entry, state: str, result: Result) -> None:
        now, task, before = self._clock(), entry.task, entry.state.state
        interval = self._interval(task)
        if interval is None:
            interval = _AGAIN_S if state == FAILED else math.inf
        due = due_after(result, interval, entry.began, now)
        entry.due = now if entry.is_hurried else max(due, entry.not_before)
        sentence = task.off if state == OFF and task.off else result.sentence
        entry.state = TaskState(
            task.name, state, sentence, result.problems, entry.began, now - entry.began
        )
        failure = (f"failed: {sentence}",) if state == FAILED else ()
        self._report(entry, (*failure, *result.problems))
        if before in (HANGS, FAILED) and state not in BAD:
            self._noted(entry)("works again")

    def _hang(self, entry: _Entry) -> None:
        sentence = (
            f"it did not end within {entry.task.deadline_s:.0f} s, and cannot be "
            "killed: it waits in the kernel, and is tried again after that"
        )
        entry.state = replace(entry.state, state=HANGS, sentence=sentence)
        self._report(entry, (sentence,))

    def _report(self, entry: _Entry, sentences: Sequence[str]) -> None:
        """Report the sentences that were not reported the last time."""
        for sentence in sentences:
            if sentence not in entry.reported:
                self._noted(entry)(sentence)
        entry.reported = frozenset(sentences)

    def _report_policy(self) -> None:
        problem = self._policy.loaded.problem
        if problem is not None:
            self._note(f"{_with_fix(problem)}; {self._policy.loaded.consequence}")

    def _publish(self) -> None:
        """Tell systemd that the loop turns, and everybody how the tasks are."""
        loaded = self._policy.loaded
        state = DaemonState(
            self._pid,
            self._started,
            __version__,
            loaded.stored.digest if loaded.stored else None,
            loaded.problem.one_line if loaded.problem else "",
            tuple(
                replace(e.state, due_s=None if math.isinf(e.due) else e.due)
                for e in self._entries
            ),
        )
        with contextlib.suppress(Problem):
            write_daemon(self._root, state)
        bad = [task for task in state.worst_first if task.state in BAD]
        status = "; ".join(f"{task.name} {task.state}" for task in bad) or "all is well"
        message = f"WATCHDOG=1\nSTATUS={status}"
        early = (e for e in self._entries if e.task.is_early and e.child is not None)
        late = self._clock() - self._begun >= _READY_S
        if not self._is_ready and (late or not any(early)):
            self._is_ready = True
            message = f"READY=1\n{message}"
        with contextlib.suppress(OSError):
            self._tell(message)

    def end(self) -> None:
        """End the present runs, within GRACE_S and a second."""
        with contextlib.suppress(OSError):
            self._tell("STOPPING=1")
        running: dict[bool, list[Child]] = {True: [], False: []}
        for entry in self._entries:
            if entry.child is not None:
                asks = entry.task.changes_host and entry.killed is None
                entry.child.send(signal.SIGTERM if asks else signal.SIGKILL)
                running[asks].append(entry.child)
        late = _wait_for(running[True], GRACE_S)
        for child in late:
            child.send(signal.SIGKILL)
        _wait_for([*late, *running[False]], _GONE_S)
        for entry in self._entries:
            try:
                entry.task.end()
            except Problem as problem:
                self._noted(entry)(problem.one_line)
        with contextlib.suppress(OSError):
            under(self._root, DAEMON_JSON).unlink()


def _wait_for(children: Iterable[Child], seconds: float) -> list[Child]:
    """Wait for the end of processes; return those that have not ended in time."""
    deadline = time.monotonic() + seconds
    left = [child for child in children if child.ended() is None]
    while left and time.monotonic() < deadline:
        time.sleep(0.02)
        left = [child for child in left if child.ended() is None]
    return left
