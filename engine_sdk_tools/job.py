# SPDX-License-Identifier: GPL-2.0-or-later
"""Our work as the engine's administrators see it: an external job among the tasks of
webadmin with one flat list of steps, and an event when it has ended.

That the engine does not take part of this is a note, and never stops the work.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Optional

from ovirtsdk4 import types

from ovirt_rdma.engine_sdk_tools.api.errors import MISSING, EngineProblem, LostAnswer
from ovirt_rdma.engine_sdk_tools.api.progress import Listener
from ovirt_rdma.engine_sdk_tools.api.request import Call, Read
from ovirt_rdma.engine_sdk_tools.api.session import Session

ORIGIN = "ovirt-rdma"
# The engine cuts an event at 10000 (MaxAuditLogMessageLength); a task's line is read
# in a table.
_LONGEST = 2000
# So long the end of a job is tried: one that stays open looks like work under way.
END_S = 60.0


@dataclass(frozen=True)
class OpenJob:
    """An external job that has not ended. ``updated`` is when its run was last heard
    of: a step began or ended then.
    """

    id: str
    description: str
    started: Optional[datetime] = None
    updated: Optional[datetime] = None


class EngineJob(Listener):
    """A job of the engine, which shows what is done until it is ended.

    ``id`` is None where the engine did not take it. ``adopt`` is the id of a job that
    an earlier run left open, which goes on. ``lasting``: it stays in the engine until
    somebody ends it, also when the engine restarts meanwhile.

    The changes themselves are no part of it: the engine refuses that, or ends the job
    with the first of them (see Session). A failed step is not ended as failed, as the
    engine would end the whole job as failed with it (ExecutionHandler.java:129-158); it
    ends with the job.
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
        self._complained = False
        if adopt is None:
            self.id = self._made(lasting)

    def _made(self, lasting: bool) -> Optional[str]:
        doing = "showing the work among the engine's tasks"
        job = types.Job(description=self.description, auto_cleared=not lasting)
        try:
            return str(
                self._session.keep_books(Call("jobs", "add", doing, {"job": job})).id
            )
        except LostAnswer as lost:
            # One that nobody knows of would stay open for ever.
            words = {"search": f"correlation_id={self._session.correlation_id}"}
            try:
                found = self._session.read(Read("jobs", doing, words=words))
            except EngineProblem:
                found = []
            ours = [one.id for one in found if one.description == self.description]
            if not ours:
                self._complain(lost)
            return ours[0] if ours else None
        except EngineProblem as problem:
            self._complain(problem)
            return None

    def plan(self, subjects: tuple[str, ...], total: int) -> None:
        """A job has no plan."""
        return

    def note(self, sentence: str) -> None:
        """Show a sentence as a step that is done; the job is seen to be alive."""
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
        """End it; one with a problem is left open, and ends with the job."""
        with self._lock:
            step_id = self._steps.pop((step, subject), None)
        if step_id is not None and not problem:
            self._ended(step_id)

    def _begun(self, sentence: str) -> Optional[str]:
        if self.id is None:
            return None
        step = types.Step(
            type=types.StepEnum.EXECUTING, description=sentence[:_LONGEST]
        )
        doing = "showing a step among the engine's tasks"
        made = self._keep(Call(f"jobs/{self.id}/steps", "add", doing, {"step": step}))
        return None if made is None else str(made.id)

    def _ended(self, step_id: str) -> None:
        doing = "ending a step among the engine's tasks"
        path = f"jobs/{self.id}/steps/{step_id}"
        self._keep(Call(path, "end", doing, {"succeeded": True}))

    def finish(
        self, sentence: str, *, succeeded: bool, patience_s: float = END_S
    ) -> None:
        """End the job with all its steps, and write an event with ``sentence``; tried
        for ``patience_s`` while the engine is away. A note says where the job stays
        open.
        """
        if self.id is not None:
            try:
                end_job(
                    self._session, self.id, succeeded=succeeded, patience_s=patience_s
                )
            except EngineProblem as problem:
                self._session.listener.note(
                    f"the task '{self.description}' stays open in the engine: "
                    f"{problem.one_line}; to end it: POST "
                    f"/ovirt-engine/api/jobs/{self.id}/end"
                )
        self._event(sentence, succeeded, patience_s)

    def leave_open(self, sentence: str, *, patience_s: float = END_S) -> None:
        """Say, in a step and in an event, how things stand; the job is not ended: the
        work is not either, and others are to see that.
        """
        self._begun(sentence)
        self._event(sentence, False, patience_s)

    def _event(self, sentence: str, succeeded: bool, patience_s: float) -> None:
        severity = types.LogSeverity.NORMAL if succeeded else types.LogSeverity.ERROR
        event = types.Event(
            origin=ORIGIN,
            severity=severity,
            # (origin, custom_id) is to be unique (AddExternalEventCommand).
            custom_id=secrets.randbelow(2**31 - 1) + 1,
            description=sentence[:_LONGEST],
            # That of the request is not the event's (EventMapper.java:199-201).
            correlation_id=self._session.correlation_id,
        )
        self._keep(
            Call("events", "add", "writing an event of the engine", {"event": event}),
            patience_s,
        )

    def _keep(self, call: Call, patience_s: float = 0.0) -> Any:
        """Return what the engine gave, None where it did not take it."""
        try:
            return self._session.keep_books(call, patience_s=patience_s)
        except EngineProblem as problem:
            self._complain(problem)
            return None

    def _complain(self, problem: EngineProblem) -> None:
        with self._lock:
            told, self._complained = self._complained, True
        if not told:
            self._session.listener.note(f"{problem.one_line}; the work goes on")


