# SPDX-License-Identifier: GPL-2.0-or-later
"""Plan a conversion, its resumption and its revert, and a heal. Pure.

The transport of a mount never changes, so each host concerned goes through maintenance,
the SPM last. Policies and storage connections are unchanged. It is a rolling conversion
that changes nothing else: :mod:`.conversion.run` carries it out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Optional

from ovirt_rdma.engine_sdk_tools.conversion import model
from ovirt_rdma.engine_sdk_tools.conversion.fleet import (
    UNPROVEN,
    Observation,
    ReportedHost,
    Snapshot,
    domain_record,
    left_out,
    observe,
    of_each,
    ordered,
    rule_of,
    unlike,
    with_earlier,
    with_files_of,
)
from ovirt_rdma.engine_sdk_tools.conversion.model import (
    BACK,
    CONVERT,
    HEAL,
    OFFLINE,
    RDMA,
    ROLLING,
    ConversionRequest,
    ConversionState,
    DomainRecord,
    HostRecord,
    Stage,
    moving_offenders,
    only_one,
)
from ovirt_rdma.engine_sdk_tools.conversion.next_step import (
    imagined,
    policy_step,
    renamed,
    resumed,
    reverting,
)
from ovirt_rdma.engine_sdk_tools.conversion.steps import RunStep
from ovirt_rdma.engine_sdk_tools.domains.transport import (
    can_be_healed,
    requested_transport,
)
from ovirt_rdma.engine_sdk_tools.hosts.report import HostReport
from ovirt_rdma.engine_sdk_tools.model import Domain, Engine, Host, check, merged
from ovirt_rdma.host.errors import Problem, Sentence
from ovirt_rdma.host.policy.model import REQUIRE_RDMA

# In any order; may be a stream, so it is iterated once.
Reports = Iterable[HostReport]


@dataclass(frozen=True)
class ConversionPlan:
    """``state`` is the one at the start; ``steps`` are those that change something, in
    order, none if there is nothing to do; ``warnings`` are sentences. ``observed`` are
    the hosts as they were asked, by name.
    """

    state: ConversionState
    steps: tuple[RunStep, ...]
    warnings: tuple[str, ...] = ()
    observed: Mapping[str, Observation] = field(default_factory=dict)


def plan_convert(
    engine: Engine,
    domains: Sequence[Domain],
    reports: Reports,
    request: ConversionRequest,
    *,
    users: Optional[Mapping[str, Sequence[str]]] = None,
    pinned: Optional[Mapping[str, Sequence[str]]] = None,
    earlier: Sequence[ConversionState] = (),
    now: float = 0.0,
) -> ConversionPlan:
    """Check a conversion of ``domains``, of one data center, and plan it.

    ``reports`` has all hosts of the data center. ``users`` are the virtual machines
    that run on a domain, by its name, ``pinned`` those that must not leave a host, by
    its id; ``earlier`` are earlier conversions.
    Raises Refused and ChecksFailed with all objections.
    """
    model.check_domains(engine, domains, request)
    center = str(domains[0].data_center)
    hosts = ordered(engine.hosts_of(center))
    offenders: list[Sentence] = []
    records = []
    for domain in domains:
        try:
            record = domain_record(domain, request.to)
        except Problem as problem:
            offenders.append(Sentence(problem.id, f"{domain.name}: {problem}"))
            continue
        records.append(record)
        using = (users or {}).get(domain.name, ())
        offenders += model.domain_offenders(
            engine, domain, request, record.wanted, using
        )
    check(offenders)
    fleet = of_each(hosts, reports, lambda seen: seen.started(records, request))
    offenders += model.fleet_offenders(hosts, request, engine.clusters, pinned)
    check([*offenders, *(why for one in fleet.values() for why in one.objections)])
    observed = {name: one.observed for name, one in fleet.items()}
    state = ConversionState(
        kind=CONVERT,
        data_center=center,
        to=request.to,
        mode=ROLLING if request.rolling else OFFLINE,
        domains=tuple(records),
        hosts=tuple(one.record for one in fleet.values() if one.record),
        rule=rule_of(request),
        by_row=request.by_row,
        batch=request.batch,
        begun_at=now,
    )
    state = with_earlier(state, earlier, observed)
    snapshot = Snapshot(state, engine, observed)
    if _is_so(snapshot):
        return ConversionPlan(state, ())
    warnings = tuple(model.warnings(hosts, domains, request))
    return ConversionPlan(state, steps_of(snapshot), warnings, observed)


def plan_resume(
    state: ConversionState,
    engine: Engine,
    reports: Reports,
    without: Sequence[str] = (),
) -> ConversionPlan:
    """Plan the rest of a conversion that was interrupted or has stopped.

    Hosts that were not started are checked again, and hosts that were added to the data
    center since are included. The hosts named in ``without`` are left unchanged, as are
    those that were left out before and are still not up. Raises ChecksFailed.
    """
    state = renamed(state, engine)
    if without and state.stage not in (Stage.CONVERTING, Stage.STOPPED):
        raise model.refused(
            "host-left-out-of-revert",
            f"{state.title} is being rolled back or reverted, and no host can be left "
            "out of that",
            "omit --without",
        )
    hosts = ordered(engine.hosts_of(state.data_center))
    if state.kind == CONVERT and state.stage in (Stage.CONVERTING, Stage.STOPPED):
        state, observed = _with_hosts_now(state, engine, hosts, reports, without)
    else:
        observed = observe(hosts, reports, state.domains)
    state = resumed(state)
    steps = steps_of(Snapshot(state, engine, observed))
    return ConversionPlan(state, steps, observed=observed)


def _with_hosts_now(
    state: ConversionState,
    engine: Engine,
    hosts: Sequence[Host],
    reports: Reports,
    without: Sequence[str],
) -> tuple[ConversionState, dict[str, Observation]]:
    """Return the state with the present hosts, and their observations."""
    out = {record.id for record in state.hosts if record.left_out}
    still_away = [h.name for h in hosts if h.status != "up" and h.id in out]
    request = ConversionRequest(
        state.to,
        state.mode == ROLLING,
        state.by_row,
        state.batch,
        state.rule if state.to == RDMA else REQUIRE_RDMA,
        without=(*without, *still_away),
    )
    begun = {
        host.id: host
        for host in state.hosts
        if not (host.left_out and not host.touched)
        and (state.stage == Stage.CONVERTING or _is_changed(host))
    }
    # A domain that was removed meanwhile is not checked.
    ids = [d.id for d in engine.domains if d.data_center == state.data_center]
    here = [domain for domain in state.domains if domain.id in ids]
    fleet = of_each(
        hosts, reports, lambda seen: seen.started(state.domains, request, here)
    )
    new = [fleet[host.name] for host in hosts if host.id not in begun]
    offenders = list(
        model.without_offenders(hosts, replace(request, without=tuple(without)))
    )
    if request.rolling:
        offenders += model.upgrade_offenders(engine.clusters, hosts)
    check([*offenders, *(why for one in new for why in one.objections)])
    observed = {name: one.observed for name, one in fleet.items()}
    before = {host.id: host for host in (*state.former, *state.hosts)}
    added = (one.record for one in new if one.record)
    known = {
        **{h.id: _as_before(h, before.get(h.id), observed) for h in added},
        **begun,
    }
    records = [known.pop(host.id) for host in hosts]
    records += known.values()
    requested = [_as_requested(record, request.without) for record in records]
    present = {record.id for record in records}
    former = tuple(host for host in state.former if host.id not in present)
    return replace(state, hosts=tuple(requested), former=former), observed


def _as_before(
    host: HostRecord,
    before: Optional[HostRecord],
    observed: Mapping[str, Observation],
) -> HostRecord:
    """Return the new record of ``host`` with the baseline in the one before."""
    if before is None:
        return host
    return replace(
        with_files_of(host, before, observed.get(host.name)),
        first_transports=before.first_transports,
        converted=before.converted,
    )


def _as_requested(host: HostRecord, without: Sequence[str]) -> HostRecord:
    """Return the record of a host that is left out now, or no longer."""
    if host.name in without and host.stage != Stage.DONE:
        return left_out(host)
    if host.left_out and host.name not in without:
        return replace(host, left_out=False, stage=Stage.TODO, why="")
    return host


def _is_changed(host: HostRecord) -> bool:
    """Whether something of the conversion remains on it."""
    back = host.goal == BACK and host.stage in (Stage.DONE, Stage.LEFT)
    return host.touched and not back


def plan_revert(
    state: ConversionState, engine: Engine, reports: Reports
) -> ConversionPlan:
    """Plan the revert to the baseline of ``state``."""
    state = renamed(state, engine)
    here = ordered(engine.hosts_of(state.data_center))
    observations = observe(here, reports, state.domains)
    known = {host.id for host in state.hosts}
    new = [h.name for h in here if h.id not in known]
    up = {host.id for host in engine.hosts if host.status == "up"}
    new += [h.name for h in state.hosts if h.left_out and not h.touched and h.id in up]
    warnings: list[str] = []
    if state.mode == ROLLING:
        warnings += model.upgrade_offenders(engine.clusters, here)
    if new:
        warnings.append(
            Sentence(
                "hosts-not-converted",
                f"not converted, because up only since: {', '.join(new)}; mounts there "
                "stay until the host is activated again, and its policy is unchanged",
            )
        )
    state = reverting(_with_those_converted_since(state, observations))
    steps = steps_of(Snapshot(state, engine, observations))
    return ConversionPlan(state, steps, tuple(warnings), observations)


def _with_those_converted_since(
    state: ConversionState, observations: Mapping[str, Observation]
) -> ConversionState:
    """Return the state with hosts marked as touched that are converted but not by it:
    a run on another machine took over and continued.
    """
    exports = [str(domain.export) for domain in state.domains]
    since = []
    for host in state.hosts:
        observed = observations.get(host.name, Observation())
        before = host.transports or (None,) * len(exports)
        present = observed.policy.contents
        ruled = any(present.get(f.name) == f.wanted != f.found for f in host.files)
        moved = any(
            then not in (None, state.to) and observed.transports.get(export) == state.to
            for export, then in zip(exports, before)
        )
        if ruled or moved:
            since.append(host.name)
    return state.with_hosts(since, touched=True)


def steps_of(now: Snapshot) -> tuple[RunStep, ...]:
    """Return the steps that change something, if all of them are successful."""
    return tuple(step for step in imagined(now) if step.changes)


def _is_so(now: Snapshot) -> bool:
    """Whether mount options, policies and all mounts are already as requested."""
    if any(d.options != d.wanted for d in now.state.domains):
        return False
    for host in now.state.hosts:
        observed = now.observations.get(host.name, Observation())
        if policy_step(now, host) is not None:
            return False
        wrong = observed.problem or unlike(now.state, host, observed)
        if host.found == "up" and wrong:
            return False
    return True


# Plan the remount of domains that are mounted over TCP but should use RDMA.


def plan_heal(
    engine: Engine,
    data_center: str,
    domains: Sequence[Domain],
    reports: Iterable[HostReport],
    *,
    pinned: Optional[Mapping[str, Sequence[str]]] = None,
    batch: int = 1,
    now: float = 0.0,
) -> ConversionPlan:
    """Plan which hosts of a data center go through maintenance for ``domains``.

    ``pinned`` are virtual machines that must not leave a host, by its id. The plan has
    no steps if nothing is degraded, or if a remount would not help; ``warnings`` say
    so. Raises ChecksFailed if the hosts cannot go to maintenance.
    """
    warnings = [
        Sentence(
            "domain-of-hosted-engine",
            f"{d.name} is the hosted engine's domain, which maintenance does not "
            "unmount: reboot a host to remount it",
        )
        for d in domains
        if d.hosted_engine
    ]
    healed = [d for d in domains if can_be_healed(d)]
    records = tuple(
        replace(record, wanted=record.options)
        for record in (domain_record(d, RDMA) for d in healed)
    )
    up = [h for h in ordered(engine.hosts_of(data_center)) if h.status == "up"]
    judged = of_each(up, reports, lambda seen: _judged(seen, healed, records, batch))
    warnings += merged(why for _, _, against in judged.values() for why in against)
    wanted = {name: transports for name, (_, transports, _) in judged.items()}
    going = [h for h in up if wanted[h.name]]
    check(list(moving_offenders(engine.clusters, up, going, pinned or {}, batch)))
    if going and len(up) == 1:
        warnings.append(only_one(up[0]))
    hosts = [
        HostRecord(h.id, h.name, h.status, transports=wanted[h.name]) for h in going
    ]
    state = ConversionState(
        kind=HEAL,
        data_center=data_center,
        to=RDMA,
        mode=ROLLING,
        domains=records,
        hosts=tuple(hosts),
        batch=batch,
        begun_at=now,
    )
    observed = {name: one for name, (one, _, _) in judged.items()}
    steps = steps_of(Snapshot(state, engine, observed))
    return ConversionPlan(state, steps, tuple(warnings))


def _judged(
    seen: ReportedHost,
    domains: Sequence[Domain],
    records: Sequence[DomainRecord],
    batch: int,
) -> tuple[Observation, tuple[Optional[str], ...], list[Sentence]]:
    """Return the observation of a host, the transports that its mounts should have,
    none if it does not have to go through maintenance, and warnings.
    """
    name, observed = seen.host.name, seen.observed(records)
    if seen.problem:
        sentence = f"{name}: its mounts are unknown: {seen.problem}"
        return observed, (), [Sentence("host-mounts-unknown", sentence)]
    asked = (
        requested_transport(d.connection, seen.force) if d.connection else None
        for d in domains
    )
    wanted = tuple(RDMA if one and one.transport == RDMA else None for one in asked)
    concerned = [record for record, want in zip(records, wanted) if want == RDMA]
    present = (observed.transports.get(str(record.export)) for record in concerned)
    if all(transport in (None, RDMA, UNPROVEN) for transport in present):
        return observed, (), []
    # Why a remount would not get RDMA, each reason once.
    request = ConversionRequest(RDMA, rolling=True, batch=batch)
    objections = dict.fromkeys(seen.remount_objections(concerned, request))
    skipped = [
        Sentence(one.id, f"{name}: not remounted: {one.partition(': ')[2]}")
        for one in objections
    ]
    return observed, () if skipped else wanted, skipped
