# SPDX-License-Identifier: GPL-2.0-or-later
"""Condense the reports of a data center's hosts to one value, and judge them. Pure.

Planning asks this value, a FleetReport, and sees no report. A report has some hundred
kilobytes and there may be hundreds, so they are read one by one and condensed on
arrival.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Callable, Optional, TypeVar

from ovirt_rdma.engine_sdk_tools.conversion.baseline import host_record, left_out
from ovirt_rdma.engine_sdk_tools.conversion.model import (
    RDMA,
    DomainRecord,
    HostRecord,
)
from ovirt_rdma.engine_sdk_tools.conversion.observation import UNPROVEN, Observation
from ovirt_rdma.engine_sdk_tools.conversion.preflight import ConversionRequest
from ovirt_rdma.engine_sdk_tools.domains.transport import Mounts, export_at
from ovirt_rdma.engine_sdk_tools.hosts.policy import PolicyInForce, policy_of
from ovirt_rdma.engine_sdk_tools.hosts.report import (
    HostReport,
    bug_report,
    with_own_bugs_caught,
)
from ovirt_rdma.engine_sdk_tools.model import Host, status_words
from ovirt_rdma.host.errors import Problem, Sentence
from ovirt_rdma.host.export import Export
from ovirt_rdma.host.facts.model import NfsMount
from ovirt_rdma.host.policy.model import TCP, RuleMatch, rule_for
from ovirt_rdma.storage.mounts import conflict_clause, conflicting_mounts, prove
from ovirt_rdma.storage.readiness import NOT_READY, local_steps

_T = TypeVar("_T")

# Statuses that a host may have in a rolling conversion; the others are transitional or
# report an error.
_SETTLED = ("up", "maintenance", "down")


_NOT_ASKED = Observation(problem="it was not asked")
_NO_POLICY = PolicyInForce(None)


@dataclass(frozen=True)
class DomainOnHost:
    """What a host's report shows for the conversion of one domain.

    - ``longer``: the source of a mount whose path continues the domain's with a colon.
    - ``conflicting``: other mounts of the server that would force their transport on
      it: they share one connection of the kernel (trunking).
    - ``unready``: why the host cannot mount it over RDMA now, as sentences.
    """

    id: str
    name: str
    export: Export
    longer: str = ""
    conflicting: tuple[NfsMount, ...] = ()
    unready: tuple[str, ...] = ()


@dataclass(frozen=True)
class ReportedHost:
    """A host of the engine, with its condensed report.

    - ``asked``: there is a report, with or without facts.
    - ``problem``: the report's; "" for none. There may be facts all the same.
    - ``force``: the policy in force.
    - ``domains``: those that are checked, on this host.
    """

    host: Host
    observed: Observation = _NOT_ASKED
    asked: bool = False
    problem: str = ""
    force: PolicyInForce = _NO_POLICY
    domains: tuple[DomainOnHost, ...] = ()

    @property
    def mute(self) -> bool:
        """Whether it has reported no facts."""
        return bool(self.observed.problem)

    def objections(self, request: ConversionRequest) -> Iterator[Sentence]:
        """Yield the objections to a conversion on this host."""
        host = self.host
        if host.name in request.without:
            return
        if request.rolling and host.status not in _SETTLED:
            yield Sentence(
                "host-status-unsuitable",
                f"{host.name} is {status_words(host.status)}; leave it out with "
                f"--without {host.name}",
            )
        if not self.asked:
            return
        if self.mute:
            if not request.by_row and (request.rolling or host.status == "up"):
                yield Sentence(
                    "host-readiness-unknown",
                    f"{host.name} is {status_words(host.status)}, but its readiness is "
                    f"unknown: {self.observed.problem}; to leave it out: --without "
                    f"{host.name}",
                )
            return
        yield from self._policy_objections(request)
        if host.status == "up":
            yield from self._truncated_paths()
            yield from self.remount_objections(request, self.domains)

    def _policy_objections(self, request: ConversionRequest) -> Iterator[Sentence]:
        name, force = self.host.name, self.force
        if request.by_row:
            yield from self._contradicting_rules(request)
        elif force.policy is None and (request.rolling or force.enabled):
            # It could neither be pushed nor restored.
            yield Sentence("policy-unknown", f"{name}: {force.reason}")
        elif request.rolling and force.enabled is None:
            yield Sentence(
                "addon-not-enabled",
                f"{name}: the add-on is not enabled (ovirt-rdma-host enable); to "
                "convert without the add-on on any host, use --engine-options",
            )

    def _contradicting_rules(self, request: ConversionRequest) -> Iterator[Sentence]:
        for domain in self.domains:
            match = self._rule_of(domain.export)
            if match and (match.rule.transport == TCP) == (request.to == RDMA):
                yield Sentence(
                    "policy-rule-contradicts",
                    f"{self.host.name}: {match.rule.title} of its policy sets "
                    f"{match.rule.transport} for {domain.name} and overrides the "
                    "engine's options; omit --engine-options",
                )

    def _truncated_paths(self) -> Iterator[Sentence]:
        """Yield domains whose path the engine shows truncated at a colon: any change of
        the storage connection would store it like that
        (StorageDomainMapper.java:215-231).
        """
        for domain in self.domains:
            if domain.longer:
                yield Sentence(
                    "domain-path-truncated",
                    f"{self.host.name} mounts {domain.longer}, but the engine shows "
                    f"{domain.export}: it truncates paths at a colon, and would store "
                    "the truncated path with any change of the storage connection of "
                    f"{domain.name}; rename the path on the server",
                )

    def remount_objections(
        self, request: ConversionRequest, domains: Sequence[DomainOnHost]
    ) -> Iterator[Sentence]:
        """Yield why a remount of ``domains`` would not get the requested transport."""
        ours = {domain.export for domain in domains}
        for domain in domains:
            # Those that are not remounted with it.
            staying = tuple(
                other
                for other in domain.conflicting
                if Export.maybe(other.source) not in ours
                and not (request.rolling and self._goes_too(other.source, request.to))
            )
            if staying:
                yield Sentence(
                    "server-connection-shared",
                    f"{self.host.name}: {conflict_clause(staying)}: {domain.name} "
                    "would be mounted over that connection too; convert them together, "
                    "or use different NFS versions",
                )
        for domain in domains if request.to == RDMA else ():
            for why in domain.unready:
                yield Sentence("host-not-ready", f"{self.host.name}: {why}")

    def _goes_too(self, source: str, to: str) -> bool:
        """Whether the host's policy mounts this source over ``to`` as well."""
        match = self._rule_of(Export.maybe(source))
        return match is not None and (match.rule.transport == TCP) == (to != RDMA)

    def _rule_of(self, export: Optional[Export]) -> Optional[RuleMatch]:
        if self.force.policy is None or export is None:
            return None
        return rule_for(self.force.policy, export)


