# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ``domain create``, ``list``, ``verify``, ``convert``, ``revert`` and ``heal``.

``list`` shows the file storage domains with the transport that the engine requests,
``verify`` the proven one of each domain on each host as a matrix. ``convert`` moves
domains to RDMA or back to TCP, and resumes a conversion that was interrupted;
``revert`` restores what was there before it. ``heal`` remounts domains on hosts that
fell back to TCP. The plan of a dry run lists the steps; the result has the outcome of
each host.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any, Callable, Optional

from ovirt_rdma.cli.engine.main import (
    AccessOptions,
    ChangeOptions,
    ChangesDomains,
    EngineVerb,
    add_batch,
    add_change_options,
    add_data_center,
    add_host_access,
)
from ovirt_rdma.cli.engine.session import (
    Approver,
    changing,
    in_each,
    matrix_code,
    open_session,
    progress,
    rdma_engine,
    refuse_dumps,
    request_document,
    request_lines,
    show_calls,
    show_matrix,
    show_steps,
)
from ovirt_rdma.cli.output import Output, count
from ovirt_rdma.cli.parser import AllowNone, Context, Parser, add_allow_none
from ovirt_rdma.engine_sdk_tools.api.session import Session
from ovirt_rdma.engine_sdk_tools.automation import RdmaEngine
from ovirt_rdma.engine_sdk_tools.conversion.model import (
    BACK,
    HEAL,
    ConversionState,
    HostRecord,
    Stage,
)
from ovirt_rdma.engine_sdk_tools.conversion.next_step import Kind, RunStep
from ovirt_rdma.engine_sdk_tools.conversion.plan import (
    ConversionPlan,
    command_of,
    exit_code,
    hosts_left_out,
    revert_command_of,
    sentence,
)
from ovirt_rdma.engine_sdk_tools.domains.create import (
    DomainMade,
    DomainPlan,
    DomainRequest,
    unverified_sentence,
)
from ovirt_rdma.engine_sdk_tools.domains.transport import (
    connection_transport,
    domains_to_verify,
    file_domains,
    verifiable,
)
from ovirt_rdma.engine_sdk_tools.model import (
    NFS_VERSIONS,
    Domain,
    OnHost,
    data_center_named,
    domain_status,
    group_by_sentence,
    nfs_text,
    status_label,
)
from ovirt_rdma.engine_sdk_tools.reader import read_engine
from ovirt_rdma.host.policy.load import PolicyFiles


class Create(EngineVerb, AccessOptions, ChangeOptions):
    """Create the domain; return 0, or 5 if it is not active and as requested."""

    codes = (
        "0 active, 1 failed, 3 checks failed, 4 declined,\n"
        "5 not as requested on some hosts, or perhaps not active,\n"
        "6 failed, and rolled back"
    )
    examples = (
        "data2 --export nas1:/exports/data2 --datacenter dc1",
        "data2 --export nas1:/exports/data2 --datacenter dc1 --dry-run",
    )
    more = (
        "Checks first; then creates, attaches and activates the domain, and\n"
        "verifies its transport if hosts can be asked."
    )

    name: str
    export: str
    datacenter: str
    nfs_version: str
    transport: str
    host: Optional[str]
    mount_options: str

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        parser.add_argument("name", metavar="NAME", help="the new domain's name")
        parser.add_argument(
            "--export", metavar="SERVER:/PATH", required=True, help="the export"
        )
        add_data_center(parser, required=True)
        parser.add_argument(
            "--nfs-version",
            choices=tuple(NFS_VERSIONS),
            default="4.2",
            help="always sent to the engine; default: 4.2",
        )
        parser.add_argument(
            "--transport",
            choices=("rdma", "tcp"),
            default="rdma",
            help="of the mounts; default: rdma",
        )
        parser.add_argument(
            "--host",
            metavar="NAME",
            help="the host that creates the domain; default: one that is up",
        )
        parser.add_argument(
            "--mount-options",
            metavar="OPTIONS",
            default="",
            help="additional mount options, without those of the transport",
        )
        add_change_options(parser)
        add_host_access(parser)

    def run(self, context: Context) -> int:
        output = context.output
        request = DomainRequest(
            self.name,
            self.export,
            self.datacenter,
            self.nfs_version,
            self.transport,
            self.host,
            self.mount_options,
        )
        ask = Approver(
            self,
            output,
            lambda plan: () if plan.nothing else plan.lines,
            lambda plan: show_calls(
                output, plan.calls, "domain-create", **plan.document
            ),
        )
        with changing(self, context) as rdma:
            made = rdma.create_domain(request, approve=ask)
        if made is None:
            return 0
        _show(ask.plan, made, output)
        return made.exit_code


