# SPDX-License-Identifier: GPL-2.0-or-later
"""Show a run in the administration portal: an external job with a flat list of steps
among the tasks, and an event at its end; roll back what a run has created; and lock a
data center.

If the engine does not accept a part of this, a note says so, and the run continues.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Callable, Optional

from ovirt_rdma.engine_sdk_tools.api.request import (
    MISSING,
    Call,
    EngineProblem,
    Listener,
    LostAnswer,
    Read,
    types,
)
from ovirt_rdma.engine_sdk_tools.api.request import step as reported
from ovirt_rdma.engine_sdk_tools.api.session import Session
from ovirt_rdma.host.errors import ExitCode, Problem

ORIGIN = "ovirt-rdma"
# The engine truncates an event to 10000 characters (MaxAuditLogMessageLength); a task
# is one row of a table.
_LONGEST = 2000
# How long to retry the end of a job, because an open one looks like a run in progress.
END_S = 60.0


class EngineJob(Listener):
    """A job of the engine, which shows the steps of a run until it is ended.

    ``id`` is None if the engine did not accept it. ``adopt`` is the id of a job that an
    earlier run left open, to be resumed. ``lasting``: it stays in the engine until
    somebody ends it, even if the engine restarts meanwhile.

    The changes themselves are not part of it: the engine refuses that, or ends the job
    with the first of them (see Session). A failed step is left open and ends with the
    job: if it ended as failed, the engine would also end the whole job as failed
    (ExecutionHandler.java:129-158).
    """

    def __init__(
        self,
        session: Session,
        description: str,
        adopt: Optional[str] = None,
        *,
        lasting: bool = False,
    ) -> None:
        self.description = description
        self.id = adopt
        self._session = session
        self._steps: dict[tuple[str, Optional[str]], str] = {}
        self._lock = threading.Lock()
        self._problem_noted = False
        if adopt is None:
            self.id = self._created(lasting)

    def _created(self, lasting: bool) -> Optional[str]:
        doing = "adding this run to the engine's tasks"
        job = types.Job(description=self.description, auto_cleared=not lasting)
        try:
            call = Call("jobs", "add", doing, {"job": job})
            return str(self._session.report_progress(call).id)
        except LostAnswer as lost:
            # A job that was created but is not found would stay open forever.
            search = {"search": f"correlation_id={self._session.correlation_id}"}
            try:
                jobs = self._session.read(Read("jobs", doing, arguments=search))
            except EngineProblem:
                jobs = []
            ours = [job.id for job in jobs if job.description == self.description]
            if not ours:
                self._note_problem(lost)
            return ours[0] if ours else None
        except EngineProblem as problem:
            self._note_problem(problem)
            return None

    def note(self, sentence: str) -> None:
        """Show a sentence as a completed step; it also shows that the run is alive."""
        step_id = self._begun(sentence)
        if step_id is not None:
            self._ended(step_id)

    def begin(self, step: str, subject: Optional[str] = None) -> None:
        """Begin a step of the job."""
        step_id = self._begun(step)
        if step_id is not None:
            with self._lock:
                self._steps[step, subject] = step_id

    def end(self, step: str, subject: Optional[str] = None, problem: str = "") -> None:
        """End a step; one with a problem is left open, and ends with the job."""
        with self._lock:
            step_id = self._steps.pop((step, subject), None)
        if step_id is not None and not problem:
            self._ended(step_id)

    def _begun(self, sentence: str) -> Optional[str]:
        if self.id is None:
            return None
        kind, doing = types.StepEnum.EXECUTING, "adding a step to the engine's tasks"
        step = types.Step(type=kind, description=sentence[:_LONGEST])
        added = self._send(Call(f"jobs/{self.id}/steps", "add", doing, {"step": step}))
        return None if added is None else str(added.id)

    def _ended(self, step_id: str) -> None:
        doing = "ending a step in the engine's tasks"
        path = f"jobs/{self.id}/steps/{step_id}"
        self._send(Call(path, "end", doing, {"succeeded": True}))

    def finish(
        self, sentence: str, *, succeeded: bool, patience_s: float = END_S
    ) -> None:
        """End the job with all its steps, and write an event. Both are retried for
        ``patience_s``; a note says if the job stays open.
        """
        if self.id is not None:
            try:
                end_job(
                    self._session, self.id, succeeded=succeeded, patience_s=patience_s
                )
            except EngineProblem as problem:
                self._session.listener.note(
                    f"the task '{self.description}' stays open in the engine: "
                    f"{problem.one_line}; end it with POST "
                    f"/ovirt-engine/api/jobs/{self.id}/end"
                )
        self._event(sentence, succeeded, patience_s)

    def leave_open(self, sentence: str, *, patience_s: float = END_S) -> None:
        """Write ``sentence`` as a step and an event, and leave the job open."""
        self._begun(sentence)
        self._event(sentence, False, patience_s)

    def _event(self, sentence: str, succeeded: bool, patience_s: float) -> None:
        severity = types.LogSeverity.NORMAL if succeeded else types.LogSeverity.ERROR
        event = types.Event(
            origin=ORIGIN,
            severity=severity,
            # (origin, custom_id) must be unique (AddExternalEventCommand).
            custom_id=secrets.randbelow(2**31 - 1) + 1,
            # The portal's basic view shows no origin.
            description=f"{ORIGIN}: {sentence[:1].lower()}{sentence[1:]}"[:_LONGEST],
            # The event does not get that of the request (EventMapper.java:199-201).
            correlation_id=self._session.correlation_id,
        )
        doing = "writing an event of the engine"
        self._send(Call("events", "add", doing, {"event": event}), patience_s)

    def _send(self, call: Call, patience_s: float = 0.0) -> Any:
        """Return the SDK's result, None if the engine did not accept the call."""
        try:
            return self._session.report_progress(call, patience_s=patience_s)
        except EngineProblem as problem:
            self._note_problem(problem)
            return None

    def _note_problem(self, problem: EngineProblem) -> None:
        with self._lock:
            noted, self._problem_noted = self._problem_noted, True
        if not noted:
            self._session.listener.note(f"{problem.one_line}; the run continues")