class FleetReport:
    """The hosts of one data center with their condensed reports, in a given order."""

    def __init__(self, hosts: Iterable[ReportedHost]) -> None:
        self._hosts = tuple(hosts)

    @classmethod
    def of(
        cls,
        hosts: Sequence[Host],
        reports: Optional[Iterable[HostReport]],
        domains: Sequence[DomainRecord],
        *,
        to: str = "",
        without: Collection[str] = (),
    ) -> FleetReport:
        """Read the reports, in any order, one by one. Others than those of ``hosts``
        are ignored, and those of hosts with a name in ``without``.

        ``to`` is the transport for which the domains are checked, "" for observations
        only.
        """
        by_name = {host.name: host for host in hosts if host.name not in without}
        condensed: dict[str, ReportedHost] = {}
        for report in reports or ():
            host = by_name.get(report.host)
            if host is not None:
                condense = functools.partial(_condensed, host, domains, to)
                condensed[host.name] = with_own_bugs_caught(report, condense)
        return cls(condensed.get(host.name, ReportedHost(host)) for host in hosts)

    def only(self, hosts: Sequence[Host]) -> FleetReport:
        """Return the report of some of the hosts, in their order."""
        by_name = {seen.host.name: seen for seen in self._hosts}
        return FleetReport(by_name[host.name] for host in hosts)

    def for_domains(self, ids: Collection[str]) -> FleetReport:
        """Return the report with only the domains with these ids checked."""
        return FleetReport(
            replace(seen, domains=tuple(d for d in seen.domains if d.id in ids))
            for seen in self._hosts
        )

    @property
    def observations(self) -> dict[str, Observation]:
        """The observations of the hosts that were asked, by name."""
        return {seen.host.name: seen.observed for seen in self._hosts if seen.asked}

    @property
    def mute(self) -> list[str]:
        """The names of hosts that reported no facts."""
        return [seen.host.name for seen in self._hosts if seen.mute]

    def each(self, work: Callable[[ReportedHost], _T]) -> dict[str, _T]:
        """Return ``work`` of each host, by its name. If that fails because of a bug of
        ours, it is ``work`` of the host without its report.
        """
        results = {}
        for seen in self._hosts:
            try:
                result = work(seen)
            except Problem:
                raise
            except Exception as error:  # noqa: BLE001  (one host must not end the verb)
                why, _ = bug_report(seen.host.name, error)
                silent = ReportedHost(seen.host, Observation(problem=why), True, why)
                result = work(silent)
            results[seen.host.name] = result
        return results

    def start(
        self, domains: Sequence[DomainRecord], request: ConversionRequest
    ) -> tuple[tuple[HostRecord, ...], list[Sentence]]:
        """Return the records of the hosts at the start of a conversion, and every
        objection to it. A host whose new policy cannot be composed has no record.
        """
        started = self.each(lambda seen: _started(seen, domains, request))
        records = (record for record, _ in started.values())
        return tuple(record for record in records if record is not None), merged(
            (name, objection)
            for name, (_, objections) in started.items()
            for objection in objections
        )