def _show(plan: DomainPlan, made: DomainMade, output: Output) -> None:
    unknown = unverified_sentence(made.hosts)
    sentence = f"Domain {plan.name} ({plan.row.export}) {made.result}"
    if not output.for_people:
        problems = [
            *([sentence] if made.unread else []),
            *([unknown] if unknown else []),
        ]
        document = {
            **plan.document,
            "dry_run": False,
            "id": made.id,
            "made": made.made,
            "hosts": [
                {
                    "host": host.host,
                    "transport": host.transport,
                    "mounted": host.mounted,
                    "sentence": host.cell.sentence,
                    "fix": host.cell.fix,
                }
                for host in made.hosts
            ],
            "not_verified": list(made.not_verified),
            "problems": problems,
        }
        output.document("domain-create", document)
        return
    output.text(f"{sentence}.")
    rows = [[host.host, host.word] for host in made.hosts]
    output.table(["HOST", "TRANSPORT"], rows, _TONES)
    addresses = {host.name: host.address for host in plan.hosts}
    # Each sentence once: most of fifty hosts have the same.
    grouped = group_by_sentence(
        OnHost(host.host, addresses.get(host.host, ""), host.cell.sentence)
        for host in made.hosts
        if host.cell.sentence
    )
    for group in grouped:
        output.text(group.line)
    if unknown:
        output.text(f"{unknown[0].upper()}{unknown[1:]}.")
    output.fix(next((h.cell.fix for h in made.hosts if h.cell.fix), ""))
    output.next(f"ovirt-rdma domain verify {plan.name}")


_HEADINGS = [
    "DOMAIN",
    "DATA CENTER",
    "TYPE",
    "STATUS",
    "EXPORT",
    "NFS",
    "ENGINE REQUESTS",
]


class ListDomains(EngineVerb):
    """List the domains, with the transport that the engine's options request."""

    codes = "0 listed, 1 failed"
    examples = ("", "--datacenter dc1 -o json")

    datacenter: Optional[str]

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        add_data_center(parser)

    def run(self, context: Context) -> int:
        output = context.output
        with open_session(self, output) as session:
            engine = read_engine(session)
        center = None
        if self.datacenter is not None:
            center = data_center_named(engine, self.datacenter).id
        domains = file_domains(engine, center)
        documents = [_document(d, engine.center_name(d.data_center)) for d in domains]
        problems = [
            *engine.problems,
            *(
                f"{domain.name} is {domain_status(engine, domain)}"
                for domain in domains
                if domain.status == "unknown"
            ),
        ]
        if not output.for_people:
            content = {"domains": documents, "problems": problems}
            output.document("domain-list", content)
            return 0
        for problem in problems:
            output.message(f"note: {problem}")
        if not documents:
            output.line("There is no file storage domain.")
            return 0
        output.table(_HEADINGS, [_cells(one) for one in documents])
        return 0


def _document(domain: Domain, data_center: Optional[str]) -> dict[str, Any]:
    connection = domain.connection
    nfs = connection if verifiable(domain) else None
    return {
        **asdict(domain),
        "data_center": data_center,
        "export": connection.export if connection else None,
        "engine_asks": connection_transport(nfs) if nfs else None,
    }


def _cells(domain: dict[str, Any]) -> list[str]:
    kind = domain["type"] + (" (master)" if domain["master"] else "")
    if domain["storage_type"] != "nfs":
        kind += f" {domain['storage_type']}"
    version = (domain["connection"] or {}).get("nfs_version") or "-"
    return [
        domain["name"],
        domain["data_center"] or "-",
        kind,
        status_label(domain["status"]),
        domain["export"] or "-",
        nfs_text(version),
        domain["engine_asks"] or "-",
    ]


