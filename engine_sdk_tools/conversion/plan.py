# SPDX-License-Identifier: GPL-2.0-or-later
"""Plan a conversion, its rest or a revert: check it, and list all its steps. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Optional

from ovirt_rdma.engine_sdk_tools.conversion import preflight
from ovirt_rdma.engine_sdk_tools.conversion.baseline import (
    domain_record,
    left_out,
    ordered,
    rule_of,
    with_earlier,
    with_files_of,
)
from ovirt_rdma.engine_sdk_tools.conversion.fleet import FleetReport
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
    Observation,
    Snapshot,
    unlike,
)
from ovirt_rdma.engine_sdk_tools.conversion.preflight import ConversionRequest
from ovirt_rdma.engine_sdk_tools.conversion.steps import ConversionStep
from ovirt_rdma.engine_sdk_tools.conversion.transitions import (
    renamed,
    resumed,
    reverting,
)
from ovirt_rdma.engine_sdk_tools.domains.transport import export_at
from ovirt_rdma.engine_sdk_tools.domains.trunking import domains_left_on_other_transport
from ovirt_rdma.engine_sdk_tools.hosts.report import HostReport
from ovirt_rdma.engine_sdk_tools.model import Domain, Engine
from ovirt_rdma.engine_sdk_tools.refusals import Refused, check
from ovirt_rdma.host.errors import Problem, Sentence
from ovirt_rdma.host.policy.model import REQUIRE_RDMA

# In any order; may be a stream, so it is iterated once.
Reports = Iterable[HostReport]


@dataclass(frozen=True)
class ConversionPlan:
    """``state`` is the one at the start; ``steps`` are those that change something, in
    order, none if there is nothing to do; ``warnings`` are sentences.
    """

    state: ConversionState
    steps: tuple[ConversionStep, ...]
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

    ``reports`` has all hosts of the data center; None without host access. ``users``
    are the virtual machines that run on a domain, by its name, ``pinned`` those that
    must not leave a host, by its id; ``earlier`` are earlier conversions.
    Raises Refused and ChecksFailed with all objections.
    """
    preflight.check_domains(engine, domains, request)
    if reports is None and not request.by_row:
        raise Refused(
            [
                Sentence(
                    "host-access-missing",
                    "there is no access to the hosts, so they cannot be prepared and "
                    "nothing can be proven",
                )
            ],
            "give --inventory or --ssh-key, or use --engine-options",
        )
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
        offenders += preflight.domain_offenders(
            engine, domain, request, record.wanted, using
        )
    check(offenders)
    fleet = FleetReport.of(
        hosts, reports, records, to=request.to, without=request.without
    )
    started, objections = fleet.start(records, request)
    offenders += preflight.fleet_offenders(hosts, request, engine.clusters, pinned)
    check([*offenders, *objections])
    state = ConversionState(
        kind=CONVERT,
        data_center=center,
        to=request.to,
        mode=ROLLING if request.rolling else OFFLINE,
        domains=tuple(records),
        hosts=started,
        rule=rule_of(request),
        by_row=request.by_row,
        blind=reports is None,
        batch=request.batch,
        begun_at=now,
    )
    state = with_earlier(state, earlier, fleet.observations)
    snapshot = Snapshot(engine, fleet.observations)
    if reports is not None and _is_so(state, snapshot):
        return ConversionPlan(state, ())
    mute = [name for name in fleet.mute if name not in request.without]
    warnings: list[str] = list(preflight.warnings(hosts, mute, domains, request))
    if any(host.status == "up" and host.name in mute for host in hosts):
        warnings += domains_left_on_other_transport(engine.domains, domains, request.to)
    return ConversionPlan(state, steps_of(state, snapshot), tuple(warnings))


def plan_resume(
    state: ConversionState,
    engine: Engine,
    reports: Optional[Reports],
    without: Sequence[str] = (),
) -> ConversionPlan:
    """Plan the rest of a conversion that was interrupted or has stopped.

    Hosts that were not started are checked again, and hosts that were added to the data
    center since are included. The hosts named in ``without`` are left unchanged, as are
    those that were left out before and are still not up. Raises ChecksFailed.
    """
    state = renamed(state, engine)
    if without and state.stage not in (CONVERTING, STOPPED):
        raise Refused(
            [
                Sentence(
                    "host-left-out-of-revert",
                    f"{state.title} is being rolled back or reverted, and no host can "
                    "be left out of that",
                )
            ],
            "omit --without",
        )
    fleet = _fleet(state, engine, reports, to=state.to)
    if state.kind == CONVERT and state.stage in (CONVERTING, STOPPED):
        state = _with_hosts_now(state, engine, fleet, without)
    state = resumed(state)
    return ConversionPlan(state, steps_of(state, Snapshot(engine, fleet.observations)))


