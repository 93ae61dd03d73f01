# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ``hosts prepare``: install and set up the add-on on hosts, batch by batch."""

from __future__ import annotations

import contextlib
import time
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Optional

from ovirt_rdma.cli.engine import conversion_run
from ovirt_rdma.cli.engine.prepare import report
from ovirt_rdma.cli.engine.session import (
    NO_ACCESS,
    access_of,
    approve,
    ask_hosts,
    open_session,
    progress,
)
from ovirt_rdma.cli.output import Output, count
from ovirt_rdma.engine_sdk_tools.api.progress import Listener
from ovirt_rdma.engine_sdk_tools.api.session import Session
from ovirt_rdma.engine_sdk_tools.conversion.lock import (
    DataCenterLock,
    OtherRun,
    described,
)
from ovirt_rdma.engine_sdk_tools.deploy_hook import block
from ovirt_rdma.engine_sdk_tools.deploy_hook.block import PostTasksProblem
from ovirt_rdma.engine_sdk_tools.deploy_hook.post_tasks import (
    POST_TASKS,
    PostTasksFile,
)
from ovirt_rdma.engine_sdk_tools.deploy_hook.settings import (
    policy_of_engine,
    read_settings,
)
from ovirt_rdma.engine_sdk_tools.hosts.collection import collection_folder
from ovirt_rdma.engine_sdk_tools.hosts.role import SSH_VARIABLES
from ovirt_rdma.engine_sdk_tools.job import END_S, Listeners
from ovirt_rdma.engine_sdk_tools.model import Engine, Host
from ovirt_rdma.engine_sdk_tools.names import NameProblem, hosts_named
from ovirt_rdma.engine_sdk_tools.preparation.model import (
    DONE,
    FAILED,
    NO_HARDWARE,
    PREPARING,
    REINSTALL,
    SSH,
    PreparationState,
)
from ovirt_rdma.engine_sdk_tools.preparation.plan import (
    PreparationRequest,
    look_at,
    plan_preparation,
)
from ovirt_rdma.engine_sdk_tools.preparation.run import carry_out
from ovirt_rdma.engine_sdk_tools.preparation.state_file import PreparationFile, file_in
from ovirt_rdma.engine_sdk_tools.reader import read_engine
from ovirt_rdma.engine_sdk_tools.refusals import ChecksFailed, Refused
from ovirt_rdma.host.errors import Problem, Sentence, UsageProblem
from ovirt_rdma.host.policy.json_form import digest
from ovirt_rdma.host.policy.load import load_policy_file


def prepare(args: Namespace, output: Output) -> int:
    """Prepare hosts, one data center after the other; return the worst exit code."""
    if args.facts_dir is not None and not args.dry_run:
        raise UsageProblem(
            "facts-dir-needs-dry-run",
            "--facts-dir needs --dry-run: it gives no access to hosts",
            "give --ssh-key or --inventory",
        )
    settings = read_settings(collection=collection_folder())
    variables = {**policy_of_engine(), **settings}
    request = _request(args, variables)
    with open_session(args) as session:
        engine = read_engine(session)
        hosts = hosts_named(engine, args.names, args.datacenter)
        if args.canary is not None and args.canary not in {host.name for host in hosts}:
            raise NameProblem(
                "canary-unknown",
                f"--canary {args.canary}: there is no such host among those to prepare",
                "give the name of one of the hosts",
            )
        access = access_of(args, engine)
        if access is None and args.by == SSH and not args.dry_run:
            raise Refused([NO_ACCESS[0]], NO_ACCESS[1])
        run = _Run(args, output, session, access, request=request, variables=variables)
        codes = []
        centers = _by_center(engine, hosts, output)
        for number, (center, ids) in enumerate(centers.items(), 1):
            codes.append(run.center(engine, center, [h for h in hosts if h.id in ids]))
            if run.stopped and number < len(centers):
                output.message(
                    f"note: {count(len(centers) - number, 'data center')} not "
                    "started, because hosts have failed"
                )
                break
    if not codes and output.for_people:
        output.line("There is no host.")
    return max(codes, default=0)


def _request(args: Namespace, variables: dict[str, Any]) -> PreparationRequest:
    path = variables.get("prepare_policy_file")
    policy = load_policy_file(Path(path)).policy if path else None
    return PreparationRequest(
        args.by,
        args.batch,
        args.reboot,
        args.canary,
        args.again,
        policy,
        None if policy is None else digest(policy),
        variables.get("prepare_apply", True) is not False,
        str(variables.get("prepare_mode", "vdsmd")),
        block_problem() is None,
    )


def _by_center(
    engine: Engine, hosts: Sequence[Host], output: Output
) -> dict[str, set[str]]:
    """Return the ids of ``hosts`` by data center; hosts without one are left out, with
    a note.
    """
    centers = {cluster.id: cluster.data_center for cluster in engine.clusters}
    found: dict[str, set[str]] = {}
    for host in hosts:
        center = centers.get(host.cluster)
        if center is not None:
            found.setdefault(center, set()).add(host.id)
        else:
            output.message(
                f"note: {host.name} is left out: its cluster has no data center"
            )
    return found