class Verify(EngineVerb, AccessOptions, AllowNone):
    """Show the matrix; return 3 if a mount is missing or unknown, or lacks RDMA."""

    codes = (
        "0 all as requested, or RDMA in place of TCP, 1 failed,\n"
        "3 a mount is TCP in place of RDMA, missing or unknown, or there is none"
    )
    examples = ("", "data1 data2", "--facts-dir dumps -o json")
    more = "Asks the kernel of each host. A host that does not answer is unknown."

    names: list[str]
    datacenter: Optional[str]

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        parser.add_argument(
            "names", metavar="NAME", nargs="*", help="domains; default: all NFS domains"
        )
        add_data_center(parser)
        add_host_access(parser)
        add_allow_none(parser, "mount")

    def run(self, context: Context) -> int:
        output = context.output
        with open_session(self, output) as session:
            rdma = rdma_engine(self, context, session)
            matrix = rdma.verify(*self.names, data_center=self.datacenter)
        if matrix.columns or not output.for_people:
            show_matrix(output, matrix)
        none = "There is no NFS storage domain in a data center."
        if matrix.columns:
            none = "Nothing was verified: no host has to mount these domains now."
        return matrix_code(self, output, matrix, none)


# Gets the engine and the arguments that all three have.
Act = Callable[[RdmaEngine, dict[str, Any]], Optional[ConversionState]]

_TONES = {
    **dict.fromkeys(("unknown", "unproven"), "doubtful"),
    "rdma": "good",
    "not mounted": "bad",
    "converted": "good",
    "healed": "good",
    "as before": "doubtful",
    "failed": "bad",
    "left": "doubtful",
    "left out": "doubtful",
}

# Short names of what is done with a host.
ENTERED = "maintenance"
_SHORT = {Kind.PUSH: "policy", Kind.ENTER: ENTERED, Kind.LEAVE: "activation"}


def plan_lines(plan: ConversionPlan) -> list[str]:
    """Return a summary for the confirmation; hosts with the same steps share a line."""
    state = plan.state
    lines: list[str] = []
    actions_of: dict[str, list[str]] = {}
    for step in plan.steps:
        # Not together with the other mark of the cluster: the hosts come between.
        subject = step.doing if step.kind == Kind.END_UPGRADE else step.subject
        actions_of.setdefault(subject, []).append(_SHORT.get(step.kind, step.doing))
    subjects_by_actions: dict[tuple[str, ...], list[str]] = {}
    for subject, actions in actions_of.items():
        subjects_by_actions.setdefault(tuple(actions), []).append(subject)
    batch = state.request.batch
    pace = "one by one" if batch == 1 else f"{batch} at a time"
    for shared, subjects in subjects_by_actions.items():
        if set(shared) <= set(_SHORT.values()):
            paced = f", {pace}" if len(subjects) > 1 and ENTERED in shared else ""
            lines.append(f"{', '.join(subjects)}{paced}: {', '.join(shared)}")
        else:
            lines += shared
    return [*lines, f"{count(len(plan.steps), 'change')} for {state.title}"]


def plan_document(plan: ConversionPlan) -> dict[str, Any]:
    """Return the steps of a dry run: requests to the engine, and policies for hosts."""
    calls = [_step_document(step) for step in plan.steps]
    content = {"dry_run": True, "warnings": list(plan.warnings), "calls": calls}
    return {**_head(plan.state), **content}


def show_plan(plan: ConversionPlan, output: Output) -> None:
    """Print the steps of a dry run."""
    for warning in plan.warnings:
        output.text(f"warning: {warning}")
    if not plan.steps:
        output.line("Nothing to do.")
    policies: dict[PolicyFiles, int] = {}
    shown: list[tuple[str, Sequence[str]]] = []
    for number, step in enumerate(plan.steps, 1):
        lines: Sequence[str] = request_lines(step.call)
        if step.call is None:
            lines = step.policy.lines()
            if policies.setdefault(step.policy, number) != number:
                lines = [f"(the policy of step {policies[step.policy]})"]
        shown.append((step.doing, lines))
    show_steps(output, shown)


def result_document(state: ConversionState, *, done: bool) -> dict[str, Any]:
    """Return the outcome of each host. Not ``done``: there was nothing to do."""
    hosts = [
        {"host": h.name, "outcome": _outcome(state, h), "sentence": h.why}
        for h in state.hosts
        if done
    ]
    return {
        **_head(state),
        "dry_run": False,
        "stage": state.stage if done else "nothing to do",
        "sentence": sentence(state) if done else f"Nothing to do: {_as_it_is(state)}",
        "why": state.why,
        "hosts": hosts,
    }


