# SPDX-License-Identifier: GPL-2.0-or-later
"""What a host's report gives a conversion, so that the report itself may go: it is some
hundred kilobytes, and there may be hundreds. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Optional

from ovirt_rdma.engine_sdk_tools.asked_transport import export_at
from ovirt_rdma.engine_sdk_tools.conversion.checks import ConversionRequest
from ovirt_rdma.engine_sdk_tools.conversion.host_checks import host_offenders
from ovirt_rdma.engine_sdk_tools.conversion.records import host_record
from ovirt_rdma.engine_sdk_tools.conversion.sight import Sight, sight_of
from ovirt_rdma.engine_sdk_tools.conversion.state import (
    FORWARD,
    LEFT,
    DomainRecord,
    HostRecord,
)
from ovirt_rdma.engine_sdk_tools.engine_facts import Domain, Host
from ovirt_rdma.engine_sdk_tools.host_report import HostReport, judged
from ovirt_rdma.host.problem import Problem

_NOT_ASKED = Sight(problem="it was not asked")


@dataclass(frozen=True)
class Told:
    """``record`` is None where its policy cannot be made; ``against`` says why, and
    what else is against the conversion on the host. ``mute``: there are no facts.
    """

    record: Optional[HostRecord]
    sight: Sight
    against: tuple[str, ...] = ()
    mute: bool = False


def told_by(
    host: Host,
    report: Optional[HostReport],
    domains: Sequence[Domain],
    records: Sequence[DomainRecord],
    request: ConversionRequest,
) -> Told:
    """Condense what one host told; ``report`` is None where it was not asked."""
    if host.name in request.without:
        return Told(left_out(HostRecord(host.id, host.name, host.status)), _NOT_ASKED)
    if report is None:
        return _told(host, None, domains, records, request)
    return judged(report, lambda its: _told(host, its, domains, records, request))


def _told(
    host: Host,
    report: Optional[HostReport],
    domains: Sequence[Domain],
    records: Sequence[DomainRecord],
    request: ConversionRequest,
) -> Told:
    against = list(host_offenders(host, report, domains, request))
    record = None
    try:
        record = host_record(host, report, records, request)
    except Problem as problem:
        against.append(f"{host.name}: {problem.one_line}")
    sight = _NOT_ASKED
    if report is not None:
        sight = sight_of(report, [export_at(d.address, d.path) for d in records])
    mute = report is None or report.facts is None
    return Told(record, sight, tuple(against), mute)


def left_out(record: HostRecord) -> HostRecord:
    """Return ``record`` of a host that is left as it is, by the operator's word."""
    why = "left out, as --without says"
    return replace(record, left_out=True, goal=FORWARD, stage=LEFT, why=why)


def told_of(
    hosts: Sequence[Host],
    reports: Optional[Iterable[HostReport]],
    domains: Sequence[Domain],
    records: Sequence[DomainRecord],
    request: ConversionRequest,
) -> dict[str, Told]:
    """Return what each of ``hosts`` told, in their order; the reports are taken one by
    one, in any order.
    """
    by_name = {host.name: host for host in hosts}
    found = {}
    for report in reports or ():
        host = by_name.get(report.host)
        if host is not None:
            found[host.name] = told_by(host, report, domains, records, request)
    return {
        host.name: found.get(host.name)
        or told_by(host, None, domains, records, request)
        for host in hosts
    }


def against(told: Mapping[str, Told]) -> list[str]:
    """Return all that is against it, on all hosts."""
    return merged((name, why) for name, one in told.items() for why in one.against)


def records_of(told: Mapping[str, Told]) -> tuple[HostRecord, ...]:
    """Return the records of the hosts that have one."""
    return tuple(one.record for one in told.values() if one.record is not None)


def merged(told: Iterable[tuple[str, str]]) -> list[str]:
    """Return sentences of hosts, which begin with the host's name: those that say the
    same of several once, with all their names.
    """
    alike: dict[str, list[str]] = {}
    for host, sentence in told:
        rest = sentence[len(host) :] if sentence.startswith(host) else sentence
        names = alike.setdefault(rest, [])
        if rest != sentence and host not in names:
            names.append(host)
    return [_sentence(names, rest) for rest, names in alike.items()]


def _sentence(names: Sequence[str], rest: str) -> str:
    if len(names) < 2:
        return "".join(names) + rest
    head = ", ".join(names)
    return f"{head}: {rest[4:]}" if rest.startswith(" is ") else f"{head}{rest}"
