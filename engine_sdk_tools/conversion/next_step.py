# SPDX-License-Identifier: GPL-2.0-or-later
"""What is next in any conversion, and what would come of all steps. Pure.

The dry run plays the same decisions through against a world in which each step does
what it is meant to: so what it shows is what is done when all goes well.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Optional

from ovirt_rdma.engine_sdk_tools.api.request import Call
from ovirt_rdma.engine_sdk_tools.conversion.model import (
    BACK,
    CONVERTING,
    DONE,
    LEAVING,
    ROLLING,
    UNDER_WAY,
    UNMOUNTED,
    ConversionState,
)
from ovirt_rdma.engine_sdk_tools.conversion.observation import (
    Sight,
    View,
    wanted_transports,
)
from ovirt_rdma.engine_sdk_tools.conversion.offline import offline_step
from ovirt_rdma.engine_sdk_tools.conversion.rolling import rolling_step
from ovirt_rdma.engine_sdk_tools.conversion.steps import (
    ENTER,
    FAIL,
    FINISH,
    LEAVE,
    LOOK,
    MARK,
    PUSH,
    WAIT_OUT,
    Step,
)
from ovirt_rdma.engine_sdk_tools.conversion.transitions import failed
from ovirt_rdma.engine_sdk_tools.model import Domain, Engine, Host

# More steps no host and no domain needs, there and back.
_MOST = 40


def next_step(state: ConversionState, view: View) -> Step:
    """Return what is to be done now."""
    return (rolling_step if state.mode == ROLLING else offline_step)(state, view)


def marked(state: ConversionState, step: Step) -> ConversionState:
    """Return the state after what ``step`` notes of its host or domain."""
    if step.of_domain:
        return state.with_domain(step.subject, stage=step.after)
    changes: dict[str, Any] = {"stage": step.after, "why": step.why}
    if step.after in (DONE, UNMOUNTED):
        changes["ours"] = False
    return state.with_host(step.subject, **changes)


def begun(state: ConversionState, step: Step) -> ConversionState:
    """Return the state as it is written before the act of ``step``."""
    state = replace(state, doing=step.doing)
    stage = {"stage": step.before} if step.before else {}
    if step.of_domain:
        opens = step.before == LEAVING and state.stage == CONVERTING
        touched = {"touched": True} if opens else {}
        return state.with_domain(step.subject, **stage, **touched)
    changes = {"touched": True} if step.kind in (PUSH, ENTER, LEAVE) else {}
    ours = {"ours": True} if step.kind == ENTER else {}
    return state.with_host(step.subject, **stage, **changes, **ours)


def imagined(state: ConversionState, view: View) -> Iterator[Step]:
    """Yield the steps, in order, if all goes well; no marks. Waits are left out after
    what brings about the status at once here.
    """
    for _ in range(_MOST * (len(state.hosts) + len(state.domains))):
        if state.stage not in UNDER_WAY:
            return
        step = next_step(state, view)
        if step.kind == FINISH:
            return
        if step.kind == FAIL:
            state = failed(state, step, step.why)
            continue
        if step.kind == MARK:
            state = marked(state, step)
            continue
        state = begun(state, step)
        yield step
        view = _after(state, view, step)


def _after(state: ConversionState, view: View, step: Step) -> View:  # noqa: PLR0911 - a row a status
    if step.kind == PUSH:
        host = state.host(step.subject)
        digest = host.digest if step.policy == host.wanted else None
        old = _sight(state, view, step.subject)
        new = replace(old, policy=step.policy, digest=digest, problem="")
        return _seen(view, step.subject, new)
    if step.kind == LOOK:
        for name in step.hosts:
            view = _seen(view, name, _sight(state, view, name))
        return view
    if step.kind == ENTER:
        old = _sight(state, view, step.subject)
        view = _seen(view, step.subject, replace(old, transports={}))
        return _host(view, step.subject, "maintenance")
    if step.kind == LEAVE:
        gone = {n: so for n, so in view.arrived.items() if n != step.subject}
        view = replace(view, arrived=gone)
    if step.kind == LEAVE and step.before != LEAVING:
        # Called off before it was in maintenance.
        return _host(view, step.subject, "up")
    if step.kind == LEAVE:
        return _host(_mounted(state, view, step.subject), step.subject, "up")
    if step.call is not None:
        return _domain_call(state, view, step.call)
    # What is waited for comes about.
    if not step.of_domain:
        if step.kind == WAIT_OUT:
            view = _mounted(state, view, step.subject)
            view = replace(view, arrived={**view.arrived, step.subject: True})
        return _host(view, step.subject, step.until[0])
    return _domain(state, view, step.subject, step.until[0])


def _domain_call(state: ConversionState, view: View, call: Call) -> View:
    subject = str(call.about)
    if call.method == "update":
        options = call.words["connection"].mount_options
        row_id = next(d.connection for d in state.domains if d.name == subject)
        rows = tuple(
            replace(row, mount_options=options) if row.id == row_id else row
            for row in view.engine.connections
        )
        return replace(view, engine=replace(view.engine, connections=rows))
    opens = call.method == "activate"
    return _domain(state, view, subject, "active" if opens else "maintenance")


def _domain(state: ConversionState, view: View, name: str, status: str) -> View:
    ids = {d.id for d in state.domains if d.name == name}
    domains = tuple(
        replace(d, status=status) if _is(d, state, ids) else d
        for d in view.engine.domains
    )
    view = replace(view, engine=replace(view.engine, domains=domains))
    for host in state.hosts:
        if status == "active" and host.found == "up":
            view = _mounted(state, view, host.name)
        else:
            old = _sight(state, view, host.name)
            view = _seen(view, host.name, replace(old, transports={}))
    return view


def _is(domain: Domain, state: ConversionState, ids: set[str]) -> bool:
    return domain.id in ids and domain.data_center == state.data_center


def _mounted(state: ConversionState, view: View, name: str) -> View:
    wanted = wanted_transports(state, state.host(name))
    transports = {export: transport for export, transport in wanted if transport}
    old = _sight(state, view, name)
    return _seen(view, name, replace(old, transports=transports))


def _sight(state: ConversionState, view: View, name: str) -> Sight:
    """Return what a host told, or would tell if all has gone well so far."""
    found = view.sights.get(name)
    if found is not None:
        return found
    host = state.host(name)
    pushed = host.goal == BACK and host.touched
    return Sight(host.wanted if pushed else host.policy)


def _seen(view: View, name: str, sight: Sight) -> View:
    return replace(view, sights={**view.sights, name: sight})


def _host(view: View, name: str, status: Optional[str]) -> View:
    engine: Engine = view.engine
    hosts: tuple[Host, ...] = tuple(
        replace(host, status=status) if host.name == name else host
        for host in engine.hosts
    )
    return replace(view, engine=replace(engine, hosts=hosts))