def _started(
    seen: ReportedHost, domains: Sequence[DomainRecord], request: ConversionRequest
) -> tuple[Optional[HostRecord], list[Sentence]]:
    host = seen.host
    if host.name in request.without:
        return left_out(HostRecord(host.id, host.name, host.status)), []
    objections = list(seen.objections(request))
    try:
        record = host_record(host, seen.observed, seen.force, domains, request)
    except Problem as problem:
        parts = filter(None, (problem.one_line, problem.fix))
        why = Sentence(problem.id, f"{host.name}: {'; '.join(parts)}")
        return None, [*objections, why]
    return record, objections


def observation_of(report: HostReport, exports: Iterable[Export]) -> Observation:
    """Return the part of a report that concerns ``exports``."""
    wanted = tuple(exports)
    return with_own_bugs_caught(report, lambda checked: _observed(checked, wanted))


def _observed(report: HostReport, exports: Sequence[Export]) -> Observation:
    if report.facts is None:
        return Observation(problem=report.problem or "it reported no facts")
    transports = {}
    mounts = Mounts(report.facts.nfs_mounts)
    for export in exports:
        mount = mounts.vdsms(export)
        if mount is not None:
            proof = prove(mount, report.facts.cm_ids)
            transports[str(export)] = proof.transport or UNPROVEN
    return Observation(report.policy, report.policy_digest, transports)


def _condensed(
    host: Host, domains: Sequence[DomainRecord], to: str, report: HostReport
) -> ReportedHost:
    exports = [export_at(d.address, d.path) for d in domains]
    return ReportedHost(
        host,
        _observed(report, exports),
        True,
        report.problem,
        policy_of(report),
        tuple(_checked(report, domains, exports, to)) if to else (),
    )


def _checked(
    report: HostReport,
    domains: Sequence[DomainRecord],
    exports: Sequence[Export],
    to: str,
) -> Iterator[DomainOnHost]:
    facts = report.facts
    if facts is None:
        return
    mounts = Mounts(facts.nfs_mounts)
    for domain, export in zip(domains, exports):
        mount = mounts.vdsms(export)
        address = mount.address if mount else None
        longer = ""
        if mount is None:
            start = f"{export}:"
            sources = (m.source for m in facts.nfs_mounts)
            longer = next((s for s in sources if s.startswith(start)), "")
        clash = None
        if mount is not None and address is not None:
            clash = conflicting_mounts(
                facts.nfs_mounts, export, (address,), mount.version, to
            )
        route = next((r for r in facts.routes if r.destination == address), None)
        steps = local_steps(facts, route)
        yield DomainOnHost(
            domain.id,
            domain.name,
            export,
            longer,
            clash.mounts if clash is not None and clash.certain else (),
            tuple(step.detail for step in steps if step.verdict == NOT_READY),
        )


def merged(sentences: Iterable[tuple[str, Sentence]]) -> list[Sentence]:
    """Return sentences that begin with a host's name, with equal ones joined to one
    that names all their hosts.
    """
    alike: dict[tuple[str, str], list[str]] = {}
    for host, sentence in sentences:
        rest = sentence[len(host) :] if sentence.startswith(host) else str(sentence)
        names = alike.setdefault((sentence.id, rest), [])
        if rest != sentence and host not in names:
            names.append(host)
    return [
        Sentence(id, _with_names(names, rest)) for (id, rest), names in alike.items()
    ]


def _with_names(names: Sequence[str], rest: str) -> str:
    if len(names) < 2:
        return "".join(names) + rest
    head = ", ".join(names)
    return f"{head}: {rest[4:]}" if rest.startswith(" is ") else f"{head}{rest}"
