# SPDX-License-Identifier: GPL-2.0-or-later
"""Decide the next step of an offline conversion, or of its way back. Pure.

The order: policies, domains to maintenance, unmount verified on every host, mount
options, domains active, every host proven. VDSM would silently reuse a mount that a
host has kept, with the old transport (MountConnection.connect), so such a host goes
through maintenance first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from ovirt_rdma.engine_sdk_tools.conversion.host_step import (
    NOT_PROVEN,
    after_activation,
    policy_step,
    unproven,
)
from ovirt_rdma.engine_sdk_tools.conversion.model import (
    BACK,
    DONE,
    ENTERING,
    GONE,
    LEAVING,
    LEFT,
    OVER,
    PREPARED,
    TODO,
    UNMOUNTED,
    ConversionState,
    DomainRecord,
    HostRecord,
)
from ovirt_rdma.engine_sdk_tools.conversion.observation import (
    Observation,
    Snapshot,
    unlike,
    wanted_transports,
)
from ovirt_rdma.engine_sdk_tools.conversion.steps import (
    FINISH,
    LOOK,
    ORDER,
    ConversionStep,
    activate,
    deactivate,
    enter,
    fail,
    fail_domain,
    leave,
    look,
    mark,
    mark_domain,
    set_row,
    wait_domain,
    wait_in,
    wait_out,
)

_MAINTENANCE = "maintenance"
_ACTIVE = "active"


def offline_step(state: ConversionState, snapshot: Snapshot) -> ConversionStep:
    """Return the next step; FINISH if there is none."""
    for domain in state.domains:
        here = (
            snapshot.domain(state, domain) is not None
            and snapshot.row(domain) is not None
        )
        if here or domain.stage == GONE:
            continue
        if state.undoes:
            return mark_domain(domain, GONE)
        return fail_domain(domain, f"{domain.name} or its connection was removed")
    first = (_policies, _close)
    if state.undoes:
        # First, because after a refused deactivation nothing has changed.
        first = (_close, _policies)
    for decide in (*first, _unmounted, _rows, _open, _proven):
        step = decide(state, snapshot)
        if step is not None:
            return step
    return ConversionStep(FINISH, state.title)


def _policies(state: ConversionState, snapshot: Snapshot) -> Optional[ConversionStep]:
    steps = []
    for host in (host for host in state.hosts if host.stage == TODO):
        if snapshot.host(host) is None:
            steps.append(mark(host, DONE, "it is no longer in the engine"))
            continue
        observed = snapshot.observations.get(host.name)
        steps.append(policy_step(host, observed) or mark(host, PREPARED))
    return _first(state, iter(steps))


def _close(state: ConversionState, snapshot: Snapshot) -> Optional[ConversionStep]:
    """Move the domains to maintenance, the master last."""
    for domain in sorted(state.domains, key=lambda d: d.master):
        if domain.stage not in (TODO, ENTERING) or not _was_active(domain):
            continue
        status = _status(state, snapshot, domain)
        if status == _MAINTENANCE:
            continue
        if status in (_ACTIVE, "inactive", "unknown"):
            return deactivate(state, domain)
        return wait_domain(state, domain, _MAINTENANCE, _ACTIVE)
    return None


def _unmounted(state: ConversionState, snapshot: Snapshot) -> Optional[ConversionStep]:
    """Verify that no host has kept a mount."""
    if any(d.stage not in (TODO, ENTERING, GONE) for d in state.domains):
        return None
    steps = []
    for host in state.hosts:
        if host.stage in (UNMOUNTED, *OVER):
            continue
        present = snapshot.host(host)
        if not snapshot.is_up(host) or state.blind or present is None:
            steps.append(mark(host, UNMOUNTED))
        else:
            steps.append(_unmount(state, host, present.status, snapshot))
    return _first(state, iter(steps))


def _unmount(
    state: ConversionState, host: HostRecord, status: Optional[str], snapshot: Snapshot
) -> ConversionStep:
    observed = snapshot.observations.get(host.name)
    if status == _MAINTENANCE:
        return leave(host) if host.ours else mark(host, UNMOUNTED)
    if status == "preparing_for_maintenance":
        return wait_in(host)
    if status not in ("up", "non_operational"):
        return wait_out(host)
    if observed is None:
        return look(host)
    kept = _mounted(state, host, observed)
    if unproven(state, observed):
        return mark(host, UNMOUNTED)
    if observed.problem:
        return fail(host, f"{host.name} cannot be asked: {observed.problem}")
    if not kept:
        return mark(host, UNMOUNTED)
    if host.stage == LEAVING:
        return fail(host, f"{host.name} does not unmount {', '.join(kept)}")
    return enter(host)


def _mounted(
    state: ConversionState, host: HostRecord, observed: Observation
) -> tuple[str, ...]:
    exports = (export for export, _ in wanted_transports(state, host))
    return tuple(export for export in exports if export in observed.transports)


def _rows(state: ConversionState, snapshot: Snapshot) -> Optional[ConversionStep]:
    for domain in state.domains:
        row = snapshot.row(domain)
        options = domain.options if state.undoes else domain.wanted
        if row is not None and row.mount_options != options:
            status = _status(state, snapshot, domain)
            return set_row(domain, options, force=status != _MAINTENANCE)
    return None


def _open(state: ConversionState, snapshot: Snapshot) -> Optional[ConversionStep]:
    """Activate the domains, the master first."""
    for domain in sorted(state.domains, key=lambda d: not d.master):
        if domain.stage in (DONE, GONE):
            continue
        if not _was_active(domain):
            return mark_domain(domain, DONE)
        status = _status(state, snapshot, domain)
        if status == _ACTIVE:
            return mark_domain(domain, DONE)
        if status == _MAINTENANCE:
            return activate(state, domain)
        if status in ("inactive", "unknown") and domain.stage == LEAVING:
            return fail_domain(domain, f"{domain.name} is {status}, not active")
        return wait_domain(state, domain, _ACTIVE, "inactive", _MAINTENANCE)
    return None


def _proven(state: ConversionState, snapshot: Snapshot) -> Optional[ConversionStep]:
    steps = [
        _prove(state, host, snapshot) for host in state.hosts if host.stage not in OVER
    ]
    return _first(state, iter(steps))


def _prove(
    state: ConversionState, host: HostRecord, snapshot: Snapshot
) -> ConversionStep:
    present = snapshot.host(host)
    if present is None:
        return mark(host, DONE, "it is no longer in the engine")
    if not snapshot.is_up(host) or not any(map(_was_active, state.domains)):
        return mark(host, LEFT, "it did not mount the domain")
    status = present.status
    if status == "up":
        if host.stage == LEAVING and host.name not in snapshot.arrived:
            return wait_out(host)
        observed = snapshot.observations.get(host.name)
        if observed is None and not state.blind:
            return look(host)
        if observed is None or unproven(state, observed):
            return _by_the_engine(host, snapshot)
        if observed.problem:
            return fail(host, f"{host.name} cannot be asked: {observed.problem}")
        wrong = unlike(state, host, observed)
        if wrong:
            return fail(host, f"on {host.name} {'; '.join(wrong)}")
        return mark(host, DONE)
    if status == "non_operational" and host.goal == BACK and host.stage != LEAVING:
        return leave(host)
    if status == "non_operational":
        return fail(
            host,
            f"{host.name} became non-operational: it could not connect all of its "
            "storage; see vdsm.log there",
        )
    if status == _MAINTENANCE:
        if host.stage == LEAVING or host.ours:
            return leave(host)
        return mark(host, LEFT, "somebody else moved it to maintenance")
    return wait_out(host)


def _by_the_engine(host: HostRecord, snapshot: Snapshot) -> ConversionStep:
    """Judge a host that cannot be asked by the engine's events: it stays up even if it
    could not mount an activated domain.
    """
    if host.stage == LEAVING:
        return after_activation(host, snapshot)
    why = snapshot.refused.get(host.name)
    if why is not None:
        return fail(host, f"{host.name} could not mount the domain: {why}")
    return mark(host, DONE, NOT_PROVEN)


def _first(
    state: ConversionState, steps: Iterator[ConversionStep]
) -> Optional[ConversionStep]:
    every = list(steps)
    if not every:
        return None
    first = min(every, key=lambda step: ORDER.index(step.kind))
    if first.kind == LOOK:
        return look(*(state.host(s.subject) for s in every if s.kind == LOOK))
    return first


def _was_active(domain: DomainRecord) -> bool:
    return domain.found == _ACTIVE


def _status(
    state: ConversionState, snapshot: Snapshot, domain: DomainRecord
) -> Optional[str]:
    present = snapshot.domain(state, domain)
    return present.status if present else None
