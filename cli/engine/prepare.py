# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ``hosts prepare``: install and set up the add-on on hosts, batch by batch."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Optional

from ovirt_rdma.cli.approval import approve
from ovirt_rdma.cli.context import Context
from ovirt_rdma.cli.engine import prepare_report as report
from ovirt_rdma.cli.engine import session as cli_session
from ovirt_rdma.cli.engine.arguments import (
    AccessOptions,
    ChangeOptions,
    EngineVerb,
    add_batch,
    add_change_options,
    add_data_center,
    add_host_access,
)
from ovirt_rdma.cli.engine.session import (
    access_of,
    ask_hosts,
    in_each,
    open_session,
    progress,
)
from ovirt_rdma.cli.output import Output
from ovirt_rdma.cli.parser import Parser
from ovirt_rdma.engine_sdk_tools.api.engine_session import EngineSession
from ovirt_rdma.engine_sdk_tools.conversion.lock import (
    DataCenterLock,
    OtherRun,
    described,
    refuse_other_runs,
)
from ovirt_rdma.engine_sdk_tools.deploy_hook import block, settings
from ovirt_rdma.engine_sdk_tools.deploy_hook.block import PostTasksProblem
from ovirt_rdma.engine_sdk_tools.deploy_hook.post_tasks import POST_TASKS, PostTasksFile
from ovirt_rdma.engine_sdk_tools.hosts.collection import collection_folder
from ovirt_rdma.engine_sdk_tools.hosts.report import NO_ACCESS
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
from ovirt_rdma.host.policy.load import load_policy_file
from ovirt_rdma.host.policy.model import digest


class Prepare(EngineVerb, AccessOptions, ChangeOptions):
    """Prepare one data center after the other."""

    codes = (
        "0 prepared, or nothing to do, 1 failed, 3 checks failed,\n"
        "4 refused or declined, 5 done on some hosts, not on others,\n"
        "75 another run is changing the data center"
    )
    examples = ("--dry-run", "--batch 4", "hv1 hv2 --by ssh")
    more = (
        "The first host goes alone, and the others follow in batches if it is\n"
        "prepared. By SSH, a host stays at work: packages, policy and what takes no\n"
        "link down. By reinstall, the engine moves it to maintenance, installs it\n"
        "again (with the block of deploy-hook), and activates it. A host counts as\n"
        "prepared only if the last task of the role has run on it. Hosts get the\n"
        "policy of this machine, and the settings in /etc/ovirt-rdma/host-deploy.yml.\n"
        "An interrupted run continues with the same command."
    )

    names: list[str]
    by: str
    canary: Optional[str]
    again: bool
    reboot: str
    take_over: bool
    datacenter: Optional[str]
    batch: int

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        parser.add_argument(
            "names", metavar="NAME", nargs="*", help="hosts; default: all"
        )
        parser.add_argument(
            "--by",
            choices=("auto", "ssh", "reinstall"),
            default="auto",
            help="how; auto, the default: by SSH, and by reinstall where a link has to "
            "go down, or the host has to restart",
        )
        parser.add_argument(
            "--canary",
            metavar="NAME",
            help="the host that goes first; default: one that is not SPM, with the "
            "fewest virtual machines",
        )
        parser.add_argument(
            "--again",
            action="store_true",
            help="also hosts that need nothing, for example to update the package",
        )
        parser.add_argument(
            "--reboot",
            choices=("auto", "yes", "no"),
            default="auto",
            help="let a reinstall restart the host at its end; auto, the default: "
            "where the plan of the host has a step for it, or the plan is unknown",
        )
        parser.add_argument(
            "--take-over",
            action="store_true",
            help="end the open task of another run that has been abandoned",
        )
        add_data_center(parser)
        add_batch(parser)
        add_change_options(parser)
        add_host_access(parser)

    def run(self, context: Context) -> int:
        output = context.output
        if self.facts_dir is not None and not self.dry_run:
            raise UsageProblem(
                "facts-dir-needs-dry-run",
                "--facts-dir needs --dry-run: it gives no access to hosts",
                "give --ssh-key or --inventory",
            )
        ours = settings.read_settings(collection=collection_folder())
        variables = {**settings.policy_of_engine(), **ours}
        request = _request(self, variables)
        with open_session(self, output) as session:
            engine = read_engine(session)
            hosts = hosts_named(engine, self.names, self.datacenter)
            if self.canary is not None and self.canary not in {
                host.name for host in hosts
            }:
                raise NameProblem(
                    "canary-unknown",
                    f"--canary {self.canary}: there is no such host among those to "
                    "prepare",
                    "give the name of one of the hosts",
                )
            access = access_of(self, context)
            if access is None and self.by == SSH and not self.dry_run:
                raise Refused([NO_ACCESS[0]], NO_ACCESS[1])
            run = _Run(
                self, context, session, access, request=request, variables=variables
            )
            ids = _by_center(engine, hosts, output)
            named = {center.id: center.name for center in engine.data_centers}

            def prepare(center: str, content: dict[str, Any]) -> tuple[int, bool]:
                mine = [host for host in hosts if host.id in ids[center]]
                return run.center(engine, center, mine, content), not run.stopped

            centers = {center: named.get(center, center) for center in ids}
            none = "There is no host"
            return in_each(centers, prepare, output, report.KIND, none=none)