def _fleet(
    state: ConversionState,
    engine: Engine,
    reports: Optional[Reports],
    *,
    to: str = "",
) -> FleetReport:
    hosts = ordered(engine.hosts_of(state.data_center))
    return FleetReport.of(hosts, reports, state.domains, to=to)


def _with_hosts_now(
    state: ConversionState, engine: Engine, fleet: FleetReport, without: Sequence[str]
) -> ConversionState:
    ids = [d.id for d in engine.domains if d.data_center == state.data_center]
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
    # A domain that was removed meanwhile is not checked.
    added, objections = fleet.only(new).for_domains(ids).start(state.domains, request)
    offenders = list(
        preflight.without_offenders(hosts, replace(request, without=tuple(without)))
    )
    if request.rolling:
        offenders += preflight.upgrade_offenders(engine.clusters, hosts)
    check([*offenders, *objections])
    before = {host.id: host for host in (*state.former, *state.hosts)}
    known = {
        **{h.id: _as_before(h, before.get(h.id), fleet) for h in added},
        **begun,
    }
    records = [known.pop(host.id) for host in hosts]
    records += known.values()
    requested = [_as_requested(record, request.without) for record in records]
    here = {record.id for record in records}
    former = tuple(host for host in state.former if host.id not in here)
    return replace(state, hosts=tuple(requested), former=former)


def _as_before(
    host: HostRecord, before: Optional[HostRecord], fleet: FleetReport
) -> HostRecord:
    """Return the new record of ``host`` with the baseline in the one before."""
    if before is None:
        return host
    return replace(
        with_files_of(host, before, fleet.observations.get(host.name)),
        first_transports=before.first_transports,
        converted=before.converted,
    )


def _as_requested(host: HostRecord, without: Sequence[str]) -> HostRecord:
    """Return the record of a host that is left out now, or no longer."""
    if host.name in without and host.stage != DONE:
        return left_out(host)
    if host.left_out and host.name not in without:
        return replace(host, left_out=False, stage=TODO, why="")
    return host


def _is_left_out(state: ConversionState, host: str) -> bool:
    return any(record.id == host and record.left_out for record in state.hosts)


def _is_untouched(host: HostRecord) -> bool:
    """Whether nothing of the conversion remains on it."""
    return not host.touched or (host.goal == BACK and host.stage in (DONE, LEFT))


def plan_revert(
    state: ConversionState, engine: Engine, reports: Optional[Reports]
) -> ConversionPlan:
    """Plan the revert to the baseline of ``state``."""
    state = renamed(state, engine)
    observations = _fleet(state, engine, reports).observations
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
            Sentence(
                "hosts-not-converted",
                f"not converted, because up only since: {', '.join(new)}; mounts there "
                "stay until the host is activated again, and its policy is unchanged",
            )
        )
    state = reverting(_with_those_converted_since(state, observations))
    if state.kind == CONVERT:
        ids = {domain.id for domain in state.domains}
        going = [domain for domain in engine.domains if domain.id in ids]
        back = _transport_before(state)
        warnings += domains_left_on_other_transport(engine.domains, going, back)
    steps = steps_of(state, Snapshot(engine, observations))
    return ConversionPlan(state, steps, tuple(warnings))


def _transport_before(state: ConversionState) -> str:
    """Return the transport to which a revert goes back."""
    before = {transport for host in state.hosts for transport in host.transports}
    if len(before & {RDMA, TCP}) == 1:
        return str((before & {RDMA, TCP}).pop())
    return TCP if state.to == RDMA else RDMA


def _with_those_converted_since(
    state: ConversionState, observations: Mapping[str, Observation]
) -> ConversionState:
    """Return the state with hosts marked as touched that are converted but not by it:
    a run on another machine took over and continued.
    """
    exports = [str(export_at(d.address, d.path)) for d in state.domains]
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


def steps_of(state: ConversionState, snapshot: Snapshot) -> tuple[ConversionStep, ...]:
    """Return the steps that change something, if all of them are successful."""
    return tuple(step for step in imagined(state, snapshot) if step.changes)


def _is_so(state: ConversionState, snapshot: Snapshot) -> bool:
    """Whether mount options, policies and all mounts are already as requested."""
    if any(d.options != d.wanted for d in state.domains):
        return False
    for host in state.hosts:
        observed = snapshot.observations.get(host.name, Observation())
        if host.push and policy_step(host, observed) is not None:
            return False
        if host.found == "up" and (observed.problem or unlike(state, host, observed)):
            return False
    return True
