# SPDX-License-Identifier: GPL-2.0-or-later
"""``domain convert``: domains come to RDMA, or back to TCP; cut off, it goes on."""

from __future__ import annotations

import contextlib
import shlex
import time
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from typing import Optional

from ovirt_rdma.cli.conversion_report import command_of
from ovirt_rdma.cli.conversion_run import (
    Run,
    earlier_of,
    no_other_under_way,
    stored_of,
)
from ovirt_rdma.cli.engine_session import door_of, opened
from ovirt_rdma.cli.screen import Screen
from ovirt_rdma.engine_sdk_tools.conversion.checks import (
    ConversionRequest,
    check_kinds,
)
from ovirt_rdma.engine_sdk_tools.conversion.plan import (
    ConversionPlan,
    plan_convert,
    plan_resume,
)
from ovirt_rdma.engine_sdk_tools.conversion.records import rule_of
from ovirt_rdma.engine_sdk_tools.conversion.state import (
    FINISHED,
    REVERTING,
    ROLLING,
    ConversionState,
)
from ovirt_rdma.engine_sdk_tools.conversion.users import pinned_on, running_on
from ovirt_rdma.engine_sdk_tools.engine_facts import Domain, Engine
from ovirt_rdma.engine_sdk_tools.engine_reader import read_engine
from ovirt_rdma.engine_sdk_tools.names import domain_named
from ovirt_rdma.engine_sdk_tools.refusals import Refused

_KIND = "domain-convert"


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
            return run.do(_going_on(run, engine, state, domains, request), _KIND)
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
        return run.do(plan, _KIND)


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
    screen.document(_KIND, {**content, **more})
    return 0