def show_result(state: ConversionState, output: Output, *, done: bool) -> None:
    """Print the result, and the command to run next."""
    if not done:
        output.text(f"Nothing to do: {_as_it_is(state)}.")
        return
    output.text(f"{sentence(state)}.")
    rows = [[h.name, _outcome(state, h), h.why] for h in state.hosts]
    if rows:
        output.table(["HOST", "OUTCOME", ""], rows, _TONES)
    for line in _next(state):
        output.next(line)


def _as_it_is(state: ConversionState) -> str:
    if state.kind == HEAL:
        return "no mount is known to be degraded"
    verb = "are" if len(state.domains) > 1 else "is"
    to = state.request.to.upper()
    where = f"on {to}" if state.stage == Stage.CONVERTED else "as before"
    return f"{state.title} {verb} {where}"


def _outcome(state: ConversionState, host: HostRecord) -> str:
    if host.stage == Stage.FAILED:
        return "failed"
    if host.left_out:
        return "left out"
    if host.stage == Stage.LEFT:
        return "left"
    if host.stage != Stage.DONE:
        return "not yet"
    if host.goal == BACK:
        return "as before"
    return "healed" if state.kind == HEAL else "converted"


def _next(state: ConversionState) -> list[str]:
    names = [shlex.quote(d.name) for d in state.domains if d.stage != Stage.GONE]
    verify = f"ovirt-rdma domain verify {' '.join(names)}"
    if not names:
        verify = "ovirt-rdma hosts check"
    if state.stage == Stage.CONVERTED and hosts_left_out(state):
        # When these hosts are up again, the same command converts them.
        return [verify, command_of(state)]
    if state.stage in (Stage.CONVERTED, Stage.REVERTED):
        return [verify]
    if state.stage == Stage.ROLLED_BACK or state.kind == HEAL:
        return ["ovirt-rdma hosts check"]
    if any(domain.stage == Stage.GONE for domain in state.domains):
        return [revert_command_of(state)]
    return [
        command_of(replace(state, stage=Stage.CONVERTING)),
        revert_command_of(state),
    ]


def _head(state: ConversionState) -> dict[str, Any]:
    return {
        "domains": [domain.name for domain in state.domains],
        "to": state.request.to,
        "mode": "rolling" if state.request.rolling else "offline",
    }


def _step_document(step: RunStep) -> dict[str, Any]:
    more = {"policy": step.policy.contents}
    if step.call is not None:
        more = request_document(step.call)
    return {"doing": step.doing, "about": step.subject, **more}


def run(args: ChangesDomains, context: Context, kind: str, act: Act) -> int:
    """Run ``act``, print the plan of a dry run or the result; return the exit code."""
    refuse_dumps(args)
    content: dict[str, Any] = {}
    with open_session(args, context.output) as session:
        code = _run_one(args, context, session, act, content)
    if not context.output.for_people:
        context.output.document(kind, content)
    return code


def _run_one(
    args: ChangesDomains,
    context: Context,
    session: Session,
    act: Act,
    content: dict[str, Any],
) -> int:
    """Run ``act``; print for people, and fill ``content`` for programs."""
    output = context.output

    def show(plan: ConversionPlan) -> None:
        content.update(plan_document(plan))
        if output.for_people:
            show_plan(plan, output)

    ask = Approver(args, output, plan_lines, show)
    session.listener = progress(context)
    rdma = rdma_engine(args, context, session, tasks=not args.no_job, noted=False)
    how = {
        "approve": ask,
        "take_over": args.take_over,
        "dry_run": args.dry_run,
        "batch": args.batch,
    }
    state = act(rdma, how)
    if state is None:
        return 0
    done = ask.plan is not None
    content.update(result_document(state, done=done))
    if output.for_people:
        show_result(state, output, done=done)
    return exit_code(state) if done else 0


_OTHER_RUN = "75 another run is changing this data center"


