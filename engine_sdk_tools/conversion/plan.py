# SPDX-License-Identifier: GPL-2.0-or-later
"""A conversion or a revert before it begins: checked, with all its steps. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Optional

from ovirt_rdma.engine_sdk_tools.conversion import preflight
from ovirt_rdma.engine_sdk_tools.conversion.baseline import (
    against,
    domain_record,
    keeping,
    left_out,
    ordered,
    records_of,
    rule_of,
    told_of,
)
from ovirt_rdma.engine_sdk_tools.conversion.host_step import policy_step
from ovirt_rdma.engine_sdk_tools.conversion.model import (
    BACK,
    CONVERT,
    CONVERTING,
    DONE,
    LEFT,
    OFFLINE,
    RDMA,
    ROLLING,
    STOPPED,
    TCP,
    TODO,
    ConversionState,
    HostRecord,
)
from ovirt_rdma.engine_sdk_tools.conversion.next_step import imagined
from ovirt_rdma.engine_sdk_tools.conversion.observation import (
    Sight,
    View,
    sight_of,
    unlike,
)
from ovirt_rdma.engine_sdk_tools.conversion.preflight import ConversionRequest
from ovirt_rdma.engine_sdk_tools.conversion.steps import Step
from ovirt_rdma.engine_sdk_tools.conversion.transitions import (
    going_on,
    renamed,
    reverting,
)
from ovirt_rdma.engine_sdk_tools.domains.transport import export_at
from ovirt_rdma.engine_sdk_tools.domains.trunking import left_behind
from ovirt_rdma.engine_sdk_tools.hosts.report import HostReport
from ovirt_rdma.engine_sdk_tools.model import Domain, Engine
from ovirt_rdma.engine_sdk_tools.refusals import Refused, check
from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.policy.model import REQUIRE_RDMA

# In any order; may be a stream, which is gone through once.
Reports = Iterable[HostReport]


@dataclass(frozen=True)
class ConversionPlan:
    """``state`` is that at the begin, ``steps`` are what would change something, in
    order; none: there is nothing to do. ``warnings`` are sentences.
    """

    state: ConversionState
    steps: tuple[Step, ...]
    warnings: tuple[str, ...] = ()


def plan_convert(
    engine: Engine,
    domains: Sequence[Domain],
    reports: Optional[Reports],
    request: ConversionRequest,
    *,
    users: Optional[Mapping[str, Sequence[str]]] = None,
    pinned: Optional[Mapping[str, Sequence[str]]] = None,
    earlier: Sequence[ConversionState] = (),
    now: float = 0.0,
) -> ConversionPlan:
    """Check a conversion of ``domains``, of one data center, and plan it.

    ``reports`` has all hosts of the data center; None where there is no way to them.
    ``users`` are the virtual machines that run on a domain, by its name, ``pinned``
    those that may not leave a host, by its id; ``earlier`` what was converted before
    (see keeping). Raises Refused and ChecksFailed with all that is against it.
    """
    preflight.check_kinds(engine, domains, request)
    if reports is None and not request.by_row:
        raise Refused(
            ["there is no way to the hosts, so nothing could be prepared or proven"],
            "give --inventory or --ssh-key, or use --engine-options",
        )
    center = str(domains[0].data_center)
    hosts = ordered(engine.hosts_of(center))
    offenders: list[str] = []
    records = []
    for domain in domains:
        try:
            record = domain_record(domain, request.to)
        except Problem as problem:
            offenders.append(f"{domain.name}: {problem}")
            continue
        records.append(record)
        using = (users or {}).get(domain.name, ())
        offenders += preflight.domain_offenders(domain, request, record.wanted, using)
    check(offenders)
    told = told_of(hosts, reports, domains, records, request)
    offenders += preflight.fleet_offenders(hosts, request, engine.clusters, pinned)
    offenders += against(told)
    check(offenders)
    state = ConversionState(
        kind=CONVERT,
        data_center=center,
        to=request.to,
        mode=ROLLING if request.rolling else OFFLINE,
        domains=tuple(records),
        hosts=records_of(told),
        rule=rule_of(request),
        by_row=request.by_row,
        blind=reports is None,
        batch=request.batch,
        begun_at=now,
    )
    state = keeping(state, earlier)
    sights = {name: one.sight for name, one in told.items() if reports is not None}
    view = View(engine, sights)
    if reports is not None and _is_so(state, view):
        return ConversionPlan(state, ())
    mute = [name for name, one in told.items() if one.mute]
    warnings = list(preflight.warnings(hosts, mute, domains, request))
    if any(host.status == "up" and host.name in mute for host in hosts):
        warnings += left_behind(engine.domains, domains, request.to)
    return ConversionPlan(state, steps_of(state, view), tuple(warnings))


def plan_resume(
    state: ConversionState,
    engine: Engine,
    reports: Optional[Reports],
    without: Sequence[str] = (),
) -> ConversionPlan:
    """Plan what is left of a conversion that was cut off or stopped.

    Hosts that it has not begun with are looked at anew, and those that came into the
    data center since are taken in. The hosts named in ``without`` are left as they are,
    as are those that were left out before and are not up again. Raises ChecksFailed.
    """
    state = renamed(state, engine)
    if without and state.stage not in (CONVERTING, STOPPED):
        raise Refused(
            [f"{state.title} is being taken back, and no host can be left out of that"],
            "run it without --without",
        )
    sights: dict[str, Sight] = {}
    seen = _noting(state, reports or (), sights)
    if state.kind == CONVERT and state.stage in (CONVERTING, STOPPED):
        state = _with_hosts_now(state, engine, seen, without)
    for _ in seen:
        # What is left of the stream is only noted.
        pass
    state = going_on(state)
    return ConversionPlan(state, steps_of(state, View(engine, sights)))


def _with_hosts_now(
    state: ConversionState, engine: Engine, reports: Reports, without: Sequence[str]
) -> ConversionState:
    ids = {domain.id for domain in state.domains}
    domains = [
        d for d in engine.domains if d.id in ids and d.data_center == state.data_center
    ]
    rule = state.rule if state.to == RDMA else REQUIRE_RDMA
    still_away = [
        host.name
        for host in engine.hosts_of(state.data_center)
        if host.status != "up" and _is_left_out(state, host.id)
    ]
    request = ConversionRequest(
        state.to,
        state.mode == ROLLING,
        state.by_row,
        state.batch,
        rule,
        without=(*without, *still_away),
    )
    begun = {
        host.id: host
        for host in state.hosts
        if not (host.left_out and not host.touched)
        and (state.stage == CONVERTING or not _is_untouched(host))
    }
    hosts = ordered(engine.hosts_of(state.data_center))
    new = [host for host in hosts if host.id not in begun]
    told = told_of(new, reports, domains, state.domains, request)
    offenders = list(
        preflight.without_offenders(hosts, replace(request, without=tuple(without)))
    )
    if request.rolling:
        offenders += preflight.upgrade_offenders(engine.clusters, hosts)
    check([*offenders, *against(told)])
    made = {record.id: record for record in records_of(told)}
    records = [begun.pop(h.id) if h.id in begun else made[h.id] for h in hosts]
    records += begun.values()
    asked = [_as_asked(record, request.without) for record in records]
    return replace(state, hosts=tuple(asked))


def _as_asked(host: HostRecord, without: Sequence[str]) -> HostRecord:
    """Return the record of a host that is left out now, or is not any more."""
    if host.name in without and host.stage != DONE:
        return left_out(host)
    if host.left_out and host.name not in without:
        return replace(host, left_out=False, stage=TODO, why="")
    return host


def _is_left_out(state: ConversionState, host: str) -> bool:
    return any(one.id == host and one.left_out for one in state.hosts)


def _is_untouched(host: HostRecord) -> bool:
    """Whether nothing is left on it of what was begun."""
    return not host.touched or (host.goal == BACK and host.stage in (DONE, LEFT))


def plan_revert(
    state: ConversionState, engine: Engine, reports: Optional[Reports]
) -> ConversionPlan:
    """Plan the way back to what was found at the begin of ``state``."""
    state = renamed(state, engine)
    sights: dict[str, Sight] = {}
    for _ in _noting(state, reports or (), sights):
        pass
    known = {host.id for host in state.hosts}
    new = [h.name for h in engine.hosts_of(state.data_center) if h.id not in known]
    up = {host.id for host in engine.hosts if host.status == "up"}
    new += [h.name for h in state.hosts if h.left_out and not h.touched and h.id in up]
    warnings: list[str] = []
    if state.mode == ROLLING:
        here = engine.hosts_of(state.data_center)
        warnings += preflight.upgrade_offenders(engine.clusters, here)
    if new:
        warnings.append(
            f"{', '.join(new)} came up since, and was not converted: what is mounted "
            "there stays until it is activated again, and its policy is left as it is"
        )
    if state.kind == CONVERT:
        ids = {domain.id for domain in state.domains}
        going = [domain for domain in engine.domains if domain.id in ids]
        back = TCP if state.to == RDMA else RDMA
        warnings += left_behind(engine.domains, going, back)
    state = reverting(_with_those_converted_since(state, sights))
    steps = steps_of(state, View(engine, sights))
    return ConversionPlan(state, steps, tuple(warnings))


def _with_those_converted_since(
    state: ConversionState, sights: Mapping[str, Sight]
) -> ConversionState:
    """Return the state with hosts as touched that stand converted and were not by it:
    another machine took over and went on.
    """
    exports = [str(export_at(d.address, d.path)) for d in state.domains]
    since = []
    for host in state.hosts:
        sight = sights.get(host.name, Sight())
        before = host.transports or (None,) * len(exports)
        ruled = host.push and sight.policy == host.wanted != host.policy
        moved = any(
            then not in (None, state.to) and sight.transports.get(export) == state.to
            for export, then in zip(exports, before)
        )
        if ruled or moved:
            since.append(host.name)
    return state.with_hosts(since, touched=True)


def steps_of(state: ConversionState, view: View) -> tuple[Step, ...]:
    """Return the steps that change something, if all goes well."""
    return tuple(step for step in imagined(state, view) if step.changes)


def _noting(
    state: ConversionState, reports: Reports, sights: dict[str, Sight]
) -> Iterator[HostReport]:
    """Hand the reports on, each noted in ``sights``."""
    exports = [export_at(d.address, d.path) for d in state.domains]
    for report in reports:
        sights[report.host] = sight_of(report, exports)
        yield report


def _is_so(state: ConversionState, view: View) -> bool:
    """Whether all is as it should be already: rows, policies, and every mount."""
    if any(d.options != d.wanted for d in state.domains):
        return False
    for host in state.hosts:
        sight = view.sights.get(host.name, Sight())
        if host.push and policy_step(host, sight) is not None:
            return False
        if host.found == "up" and (sight.problem or unlike(state, host, sight)):
            return False
    return True
