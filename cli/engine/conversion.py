# SPDX-License-Identifier: GPL-2.0-or-later
"""``domain convert``, ``domain revert`` and ``domain heal``.

``domain convert``: domains come to RDMA, or back to TCP; cut off, it goes on.

``domain revert``: a conversion is taken back, to what it found at its begin.

``domain heal``: hosts whose mounts fell back to TCP mount them anew.
"""

from __future__ import annotations

import contextlib
import shlex
import time
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from typing import Optional

from ovirt_rdma.cli.engine.conversion_report import command_of
from ovirt_rdma.cli.engine.conversion_run import (
    Run,
    earlier_of,
    no_other_under_way,
    stands_converted,
    stored_of,
)
from ovirt_rdma.cli.engine.session import NO_WAY, door_of, opened
from ovirt_rdma.cli.output import Screen
from ovirt_rdma.engine_sdk_tools.conversion.baseline import rule_of
from ovirt_rdma.engine_sdk_tools.conversion.heal import plan_heal
from ovirt_rdma.engine_sdk_tools.conversion.model import (
    CONVERT,
    FINISHED,
    HEAL,
    REVERTED,
    REVERTING,
    ROLLED_BACK,
    ROLLING,
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
    check_kinds,
)
from ovirt_rdma.engine_sdk_tools.conversion.state_file import StateFolder
from ovirt_rdma.engine_sdk_tools.domains.list import domains_to_verify
from ovirt_rdma.engine_sdk_tools.model import Domain, Engine
from ovirt_rdma.engine_sdk_tools.names import NameProblem, domain_named
from ovirt_rdma.engine_sdk_tools.reader import read_engine
from ovirt_rdma.engine_sdk_tools.refusals import Refused

_CONVERT_KIND = "domain-convert"


def convert(words: Namespace, screen: Screen) -> int:
    """Convert, or go on with what was cut off."""
    request = ConversionRequest(
        words.to,
        rolling=words.rolling,
        by_row=words.engine_options,
        batch=words.batch,
        rule=words.policy_rule,
        allow_datacenter_down=words.allow_datacenter_down,
        without=tuple(dict.fromkeys(words.without)),
    )
    with opened(words) as session, contextlib.ExitStack() as locked:
        engine = read_engine(session)
        domains = _domains(engine, words.names, words.datacenter)
        center = str(domains[0].data_center)
        run = Run(words, screen, session, door_of(words, engine))
        if not words.dry_run:
            locked.enter_context(run.folder.only_run(center))
        found = run.recorded(engine, center)
        state = stored_of(found, domains)
        no_other_under_way(found, state)
        if state is not None and state.stage not in FINISHED:
            return run.do(
                _going_on(run, engine, state, domains, request), _CONVERT_KIND
            )
        earlier = earlier_of(found, domains, request.to)
        domains = _with_theirs(engine, found, domains, earlier)
        check_kinds(engine, domains, request)
        if not words.dry_run:
            # Before the checks: hosts may be in maintenance for the other run.
            run.lock.check_free([center, *(domain.id for domain in domains)])
        reports = run.reports(engine, center)
        users = {} if request.rolling else running_on(session, domains)
        going = engine.hosts_of(center) if request.rolling else ()
        plan = plan_convert(
            engine,
            domains,
            reports,
            request,
            users=users,
            pinned=pinned_on(session, going),
            earlier=earlier,
            now=time.time(),
        )
        for sentence in () if words.dry_run else plan.warnings:
            screen.message(f"warning: {sentence}")
        if not plan.steps and not words.dry_run:
            return _nothing(plan, screen)
        return run.do(plan, _CONVERT_KIND)


def _domains(
    engine: Engine, names: Sequence[str], data_center: Optional[str]
) -> list[Domain]:
    found = [domain_named(engine, name, data_center) for name in names]
    return list({domain.id: domain for domain in found}.values())


def _with_theirs(
    engine: Engine,
    found: Sequence[ConversionState],
    domains: Sequence[Domain],
    earlier: Sequence[ConversionState],
) -> list[Domain]:
    """Return ``domains`` with those that stand after the same earlier conversions: the
    record of what was before them stays one.
    """
    center = domains[0].data_center
    ids = [record.id for state in earlier for record in state.domains]
    theirs = [
        domain
        for one in ids
        for domain in engine.domains
        if (domain.id, domain.data_center) == (one, center)
        and stored_of(found, [domain]) in earlier
    ]
    return list({domain.id: domain for domain in [*theirs, *domains]}.values())


def _going_on(
    run: Run,
    engine: Engine,
    state: ConversionState,
    domains: Sequence[Domain],
    request: ConversionRequest,
) -> ConversionPlan:
    names = " ".join(domain.name for domain in state.domains)
    if state.stage == REVERTING:
        raise Refused(
            [f"a revert of {names} is under way"],
            f"finish it first: {command_of(state)}",
        )
    other = {d.id for d in domains} - {d.id for d in state.domains}
    if state.to != request.to or other:
        raise Refused(
            [f"a conversion of {names} to {state.to} is not finished"],
            f"finish it first: {command_of(state)}; or take it back: "
            f"ovirt-rdma domain revert {shlex.quote(state.domains[0].name)}",
        )
    now = (request.rolling, request.by_row, rule_of(request))
    if now != (state.mode == ROLLING, state.by_row, state.rule):
        run.screen.message(f"note: it goes on as it was begun: {command_of(state)}")
    state = replace(state, batch=request.batch)
    reports = run.reports(engine, state.data_center)
    return plan_resume(state, engine, reports, request.without)


