# SPDX-License-Identifier: GPL-2.0-or-later
"""Lock a data center, so that one run at a time changes it, on all machines.

The lock is an open external job of the engine: nothing else survives a killed run and a
restart of the engine and is visible to everybody, with the engine alone. A run first
creates its job and then looks for others, so that of two runs that start together at
most one continues. A lasting job is ended only by its run, or with ``--take-over``; a
run whose job was ended by somebody else stops before its next change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional, Protocol

from ovirt_rdma.engine_sdk_tools.api.engine_session import EngineSession
from ovirt_rdma.engine_sdk_tools.conversion.model import FINISHED, HEAL, ConversionState
from ovirt_rdma.engine_sdk_tools.job import (
    EngineJob,
    OpenJob,
    end_job,
    find_open_jobs,
    is_open,
)
from ovirt_rdma.host.errors import Problem

_JOBS = "ovirt-rdma: "


class OtherRun(Problem):
    """Another run works on the same domains, or on their hosts (exit code 75)."""

    exit_code = 75


class Recorded(Protocol):
    """The part of a stored state that the lock needs."""

    @property
    def job(self) -> Optional[str]:
        """The id of its job, None for none."""

    @property
    def stage(self) -> str:
        """Its stage."""


class DataCenterLock:
    """The job of one run. ``job`` is None before :meth:`take`, and if the engine did
    not accept it.

    ``owner`` names this machine and user in the descriptions of jobs; ``mine`` are the
    states that they stored for the data center. The lock of their state folder ensures
    that only one of their runs is working. With ``take_over``, jobs of other owners are
    ended as failed, and their runs stop.
    """

    def __init__(
        self,
        session: EngineSession,
        owner: str,
        mine: Sequence[Recorded] = (),
        *,
        take_over: bool = False,
    ) -> None:
        self.job: Optional[EngineJob] = None
        self._session = session
        self._owner = owner
        self._unfinished = {state.job for state in mine if state.stage not in FINISHED}
        self._take_over = take_over

    def check_free(self, about: Sequence[str]) -> None:
        """Raise OtherRun if another run has an open job about one of the objects
        ``about``, by id. Jobs that may be ended are ended, once we have a job.
        """
        own = self.job.id if self.job else None
        for job in find_open_jobs(self._session, _JOBS):
            ours = self._owner in job.description
            if not any(id in job.description for id in about):
                continue
            if ours and (job.id == own or job.id in self._unfinished):
                continue
            if not ours and not self._take_over:
                raise _other(job)
            # A job of ours belongs to a run that was killed before its first change or
            # after its last. A job of others is ended only after the confirmation.
            if ours or self.job is not None:
                end_job(self._session, job.id, succeeded=ours)

    def take(self, state: ConversionState) -> Optional[str]:
        """Create the job of ``state``, as :meth:`claim`."""
        return self.claim(state, _described(state, self._owner), concerned(state))

    def claim(
        self, state: Recorded, description: str, about: Sequence[str]
    ) -> Optional[str]:
        """Create the job of ``state``, or resume the one that it left open; return its
        id, None if the engine did not accept it (a note says so). Raises OtherRun.

        ``about`` are the ids of the objects that are changed (see :func:`described`).
        """
        adopt = None
        if state.job is not None and is_open(self._session, state.job):
            adopt = state.job
        self.job = EngineJob(self._session, description, adopt, lasting=True)
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
        if job is not None and not is_open(self._session, job):
            raise OtherRun(
                "conversion-lock-lost",
                "this run's task in the engine was ended or removed: another run has "
                "taken over, or somebody ended it; this run changes nothing more",
                "see the engine's tasks and events for the reason; the state file of "
                "this run records what it has started",
            )


def concerned(state: ConversionState) -> list[str]:
    """Return the ids of the objects that a run changes; domains of one data center have
    the same hosts.
    """
    return [state.data_center, *(domain.id for domain in state.domains)]


def described(what: str, about: Sequence[str], owner: str) -> str:
    """Return the description of a job; other runs find the ids ``about`` and the owner
    in it.
    """
    return f"{_JOBS}{what} ({', '.join(about)}; {owner})"


def _described(state: ConversionState, owner: str) -> str:
    if state.kind == HEAL:
        return described(f"heal {state.title}", concerned(state), owner)
    what = "revert" if state.undoes else "convert"
    title = f"{what} domain {state.title} to {state.to}"
    return described(title, concerned(state), owner)


def _other(job: OpenJob) -> OtherRun:
    times = ""
    if job.started is not None and job.updated is not None:
        began, last = (f"{t:%Y-%m-%d %H:%M:%S%z}" for t in (job.started, job.updated))
        times = f", started {began}, last active {last} by the engine's clock"
    return OtherRun(
        "conversion-lock-held",
        f"the engine has an open task '{job.description}' of another run{times}",
        "wait until it has ended; if that run has been abandoned, add --take-over, "
        "which ends its task and stops the run if it is still running",
    )
