# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ``hosts list``, ``check`` and ``prepare``, which installs the add-on on hosts."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from typing import Any, Optional

from ovirt_rdma.cli.engine.main import (
    AccessOptions,
    ChangeOptions,
    EngineVerb,
    add_batch,
    add_change_options,
    add_data_center,
    add_host_access,
    add_policy,
)
from ovirt_rdma.cli.engine.session import (
    Approver,
    in_each,
    matrix_code,
    open_session,
    own_policy,
    progress,
    rdma_engine,
    refuse_dumps,
    request_document,
    request_lines,
    show_matrix,
    show_steps,
)
from ovirt_rdma.cli.output import Output, count
from ovirt_rdma.cli.parser import AllowNone, Context, Parser, add_allow_none
from ovirt_rdma.engine_sdk_tools.api.request import EngineProblem
from ovirt_rdma.engine_sdk_tools.conversion.next_step import RunStep
from ovirt_rdma.engine_sdk_tools.fleet.check import failures, write_events
from ovirt_rdma.engine_sdk_tools.fleet.preparation import (
    AUTO,
    DONE,
    FAILED,
    LEFT_OUT,
    NO_HARDWARE,
    NOTHING,
    OVER,
    PreparationRequest,
    PreparationState,
    exit_code,
    imagined,
    sentence,
)
from ovirt_rdma.engine_sdk_tools.hosts import deploy_hook
from ovirt_rdma.engine_sdk_tools.hosts.ansible_run import collection_folder
from ovirt_rdma.engine_sdk_tools.hosts.report import NAME, POINTS
from ovirt_rdma.engine_sdk_tools.model import (
    Engine,
    Host,
    NameProblem,
    hosts_named,
    listed,
    status_label,
)
from ovirt_rdma.engine_sdk_tools.reader import read_engine
from ovirt_rdma.host.errors import ExitCode
from ovirt_rdma.host.policy.model import digest

_HEADINGS = (
    "HOST",
    "ADDRESS",
    "DATA CENTER",
    "CLUSTER",
    "STATUS",
    "VMS",
    "HOOKS",
    "IPOIB",
)


class ListHosts(EngineVerb):
    """List the hosts as the engine knows them."""

    codes = "0 listed, 1 failed"
    examples = ("", "--datacenter dc1 -o json")

    datacenter: Optional[str]

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        add_data_center(parser)

    def run(self, context: Context) -> int:
        output = context.output
        with open_session(self, output) as session:
            engine = read_engine(session, nics=True, hooks=True)
        hosts = hosts_named(engine, (), self.datacenter)
        if not output.for_people:
            output.document(
                "hosts-list",
                {
                    "hosts": [_document(engine, host) for host in hosts],
                    "problems": list(engine.problems),
                },
            )
            return 0
        for problem in engine.problems:
            output.message(f"note: {problem}")
        if not hosts:
            output.line("There is no host.")
            return 0
        output.table(_HEADINGS, [_cells(engine, host) for host in hosts])
        return 0


class Check(EngineVerb, AccessOptions, AllowNone):
    """Check hosts; return 3 if a check failed or is unknown, or without a host."""

    codes = (
        "0 no check failed, 1 failed,\n"
        "3 a check failed or is unknown, or there is no host"
    )
    examples = ("", "hv1 hv2", "--facts-dir dumps --policy policy.yaml", "--events")
    more = (
        "The engine's view of a host and the host's own report are shown\nseparately."
    )

    names: list[str]
    policy: Optional[str]
    events: bool
    datacenter: Optional[str]

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        parser.add_argument(
            "names", metavar="NAME", nargs="*", help="hosts; default: all"
        )
        add_policy(parser)
        parser.add_argument(
            "--events",
            action="store_true",
            help="also write an event of the engine for each host with a failed check "
            "or a path that is down, at most one a day for the same failure; for a "
            "timer",
        )
        add_data_center(parser)
        add_host_access(parser)
        add_allow_none(parser, "host")

    def run(self, context: Context) -> int:
        output = context.output
        policy = own_policy(self.policy)
        with open_session(self, output) as session:
            matrix = rdma_engine(self, context, session).check_hosts(
                *self.names,
                policy=policy[0].policy if policy else None,
                policy_file=str(policy[1]) if policy else None,
                data_center=self.datacenter,
            )
            if matrix.rows or not output.for_people:
                show_matrix(output, matrix)
            if self.events:
                now, failed = datetime.now(timezone.utc), failures(matrix)
                try:
                    for host in write_events(session, failed, now):
                        output.message(f"note: the engine has a new event about {host}")
                except EngineProblem as problem:
                    output.message(f"note: {problem.one_line}; {problem.fix}")
                    return ExitCode.FAILED
        return matrix_code(self, output, matrix, "There is no host.")


