# SPDX-License-Identifier: GPL-2.0-or-later
"""Decide the next step of any conversion, and simulate all steps. Pure.

The dry run applies the same decisions to a simulated engine in which every step is
successful, so it shows the steps of a run without failures.
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
    STOPPED,
    UNDER_WAY,
    UNMOUNTED,
    ConversionState,
)
from ovirt_rdma.engine_sdk_tools.conversion.observation import (
    Observation,
    Snapshot,
    wanted_transports,
)
from ovirt_rdma.engine_sdk_tools.conversion.offline import offline_step
from ovirt_rdma.engine_sdk_tools.conversion.preflight import upgrade_running
from ovirt_rdma.engine_sdk_tools.conversion.rolling import rolling_step
from ovirt_rdma.engine_sdk_tools.conversion.steps import (
    BEGIN_UPGRADE,
    END_UPGRADE,
    ENTER,
    FAIL,
    FINISH,
    LEAVE,
    LOOK,
    MARK,
    PUSH,
    WAIT_OUT,
    ConversionStep,
    begin_upgrade,
    end_upgrade,
    fail_domain,
)
from ovirt_rdma.engine_sdk_tools.conversion.transitions import failed, finished
from ovirt_rdma.engine_sdk_tools.hosts.policy import digest_of
from ovirt_rdma.engine_sdk_tools.model import Domain, Engine, Host
from ovirt_rdma.host.policy.drop_ins import NO_FILES

# No host and no domain needs more steps, forward and back.
_MOST_STEPS = 40


def next_step(state: ConversionState, snapshot: Snapshot) -> ConversionStep:
    """Return the step to do now."""
    decide = rolling_step if state.mode == ROLLING else offline_step
    step = decide(state, snapshot)
    return _upgrade_step(state, snapshot, step) or step


def _upgrade_step(
    state: ConversionState, snapshot: Snapshot, step: ConversionStep
) -> Optional[ConversionStep]:
    """Return what to do before ``step`` so that no other program moves hosts of the
    same cluster to maintenance meanwhile. On the way back, one that does stops nothing.
    """
    clusters = [
        cluster
        for cluster in snapshot.engine.clusters
        if cluster.data_center == state.data_center
        and cluster.name not in snapshot.unmarked
    ]
    if step.kind == FINISH:
        # A run that stops clears them afterwards: the host that stops it may look sound
        # in the next reading, and the run would continue.
        if finished(state).stage == STOPPED:
            return None
        return next((end_upgrade(c) for c in clusters if c.is_ours), None)
    if step.kind != ENTER:
        return None
    host = snapshot.host(state.host(step.subject))
    for cluster in clusters:
        if host is None or cluster.id != host.cluster or cluster.is_ours:
            continue
        if not cluster.upgrade_in_progress:
            return begin_upgrade(cluster)
        if not state.undoes:
            return fail_domain(state.domains[0], upgrade_running(cluster))
    return None


def marked(state: ConversionState, step: ConversionStep) -> ConversionState:
    """Return the state after ``step`` has marked its host or domain."""
    if step.of_domain:
        return state.with_domain(step.subject, stage=step.after)
    changes: dict[str, Any] = {"stage": step.after, "why": step.why}
    if step.after in (DONE, UNMOUNTED):
        changes["ours"] = False
    return state.with_host(step.subject, **changes)


def begun(state: ConversionState, step: ConversionStep) -> ConversionState:
    """Return the state to store before ``step`` is done."""
    state = replace(state, doing=step.doing)
    stage = {"stage": step.before} if step.before else {}
    if step.of_domain:
        opens = step.before == LEAVING and state.stage == CONVERTING
        touched = {"touched": True} if opens else {}
        return state.with_domain(step.subject, **stage, **touched)
    changes = {"touched": True} if step.kind in (PUSH, ENTER, LEAVE) else {}
    ours = {"ours": True} if step.kind == ENTER else {}
    return state.with_host(step.subject, **stage, **changes, **ours)


def imagined(state: ConversionState, snapshot: Snapshot) -> Iterator[ConversionStep]:
    """Yield the steps, in order, if all are successful, without marks. There are no
    waits after a step whose result is immediate in the simulation.
    """
    for _ in range(_MOST_STEPS * (len(state.hosts) + len(state.domains))):
        if state.stage not in UNDER_WAY:
            return
        step = next_step(state, snapshot)
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
        snapshot = _after(state, snapshot, step)


def _after(
    state: ConversionState, snapshot: Snapshot, step: ConversionStep
) -> Snapshot:
    if step.kind == PUSH:
        digest = digest_of(step.policy)
        old = _observed(state, snapshot, step.subject)
        new = replace(old, policy=step.policy, digest=digest, problem="")
        return _seen(snapshot, step.subject, new)
    if step.kind == LOOK:
        for name in step.hosts:
            snapshot = _seen(snapshot, name, _observed(state, snapshot, name))
        return snapshot
    if step.kind == ENTER:
        old = _observed(state, snapshot, step.subject)
        snapshot = _seen(snapshot, step.subject, replace(old, transports={}))
        return _host(snapshot, step.subject, "maintenance")
    if step.kind == LEAVE:
        others = {n: up for n, up in snapshot.arrived.items() if n != step.subject}
        snapshot = replace(snapshot, arrived=others)
    if step.kind == LEAVE and step.before != LEAVING:
        # Cancelled before it was in maintenance.
        return _host(snapshot, step.subject, "up")
    if step.kind == LEAVE:
        return _host(_mounted(state, snapshot, step.subject), step.subject, "up")
    if step.kind in (BEGIN_UPGRADE, END_UPGRADE):
        return _marked(snapshot, step)
    if step.call is not None:
        return _domain_call(state, snapshot, step.call)
    # Every wait is successful.
    if not step.of_domain:
        if step.kind == WAIT_OUT:
            snapshot = _mounted(state, snapshot, step.subject)
            snapshot = replace(
                snapshot, arrived={**snapshot.arrived, step.subject: True}
            )
        return _host(snapshot, step.subject, step.until[0])
    return _domain(state, snapshot, step.subject, step.until[0])


def _marked(snapshot: Snapshot, step: ConversionStep) -> Snapshot:
    clusters = tuple(
        replace(
            cluster,
            upgrade_in_progress=step.kind == BEGIN_UPGRADE,
            upgrade_correlation_id=cluster.our_upgrade,
        )
        if cluster.name == step.subject
        else cluster
        for cluster in snapshot.engine.clusters
    )
    return replace(snapshot, engine=replace(snapshot.engine, clusters=clusters))


def _domain_call(state: ConversionState, snapshot: Snapshot, call: Call) -> Snapshot:
    subject = str(call.subject)
    if call.method == "update":
        options = call.arguments["connection"].mount_options
        row_id = next(d.connection for d in state.domains if d.name == subject)
        rows = tuple(
            replace(row, mount_options=options) if row.id == row_id else row
            for row in snapshot.engine.connections
        )
        return replace(snapshot, engine=replace(snapshot.engine, connections=rows))
    opens = call.method == "activate"
    return _domain(state, snapshot, subject, "active" if opens else "maintenance")


def _domain(
    state: ConversionState, snapshot: Snapshot, name: str, status: str
) -> Snapshot:
    ids = {d.id for d in state.domains if d.name == name}
    domains = tuple(
        replace(d, status=status) if _is(d, state, ids) else d
        for d in snapshot.engine.domains
    )
    snapshot = replace(snapshot, engine=replace(snapshot.engine, domains=domains))
    for host in state.hosts:
        if status == "active" and host.found == "up":
            snapshot = _mounted(state, snapshot, host.name)
        else:
            old = _observed(state, snapshot, host.name)
            snapshot = _seen(snapshot, host.name, replace(old, transports={}))
    return snapshot


def _is(domain: Domain, state: ConversionState, ids: set[str]) -> bool:
    return domain.id in ids and domain.data_center == state.data_center


def _mounted(state: ConversionState, snapshot: Snapshot, name: str) -> Snapshot:
    wanted = wanted_transports(state, state.host(name))
    transports = {export: transport for export, transport in wanted if transport}
    old = _observed(state, snapshot, name)
    return _seen(snapshot, name, replace(old, transports=transports))


def _observed(state: ConversionState, snapshot: Snapshot, name: str) -> Observation:
    """Return the observation of a host, or the one to expect so far."""
    known = snapshot.observations.get(name)
    if known is not None:
        return known
    host = state.host(name)
    pushed = host.goal == BACK and host.touched
    files = {file.name: file.wanted if pushed else file.found for file in host.files}
    policy = NO_FILES.having(files)
    return Observation(policy, digest_of(policy))


def _seen(snapshot: Snapshot, name: str, observed: Observation) -> Snapshot:
    return replace(snapshot, observations={**snapshot.observations, name: observed})


def _host(snapshot: Snapshot, name: str, status: Optional[str]) -> Snapshot:
    engine: Engine = snapshot.engine
    hosts: tuple[Host, ...] = tuple(
        replace(host, status=status) if host.name == name else host
        for host in engine.hosts
    )
    return replace(snapshot, engine=replace(engine, hosts=hosts))
