# SPDX-License-Identifier: GPL-2.0-or-later
"""What is next in an offline conversion, or on its way back. Pure.

Policies, the domains to maintenance, every host's unmount verified, the rows, the
domains active again, every host proven. A mount that a host kept would be used again,
silently and with the old transport (vdsm's MountConnection.connect), so such a host
goes through maintenance first.
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
    Sight,
    View,
    unlike,
    wanted_transports,
)
from ovirt_rdma.engine_sdk_tools.conversion.steps import (
    FINISH,
    LOOK,
    ORDER,
    Step,
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


def offline_step(state: ConversionState, view: View) -> Step:
    """Return the next step; FINISH where there is none."""
    for domain in state.domains:
        here = view.domain(state, domain) is not None and view.row(domain) is not None
        if here or domain.stage == GONE:
            continue
        if state.undoes:
            return mark_domain(domain, GONE)
        return fail_domain(domain, f"{domain.name} or its connection is gone")
    first = (_policies, _close)
    if state.undoes:
        # A deactivation that is refused leaves all as it is.
        first = (_close, _policies)
    for one in (*first, _unmounted, _rows, _open, _proven):
        step = one(state, view)
        if step is not None:
            return step
    return Step(FINISH, state.title)


def _policies(state: ConversionState, view: View) -> Optional[Step]:
    steps = []
    for host in (host for host in state.hosts if host.stage == TODO):
        if view.host(host) is None:
            steps.append(mark(host, DONE, "it is no longer in the engine"))
            continue
        sight = view.sights.get(host.name)
        steps.append(policy_step(host, sight) or mark(host, PREPARED))
    return _first(state, iter(steps))


def _close(state: ConversionState, view: View) -> Optional[Step]:
    """Bring the domains to maintenance, the master last."""
    for domain in sorted(state.domains, key=lambda d: d.master):
        if domain.stage not in (TODO, ENTERING) or not _was_active(domain):
            continue
        status = _status(state, view, domain)
        if status == _MAINTENANCE:
            continue
        if status in (_ACTIVE, "inactive", "unknown"):
            return deactivate(state, domain)
        return wait_domain(state, domain, _MAINTENANCE, _ACTIVE)
    return None


def _unmounted(state: ConversionState, view: View) -> Optional[Step]:
    """See that no host kept a mount."""
    if any(d.stage not in (TODO, ENTERING, GONE) for d in state.domains):
        return None
    steps = []
    for host in state.hosts:
        if host.stage in (UNMOUNTED, *OVER):
            continue
        found = view.host(host)
        if not view.is_up(host) or state.blind or found is None:
            steps.append(mark(host, UNMOUNTED))
        else:
            steps.append(_let_go(state, host, found.status, view))
    return _first(state, iter(steps))


def _let_go(  # noqa: PLR0911 - a row a status
    state: ConversionState, host: HostRecord, status: Optional[str], view: View
) -> Step:
    sight = view.sights.get(host.name)
    if status == _MAINTENANCE:
        return leave(host) if host.ours else mark(host, UNMOUNTED)
    if status == "preparing_for_maintenance":
        return wait_in(host)
    if status not in ("up", "non_operational"):
        return wait_out(host)
    if sight is None:
        return look(host)
    kept = _mounted(state, host, sight)
    if unproven(state, sight):
        return mark(host, UNMOUNTED)
    if sight.problem:
        return fail(host, f"{host.name} cannot be asked: {sight.problem}")
    if not kept:
        return mark(host, UNMOUNTED)
    if host.stage == LEAVING:
        return fail(host, f"{host.name} does not let go of {', '.join(kept)}")
    return enter(host)


def _mounted(state: ConversionState, host: HostRecord, sight: Sight) -> tuple[str, ...]:
    exports = (export for export, _ in wanted_transports(state, host))
    return tuple(export for export in exports if export in sight.transports)


def _rows(state: ConversionState, view: View) -> Optional[Step]:
    for domain in state.domains:
        row = view.row(domain)
        options = domain.options if state.undoes else domain.wanted
        if row is not None and row.mount_options != options:
            status = _status(state, view, domain)
            return set_row(domain, options, force=status != _MAINTENANCE)
    return None


def _open(state: ConversionState, view: View) -> Optional[Step]:
    """Activate the domains, the master first."""
    for domain in sorted(state.domains, key=lambda d: not d.master):
        if domain.stage in (DONE, GONE):
            continue
        if not _was_active(domain):
            return mark_domain(domain, DONE)
        status = _status(state, view, domain)
        if status == _ACTIVE:
            return mark_domain(domain, DONE)
        if status == _MAINTENANCE:
            return activate(state, domain)
        if status in ("inactive", "unknown") and domain.stage == LEAVING:
            return fail_domain(domain, f"{domain.name} is {status}, not active")
        return wait_domain(state, domain, _ACTIVE, "inactive", _MAINTENANCE)
    return None


def _proven(state: ConversionState, view: View) -> Optional[Step]:
    steps = [
        _prove(state, host, view) for host in state.hosts if host.stage not in OVER
    ]
    return _first(state, iter(steps))


def _prove(state: ConversionState, host: HostRecord, view: View) -> Step:  # noqa: PLR0911 - a row a status
    found = view.host(host)
    if found is None:
        return mark(host, DONE, "it is no longer in the engine")
    if not view.is_up(host) or not any(map(_was_active, state.domains)):
        return mark(host, LEFT, "it did not mount the domain")
    status = found.status
    if status == "up":
        if host.stage == LEAVING and host.name not in view.arrived:
            return wait_out(host)
        sight = view.sights.get(host.name)
        if sight is None and not state.blind:
            return look(host)
        if sight is None or unproven(state, sight):
            return _by_the_engine(host, view)
        if sight.problem:
            return fail(host, f"{host.name} cannot be asked: {sight.problem}")
        wrong = unlike(state, host, sight)
        if wrong:
            return fail(host, f"on {host.name} {'; '.join(wrong)}")
        return mark(host, DONE)
    if status == "non_operational" and host.goal == BACK and host.stage != LEAVING:
        return leave(host)
    if status == "non_operational":
        return fail(
            host,
            f"{host.name} became non-operational: it could not connect all of its "
            "storage; vdsm.log there says why",
        )
    if status == _MAINTENANCE:
        if host.stage == LEAVING or host.ours:
            return leave(host)
        return mark(host, LEFT, "somebody put it into maintenance")
    return wait_out(host)


def _by_the_engine(host: HostRecord, view: View) -> Step:
    """What the engine says of a host that was up when the domains were activated, and
    cannot be asked: it stays up although it could not mount one.
    """
    if host.stage == LEAVING:
        return after_activation(host, view)
    why = view.refused.get(host.name)
    if why is not None:
        return fail(host, f"{host.name} could not mount it: {why}")
    return mark(host, DONE, NOT_PROVEN)


def _first(state: ConversionState, steps: Iterator[Step]) -> Optional[Step]:
    every = list(steps)
    if not every:
        return None
    first = min(every, key=lambda step: ORDER.index(step.kind))
    if first.kind == LOOK:
        return look(*(state.host(s.subject) for s in every if s.kind == LOOK))
    return first


def _was_active(domain: DomainRecord) -> bool:
    return domain.found == _ACTIVE


def _status(state: ConversionState, view: View, domain: DomainRecord) -> Optional[str]:
    found = view.domain(state, domain)
    return found.status if found else None
