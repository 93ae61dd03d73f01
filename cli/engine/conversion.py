# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ``domain convert``, ``domain revert`` and ``domain heal``.

``convert`` moves domains to RDMA or back to TCP, and resumes a conversion that was
interrupted. ``revert`` restores what was there before it. ``heal`` remounts domains on
hosts that fell back to TCP.
"""

from __future__ import annotations

import contextlib
import shlex
import time
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from typing import Optional

from ovirt_rdma.cli.engine.conversion_run import Run
from ovirt_rdma.cli.engine.session import NO_ACCESS, access_of, open_session
from ovirt_rdma.cli.output import Output
from ovirt_rdma.engine_sdk_tools.conversion.heal import plan_heal
from ovirt_rdma.engine_sdk_tools.conversion.lock import (
    check_resumable,
    command_of,
    earlier_conversions,
    has_other_options,
    is_converted,
    latest_state,
    refuse_other_runs,
    with_related,
)
from ovirt_rdma.engine_sdk_tools.conversion.model import (
    CONVERT,
    FINISHED,
    HEAL,
    REVERTED,
    ROLLED_BACK,
    UNDER_WAY,
    ConversionState,
)
from ovirt_rdma.engine_sdk_tools.conversion.observation import pinned_on, running_on
from ovirt_rdma.engine_sdk_tools.conversion.plan import (
    ConversionPlan,
    plan_convert,
    plan_resume,
    plan_revert,
)
from ovirt_rdma.engine_sdk_tools.conversion.preflight import (
    ConversionRequest,
    check_domains,
)
from ovirt_rdma.engine_sdk_tools.conversion.state_file import StateFolder
from ovirt_rdma.engine_sdk_tools.domains.list import domains_to_verify
from ovirt_rdma.engine_sdk_tools.model import Domain, Engine
from ovirt_rdma.engine_sdk_tools.names import NameProblem, domain_named
from ovirt_rdma.engine_sdk_tools.reader import read_engine
from ovirt_rdma.engine_sdk_tools.refusals import Refused
from ovirt_rdma.host.errors import Sentence

_CONVERT_KIND = "domain-convert"


def convert(args: Namespace, output: Output) -> int:
    """Convert domains, or resume a conversion that was interrupted."""
    request = ConversionRequest(
        args.to,
        rolling=args.rolling,
        by_row=args.engine_options,
        batch=args.batch,
        rule=args.policy_rule,
        allow_datacenter_down=args.allow_datacenter_down,
        without=tuple(dict.fromkeys(args.without)),
    )
    with open_session(args) as session, contextlib.ExitStack() as locked:
        engine = read_engine(session)
        domains = _domains(engine, args.names, args.datacenter)
        center = str(domains[0].data_center)
        run = Run(args, output, session, access_of(args, engine))
        if not args.dry_run:
            locked.enter_context(run.folder.only_run(center))
        states = run.recorded(engine, center)
        state = latest_state(states, domains)
        refuse_other_runs(states, state)
        if state is not None and state.stage not in FINISHED:
            return run.do(_resume(run, engine, state, domains, request), _CONVERT_KIND)
        earlier = earlier_conversions(states, domains, request.to)
        domains = with_related(engine, states, domains, earlier)
        check_domains(engine, domains, request)
        if not args.dry_run:
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
        for sentence in () if args.dry_run else plan.warnings:
            output.message(f"warning: {sentence}")
        if not plan.steps and not args.dry_run:
            return _nothing(plan, output)
        return run.do(plan, _CONVERT_KIND)


def _domains(
    engine: Engine, names: Sequence[str], data_center: Optional[str]
) -> list[Domain]:
    domains = [domain_named(engine, name, data_center) for name in names]
    return list({domain.id: domain for domain in domains}.values())


def _resume(
    run: Run,
    engine: Engine,
    state: ConversionState,
    domains: Sequence[Domain],
    request: ConversionRequest,
) -> ConversionPlan:
    check_resumable(state, domains, request)
    if has_other_options(state, request):
        run.output.message(
            f"note: resumed with the options of its first run: {command_of(state)}"
        )
    state = replace(state, batch=request.batch)
    reports = run.reports(engine, state.data_center)
    return plan_resume(state, engine, reports, request.without)


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


def revert(args: Namespace, output: Output) -> int:
    """Revert a conversion, of all domains that were converted together."""
    with open_session(args) as session, contextlib.ExitStack() as locked:
        engine = read_engine(session)
        run = Run(args, output, session, access_of(args, engine))
        domain = _domain(engine, run.folder, args)
        if domain.data_center is None:
            raise Refused(
                [
                    Sentence(
                        "domain-not-attached",
                        f"{domain.name} is not attached to a data center: no host "
                        "mounts it",
                    )
                ],
                "attach it first",
            )
        center = domain.data_center
        if not args.dry_run:
            locked.enter_context(run.folder.only_run(center))
        states = run.recorded(engine, center)
        state = latest_state(states, [domain])
        if state is None:
            raise Refused(
                [
                    Sentence(
                        "conversion-not-recorded",
                        f"this machine has no record of a conversion of {domain.name}",
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
                output.document(_REVERT_KIND, {"domains": names, "stage": state.stage})
            return 0
        state = replace(state, batch=args.batch)
        reports = None if state.blind else run.reports(engine, state.data_center)
        plan = plan_revert(state, engine, reports)
        for sentence in () if args.dry_run else plan.warnings:
            output.message(f"warning: {sentence}")
        return run.do(plan, _REVERT_KIND)


def _domain(engine: Engine, folder: StateFolder, args: Namespace) -> Domain:
    """Return the named domain; for one that was removed, its stored state.

    Its hosts, and domains that were converted with it, can still be reverted. Raises
    NameProblem if there is neither.
    """
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


def heal(args: Namespace, output: Output) -> int:
    """Heal one data center after the other; return the worst exit code."""
    with open_session(args) as session:
        engine = read_engine(session)
        domains = domains_to_verify(engine, args.names, args.datacenter)
        access = access_of(args, engine)
        if access is None:
            raise Refused([NO_ACCESS[0]], NO_ACCESS[1])
        run = Run(args, output, session, access)
        centers = dict.fromkeys(str(d.data_center) for d in domains if d.data_center)
        codes = [_center(run, engine, center, domains) for center in centers]
    if not codes and output.for_people:
        output.line("There is no NFS storage domain in a data center.")
    return max(codes, default=0)


def _center(run: Run, engine: Engine, center: str, domains: Sequence[Domain]) -> int:
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
            return 3 if plan.warnings else 0
        return run.do(plan, _HEAL_KIND)