def _request(args: Prepare, variables: dict[str, Any]) -> PreparationRequest:
    path = variables.get("prepare_policy_file")
    policy = load_policy_file(Path(path), alone=True).policy if path else None
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


class _Run:
    def __init__(
        self,
        args: Prepare,
        context: Context,
        session: EngineSession,
        access: Any,
        *,
        request: PreparationRequest,
        variables: dict[str, Any],
    ) -> None:
        self._args = args
        self._context = context
        self._output = context.output
        self._session = session
        self._access = access
        self._request = request
        self._variables = {**variables, **SSH_VARIABLES}
        self._folder = cli_session.conversion_states()
        # Whether hosts were not started because others failed.
        self.stopped = False

    def center(
        self,
        engine: Engine,
        center: str,
        hosts: Sequence[Host],
        content: dict[str, Any],
    ) -> int:
        """Prepare the hosts of one data center, and fill ``content`` for programs;
        return the exit code.
        """
        args, output = self._args, self._output
        with contextlib.ExitStack() as locked:
            if not args.dry_run:
                locked.enter_context(self._folder.only_run(center))
                refuse_other_runs(self._folder.states(center), None)
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
                content.update(report.plan_document(state, statuses))
                if output.for_people:
                    report.show_plan(state, statuses, output)
                return 0
            if not report.anything_to_do(state):
                return self._result(state, content)
            if any(record.way == REINSTALL for record in state.hosts):
                problem = block_problem()
                if problem is not None:
                    raise problem
            lock = self._lock(state)
            lock.check_free([center])
            approve(args, output, report.plan_lines(state))
            state = self._work(state, lock, file)
            self.stopped = any(record.stage == FAILED for record in state.hosts)
            return self._result(state, content)

    def _result(self, state: PreparationState, content: dict[str, Any]) -> int:
        content.update(report.result_document(state))
        if self._output.for_people:
            report.show_result(state, self._output)
        return report.exit_code(state)

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
        shown = self._session.listener = progress(self._context)
        about = [state.data_center]
        title = f"prepare hosts of {state.name}"
        if not self._args.no_job:
            description = described(title, about, self._folder.owner())
            job_id = lock.claim(state, description, about)
            state = state.with_job(job_id)
        job = lock.job
        listener = Listeners(shown, job) if job else shown
        try:
            state = carry_out(
                self._session,
                self._access,
                state,
                file,
                listener,
                request=self._request,
                variables=self._variables,
                lock=lock,
            )
        except BaseException as error:
            lines = report.interrupted_lines(file.last or state)
            for line in lines:
                shown.note(line)
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