class Listeners(Listener):
    """Passes the progress to several listeners."""

    def __init__(self, *listeners: Listener) -> None:
        self._listeners: Sequence[Listener] = listeners

    def plan(self, subjects: tuple[str, ...], total: int) -> None:
        """Pass the plan to all."""
        for listener in self._listeners:
            listener.plan(subjects, total)

    def begin(self, step: str, subject: Optional[str] = None) -> None:
        """Pass the start of a step to all."""
        for listener in self._listeners:
            listener.begin(step, subject)

    def end(self, step: str, subject: Optional[str] = None, problem: str = "") -> None:
        """Pass the end of a step to all."""
        for listener in self._listeners:
            listener.end(step, subject, problem)

    def note(self, sentence: str) -> None:
        """Pass a note to all."""
        for listener in self._listeners:
            listener.note(sentence)


@dataclass
class Task:
    """Long work: ``job`` gets its progress, for the engine; ``listener`` passes it on
    to the session's too. The work may set ``sentence`` and ``succeeded``.
    """

    job: Listener
    listener: Listener
    sentence: str
    succeeded: bool = True


@contextmanager
def task(
    session: Session, title: str, *, resume: str, wanted: bool = True
) -> Iterator[Task]:
    """Yield the Task with the title ``title`` ("create domain data2"), which has a job
    in the engine if that is ``wanted``, and an event at its end; an error ends the job
    as failed. ``resume`` says how to continue after an interrupt or a bug of ours.
    """
    job = EngineJob(session, f"{ORIGIN}: {title}") if wanted else None
    shown = job or Listener()
    work = Task(shown, Listeners(session.listener, shown), f"{title}: done")

    def ended(sentence: str, *, succeeded: bool, patience_s: float = END_S) -> None:
        if job is not None:
            job.finish(sentence, succeeded=succeeded, patience_s=patience_s)

    try:
        yield work
    except Problem as problem:
        ended(f"{title} failed: {problem.one_line}", succeeded=False)
        raise
    except BaseException as error:
        # The note first: ending the job may take a while, and be interrupted too.
        interrupted = isinstance(error, KeyboardInterrupt)
        outcome = "was interrupted" if interrupted else "stopped by an error"
        session.listener.note(f"{title} {outcome}; {resume}")
        ended(f"{title} {outcome}", succeeded=False, patience_s=0.0)
        raise
    ended(work.sentence, succeeded=work.succeeded)