class _Keeper:
    """Writes the state, and keeps the last one."""

    def __init__(self, file: PreparationFile, state: PreparationState) -> None:
        self.last = state
        self._file = file

    def write(self, state: PreparationState) -> None:
        """See PreparationFile."""
        self.last = state
        self._file.write(state)


class _Run:
    def __init__(
        self,
        args: Namespace,
        output: Output,
        session: Session,
        access: Any,
        *,
        request: PreparationRequest,
        variables: dict[str, Any],
    ) -> None:
        self._args = args
        self._output = output
        self._session = session
        self._access = access
        self._request = request
        self._variables = {**variables, **SSH_VARIABLES}
        self._folder = conversion_run.conversion_states()
        # Whether hosts were not started because others failed.
        self.stopped = False

    def center(self, engine: Engine, center: str, hosts: Sequence[Host]) -> int:
        """Prepare the hosts of one data center; return the exit code."""
        args, output = self._args, self._output
        with contextlib.ExitStack() as locked:
            if not args.dry_run:
                locked.enter_context(self._folder.only_run(center))
                conversion_run.refuse_other_runs(self._folder.states(center), None)
            file = file_in(self._folder, center)
            state = file.read()
            if state is not None and state.stage == PREPARING:
                command = report.command_of(state)
                output.message(f"note: continues the interrupted '{command}'")
                if state.digest != self._request.digest:
                    output.message(
                        "note: the policy was changed meanwhile; hosts that are "
                        "prepared already have the earlier one"
                    )
                    state = replace(state, digest=self._request.digest)
            else:
                state = self._planned(engine, center, hosts, state)
            statuses = {host.id: host.status for host in engine.hosts}
            if args.dry_run:
                report.show_plan(state, statuses, output)
                return 0
            if not report.anything_to_do(state):
                return report.show_result(state, output)
            if any(record.way == REINSTALL for record in state.hosts):
                problem = block_problem()
                if problem is not None:
                    raise problem
            lock = self._lock(state)
            lock.check_free([center])
            approve(args, output, report.plan_lines(state))
            state = self._work(state, lock, file)
            self.stopped = any(record.stage == FAILED for record in state.hosts)
            return report.show_result(state, output)

    def _planned(
        self,
        engine: Engine,
        center: str,
        hosts: Sequence[Host],
        earlier: Optional[PreparationState],
    ) -> PreparationState:
        looks, proven = None, set()
        if self._access is not None:
            looks = {
                host.name: look_at(told, self._request)
                for host, told in ask_hosts(hosts, self._access, self._output)
            }
        elif earlier is not None and earlier.digest == self._request.digest:
            # Without reports, only the run before knows which hosts are prepared.
            over = (DONE, NO_HARDWARE)
            proven = {h.id for h in earlier.hosts if h.stage in over}
        return plan_preparation(
            engine,
            center,
            hosts,
            looks,
            self._request,
            now=time.time(),
            proven=proven,
        )

    def _lock(self, state: PreparationState) -> DataCenterLock:
        mine = [state] if state.stage == PREPARING else []
        return DataCenterLock(
            self._session, self._folder.owner(), mine, take_over=self._args.take_over
        )

    def _work(
        self, state: PreparationState, lock: DataCenterLock, file: PreparationFile
    ) -> PreparationState:
        shown: Listener = progress(self._args, self._output)
        about = [state.data_center]
        title = f"prepare hosts of {state.name}"
        if not self._args.no_job:
            description = described(title, about, self._folder.owner())
            job_id = lock.claim(state, description, about)
            state = state.with_job(job_id)
        job = lock.job
        listener = Listeners(shown, job) if job else shown
        keeper = _Keeper(file, state)
        try:
            state = carry_out(
                self._session,
                self._access,
                state,
                keeper,
                listener,
                request=self._request,
                variables=self._variables,
                lock=lock,
            )
        except BaseException as error:
            # First, because closing the progress erases the last lines.
            self._args.at_end.close()
            lines = report.interrupted_lines(keeper.last)
            for line in lines:
                self._output.message(f"note: {line}")
            if job is not None and not isinstance(error, OtherRun):
                # The job stays open, so that no other run starts meanwhile.
                patience_s = END_S if isinstance(error, Problem) else 0.0
                job.leave_open(
                    f"{title}: interrupted; {'; '.join(lines)}", patience_s=patience_s
                )
            raise
        if job is not None:
            code = report.exit_code(state)
            sentence = f"{title}: {report.sentence(state)}"
            job.finish(sentence, succeeded=code == 0)
        return state


def block_problem() -> Optional[Problem]:
    """Return why a reinstall would not run the role, if this is the engine machine.
    Elsewhere, the canary shows it.
    """
    if not Path(POST_TASKS).parent.is_dir():
        return None
    collection = collection_folder()
    name = block.COLLECTION if collection is None else str(collection)
    try:
        content = PostTasksFile(POST_TASKS).read()
        state = block.MISSING if content is None else block.find(content, name).state
    except PostTasksProblem as problem:
        return problem
    if state != block.INSTALLED:
        return ChecksFailed(
            [
                Sentence(
                    "deploy-hook-not-installed",
                    f"hosts have to be reinstalled, but the block in {POST_TASKS} is "
                    f"{state}: the engine would not prepare them",
                )
            ],
            "ovirt-rdma deploy-hook install; or, without maintenance: --by ssh",
        )
    return None
