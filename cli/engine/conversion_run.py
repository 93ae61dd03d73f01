# SPDX-License-Identifier: GPL-2.0-or-later
"""Carry out ``domain convert``, ``revert`` and ``heal`` on one data center.

This is what the three share: stored states, reports of the hosts, the job in the
engine, and the run itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Optional

from ovirt_rdma.cli.approval import approve
from ovirt_rdma.cli.context import Context
from ovirt_rdma.cli.engine.arguments import (
    ChangesDomains,
)
from ovirt_rdma.cli.engine.conversion_report import (
    exit_code,
    interrupted_lines,
    plan_lines,
    sentence,
    show_plan,
    show_result,
)
from ovirt_rdma.cli.engine.session import NO_ACCESS, ask_hosts, progress
from ovirt_rdma.engine_sdk_tools.api.engine_session import EngineSession
from ovirt_rdma.engine_sdk_tools.api.errors import EngineProblem
from ovirt_rdma.engine_sdk_tools.api.settings import state_folder
from ovirt_rdma.engine_sdk_tools.conversion.lock import (
    DataCenterLock,
    OtherRun,
    check_resumable,
    command_of,
    concerned,
    has_other_options,
)
from ovirt_rdma.engine_sdk_tools.conversion.model import (
    FINISHED,
    HEAL,
    UNDER_WAY,
    ConversionState,
)
from ovirt_rdma.engine_sdk_tools.conversion.plan import ConversionPlan, plan_resume
from ovirt_rdma.engine_sdk_tools.conversion.preflight import ConversionRequest
from ovirt_rdma.engine_sdk_tools.conversion.run import carry_out
from ovirt_rdma.engine_sdk_tools.conversion.state_file import StateFile, StateFolder
from ovirt_rdma.engine_sdk_tools.conversion.transitions import renamed
from ovirt_rdma.engine_sdk_tools.hosts.report import HostAccess, HostReport
from ovirt_rdma.engine_sdk_tools.job import END_S, Listeners, end_job, is_open
from ovirt_rdma.engine_sdk_tools.model import Domain, Engine
from ovirt_rdma.engine_sdk_tools.preparation.state_file import refuse_preparation
from ovirt_rdma.engine_sdk_tools.refusals import Refused
from ovirt_rdma.host.errors import Problem, UsageProblem


class Run:
    """One run of a verb on one data center, which holds its lock."""

    def __init__(
        self,
        args: ChangesDomains,
        context: Context,
        session: EngineSession,
        access: Optional[HostAccess],
    ) -> None:
        self.args = args
        self.output = context.output
        self._context = context
        self.session = session
        self.access = access
        self.folder = conversion_states()
        self.lock: DataCenterLock

    def resumed(
        self,
        engine: Engine,
        state: ConversionState,
        domains: Sequence[Domain],
        request: ConversionRequest,
    ) -> ConversionPlan:
        """Return the plan of the rest of ``state``, which was interrupted. Raises
        Refused if the request is another one.
        """
        check_resumable(state, domains, request)
        if has_other_options(state, request):
            self.output.message(
                f"note: resumed with the options of its first run: {command_of(state)}"
            )
        state = replace(state, batch=request.batch)
        reports = self.reports(engine, state.data_center)
        return plan_resume(state, engine, reports, request.without)

    def recorded(self, engine: Engine, data_center: str) -> list[ConversionState]:
        """Return the stored states of a data center, with the present names of the
        engine's domains and hosts.

        If the run changes something, this also prepares the lock between machines; the
        caller already holds the lock of this machine.
        """
        stored = self.folder.states(data_center)
        conversion_states = [renamed(state, engine) for state in stored]
        if not self.args.dry_run:
            refuse_preparation(self.folder, data_center)
            take_over = self.args.take_over
            owner = self.folder.owner()
            self.lock = DataCenterLock(
                self.session, owner, conversion_states, take_over=take_over
            )
        return conversion_states

    def reports(
        self, engine: Engine, data_center: str
    ) -> Optional[Iterator[HostReport]]:
        """Return the reports of all hosts of a data center, as they arrive; None
        without host access.
        """
        if self.access is None:
            return None
        hosts = engine.hosts_of(data_center)
        return (report for _, report in ask_hosts(hosts, self.access, self.output))

    def do(self, plan: ConversionPlan, kind: str) -> int:
        """Show the plan, or ask and carry it out; return the exit code."""
        args, output = self.args, self.output
        if args.dry_run:
            show_plan(plan, kind, output)
            return 0
        if args.facts_dir is not None:
            raise UsageProblem(
                "facts-dir-needs-dry-run",
                "--facts-dir needs --dry-run: it gives no access to hosts",
                "give --ssh-key or --inventory",
            )
        state = plan.state
        if self.access is None and not state.blind:
            raise Refused([NO_ACCESS[0]], NO_ACCESS[1])
        if state.stage in UNDER_WAY:
            self.lock.check_free(concerned(state))
        approve(args, output, plan_lines(plan))
        state = self._work(plan)
        show_result(state, kind, output)
        return exit_code(state)

    def _work(self, plan: ConversionPlan) -> ConversionState:
        state = plan.state
        shown = progress(self._context)
        if not self.args.no_job:
            state = replace(state, job=self.lock.take(state))
        job = self.lock.job
        listener = Listeners(shown, job) if job else shown
        keeper = _Keeper(self.folder.file_for(state), state)
        try:
            state = carry_out(
                self.session, self.access, state, keeper, listener, lock=self.lock
            )
        except BaseException as error:
            # First, because closing the progress erases the last lines.
            self._context.at_end.close()
            for line in interrupted_lines(keeper.last):
                self.output.message(f"note: {line}")
            if job is not None and not isinstance(error, OtherRun):
                interrupted = not isinstance(error, Problem)
                # The job stays open, so that no other run starts meanwhile.
                job.leave_open(
                    f"interrupted; {'; '.join(interrupted_lines(keeper.last))}",
                    patience_s=0.0 if interrupted else END_S,
                )
            raise
        if not _is_over(state):
            if job is not None:
                job.leave_open(sentence(state))
            return state
        if job is not None:
            job.finish(sentence(state), succeeded=exit_code(state) == 0)
        elif state.job is not None:
            self._end_earlier(state)
        return state

    def _end_earlier(self, state: ConversionState) -> None:
        """End the job of an earlier run of this conversion, which is complete now."""
        job = str(state.job)
        try:
            if is_open(self.session, job):
                end_job(self.session, job, succeeded=exit_code(state) == 0)
        except EngineProblem as problem:
            self.output.message(f"note: {problem.one_line}")


def _is_over(state: ConversionState) -> bool:
    """Whether the run left nothing that another machine would take for the baseline.

    Only this machine knows about an incomplete conversion.
    """
    return state.kind == HEAL or state.stage in FINISHED


class _Keeper:
    """Writes the state, and keeps the last one."""

    def __init__(self, file: StateFile, state: ConversionState) -> None:
        self.last = state
        self._file = file

    def write(self, state: ConversionState) -> None:
        """See StateFile."""
        # The state is true even if it cannot be written.
        self.last = state
        self._file.write(state)


def conversion_states() -> StateFolder:
    """Return the folder with the states of this user."""
    return StateFolder(state_folder(os.environ, os.geteuid()))