def find_open_jobs(session: Session, prefix: str) -> list[Any]:
    """Return the open external jobs, of the SDK, whose description begins with
    ``prefix``. ``last_updated`` is that of the run's last step. Raises EngineProblem.
    """
    jobs = session.read(Read("jobs", "reading the engine's tasks"))
    return [
        job
        for job in jobs
        if (job.description or "").startswith(prefix) and job.external and _is_open(job)
    ]


def is_open(session: Session, job: str) -> bool:
    """Whether the job with this id has not ended. Raises EngineProblem as reading."""
    read = Read(f"jobs/{job}", "reading our task in the engine", "get")
    try:
        return _is_open(session.read(read))
    except EngineProblem as problem:
        if problem.kind == MISSING:
            return False
        raise


def _is_open(job: Any) -> bool:
    """Whether nobody has ended ``job``. A restart of the engine sets it to unknown
    (job_sp.sql:559), which an end does not change (Job.java:283), but makes
    auto-cleared.
    """
    if job.status == types.JobStatus.UNKNOWN:
        return not job.auto_cleared
    return job.status in (None, types.JobStatus.STARTED)


def end_job(
    session: Session, job: str, *, succeeded: bool, patience_s: float = END_S
) -> None:
    """End an external job with all its steps; ``force`` lets the engine clear it."""
    doing = "ending the job in the engine's tasks"
    call = Call(f"jobs/{job}", "end", doing, {"succeeded": succeeded, "force": True})
    session.report_progress(call, patience_s=patience_s, twice=True)


class RolledBack(Problem):
    """The run failed, and everything it made was rolled back (exit code 6)."""

    exit_code = ExitCode.ROLLED_BACK


@dataclass(frozen=True)
class Undo:
    """A call that undoes a change, and what a person has to do if it is refused.
    ``wait`` waits for its end. ``first``: what was made before cannot be undone without
    it.
    """

    call: Call
    manual_fix: str
    wait: Callable[[], object] = lambda: None
    first: bool = False


@dataclass(frozen=True)
class Undone:
    """The result of a rollback: ``done`` as clauses ("removing the network X"),
    ``left`` as sentences with a fix each in ``manual_fixes``.
    """

    done: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    manual_fixes: tuple[str, ...] = ()

    def then(self, other: Undone) -> Undone:
        """Return the result of two rollbacks, one after the other."""
        fixes = self.manual_fixes + other.manual_fixes
        return Undone(self.done + other.done, self.left + other.left, fixes)

    def told(self, error: Problem) -> Problem:
        """Return ``error`` with the result of the rollback, if there was one."""
        if not self.done and not self.left:
            return error
        lines = [str(error)]
        if self.done:
            lines.append(f"rolled back: {'; '.join(self.done)}")
        if not self.left:
            return RolledBack(error.id, "\n".join(lines), error.fix)
        by_hand = f"manually: {'; '.join(self.manual_fixes)}"
        fix = f"{error.fix}; then {by_hand}" if error.fix else by_hand
        return Problem(error.id, "\n".join([*lines, *self.left]), fix)


def made(
    session: Session, call: Call, listener: Listener, is_it: Callable[[Any], bool]
) -> str:
    """Make what ``call`` adds; return its id. The engine makes nothing twice, so after
    a lost answer ``is_it`` finds it among the SDK's objects at the same path. Raises
    EngineProblem, and LostAnswer if it is not there.
    """
    with reported(listener, call.doing, call.subject):
        try:
            return str(session.perform(call).id)
        except LostAnswer as lost:
            try:
                every = session.read(Read(call.path, f"{call.doing}: reading"))
            except EngineProblem:
                raise lost from None
            for one in every:
                if is_it(one):
                    return str(one.id)
            raise


