# SPDX-License-Identifier: GPL-2.0-or-later
"""Hosts whose mounts are over TCP where RDMA is asked for, mounted anew. Pure.

Only mounts that are made anew change their transport, so each host goes through
maintenance, the SPM last. Policies and the engine's rows stay as they are. It is a
rolling conversion that changes nothing else: :mod:`.conversion.work` carries it out.
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
    Sight,
    View,
    sight_of,
)
from ovirt_rdma.engine_sdk_tools.conversion.plan import ConversionPlan, steps_of
from ovirt_rdma.engine_sdk_tools.conversion.preflight import (
    ConversionRequest,
    evacuation_offenders,
    only_one,
    pinned_offenders,
    upgrade_offenders,
)
from ovirt_rdma.engine_sdk_tools.domains.transport import asked_for, export_at
from ovirt_rdma.engine_sdk_tools.hosts.policy import policy_of
from ovirt_rdma.engine_sdk_tools.hosts.report import HostReport, judged
from ovirt_rdma.engine_sdk_tools.model import Domain, Engine, Host
from ovirt_rdma.engine_sdk_tools.refusals import check
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
    ``pinned`` are virtual machines that may not leave a host, by its id.

    No steps: nothing is degraded, or nothing could be mended; ``warnings`` say so.
    Raises ChecksFailed where the hosts cannot be cycled.
    """
    warnings = [
        f"{d.name} is the hosted engine's domain, which maintenance does not unmount: "
        "reboot a host to mount it anew"
        for d in domains
        if d.hosted_engine
    ]
    mine = [d for d in domains if _can_be_healed(d)]
    records = tuple(_as_it_is(domain_record(d, RDMA)) for d in mine)
    exports = [export_at(d.address, d.path) for d in records]
    up = [h for h in ordered(engine.hosts_of(data_center)) if h.status == "up"]
    by_name = {host.name: host for host in up}
    told: dict[str, _Told] = {}
    for report in reports:
        host = by_name.get(report.host)
        if host is not None:
            look = functools.partial(_told, host, mine, exports, batch)
            told[host.name] = judged(report, look)
    for host in up:
        told.setdefault(host.name, _Told(warnings=("is unknown: it was not asked",)))
    warnings += merged(
        (h.name, f"{h.name} {w}") for h in up for w in told[h.name].warnings
    )
    going = [h for h in up if told[h.name].asked]
    offenders = [
        *upgrade_offenders(engine.clusters, going),
        *pinned_offenders(going, pinned or {}),
        *evacuation_offenders(up, going, batch),
    ]
    check(offenders)
    if going and len(up) == 1:
        warnings.append(only_one(up[0]))
    hosts = [
        HostRecord(h.id, h.name, h.status, transports=told[h.name].asked) for h in going
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
    sights = {h.name: told[h.name].sight or Sight() for h in hosts}
    return ConversionPlan(state, steps_of(state, View(engine, sights)), tuple(warnings))


@dataclass(frozen=True)
class _Told:
    """What one host told: ``asked`` is what its mounts should be, where it is to go
    through maintenance for that.
    """

    sight: Optional[Sight] = None
    warnings: tuple[str, ...] = ()
    asked: tuple[Optional[str], ...] = ()


def _told(
    host: Host,
    domains: Sequence[Domain],
    exports: Sequence[Export],
    batch: int,
    report: HostReport,
) -> _Told:
    if report.facts is None:
        why = f"is unknown: {report.problem or 'it gave no facts'}"
        return _Told(warnings=(why,))
    asked, sight = _asked(report, domains), sight_of(report, exports)
    if not _degraded(sight, exports, asked):
        return _Told()
    against = dict.fromkeys(_against(host, report, domains, asked, batch))
    if against:
        rest = (one[len(host.name) :].lstrip(": ") for one in against)
        return _Told(warnings=tuple(f"is left as it is: {one}" for one in rest))
    return _Told(sight, asked=asked)


def _can_be_healed(domain: Domain) -> bool:
    nfs = domain.storage_type == "nfs" and domain.connection is not None
    return nfs and domain.status == "active" and not domain.hosted_engine


def _as_it_is(record: DomainRecord) -> DomainRecord:
    return replace(record, wanted=record.options)


def _asked(report: HostReport, domains: Sequence[Domain]) -> tuple[Optional[str], ...]:
    """Return RDMA for each domain of which this host is asked for it, else None."""
    force = policy_of(report)
    asked = (
        asked_for(d.connection, force).transport if d.connection else None
        for d in domains
    )
    return tuple(RDMA if one == RDMA else None for one in asked)


def _degraded(
    sight: Sight, exports: Sequence[Export], asked: Sequence[Optional[str]]
) -> bool:
    found = sight.transports
    return any(
        want == RDMA and found.get(str(export)) not in (None, RDMA, UNPROVEN)
        for want, export in zip(asked, exports)
    )


def _against(
    host: Host,
    report: HostReport,
    domains: Sequence[Domain],
    asked: Sequence[Optional[str]],
    batch: int,
) -> list[str]:
    """Say why maintenance would not mend this host."""
    wanted = [d for d, want in zip(domains, asked) if want == RDMA]
    request = ConversionRequest(RDMA, rolling=True, batch=batch)
    return list(readiness_offenders(host, report, wanted, request))
