# SPDX-License-Identifier: GPL-2.0-or-later
"""One run at a time changes a data center, also where runs are on several machines.

The lock is an external job of the engine that has not ended. Nothing else of an engine
outlives a killed run and an engine's restart, is seen by everybody, and needs no
agreement beside the engine. A run makes its job first and looks for others then, so
that of two runs that begin together at most one goes on. A job that is lasting is ended
by its run only, or with ``--take-over``; a run whose job somebody else has ended stops
before its next change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from ovirt_rdma.engine_sdk_tools.api.session import Session
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
    """Another run is at work on the same domains, or on hosts of theirs."""

    exit_code = 75


class DataCenterLock:
    """The job of one run. ``job`` is None before :meth:`take`, and where the run has
    none. ``owner`` names this machine and user in the descriptions of jobs, and
    ``mine`` are what they recorded of the data center: whoever holds the lock of their
    folder is the only one of them at work. With ``take_over``, jobs of other owners are
    ended, as failed, and their runs stop.
    """

    def __init__(
        self,
        session: Session,
        owner: str,
        mine: Sequence[ConversionState] = (),
        *,
        take_over: bool = False,
    ) -> None:
        self.job: Optional[EngineJob] = None
        self._session = session
        self._owner = owner
        self._unfinished = {one.job for one in mine if one.stage not in FINISHED}
        self._take_over = take_over

    def check_free(self, about: Sequence[str]) -> None:
        """Raise OtherRun where another run has an open job that is about one of the
        objects ``about``, by id. Those that are to be ended are, once we have a job.
        """
        own = self.job.id if self.job else None
        for job in find_open_jobs(self._session, _JOBS):
            mine = self._owner in job.description
            if not any(one in job.description for one in about):
                continue
            if mine and (job.id == own or job.id in self._unfinished):
                continue
            if not mine and not self._take_over:
                raise _other(job)
            # Of ours, the run was killed before it began, or right after it was done.
            # Of others', not before the operator has said yes.
            if mine or self.job is not None:
                end_job(self._session, job.id, succeeded=mine)

    def take(self, state: ConversionState) -> Optional[str]:
        """Make the job of ``state``, or go on with the one that it left; return its id,
        None where the engine did not take it (a note says so). Raises OtherRun.
        """
        adopt = None
        if state.job is not None and is_open(self._session, state.job):
            adopt = state.job
        title = _described(state, self._owner)
        self.job = EngineJob(self._session, title, adopt, lasting=True)
        try:
            self.check_free(concerned(state))
        except OtherRun as other:
            if adopt is None:
                sentence = f"{title}: not begun: {other}"
                self.job.finish(sentence, succeeded=False)
            raise
        return self.job.id

    def check(self) -> None:
        """Raise OtherRun where somebody has ended our job meanwhile."""
        mine = self.job.id if self.job else None
        if mine is not None and not is_open(self._session, mine):
            raise OtherRun(
                "conversion-lock-lost",
                "this run's task in the engine was ended, or is gone: another run has "
                "taken over, or somebody ended it; nothing more is changed from here",
                "look at the engine's tasks and events who it was; what this run began "
                "is in its state file",
            )


def concerned(state: ConversionState) -> list[str]:
    """Return the ids of what a run changes: domains of one data center have the same
    hosts.
    """
    return [state.data_center, *(domain.id for domain in state.domains)]


def _described(state: ConversionState, owner: str) -> str:
    """Return the job's description; runs look for the ids and the owner in it."""
    inside = f"({', '.join(concerned(state))}; {owner})"
    if state.kind == HEAL:
        return f"{_JOBS}heal {state.title} {inside}"
    what = "revert" if state.undoes else "convert"
    return f"{_JOBS}{what} domain {state.title} to {state.to} {inside}"


def _other(job: OpenJob) -> OtherRun:
    heard = ""
    if job.started is not None and job.updated is not None:
        began, last = (f"{t:%Y-%m-%d %H:%M:%S%z}" for t in (job.started, job.updated))
        heard = f", begun {began}, last heard of {last} by the engine's clock"
    return OtherRun(
        "conversion-lock-held",
        f"the engine has an open task '{job.description}' of another run{heard}",
        "wait until it has ended; if nobody works on it any more, add --take-over: its "
        "task is ended then, and its run stops if it is still at work",
    )
