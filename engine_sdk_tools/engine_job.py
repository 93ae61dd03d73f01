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

from ovirt_rdma.engine_sdk_tools.call import Call, Read
from ovirt_rdma.engine_sdk_tools.engine_errors import EngineProblem, LostAnswer
from ovirt_rdma.engine_sdk_tools.progress import Listener
from ovirt_rdma.engine_sdk_tools.session import Session

ORIGIN = "ovirt-rdma"
# The engine cuts an event at 10000 (MaxAuditLogMessageLength); a task's line is read
# in a table.
_LONGEST = 2000
# So long the end of a job is tried: one that stays open looks like work under way.
END_S = 60.0


@dataclass(frozen=True)
class OpenJob:
    """An external job that has not ended."""

    id: str
    description: str
    started: Optional[datetime] = None


class EngineJob(Listener):
    """A job of the engine; changes of ``session`` belong to it until it is ended.

    ``id`` is None where the engine did not take it. ``adopt`` is the id of a job that
    an earlier run left open, which goes on.
    """

    def __init__(
        self, session: Session, description: str, adopt: Optional[str] = None
    ) -> None:
        self.description = description
        self.id = adopt
        self._session = session
        self._steps: dict[tuple[str, Optional[str]], str] = {}
        self._lock = threading.Lock()
        self._complained = False
        if adopt is None:
            self.id = self._made()
        session.job = self.id

    def _made(self) -> Optional[str]:
        doing = "showing the work among the engine's tasks"
        job = types.Job(description=self.description, auto_cleared=True)
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
        """A job has no notes."""
        return

    def begin(self, step: str, subject: Optional[str] = None) -> None:
        """Begin a step of the job."""
        if self.id is None:
            return
        made = self._keep(
            Call(
                f"jobs/{self.id}/steps",
                "add",
                "showing a step among the engine's tasks",
                {
                    "step": types.Step(
                        type=types.StepEnum.EXECUTING, description=step[:_LONGEST]
                    )
                },
            )
        )
        if made is not None:
            with self._lock:
                self._steps[step, subject] = made.id

    def end(self, step: str, subject: Optional[str] = None, problem: str = "") -> None:
        """End it, as failed where there is a problem."""
        with self._lock:
            step_id = self._steps.pop((step, subject), None)
        if step_id is not None:
            self._keep(
                Call(
                    f"jobs/{self.id}/steps/{step_id}",
                    "end",
                    "ending a step among the engine's tasks",
                    {"succeeded": not problem},
                )
            )

    def finish(
        self, sentence: str, *, succeeded: bool, patience_s: float = END_S
    ) -> None:
        """End the job, and write an event with ``sentence``; tried for ``patience_s``
        while the engine is away. A note says where the job stays open.
        """
        with self._lock:
            left = list(self._steps)
        for step, subject in left:
            self.end(step, subject, "" if succeeded else "not ended")
        if self.id is not None:
            self._end(succeeded, patience_s)
        self._session.job = None
        self._event(sentence, succeeded, patience_s)

    def _end(self, succeeded: bool, patience_s: float) -> None:
        call = Call(
            f"jobs/{self.id}",
            "end",
            "ending the job among the engine's tasks",
            {"succeeded": succeeded, "force": True},
        )
        try:
            self._session.keep_books(call, patience_s=patience_s, twice=True)
        except EngineProblem as problem:
            self._session.listener.note(
                f"the task '{self.description}' stays open in the engine: "
                f"{problem.one_line}; to end it: POST /ovirt-engine/api/jobs/{self.id}"
                "/end"
            )

    def _event(self, sentence: str, succeeded: bool, patience_s: float) -> None:
        severity = types.LogSeverity.NORMAL if succeeded else types.LogSeverity.ERROR
        event = types.Event(
            origin=ORIGIN,
            severity=severity,
            # (origin, custom_id) is to be unique (AddExternalEventCommand).
            custom_id=secrets.randbelow(2**31 - 1) + 1,
            description=sentence[:_LONGEST],
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
        OpenJob(one.id, one.description, one.start_time)
        for one in jobs
        if (one.description or "").startswith(prefix)
        and one.external
        and one.status in (None, types.JobStatus.STARTED)
    ]
