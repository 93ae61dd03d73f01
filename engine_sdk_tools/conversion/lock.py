# SPDX-License-Identifier: GPL-2.0-or-later
"""Lock a data center, so that one run at a time changes it, on all machines; and say in
sentences how a run has ended.

The lock is an open external job of the engine: nothing else survives a killed run and a
restart of the engine and is visible to everybody, with the engine alone. A run first
creates its job and then looks for others, so that of two runs that start together at
most one continues. A lasting job is ended only by its run, or with ``--take-over``; a
run whose job was ended by somebody else stops before its next change.

On this machine the recorded runs decide as well: a conversion that is incomplete is
resumed, or keeps others off; one that is complete has the baseline of its domains,
which a later conversion keeps.

Pure. The same sentences are for people, programs and the engine's events.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any, Optional

from ovirt_rdma.engine_sdk_tools.api.session import Session
from ovirt_rdma.engine_sdk_tools.conversion.fleet import rule_of
from ovirt_rdma.engine_sdk_tools.conversion.model import (
    CONVERT,
    HEAL,
    ROLLING,
    ConversionRequest,
    ConversionState,
    Stage,
    refused,
)
from ovirt_rdma.engine_sdk_tools.job import (
    EngineJob,
    end_job,
    find_open_jobs,
    is_open,
)
from ovirt_rdma.engine_sdk_tools.model import Domain, Engine, listed
from ovirt_rdma.host.errors import ExitCode, Problem
from ovirt_rdma.host.policy.model import PREFER_RDMA

_JOBS = "ovirt-rdma: "


class OtherRun(Problem):
    """Another run works on the same domains, or on their hosts (exit code 75)."""

    exit_code = ExitCode.OTHER_RUN


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
        session: Session,
        owner: str,
        mine: Sequence[Any] = (),
        *,
        take_over: bool = False,
    ) -> None:
        self.job: Optional[EngineJob] = None
        self._session = session
        self._owner = owner
        self._unfinished = {
            state.job for state in mine if state.stage not in Stage.FINISHED
        }
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
        # Up to here the portal cuts nothing off, with names of the usual length.
        names = listed([domain.name for domain in state.domains], 2)
        what = f"convert to {state.to.upper()}: {names}"
        if state.kind == HEAL:
            what = f"heal {names}"
        elif state.undoes:
            what = f"revert {names}"
        text = described(what, concerned(state), self._owner)
        return self.claim(state, text, concerned(state))

    def claim(
        self, state: Any, description: str, about: Sequence[str]
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


def latest_state(
    states: Sequence[ConversionState], domains: Sequence[Domain]
) -> Optional[ConversionState]:
    """Return the latest state of a conversion of any of ``domains``."""
    ids = {domain.id for domain in domains}
    candidates = [
        state
        for state in states
        if state.kind == CONVERT and ids & {d.id for d in state.domains}
    ]
    return max(candidates, key=lambda state: state.begun_at, default=None)


def is_converted(state: ConversionState) -> bool:
    """Whether its domains are converted, by this conversion or by an earlier one."""
    if state.stage == Stage.ROLLED_BACK:
        return state.is_again
    return state.stage == Stage.CONVERTED


def earlier_conversions(
    states: Sequence[ConversionState], domains: Sequence[Domain]
) -> list[ConversionState]:
    """Return the conversions that ``domains`` have gone through and that still apply,
    the latest first.
    """
    latest = [latest_state(states, [domain]) for domain in domains]
    candidates = {
        state.begun_at: state
        for state in latest
        if state is not None and is_converted(state)
    }
    return [candidates[begun_at] for begun_at in sorted(candidates, reverse=True)]


def with_related(
    engine: Engine,
    states: Sequence[ConversionState],
    domains: Sequence[Domain],
    earlier: Sequence[ConversionState],
    to: str,
) -> list[Domain]:
    """Return ``domains``, with others that the same earlier conversions converted to
    ``to``.

    Such domains share one baseline. Raises Refused if the others are not requested and
    would have to go to another transport.
    """
    center = domains[0].data_center
    requested = {domain.id: domain for domain in domains}
    related: dict[str, Domain] = {}
    for state in earlier:
        ids = {record.id for record in state.domains}
        its = {
            domain.id: domain
            for domain in engine.domains
            if domain.id in ids
            and domain.data_center == center
            and latest_state(states, [domain]) is state
        }
        others = [domain.name for id, domain in its.items() if id not in requested]
        if state.to != to and others:
            raise refused(
                "converted-together",
                f"{state.title} were converted together, so the state before is "
                "recorded for all of them together",
                f"name {' and '.join(others)} too; or revert all of them: "
                f"{revert_command_of(state)}",
            )
        related.update(its)
    return list({**related, **requested}.values())


def check_resumable(
    state: ConversionState, domains: Sequence[Domain], request: ConversionRequest
) -> None:
    """Raise Refused if ``request`` for ``domains`` does not resume the incomplete
    ``state``.
    """
    names = " ".join(domain.name for domain in state.domains)
    if state.stage == Stage.REVERTING:
        raise refused(
            "revert-incomplete",
            f"a revert of {names} is not complete",
            f"complete it first: {command_of(state)}",
        )
    other = {d.id for d in domains} - {d.id for d in state.domains}
    if state.to != request.to or other:
        raise refused(
            "conversion-incomplete",
            f"a conversion of {names} to {state.to} is not complete",
            f"complete it first: {command_of(state)}; or revert it: "
            f"{revert_command_of(state)}",
        )


def has_other_options(state: ConversionState, request: ConversionRequest) -> bool:
    """Whether ``state`` was begun with other options than those of ``request``."""
    options = (request.rolling, request.by_row, rule_of(request))
    return options != (state.mode == ROLLING, state.by_row, state.rule)


def refuse_other_runs(
    states: Sequence[ConversionState], own: Optional[ConversionState]
) -> None:
    """Raise Refused if another run in the data center is incomplete.

    It may have hosts in maintenance. ``own`` is the state of this run.
    """
    for state in states:
        same = own is not None and (
            (state.kind, state.domains[0].id) == (own.kind, own.domains[0].id)
        )
        if same or state.stage not in Stage.UNDER_WAY:
            continue
        command = command_of(state)
        raise refused(
            "other-run-incomplete",
            f"an earlier '{command}' was interrupted and is not complete",
            f"complete it first: {command}",
        )


def command_of(state: ConversionState) -> str:
    """Return the command that resumes ``state``."""
    names = " ".join(shlex.quote(domain.name) for domain in state.domains)
    if state.kind == HEAL:
        return f"ovirt-rdma domain heal {names}"
    if state.stage == Stage.REVERTING:
        return revert_command_of(state)
    command = f"ovirt-rdma domain convert {names} --to {state.to}"
    options = [
        ("--rolling", state.mode == ROLLING),
        ("--engine-options", state.by_row),
        (f"--policy-rule {state.rule}", state.rule == PREFER_RDMA),
    ]
    return " ".join([command, *(word for word, so in options if so)])


def revert_command_of(state: ConversionState) -> str:
    """Return the command that reverts ``state``."""
    return f"ovirt-rdma domain revert {shlex.quote(state.domains[0].name)}"


# Say in sentences how a conversion or a heal has ended, or where it was interrupted.


def exit_code(state: ConversionState) -> ExitCode:
    """Return the exit code; REFUSED if the engine refused the first change."""
    if state.stage in (Stage.CONVERTED, Stage.REVERTED):
        return ExitCode.DONE
    if state.stage == Stage.ROLLED_BACK:
        changed = any(h.touched for h in state.hosts)
        changed = changed or any(d.touched for d in state.domains)
        return ExitCode.ROLLED_BACK if changed else ExitCode.REFUSED
    done = any(h.stage == Stage.DONE for h in state.hosts)
    return ExitCode.SOME if done else ExitCode.FAILED


def sentence(state: ConversionState) -> str:
    """Return the result in one sentence; also the text of the engine's event."""
    several = len(state.domains) > 1
    what = "Heal of" if state.kind == HEAL else "Domains" if several else "Domain"
    title, verb = f"{what} {state.title}", "are" if several else "is"
    if state.stage == Stage.CONVERTED:
        if state.kind == HEAL:
            return f"{title}: the mounts are over RDMA again"
        proven = "" if _proven(state) else ", but not proven on every host"
        without = left_out(state)
        if without:
            proven += f", without {', '.join(without)}"
        return f"{title} {verb} converted to {state.to.upper()}{proven}"
    if state.stage == Stage.REVERTED:
        return f"{title} {verb} mounted as before"
    why = f": {state.why.rstrip('.')}" if state.why else ""
    if state.stage == Stage.ROLLED_BACK and state.kind == HEAL:
        return f"{title} failed and was rolled back{why}"
    if state.stage == Stage.ROLLED_BACK:
        return f"{title} {verb} as before{why}"
    return f"{title} stopped and is incomplete{why}"


def left_out(state: ConversionState) -> list[str]:
    """Return the names of the hosts that were left out."""
    return [host.name for host in state.hosts if host.left_out]


def _proven(state: ConversionState) -> bool:
    return all(
        h.stage == Stage.DONE and not h.why
        for h in state.hosts
        if h.found == "up" and not h.left_out
    )


def interrupted_lines(state: ConversionState) -> list[str]:
    """Return sentences about an interrupted run: where it is, and how to resume it."""
    lines = []
    hosts = [host.name for host in state.hosts if host.ours]
    down = [d.name for d in state.domains if d.stage == Stage.ENTERING]
    for names in filter(None, (hosts, down)):
        verb = "is" if len(names) == 1 else "are"
        shown = ", ".join(names)
        lines.append(f"{shown} {verb} in maintenance for this run, or on the way there")
    how = f"the run is paused; resume it with '{command_of(state)}'"
    if state.kind != HEAL and state.stage != Stage.REVERTING:
        how += f", or revert it with '{revert_command_of(state)}'"
    return [*lines, how]
