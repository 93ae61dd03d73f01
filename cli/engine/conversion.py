# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ``domain convert``, ``domain revert`` and ``domain heal``.

``convert`` moves domains to RDMA or back to TCP, and resumes a conversion that was
interrupted. ``revert`` restores what was there before it. ``heal`` remounts domains on
hosts that fell back to TCP.
"""

from __future__ import annotations

import contextlib
import time

from ovirt_rdma.cli.engine.arguments import ChangesDomains, add_batch
from ovirt_rdma.cli.output import Output
from ovirt_rdma.cli.parser import Parser, Verb
from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.exit_code import ExitCode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Optional

    from ovirt_rdma.cli.context import Context
    from ovirt_rdma.cli.engine.conversion_run import Run
    from ovirt_rdma.engine_sdk_tools.conversion.plan import ConversionPlan
    from ovirt_rdma.engine_sdk_tools.conversion.preflight import ConversionRequest
    from ovirt_rdma.engine_sdk_tools.conversion.state_file import StateFolder
    from ovirt_rdma.engine_sdk_tools.model import Domain, Engine

_OTHER_RUN = "75 another run is changing this data center"
_CONVERT_KIND = "domain-convert"


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
            help="use the engine's mount options only, for hosts without the add-on",
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
        from ovirt_rdma.cli.engine.conversion_run import Run
        from ovirt_rdma.cli.engine.session import access_of, open_session
        from ovirt_rdma.engine_sdk_tools.conversion.preflight import (
            ConversionRequest,
            check_domains,
        )
        from ovirt_rdma.engine_sdk_tools.reader import read_engine

        output = context.output
        request = ConversionRequest(
            self.to,
            rolling=self.rolling,
            by_row=self.engine_options,
            batch=self.batch,
            rule=self.policy_rule,
            allow_datacenter_down=self.allow_datacenter_down,
            without=tuple(dict.fromkeys(self.without)),
        )
        with open_session(self, output) as session:
            engine = read_engine(session)
            domains = _domains(engine, self.names, self.datacenter)
            if not all(domain.data_center for domain in domains):
                check_domains(engine, domains, request)
            run = Run(self, context, session, access_of(self, context))
            return _convert(run, engine, domains, request, _CONVERT_KIND)


def _convert(
    run: Run,
    engine: Engine,
    domains: Sequence[Domain],
    request: ConversionRequest,
    kind: str,
) -> int:
    """Convert domains of one data center, or resume that; return the exit code."""
    from ovirt_rdma.engine_sdk_tools.conversion.lock import (
        earlier_conversions,
        latest_state,
        refuse_other_runs,
        with_related,
    )
    from ovirt_rdma.engine_sdk_tools.conversion.model import FINISHED
    from ovirt_rdma.engine_sdk_tools.conversion.observation import (
        pinned_on,
        running_on,
    )
    from ovirt_rdma.engine_sdk_tools.conversion.plan import plan_convert
    from ovirt_rdma.engine_sdk_tools.conversion.preflight import (
        check_domains,
        data_center_of,
    )

    dry_run, session = run.args.dry_run, run.session
    center = data_center_of(domains[0])
    with contextlib.ExitStack() as locked:
        if not dry_run:
            locked.enter_context(run.folder.only_run(center))
        states = run.recorded(engine, center)
        state = latest_state(states, domains)
        refuse_other_runs(states, state)
        if state is not None and state.stage not in FINISHED:
            return run.do(run.resumed(engine, state, domains, request), kind)
        earlier = earlier_conversions(states, domains)
        domains = with_related(engine, states, domains, earlier, request.to)
        check_domains(engine, domains, request)
        if not dry_run:
            # Before the checks: the other run may have hosts in maintenance.
            run.lock.check_free([center, *(domain.id for domain in domains)])
        reports = run.reports(engine, center)
        users = {} if request.rolling else running_on(session, domains)
        evacuated = engine.hosts_of(center) if request.rolling else ()
        plan = plan_convert(
            engine,
            domains,
            reports,
            request,
            users=users,
            pinned=pinned_on(session, evacuated),
            earlier=earlier,
            now=time.time(),
        )
        for sentence in () if dry_run else plan.warnings:
            run.output.message(f"warning: {sentence}")
        if not plan.steps and not dry_run:
            return _nothing(plan, run.output)
        return run.do(plan, kind)


def _domains(
    engine: Engine, names: Sequence[str], data_center: Optional[str]
) -> list[Domain]:
    from ovirt_rdma.engine_sdk_tools.names import domain_named

    domains = [domain_named(engine, name, data_center) for name in names]
    return list({domain.id: domain for domain in domains}.values())


def _nothing(plan: ConversionPlan, output: Output) -> int:
    state = plan.state
    if output.for_people:
        verb = "are" if len(state.domains) > 1 else "is"
        output.text(f"Nothing to do: {state.title} {verb} on {state.to.upper()}.")
        return 0
    names = [domain.name for domain in state.domains]
    content = {"domains": names, "to": state.to, "mode": state.mode}
    more = {"dry_run": False, "stage": "nothing to do", "why": "", "hosts": []}
    output.document(_CONVERT_KIND, {**content, **more})
    return 0


_REVERT_KIND = "domain-revert"


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
        import shlex
        from dataclasses import replace

        from ovirt_rdma.cli.engine.conversion_run import Run
        from ovirt_rdma.cli.engine.session import access_of, open_session
        from ovirt_rdma.engine_sdk_tools.conversion.lock import (
            is_converted,
            latest_state,
            refuse_other_runs,
        )
        from ovirt_rdma.engine_sdk_tools.conversion.model import REVERTED, ROLLED_BACK
        from ovirt_rdma.engine_sdk_tools.conversion.plan import plan_revert
        from ovirt_rdma.engine_sdk_tools.conversion.preflight import data_center_of
        from ovirt_rdma.engine_sdk_tools.reader import read_engine
        from ovirt_rdma.engine_sdk_tools.refusals import Refused

        output = context.output
        with open_session(self, output) as session, contextlib.ExitStack() as locked:
            engine = read_engine(session)
            run = Run(self, context, session, access_of(self, context))
            domain = _domain(engine, run.folder, self)
            center = data_center_of(domain)
            if not self.dry_run:
                locked.enter_context(run.folder.only_run(center))
            states = run.recorded(engine, center)
            state = latest_state(states, [domain])
            if state is None:
                raise Refused(
                    [
                        Sentence(
                            "conversion-not-recorded",
                            "this machine has no record of a conversion of "
                            f"{domain.name}",
                        )
                    ],
                    "revert on the machine and as the user that ran the conversion; or "
                    f"convert it: ovirt-rdma domain convert {shlex.quote(domain.name)} "
                    "--to tcp",
                )
            refuse_other_runs(states, state)
            reverted = state.stage in (REVERTED, ROLLED_BACK)
            if reverted and not is_converted(state):
                if output.for_people:
                    output.text(f"Nothing to revert: {state.title} is as before.")
                else:
                    names = [domain.name for domain in state.domains]
                    output.document(
                        _REVERT_KIND, {"domains": names, "stage": state.stage}
                    )
                return 0
            state = replace(state, batch=self.batch)
            reports = None if state.blind else run.reports(engine, state.data_center)
            plan = plan_revert(state, engine, reports)
            for sentence in () if self.dry_run else plan.warnings:
                output.message(f"warning: {sentence}")
            return run.do(plan, _REVERT_KIND)


def _domain(engine: Engine, folder: StateFolder, args: Revert) -> Domain:
    """Return the named domain; for one that was removed, its stored state.

    Its hosts, and domains that were converted with it, can still be reverted. Raises
    NameProblem if there is neither.
    """
    from ovirt_rdma.engine_sdk_tools.conversion.model import CONVERT
    from ovirt_rdma.engine_sdk_tools.model import Domain
    from ovirt_rdma.engine_sdk_tools.names import NameProblem, domain_named

    try:
        return domain_named(engine, args.name, args.datacenter)
    except NameProblem:
        for center in engine.data_centers:
            for state in folder.states(center.id):
                for record in state.domains:
                    known = args.name in (record.name, record.id)
                    if state.kind == CONVERT and known:
                        return Domain(record.id, record.name, "data", "nfs", center.id)
        raise


_HEAL_KIND = "domain-heal"


class Heal(ChangesDomains):
    """Heal one data center after the other; return the worst exit code."""

    codes = (
        "0 healed, or nothing to do, 1 failed,\n"
        "3 a host cannot be healed, or is unknown, 4 refused or declined,\n"
        f"5 done on some hosts, not on others, {_OTHER_RUN}"
    )
    examples = ("", "data1 --batch 2", "--to-tcp")
    more = (
        "Hosts on which a mount has fallen back to TCP go through maintenance\n"
        "and activation, the SPM last, and are verified. --to-tcp is for domains\n"
        "whose RDMA mounts have stalled while TCP would work, and whose rule\n"
        "prefers RDMA: they are converted to TCP, host by host; 'domain revert'\n"
        "takes them forward again. Needs hosts that watch their mounts\n"
        "(health_interval in the policy)."
    )

    names: list[str]
    to_tcp: bool

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        parser.add_argument(
            "names", metavar="NAME", nargs="*", help="only these domains"
        )
        parser.add_argument(
            "--to-tcp",
            action="store_true",
            help="move domains to TCP whose RDMA mounts have stalled",
        )
        add_batch(parser)
        cls.add_shared(parser)

    def run(self, context: Context) -> int:
        from ovirt_rdma.cli.engine.conversion_run import Run
        from ovirt_rdma.cli.engine.session import NO_ACCESS, access_of, open_session
        from ovirt_rdma.engine_sdk_tools.domains.list import domains_to_verify
        from ovirt_rdma.engine_sdk_tools.reader import read_engine
        from ovirt_rdma.engine_sdk_tools.refusals import Refused

        output = context.output
        with open_session(self, output) as session:
            engine = read_engine(session)
            domains = domains_to_verify(engine, self.names, self.datacenter)
            access = access_of(self, context)
            if access is None:
                raise Refused([NO_ACCESS[0]], NO_ACCESS[1])
            run = Run(self, context, session, access)
            centers = dict.fromkeys(
                str(d.data_center) for d in domains if d.data_center
            )
            heal = _to_tcp if self.to_tcp else _center
            codes = [heal(run, engine, center, domains) for center in centers]
        if not codes and output.for_people:
            output.line("There is no NFS storage domain in a data center.")
        return max(codes, default=0)


def _center(run: Run, engine: Engine, center: str, domains: Sequence[Domain]) -> int:
    from ovirt_rdma.engine_sdk_tools.conversion.heal import plan_heal
    from ovirt_rdma.engine_sdk_tools.conversion.lock import refuse_other_runs
    from ovirt_rdma.engine_sdk_tools.conversion.model import HEAL, UNDER_WAY
    from ovirt_rdma.engine_sdk_tools.conversion.observation import pinned_on
    from ovirt_rdma.engine_sdk_tools.conversion.plan import plan_resume

    args, output = run.args, run.output
    with contextlib.ExitStack() as locked:
        if not args.dry_run:
            locked.enter_context(run.folder.only_run(center))
        states = run.recorded(engine, center)
        interrupted = next(
            (s for s in states if s.kind == HEAL and s.stage in UNDER_WAY), None
        )
        refuse_other_runs(states, interrupted)
        reports = run.reports(engine, center) or ()
        if interrupted is not None:
            return run.do(plan_resume(interrupted, engine, reports), _HEAL_KIND)
        center_domains = [d for d in domains if d.data_center == center]
        plan = plan_heal(
            engine,
            center,
            center_domains,
            reports,
            pinned=pinned_on(run.session, engine.hosts_of(center)),
            batch=args.batch,
            now=time.time(),
        )
        for sentence in () if args.dry_run else plan.warnings:
            output.message(f"warning: {sentence}")
        if not plan.state.hosts and not args.dry_run:
            if output.for_people:
                output.text("Nothing to heal: no mount is known to be degraded.")
            else:
                output.document(_HEAL_KIND, {"stage": "nothing to do", "hosts": []})
            return ExitCode.CHECKS_FAILED if plan.warnings else ExitCode.DONE
        return run.do(plan, _HEAL_KIND)


def _to_tcp(run: Run, engine: Engine, center: str, domains: Sequence[Domain]) -> int:
    """Convert the domains of a data center to TCP whose RDMA mounts have stalled."""
    from ovirt_rdma.engine_sdk_tools.conversion.heal import stalled_domains
    from ovirt_rdma.engine_sdk_tools.conversion.model import TCP
    from ovirt_rdma.engine_sdk_tools.conversion.preflight import ConversionRequest

    inside = [d for d in domains if d.data_center == center]
    reports = run.reports(engine, center) or ()
    going, left = stalled_domains(engine, inside, reports)
    for sentence in left:
        run.output.message(f"warning: {sentence}")
    if going:
        request = ConversionRequest(TCP, rolling=True, batch=run.args.batch)
        return _convert(run, engine, going, request, _HEAL_KIND)
    if run.output.for_people:
        run.output.text("No domain has to go to TCP.")
    else:
        run.output.document(_HEAL_KIND, {"stage": "nothing to do", "hosts": []})
    return ExitCode.CHECKS_FAILED if left else ExitCode.DONE


VERBS: dict[str, type[Verb]] = {
    "convert": Convert,
    "revert": Revert,
    "heal": Heal,
}
