# SPDX-License-Identifier: GPL-2.0-or-later
"""What ``domain convert``, ``revert`` and ``heal`` share: states, reports of the hosts,
the task among the engine's, and carrying a plan out.
"""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Optional

from ovirt_rdma.cli.engine.conversion_report import (
    command_of,
    exit_code,
    plan_lines,
    sentence,
    show_plan,
    show_result,
    stands,
)
from ovirt_rdma.cli.engine.session import NO_WAY, approve, asked, progress
from ovirt_rdma.cli.output import Screen
from ovirt_rdma.engine_sdk_tools.api.errors import EngineProblem
from ovirt_rdma.engine_sdk_tools.api.progress import Listener
from ovirt_rdma.engine_sdk_tools.api.session import Session
from ovirt_rdma.engine_sdk_tools.api.settings import state_folder
from ovirt_rdma.engine_sdk_tools.conversion.lock import (
    DataCenterLock,
    OtherRun,
    concerned,
)
from ovirt_rdma.engine_sdk_tools.conversion.model import (
    CONVERT,
    CONVERTED,
    FINISHED,
    HEAL,
    ROLLED_BACK,
    UNDER_WAY,
    ConversionState,
)
from ovirt_rdma.engine_sdk_tools.conversion.plan import ConversionPlan
from ovirt_rdma.engine_sdk_tools.conversion.run import carry_out
from ovirt_rdma.engine_sdk_tools.conversion.state_file import StateFile, StateFolder
from ovirt_rdma.engine_sdk_tools.conversion.transitions import renamed
from ovirt_rdma.engine_sdk_tools.hosts.report import HostDoor, HostReport
from ovirt_rdma.engine_sdk_tools.job import END_S, Listeners, end_job, is_open
from ovirt_rdma.engine_sdk_tools.model import Domain, Engine
from ovirt_rdma.engine_sdk_tools.refusals import Refused
from ovirt_rdma.host.errors import Problem, UsageProblem


class Run:
    """One verb's run on one data center, under its lock."""

    def __init__(
        self,
        words: Namespace,
        screen: Screen,
        session: Session,
        door: Optional[HostDoor],
    ) -> None:
        self.words = words
        self.screen = screen
        self.session = session
        self.door = door
        self.folder = states()
        self.lock: DataCenterLock

    def recorded(self, engine: Engine, data_center: str) -> list[ConversionState]:
        """Return what is recorded here of a data center, with the names that domains
        and hosts of ``engine`` have now. What changes something holds its lock of this
        machine by now, and gets that between machines.
        """
        stored = self.folder.states(data_center)
        found = [renamed(state, engine) for state in stored]
        if not self.words.dry_run:
            take_over = self.words.take_over
            owner = self.folder.owner()
            self.lock = DataCenterLock(self.session, owner, found, take_over=take_over)
        return found

    def reports(
        self, engine: Engine, data_center: str
    ) -> Optional[Iterator[HostReport]]:
        """Give what all hosts of a data center tell, as they are asked; None where
        there is no way to them.
        """
        if self.door is None:
            return None
        hosts = engine.hosts_of(data_center)
        return (report for _, report in asked(hosts, self.door, self.screen))

    def do(self, plan: ConversionPlan, kind: str) -> int:
        """Show the plan, or ask and carry it out; return the exit code."""
        words, screen = self.words, self.screen
        if words.dry_run:
            show_plan(plan, kind, screen)
            return 0
        if words.facts_dir is not None:
            raise UsageProblem(
                "facts-dir-needs-dry-run",
                "--facts-dir is for --dry-run: hosts are changed here, and proven",
                "give --ssh-key or --inventory",
            )
        state = plan.state
        if self.door is None and not state.blind:
            raise Refused([NO_WAY[0]], NO_WAY[1])
        if state.stage in UNDER_WAY:
            self.lock.check_free(concerned(state))
        approve(words, screen, plan_lines(plan))
        state = self._work(plan)
        show_result(state, kind, screen)
        return exit_code(state)

    def _work(self, plan: ConversionPlan) -> ConversionState:
        state = plan.state
        shown: Listener = progress(self.words, self.screen)
        if not self.words.no_job:
            state = replace(state, job=self.lock.take(state))
        job = self.lock.job
        listener = Listeners(shown, job) if job else shown
        keeper = _Keeper(self.folder.file_for(state), state)
        try:
            state = carry_out(
                self.session, self.door, state, keeper, listener, lock=self.lock
            )
        except BaseException as error:
            # The progress would take these lines away with its own.
            self.words.at_end.close()
            for line in stands(keeper.last):
                self.screen.message(f"note: {line}")
            if job is not None and not isinstance(error, OtherRun):
                by_hand = not isinstance(error, Problem)
                # The job stays open: nobody else may begin meanwhile.
                job.leave_open(
                    f"cut off; {'; '.join(stands(keeper.last))}",
                    patience_s=0.0 if by_hand else END_S,
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
        """End the job of an earlier run of what is over now, which had none itself."""
        job = str(state.job)
        try:
            if is_open(self.session, job):
                end_job(self.session, job, succeeded=exit_code(state) == 0)
        except EngineProblem as problem:
            self.screen.message(f"note: {problem.one_line}")


def _is_over(state: ConversionState) -> bool:
    """Whether nothing is left that another machine's run would take for the original:
    half a conversion is known to this machine only.
    """
    return state.kind == HEAL or state.stage in FINISHED


class _Keeper:
    """Writes the state, and remembers it."""

    def __init__(self, file: StateFile, state: ConversionState) -> None:
        self.last = state
        self._file = file

    def write(self, state: ConversionState) -> None:
        """See StateFile."""
        # Also what could not be written has been done up to here.
        self.last = state
        self._file.write(state)


def states() -> StateFolder:
    """Return where this user's states are."""
    return StateFolder(state_folder(os.environ, os.geteuid()))


def stored_of(
    found: Sequence[ConversionState], domains: Sequence[Domain]
) -> Optional[ConversionState]:
    """Return the latest state of a conversion of any of ``domains``."""
    ids = {domain.id for domain in domains}
    mine = [
        state
        for state in found
        if state.kind == CONVERT and ids & {d.id for d in state.domains}
    ]
    return max(mine, key=lambda state: state.begun_at, default=None)


def earlier_of(
    found: Sequence[ConversionState], domains: Sequence[Domain], to: str
) -> list[ConversionState]:
    """Return the conversions to ``to`` after which ``domains`` stand now, the latest
    first.
    """
    latest = [stored_of(found, [domain]) for domain in domains]
    mine = {
        state.begun_at: state
        for state in latest
        if state is not None and state.to == to and stands_converted(state)
    }
    return [mine[begun_at] for begun_at in sorted(mine, reverse=True)]


def stands_converted(state: ConversionState) -> bool:
    """Whether its domains are converted: by it, or by one before that it came after."""
    if state.stage == ROLLED_BACK:
        return bool(state.first_domains)
    return state.stage == CONVERTED


def no_other_under_way(
    found: Sequence[ConversionState], mine: Optional[ConversionState]
) -> None:
    """Raise Refused where something else is unfinished in the data center: its hosts
    may be in maintenance for it.
    """
    for state in found:
        same = mine is not None and (
            (state.kind, state.domains[0].id) == (mine.kind, mine.domains[0].id)
        )
        if same or state.stage not in UNDER_WAY:
            continue
        command = command_of(state)
        raise Refused(
            [f"a run of '{command}' was cut off and is not finished"],
            f"finish it first: {command}",
        )