def _cells(engine: Engine, host: Host) -> list[str]:
    document = _document(engine, host)
    return [
        host.name,
        host.address,
        document["data_center"] or "-",
        document["cluster"] or "-",
        status_label(host.status) + (" (SPM)" if document["spm"] else ""),
        str(host.vms),
        f"{len(document['hooks'])} of {len(POINTS)}",
        ", ".join(nic["name"] for nic in document["ipoib_nics"]) or "-",
    ]


def _document(engine: Engine, host: Host) -> dict[str, Any]:
    return {
        "name": host.name,
        "id": host.id,
        "address": host.address,
        "data_center": engine.center_name(engine.center_of(host)),
        "cluster": next(
            (c.name for c in engine.clusters if c.id == host.cluster), None
        ),
        "status": host.status,
        "spm": host.spm == "spm",
        "vms": host.vms,
        "hosted_engine": host.hosted_engine,
        "hooks": [hook.event for hook in host.hooks or () if hook.name == NAME],
        "ipoib_nics": [
            {"name": nic.name, "mtu": nic.mtu, "status": nic.status, "mac": nic.mac}
            for nic in host.nics or ()
            if nic.infiniband
        ],
    }


_TONES = {"prepared": "good", "failed": "bad", "left out": "bad", "not started": "bad"}
# The state at the start, and the statuses of hosts by id.
_Plan = tuple[PreparationState, Mapping[str, Optional[str]]]


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
        refuse_dumps(self)
        ours = deploy_hook.read_settings(collection=collection_folder())
        variables = {**deploy_hook.policy_of_engine(), **ours}
        by_cluster = deploy_hook.is_by_cluster(variables)
        if not by_cluster:
            _request(self, variables)  # mistakes come before the login
        with open_session(self, output) as session:
            session.listener = progress(context)
            engine = read_engine(session)
            hosts = hosts_named(engine, self.names, self.datacenter)
            if self.canary not in (None, *(host.name for host in hosts)):
                raise NameProblem(
                    "canary-unknown",
                    f"--canary {self.canary}: there is no such host among those to "
                    "prepare",
                    "give the name of one of the hosts",
                )
            tasks = not self.no_job
            rdma = rdma_engine(self, context, session, tasks=tasks, noted=False)
            if by_cluster:
                # Before it is complete, the others of its data center are refused.
                centers = {engine.center_of(host) for host in hosts}
                begun = {id for one in centers for id in rdma.being_prepared(one)}
                hosts = tuple(sorted(hosts, key=lambda host: host.id not in begun))
            chosen = _groups(engine, hosts, output, by_cluster=by_cluster)

            def prepare(key: str, content: dict[str, Any]) -> tuple[int, bool]:
                center, cluster = groups[key]
                own = variables
                if by_cluster:
                    own = deploy_hook.of_cluster(variables, cluster)
                    content["cluster"] = cluster

                def show(plan: _Plan) -> None:
                    steps = list(imagined(*plan))
                    content.update(_prepared(plan[0], dry_run=True))
                    content["steps"] = [_step_document(step) for step in steps]
                    if output.for_people:
                        show_plan(plan, steps, output)

                ask = Approver(self, output, lambda plan: plan_lines(plan[0]), show)
                state = rdma.prepare_hosts(
                    center,
                    *chosen[center, cluster],
                    request=_request(self, own),
                    variables=own,
                    approve=ask,
                    take_over=self.take_over,
                    dry_run=self.dry_run,
                )
                if state is None:
                    return 0, True
                content.update(_prepared(state, dry_run=False))
                if output.for_people:
                    show_result(state, output)
                failed = any(record.stage == FAILED for record in state.hosts)
                return exit_code(state), not (failed and ask.plan)

            groups = {" ".join(group): group for group in chosen}
            shown = {
                key: f"cluster {cluster}"
                if cluster
                else engine.center_name(center) or center
                for key, (center, cluster) in groups.items()
            }
            none = "There is no host"
            return in_each(shown, prepare, output, "hosts-prepare", none=none)