class Convert(ChangesDomains):
    """Convert domains, or resume a conversion that was interrupted."""

    codes = (
        "0 converted, or nothing to do, 1 failed, 3 checks failed,\n"
        "4 refused or declined, 5 done on some hosts, not on others,\n"
        f"6 failed, and rolled back, {_OTHER_RUN}"
    )
    examples = (
        "data1 --to rdma --rolling",
        "data1 data2 --to rdma --rolling --dry-run",
        "data1 --to tcp",
    )
    more = (
        "Without --rolling the domain is down during the conversion, and no\n"
        "running virtual machine may use it. With --rolling, hosts go through\n"
        "maintenance one by one while virtual machines run. The same command\n"
        "resumes a conversion that was interrupted. Domains of one server that\n"
        "have the same NFS 4 minor version share one connection of the kernel\n"
        "and must be converted together."
    )

    names: list[str]
    to: str
    rolling: bool
    engine_options: bool
    policy_rule: str
    allow_datacenter_down: bool
    without: list[str]

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        parser.add_argument("names", metavar="NAME", nargs="+", help="a domain's name")
        parser.add_argument(
            "--to", choices=("rdma", "tcp"), required=True, help="the transport"
        )
        parser.add_argument(
            "--rolling", action="store_true", help="host by host, while VMs run"
        )
        parser.add_argument(
            "--engine-options",
            action="store_true",
            help="use the engine's mount options only, where the add-on is not enabled",
        )
        add_batch(parser)
        parser.add_argument(
            "--policy-rule",
            choices=("require-rdma", "prefer-rdma"),
            default="require-rdma",
            help="transport of the rule in the hosts' policy; default: require-rdma",
        )
        parser.add_argument(
            "--allow-datacenter-down",
            action="store_true",
            help="convert even if no other data domain is active, or with --rolling no "
            "other host is up",
        )
        parser.add_argument(
            "--without",
            metavar="HOST",
            action="append",
            default=[],
            help="leave out this host, for example because it is down; may be given "
            "several times",
        )
        cls.add_shared(parser)

    def run(self, context: Context) -> int:
        return run(
            self,
            context,
            "domain-convert",
            lambda rdma, how: rdma.convert(
                *self.names,
                to=self.to,
                rolling=self.rolling,
                by_row=self.engine_options,
                rule=self.policy_rule,
                allow_datacenter_down=self.allow_datacenter_down,
                without=tuple(dict.fromkeys(self.without)),
                data_center=self.datacenter,
                **how,
            ),
        )


class Revert(ChangesDomains):
    """Revert a conversion, of all domains that were converted together."""

    codes = (
        "0 reverted, 1 failed, 4 refused or declined,\n"
        f"5 done on some hosts, not on others, {_OTHER_RUN}"
    )
    examples = ("data1", "data1 --dry-run")
    more = (
        "Restores the storage connection and the hosts' policies that convert\n"
        "recorded."
    )

    name: str

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        parser.add_argument("name", metavar="NAME", help="a domain's name")
        add_batch(parser)
        cls.add_shared(parser)

    def run(self, context: Context) -> int:
        return run(
            self,
            context,
            "domain-revert",
            lambda rdma, how: rdma.revert(
                self.name, data_center=self.datacenter, **how
            ),
        )


class Heal(ChangesDomains):
    """Heal one data center after the other."""

    codes = (
        "0 healed, or nothing to do, 1 failed,\n"
        "3 a host cannot be healed, or is unknown, 4 refused or declined,\n"
        "5 done on some hosts, not on others, 6 failed, and rolled back,\n"
        f"{_OTHER_RUN}"
    )
    examples = ("", "data1 --batch 2")
    more = (
        "Hosts on which a mount has fallen back to TCP go through maintenance\n"
        "and activation, the SPM last, and are verified."
    )

    names: list[str]

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        parser.add_argument(
            "names", metavar="NAME", nargs="*", help="only these domains"
        )
        add_batch(parser)
        cls.add_shared(parser)

    def run(self, context: Context) -> int:
        output, names = context.output, self.names
        refuse_dumps(self)
        with open_session(self, output) as session:
            engine = read_engine(session)
            centers: dict[str, list[str]] = {}
            for domain in domains_to_verify(engine, names, self.datacenter):
                centers.setdefault(str(domain.data_center), []).append(domain.name)

            def heal(center: str, content: dict[str, Any]) -> tuple[int, bool]:
                chosen = centers[center] if names else ()

                def act(
                    rdma: RdmaEngine, how: dict[str, Any]
                ) -> Optional[ConversionState]:
                    return rdma.heal(center, *chosen, **how)

                return _run_one(self, context, session, act, content), True

            found = {id: engine.center_name(id) or id for id in centers}
            none = "There is no NFS storage domain in a data center"
            return in_each(found, heal, output, "domain-heal", none=none)
