# SPDX-License-Identifier: GPL-2.0-or-later
"""Plan the remount of domains that are mounted over TCP but should use RDMA, and find
those that should go back to TCP for now. Pure.

The transport of a mount never changes, so each host concerned goes through maintenance,
the SPM last. Policies and storage connections are unchanged. It is a rolling conversion
that changes nothing else: :mod:`.conversion.run` carries it out.

The way back to TCP, for domains whose I/O is stalled because RDMA alone has failed, is
a conversion to TCP, with its record; its revert is the way forward.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Optional

from ovirt_rdma.engine_sdk_tools.conversion.baseline import domain_record, ordered
from ovirt_rdma.engine_sdk_tools.conversion.fleet import (
    FleetReport,
    ReportedHost,
    merged,
)
from ovirt_rdma.engine_sdk_tools.conversion.model import (
    HEAL,
    RDMA,
    ROLLING,
    ConversionState,
    DomainRecord,
    HostRecord,
)
from ovirt_rdma.engine_sdk_tools.conversion.observation import UNPROVEN, Snapshot
from ovirt_rdma.engine_sdk_tools.conversion.plan import ConversionPlan, steps_of
from ovirt_rdma.engine_sdk_tools.conversion.preflight import (
    ConversionRequest,
    evacuation_offenders,
    only_one,
    pinned_offenders,
    upgrade_offenders,
)
from ovirt_rdma.engine_sdk_tools.domains.transport import (
    Mounts,
    can_be_healed,
    nfs_export,
    requested_transport,
    transports_in_use,
)
from ovirt_rdma.engine_sdk_tools.hosts.health import health_of
from ovirt_rdma.engine_sdk_tools.hosts.report import HostReport
from ovirt_rdma.engine_sdk_tools.model import Domain, Engine, Host
from ovirt_rdma.engine_sdk_tools.refusals import check
from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.storage.health.state import OK


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
    records = tuple(_unchanged(domain_record(d, RDMA)) for d in healed)
    up = [h for h in ordered(engine.hosts_of(data_center)) if h.status == "up"]
    fleet = FleetReport.of(up, reports, records, to=RDMA)
    judged = fleet.each(lambda seen: _judged(seen, healed, batch))
    warnings += merged(
        (name, warning.about(name))
        for name, (_, its_warnings) in judged.items()
        for warning in its_warnings
    )
    wanted = {name: transports for name, (transports, _) in judged.items()}
    going = [h for h in up if wanted[h.name]]
    offenders = [
        *upgrade_offenders(engine.clusters, going),
        *pinned_offenders(going, pinned or {}),
        *evacuation_offenders(up, going, batch),
    ]
    check(offenders)
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
    snapshot = Snapshot(engine, fleet.observations)
    return ConversionPlan(state, steps_of(state, snapshot), tuple(warnings))


def stalled_domains(
    engine: Engine, domains: Sequence[Domain], reports: Iterable[HostReport]
) -> tuple[list[Domain], list[Sentence]]:
    """Return which of ``domains`` should go to TCP, and why others that are stalled
    should not.

    A domain should if a host reports its RDMA mount as stalled or dead, TCP would help,
    the host's policy allows TCP (prefer-rdma), and it works over RDMA on no other host:
    all of them would go through maintenance.
    """
    hosts = {host.name: host for host in engine.hosts}
    going: dict[str, list[str]] = {}
    works: dict[str, list[str]] = {}
    left: list[Sentence] = []
    for report in reports:
        if report.host not in hosts or report.facts is None:
            continue
        health = {one.mountpoint: one for one in health_of(report) or ()}
        mounts = Mounts(report.facts.nfs_mounts)
        used = transports_in_use(hosts[report.host], report, domains)
        for domain, one in zip(domains, used):
            export = nfs_export(domain.connection)
            mount = mounts.of(export) if export and one.transport == RDMA else None
            its = health.get(mount.mountpoint) if mount else None
            if its is not None and its.state == OK:
                works.setdefault(domain.id, []).append(report.host)
            if its is None or not its.is_broken:
                continue
            where = f"{domain.name} on {report.host}"
            if not its.tcp_helps:
                text = f"{where}: TCP would not help: {its.shown}"
                left.append(Sentence("tcp-does-not-help", text))
            elif not one.asked.preferred:
                text = f"{where} is {its.state}, but {one.asked.by} requires RDMA"
                left.append(Sentence("rule-requires-rdma", text))
            else:
                going.setdefault(domain.id, []).append(where)
    for id_, places in going.items():
        if id_ in works:
            text = f"{', '.join(places)}: RDMA works on {', '.join(works[id_])}, so "
            text += "the fault is on the way: ovirt-rdma-host nfs health there"
            left.append(Sentence("rdma-works-elsewhere", text))
    return [d for d in domains if d.id in going and d.id not in works], left


def _judged(
    seen: ReportedHost, domains: Sequence[Domain], batch: int
) -> tuple[tuple[Optional[str], ...], list[Sentence]]:
    """Return the transports that the mounts of a host should have, none if it does not
    have to go through maintenance, and warnings without its name.
    """
    if seen.mute:
        return (), [_unknown(seen.observed.problem)]
    wanted = _wanted(seen, domains)
    if not _is_degraded(seen, wanted):
        return (), []
    objections = _objections(seen, wanted, batch)
    if objections:
        return (), [_skipped(seen.host, why) for why in objections]
    return wanted, []


def _unknown(reason: str) -> Sentence:
    return Sentence("host-mounts-unknown", f"its mounts are unknown: {reason}")


def _skipped(host: Host, objection: Sentence) -> Sentence:
    reason = objection[len(host.name) :].lstrip(": ")
    return Sentence(objection.id, f"not remounted: {reason}")


def _unchanged(record: DomainRecord) -> DomainRecord:
    return replace(record, wanted=record.options)


def _wanted(seen: ReportedHost, domains: Sequence[Domain]) -> tuple[Optional[str], ...]:
    """Return RDMA for each domain that should use it on this host, else None."""
    transports = (
        requested_transport(d.connection, seen.force).transport
        if d.connection
        else None
        for d in domains
    )
    return tuple(RDMA if transport == RDMA else None for transport in transports)


def _is_degraded(seen: ReportedHost, wanted: Sequence[Optional[str]]) -> bool:
    present = seen.observed.transports
    return any(
        want == RDMA and present.get(str(domain.export)) not in (None, RDMA, UNPROVEN)
        for want, domain in zip(wanted, seen.domains)
    )


def _objections(
    seen: ReportedHost, wanted: Sequence[Optional[str]], batch: int
) -> list[Sentence]:
    """Return why a remount on this host would not get RDMA, each once."""
    concerned = [d for d, want in zip(seen.domains, wanted) if want == RDMA]
    request = ConversionRequest(RDMA, rolling=True, batch=batch)
    return list(dict.fromkeys(seen.remount_objections(request, concerned)))