class Listeners(Listener):
    """Tells several."""

    def __init__(self, *listeners: Listener) -> None:
        self._listeners: Sequence[Listener] = listeners

    def plan(self, subjects: tuple[str, ...], total: int) -> None:
        """Tell all what the work is about."""
        for one in self._listeners:
            one.plan(subjects, total)

    def begin(self, step: str, subject: Optional[str] = None) -> None:
        """Tell all that a step begins."""
        for one in self._listeners:
            one.begin(step, subject)

    def end(self, step: str, subject: Optional[str] = None, problem: str = "") -> None:
        """Tell all that it ended."""
        for one in self._listeners:
            one.end(step, subject, problem)

    def note(self, sentence: str) -> None:
        """Tell all."""
        for one in self._listeners:
            one.note(sentence)


def find_open_jobs(session: Session, prefix: str) -> list[OpenJob]:
    """Return the external jobs that go on and whose description begins with ``prefix``.

    Raises EngineProblem where the engine cannot be asked.
    """
    jobs = session.read(Read("jobs", "reading the engine's tasks"))
    return [
        OpenJob(one.id, one.description, one.start_time, one.last_updated)
        for one in jobs
        if (one.description or "").startswith(prefix) and one.external and _goes_on(one)
    ]


def is_open(session: Session, job: str) -> bool:
    """Whether the job with this id has not ended. Raises EngineProblem as reading."""
    read = Read(f"jobs/{job}", "reading our task in the engine", "get")
    try:
        return _goes_on(session.read(read))
    except EngineProblem as problem:
        if problem.kind == MISSING:
            return False
        raise


def _goes_on(job: Any) -> bool:
    """Whether nobody has ended ``job``. An engine that restarts sets jobs that were
    started to unknown (job_sp.sql:559). One that is unknown stays so when it is ended
    (Job.java:283), but ``force`` makes it one that is cleared away.
    """
    if job.status == types.JobStatus.UNKNOWN:
        return not job.auto_cleared
    return job.status in (None, types.JobStatus.STARTED)


def end_job(
    session: Session, job: str, *, succeeded: bool, patience_s: float = END_S
) -> None:
    """End an external job with all its steps; the engine clears it away later, as
    ``force`` makes it do so. Raises EngineProblem.
    """
    call = Call(
        f"jobs/{job}",
        "end",
        "ending the job among the engine's tasks",
        {"succeeded": succeeded, "force": True},
    )
    session.keep_books(call, patience_s=patience_s, twice=True)