def _request(args: Prepare, variables: Mapping[str, Any]) -> PreparationRequest:
    policy = deploy_hook.policy_of(variables)
    # As Ansible's filter bool; a template has no value here: it may apply.
    apply = str(variables.get("ovirt_rdma_apply", True)).lower()
    return PreparationRequest(
        args.by,
        args.batch,
        args.reboot,
        args.canary,
        args.again,
        policy,
        None if policy is None else digest(policy),
        apply in ("yes", "on", "1", "true") or "{{" in apply,
        str(variables.get("ovirt_rdma_mode", "vdsmd")),
        deploy_hook.block_problem() is None,
    )


def _groups(
    engine: Engine, hosts: Sequence[Host], output: Output, *, by_cluster: bool
) -> dict[tuple[str, str], list[str]]:
    """Return the names of ``hosts`` by the id of their data center and the name of
    their cluster, "" unless each cluster has its own policy. Hosts without a data
    center are left out, with a note.
    """
    clusters = {cluster.id: cluster for cluster in engine.clusters}
    found: dict[tuple[str, str], list[str]] = {}
    for host in hosts:
        cluster = clusters.get(host.cluster)
        if cluster is None or cluster.data_center is None:
            why = f"{host.name} is left out: its cluster has no data center"
            output.message(f"note: {why}")
            continue
        group = cluster.data_center, cluster.name if by_cluster else ""
        found.setdefault(group, []).append(host.name)
    return found


def plan_lines(state: PreparationState) -> list[str]:
    """Return the plan in short, for the question."""
    lines = []
    mine = [record for record in state.hosts if record.stage not in OVER]
    for way in dict.fromkeys(record.way for record in mine):
        names = [record.name for record in mine if record.way == way]
        lines.append(f"by {way}: {listed(names)}")
    if mine:
        batches = 1 + max(record.batch for record in mine)
        lines.insert(0, f"{count(len(mine), 'host')}, first {mine[0].name} alone")
        if batches > 1:
            word = "batch" if batches == 2 else "batches"
            lines[0] += f", then the others in {batches - 1} {word}"
    restart = [record.name for record in mine if record.reboot]
    if restart:
        lines.append(f"restarted at the end: {listed(restart)}")
    return lines


def show_plan(plan: _Plan, steps: Sequence[RunStep], output: Output) -> None:
    """Show each host's way, and all steps with their requests, for people."""
    state, _ = plan
    rows = [
        (
            record.name,
            "-" if record.stage in OVER else str(record.batch),
            LEFT_OUT if record.stage == LEFT_OUT else record.way,
            "yes" if record.reboot else "no",
            record.problem or record.reason or "-",
        )
        for record in state.hosts
    ]
    output.table(("HOST", "BATCH", "HOW", "RESTART", "REASON"), rows)
    show_steps(output, ((step.doing, request_lines(step.call)) for step in steps))
    if state.by == AUTO:
        output.text(
            "A host by SSH is reinstalled, too, if its report then shows that a link "
            "has to go down, or that it has to restart."
        )


def show_result(state: PreparationState, output: Output) -> None:
    """Show the result for people."""
    words = {DONE: "prepared", NO_HARDWARE: NO_HARDWARE, FAILED: "failed"}
    words[LEFT_OUT] = LEFT_OUT
    rows = [
        (
            record.name,
            record.way,
            "unchanged"
            if record.way == NOTHING
            else words.get(record.stage, "not started"),
            record.problem or record.sentinel or record.reason or "-",
        )
        for record in state.hosts
    ]
    output.table(("HOST", "HOW", "RESULT", "PROOF"), rows, _TONES)
    for fix in dict.fromkeys(r.fix for r in state.hosts if r.problem and r.fix):
        output.fix(fix)
    waiting = [record.name for record in state.hosts if record.left]
    if waiting:
        output.text(
            f"On {listed(waiting)}, steps of the plan need a maintenance: "
            f"ovirt-rdma hosts prepare {shlex.join(waiting)} --by reinstall"
        )
    output.text(f"{sentence(state)[:1].upper()}{sentence(state)[1:]}.")


def _prepared(state: PreparationState, *, dry_run: bool) -> dict[str, Any]:
    hosts = [asdict(record) for record in state.hosts]
    for host in hosts:
        del host["id"], host["event"]
    return {
        "dry_run": dry_run,
        "data_center": state.name,
        "by": state.by,
        "policy": state.digest,
        "stage": state.stage,
        "hosts": hosts,
    }


def _step_document(step: RunStep) -> dict[str, Any]:
    request = {} if step.call is None else request_document(step.call)
    return {"doing": step.doing, "hosts": list(step.names), **request}