def undo(session: Session, made: Sequence[Undo], listener: Listener) -> Undone:
    """Undo what was ``made``, the last first; a failure does not raise."""
    done, left, by_hand = [], [], []
    impossible = False
    for step in reversed(made):
        if impossible:
            by_hand.append(step.manual_fix)
            continue
        call = step.call
        with reported(listener, call.doing, call.subject) as now:
            try:
                session.perform(call)
                step.wait()
                done.append(call.doing)
            except EngineProblem as error:
                # An object that no longer exists needs no rollback.
                now.problem = "" if error.kind == MISSING else str(error)
        if now.problem:
            left.append(f"not rolled back: {now.problem}")
            by_hand.append(step.manual_fix)
            impossible = step.first
    return Undone(tuple(done), tuple(left), tuple(dict.fromkeys(by_hand)))


# Lock a data center.

_JOBS = "ovirt-rdma: "


class OtherRun(Problem):
    """Another run works on the same domains, or on their hosts (exit code 75)."""

    exit_code = ExitCode.OTHER_RUN


@dataclass
class DataCenterLock:
    """Lets one run at a time change a data center, on all machines.

    The lock is an open external job of the engine: nothing else survives a killed run
    and a restart of the engine and is visible to everybody, with the engine alone. A
    run first creates its job and then looks for others, so that of two runs that start
    together at most one continues. A lasting job is ended only by its run, or with
    ``--take-over``; a run whose job was ended by somebody else stops before its next
    change. ``job`` is None before :meth:`claim`, and if the engine did not accept it.

    ``owner`` names this machine and user in the descriptions of jobs; ``unfinished``
    are the jobs of its runs in the data center that can be resumed. The lock of their
    state folder ensures that only one of their runs is working. With ``take_over``,
    jobs of other owners are ended as failed, and their runs stop.
    """

    session: Session
    owner: str
    unfinished: Collection[Optional[str]] = ()
    take_over: bool = False
    job: Optional[EngineJob] = None

    def check_free(self, about: Sequence[str]) -> None:
        """Raise OtherRun if another run has an open job about one of the objects
        ``about``, by id. Jobs that may be ended are ended, once we have a job.
        """
        own = self.job.id if self.job else None
        for job in find_open_jobs(self.session, _JOBS):
            ours = self.owner in job.description
            if not any(id in job.description for id in about):
                continue
            if ours and (job.id == own or job.id in self.unfinished):
                continue
            if not ours and not self.take_over:
                raise _other(job)
            # A job of ours belongs to a run that was killed before its first change or
            # after its last. A job of others is ended only after the confirmation.
            if ours or self.job is not None:
                end_job(self.session, job.id, succeeded=ours)

    def claim(self, state: Any, what: str, about: Sequence[str]) -> Optional[str]:
        """Create the job of ``state``, or resume the one that it left open; return its
        id, None if the engine did not accept it. Raises OtherRun. ``what`` and
        ``about``: see :func:`described`.
        """
        description = described(what, about, self.owner)
        adopt = None
        if state.job is not None and is_open(self.session, state.job):
            adopt = state.job
        self.job = EngineJob(self.session, description, adopt, lasting=True)
        try:
            self.check_free(about)
        except OtherRun as other:
            if adopt is None:
                sentence = f"{description}: not started: {other}"
                self.job.finish(sentence, succeeded=False)
            raise
        return self.job.id

    def check(self) -> None:
        """Raise OtherRun if somebody has ended our job meanwhile."""
        job = self.job.id if self.job else None
        if job is not None and not is_open(self.session, job):
            raise OtherRun(
                "conversion-lock-lost",
                "this run's task in the engine was ended or removed: another run has "
                "taken over, or somebody ended it; this run changes nothing more",
                "see the engine's tasks and events for the reason; the state file of "
                "this run records what it has started",
            )


def described(what: str, about: Sequence[str], owner: str) -> str:
    """Return the description of a job; other runs find the ids ``about`` and the owner
    in it. The ids are at the end, because the portal shows 80 characters.
    """
    return f"{_JOBS}{what} (by {owner}; {', '.join(about)})"


def _other(job: Any) -> OtherRun:
    times = ""
    known = (job.start_time, job.last_updated)
    if None not in known:
        began, last = (f"{time:%Y-%m-%d %H:%M:%S%z}" for time in known)
        times = f", started {began}, last active {last} by the engine's clock"
    return OtherRun(
        "conversion-lock-held",
        f"the engine has an open task '{job.description}' of another run{times}",
        "wait until it has ended; if that run has been abandoned, add --take-over, "
        "which ends its task and stops the run if it is still running",
    )
