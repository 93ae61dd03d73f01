# SPDX-License-Identifier: GPL-2.0-or-later
"""Plan the remount of domains that are mounted over TCP but should use RDMA. Pure.

The transport of a mount never changes, so each host concerned goes through maintenance,
the SPM last. Policies and storage connections are unchanged. It is a rolling conversion
that changes nothing else: :mod:`.conversion.run` carries it out.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Optional

from ovirt_rdma.engine_sdk_tools.conversion.baseline import (
    domain_record,
    merged,
    ordered,
)
from ovirt_rdma.engine_sdk_tools.conversion.host_preflight import readiness_offenders
from ovirt_rdma.engine_sdk_tools.conversion.model import (
    HEAL,
    RDMA,
    ROLLING,
    ConversionState,
    DomainRecord,
    HostRecord,
)
from ovirt_rdma.engine_sdk_tools.conversion.observation import (
    UNPROVEN,
    Observation,
    Snapshot,
    observation_of,
)
from ovirt_rdma.engine_sdk_tools.conversion.plan import ConversionPlan, steps_of
from ovirt_rdma.engine_sdk_tools.conversion.preflight import (
    ConversionRequest,
    evacuation_offenders,
    only_one,
    pinned_offenders,
    upgrade_offenders,
)
from ovirt_rdma.engine_sdk_tools.domains.transport import export_at, requested_transport
from ovirt_rdma.engine_sdk_tools.hosts.policy import policy_of
from ovirt_rdma.engine_sdk_tools.hosts.report import HostReport, with_own_bugs_caught
from ovirt_rdma.engine_sdk_tools.model import Domain, Engine, Host
from ovirt_rdma.engine_sdk_tools.refusals import check
from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.export import Export


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
    healed = [d for d in domains if _can_be_healed(d)]
    records = tuple(_unchanged(domain_record(d, RDMA)) for d in healed)
    exports = [export_at(d.address, d.path) for d in records]
    up = [h for h in ordered(engine.hosts_of(data_center)) if h.status == "up"]
    by_name = {host.name: host for host in up}
    summaries: dict[str, _HostSummary] = {}
    for report in reports:
        host = by_name.get(report.host)
        if host is not None:
            summarize = functools.partial(_summary, host, healed, exports, batch)
            summaries[host.name] = with_own_bugs_caught(report, summarize)
    for host in up:
        summaries.setdefault(
            host.name, _HostSummary(warnings=(_unknown("it was not asked"),))
        )
    warnings += merged(
        (h.name, warning.about(h.name))
        for h in up
        for warning in summaries[h.name].warnings
    )
    going = [h for h in up if summaries[h.name].wanted]
    offenders = [
        *upgrade_offenders(engine.clusters, going),
        *pinned_offenders(going, pinned or {}),
        *evacuation_offenders(up, going, batch),
    ]
    check(offenders)
    if going and len(up) == 1:
        warnings.append(only_one(up[0]))
    hosts = [
        HostRecord(h.id, h.name, h.status, transports=summaries[h.name].wanted)
        for h in going
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
    observations = {h.name: summaries[h.name].observed or Observation() for h in hosts}
    return ConversionPlan(
        state, steps_of(state, Snapshot(engine, observations)), tuple(warnings)
    )


@dataclass(frozen=True)
class _HostSummary:
    """A condensed host report. ``wanted`` are the transports that its mounts should
    have, if it has to go through maintenance for that; ``warnings`` omit its name.
    """

    observed: Optional[Observation] = None
    warnings: tuple[Sentence, ...] = ()
    wanted: tuple[Optional[str], ...] = ()


def _summary(
    host: Host,
    domains: Sequence[Domain],
    exports: Sequence[Export],
    batch: int,
    report: HostReport,
) -> _HostSummary:
    if report.facts is None:
        reason = report.problem or "it reported no facts"
        return _HostSummary(warnings=(_unknown(reason),))
    wanted, observed = _wanted(report, domains), observation_of(report, exports)
    if not _degraded(observed, exports, wanted):
        return _HostSummary()
    objections = _objections(host, report, domains, wanted, batch)
    if objections:
        return _HostSummary(warnings=tuple(_skipped(host, why) for why in objections))
    return _HostSummary(observed, wanted=wanted)


def _unknown(reason: str) -> Sentence:
    return Sentence("host-mounts-unknown", f"its mounts are unknown: {reason}")


def _skipped(host: Host, objection: Sentence) -> Sentence:
    reason = objection[len(host.name) :].lstrip(": ")
    return Sentence(objection.id, f"not remounted: {reason}")


def _can_be_healed(domain: Domain) -> bool:
    nfs = domain.storage_type == "nfs" and domain.connection is not None
    return nfs and domain.status == "active" and not domain.hosted_engine


def _unchanged(record: DomainRecord) -> DomainRecord:
    return replace(record, wanted=record.options)


def _wanted(report: HostReport, domains: Sequence[Domain]) -> tuple[Optional[str], ...]:
    """Return RDMA for each domain that should use it on this host, else None."""
    in_force = policy_of(report)
    transports = (
        requested_transport(d.connection, in_force).transport if d.connection else None
        for d in domains
    )
    return tuple(RDMA if transport == RDMA else None for transport in transports)


def _degraded(
    observed: Observation, exports: Sequence[Export], wanted: Sequence[Optional[str]]
) -> bool:
    present = observed.transports
    return any(
        want == RDMA and present.get(str(export)) not in (None, RDMA, UNPROVEN)
        for want, export in zip(wanted, exports)
    )


def _objections(
    host: Host,
    report: HostReport,
    domains: Sequence[Domain],
    wanted: Sequence[Optional[str]],
    batch: int,
) -> list[Sentence]:
    """Return why a remount on this host would not get RDMA, each once."""
    concerned = [d for d, want in zip(domains, wanted) if want == RDMA]
    request = ConversionRequest(RDMA, rolling=True, batch=batch)
    offenders = readiness_offenders(host, report, concerned, request)
    return list(dict.fromkeys(offenders))