def _nothing(plan: ConversionPlan, screen: Screen) -> int:
    state = plan.state
    if screen.for_people:
        verb = "are" if len(state.domains) > 1 else "is"
        screen.text(f"Nothing to do: {state.title} {verb} on {state.to.upper()}.")
        return 0
    names = [domain.name for domain in state.domains]
    content = {"domains": names, "to": state.to, "mode": state.mode}
    more = {"dry_run": False, "stage": "nothing to do", "why": "", "hosts": []}
    screen.document(_CONVERT_KIND, {**content, **more})
    return 0


_REVERT_KIND = "domain-revert"


def revert(words: Namespace, screen: Screen) -> int:
    """Take back what was recorded; with other domains that were converted with it."""
    with opened(words) as session, contextlib.ExitStack() as locked:
        engine = read_engine(session)
        run = Run(words, screen, session, door_of(words, engine))
        domain = _domain(engine, run.folder, words)
        if domain.data_center is None:
            raise Refused(
                [f"{domain.name} is attached to no data center: no host mounts it"],
                "attach it first",
            )
        center = domain.data_center
        if not words.dry_run:
            locked.enter_context(run.folder.only_run(center))
        found = run.recorded(engine, center)
        state = stored_of(found, [domain])
        if state is None:
            raise Refused(
                [f"this machine has no record of a conversion of {domain.name}"],
                "run it where the conversion was run, as the same user; or convert it: "
                f"ovirt-rdma domain convert {shlex.quote(domain.name)} --to tcp",
            )
        no_other_under_way(found, state)
        over = state.stage in (REVERTED, ROLLED_BACK)
        if over and not stands_converted(state):
            if screen.for_people:
                screen.text(f"Nothing to revert: {state.title} is as before.")
            else:
                names = [one.name for one in state.domains]
                screen.document(_REVERT_KIND, {"domains": names, "stage": state.stage})
            return 0
        state = replace(state, batch=words.batch)
        reports = None if state.blind else run.reports(engine, state.data_center)
        plan = plan_revert(state, engine, reports)
        for sentence in () if words.dry_run else plan.warnings:
            screen.message(f"warning: {sentence}")
        return run.do(plan, _REVERT_KIND)


def _domain(engine: Engine, folder: StateFolder, words: Namespace) -> Domain:
    """Return the domain that is named, or what is recorded of one that is gone: its
    hosts and the others that were converted with it can still go back.

    Raises NameProblem where there is neither.
    """
    try:
        return domain_named(engine, words.name, words.datacenter)
    except NameProblem:
        for center in engine.data_centers:
            for state in folder.states(center.id):
                for one in state.domains:
                    if state.kind == CONVERT and words.name in (one.name, one.id):
                        return Domain(one.id, one.name, "data", "nfs", center.id)
        raise


_HEAL_KIND = "domain-heal"


def heal(words: Namespace, screen: Screen) -> int:
    """Heal the data centers one after the other; the worst exit code."""
    with opened(words) as session:
        engine = read_engine(session)
        domains = domains_to_verify(engine, words.names, words.datacenter)
        door = door_of(words, engine)
        if door is None:
            raise Refused([NO_WAY[0]], NO_WAY[1])
        run = Run(words, screen, session, door)
        centers = dict.fromkeys(str(d.data_center) for d in domains if d.data_center)
        codes = [_center(run, engine, center, domains) for center in centers]
    if not codes and screen.for_people:
        screen.line("There is no NFS storage domain in a data center.")
    return max(codes, default=0)


def _center(run: Run, engine: Engine, center: str, domains: Sequence[Domain]) -> int:
    words, screen = run.words, run.screen
    with contextlib.ExitStack() as locked:
        if not words.dry_run:
            locked.enter_context(run.folder.only_run(center))
        found = run.recorded(engine, center)
        cut_off = next(
            (s for s in found if s.kind == HEAL and s.stage in UNDER_WAY), None
        )
        no_other_under_way(found, cut_off)
        reports = run.reports(engine, center) or ()
        if cut_off is not None:
            return run.do(plan_resume(cut_off, engine, reports), _HEAL_KIND)
        mine = [d for d in domains if d.data_center == center]
        plan = plan_heal(
            engine,
            center,
            mine,
            reports,
            pinned=pinned_on(run.session, engine.hosts_of(center)),
            batch=words.batch,
            now=time.time(),
        )
        for sentence in () if words.dry_run else plan.warnings:
            screen.message(f"warning: {sentence}")
        if not plan.state.hosts and not words.dry_run:
            if screen.for_people:
                screen.text("Nothing to heal: no mount is known to be degraded.")
            else:
                screen.document(_HEAL_KIND, {"stage": "nothing to do", "hosts": []})
            return 3 if plan.warnings else 0
        return run.do(plan, _HEAL_KIND)
