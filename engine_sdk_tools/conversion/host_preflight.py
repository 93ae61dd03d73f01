# SPDX-License-Identifier: GPL-2.0-or-later
"""Check one host before a conversion; yield every objection. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Optional

from ovirt_rdma.engine_sdk_tools.conversion.model import RDMA
from ovirt_rdma.engine_sdk_tools.conversion.preflight import ConversionRequest
from ovirt_rdma.engine_sdk_tools.domains.transport import Mounts, export_at
from ovirt_rdma.engine_sdk_tools.hosts.policy import policy_of
from ovirt_rdma.engine_sdk_tools.hosts.report import HostReport
from ovirt_rdma.engine_sdk_tools.model import Domain, Host, status_words
from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.export import Export
from ovirt_rdma.host.facts.model import Facts
from ovirt_rdma.host.policy.model import TCP, Policy, rule_for
from ovirt_rdma.storage.readiness import NOT_READY, local_steps
from ovirt_rdma.storage.trunking import conflict_clause, conflicting_mounts

# Statuses that a host may have in a rolling conversion; the others are transitional or
# report an error.
_SETTLED = ("up", "maintenance", "down")


def host_objections(
    host: Host,
    report: Optional[HostReport],
    domains: Sequence[Domain],
    request: ConversionRequest,
) -> Iterator[Sentence]:
    """Yield the objections to a conversion on one host."""
    if host.name in request.without:
        return
    status = host.status
    if request.rolling and status not in _SETTLED:
        yield Sentence(
            "host-status-unsuitable",
            f"{host.name} is {status_words(status)}; leave it out with --without "
            f"{host.name}",
        )
    if report is None:
        return
    facts = report.facts
    if facts is None:
        needed = not request.by_row and (request.rolling or status == "up")
        if needed:
            why = report.problem or "it reported no facts"
            yield Sentence(
                "host-readiness-unknown",
                f"{host.name} is {status_words(status)}, but its readiness is unknown: "
                f"{why}; to leave it out: --without {host.name}",
            )
        return
    in_force = policy_of(report)
    if request.rolling and not request.by_row:
        yield from _addon_offenders(host, report, request)
    elif (
        not request.by_row
        and in_force.enabled
        and report.policy_text is None
        and report.problem
    ):
        # Its policy could neither be pushed nor restored.
        yield Sentence("policy-file-unreadable", f"{host.name}: {report.problem}")
    if request.by_row and in_force.policy is not None:
        yield from _rule_offenders(host, in_force.policy, domains, request)
    if status == "up":
        yield from _cut_paths(host, facts, domains)
        yield from readiness_offenders(host, report, domains, request)


def _cut_paths(
    host: Host, facts: Facts, domains: Sequence[Domain]
) -> Iterator[Sentence]:
    """Yield domains whose path the engine shows truncated at a colon: any change of the
    storage connection would store it like that (StorageDomainMapper.java:215-231).
    """
    mounts = Mounts(facts.nfs_mounts)
    for domain in domains:
        export = _export(domain)
        if mounts.vdsms(export) is not None:
            continue
        longer = [
            m.source for m in facts.nfs_mounts if m.source.startswith(f"{export}:")
        ]
        if longer:
            yield Sentence(
                "domain-path-truncated",
                f"{host.name} mounts {longer[0]}, but the engine shows {export}: it "
                "truncates paths at a colon, and would store the truncated path with "
                f"any change of the storage connection of {domain.name}; rename the "
                "path on the server",
            )


def readiness_offenders(
    host: Host,
    report: HostReport,
    domains: Sequence[Domain],
    request: ConversionRequest,
) -> Iterator[Sentence]:
    """Yield why a remount on this host would not get the requested transport."""
    facts = report.facts
    if facts is not None:
        policy = policy_of(report).policy
        yield from _clashes(host, facts, policy, domains, request)
        if request.to == RDMA:
            yield from _unready(host, facts, domains)


def _addon_offenders(
    host: Host, report: HostReport, request: ConversionRequest
) -> Iterator[Sentence]:
    in_force = policy_of(report)
    if in_force.policy is None:
        yield Sentence("policy-unknown", f"{host.name}: {in_force.reason}")
    elif in_force.enabled is None:
        yield Sentence(
            "addon-not-enabled",
            f"{host.name}: the add-on is not enabled (ovirt-rdma-host enable); to "
            "convert without the add-on on any host, use --engine-options",
        )


def _rule_offenders(
    host: Host, policy: Policy, domains: Sequence[Domain], request: ConversionRequest
) -> Iterator[Sentence]:
    for domain in domains:
        match = rule_for(policy, _export(domain))
        if match and (match.rule.transport == TCP) == (request.to == RDMA):
            yield Sentence(
                "policy-rule-contradicts",
                f"{host.name}: {match.rule.title} of its policy sets "
                f"{match.rule.transport} for {domain.name} and overrides the engine's "
                "options; omit --engine-options",
            )


def _clashes(
    host: Host,
    facts: Facts,
    policy: Optional[Policy],
    domains: Sequence[Domain],
    request: ConversionRequest,
) -> Iterator[Sentence]:
    """Yield other mounts of the server that would force their transport on ours: they
    are not remounted, and share one connection of the kernel (trunking).
    """
    ours = {_export(domain) for domain in domains}
    mounts = Mounts(facts.nfs_mounts)
    for domain in domains:
        mount = mounts.vdsms(_export(domain))
        if mount is None or mount.address is None:
            continue
        clash = conflicting_mounts(
            facts.nfs_mounts,
            _export(domain),
            (mount.address,),
            mount.version,
            request.to,
        )
        if clash is None or not clash.certain:
            continue
        staying = tuple(
            other
            for other in clash.mounts
            if Export.maybe(other.source) not in ours
            and not (
                request.rolling and _is_converted_too(other.source, policy, request.to)
            )
        )
        if staying:
            yield Sentence(
                "server-connection-shared",
                f"{host.name}: {conflict_clause(staying)}: {domain.name} would be "
                "mounted over that connection too; convert them together, or use "
                "different NFS versions",
            )


def _is_converted_too(source: str, policy: Optional[Policy], to: str) -> bool:
    """Whether the host's policy mounts this source over ``to`` as well."""
    export = Export.maybe(source)
    match = rule_for(policy, export) if policy and export else None
    return match is not None and (match.rule.transport == TCP) == (to != RDMA)


def _unready(host: Host, facts: Facts, domains: Sequence[Domain]) -> Iterator[Sentence]:
    mounts = Mounts(facts.nfs_mounts)
    for domain in domains:
        mount = mounts.vdsms(_export(domain))
        address = mount.address if mount else None
        route = next((r for r in facts.routes if r.destination == address), None)
        for step in local_steps(facts, route):
            if step.verdict == NOT_READY:
                yield Sentence("host-not-ready", f"{host.name}: {step.detail}")


def _export(domain: Domain) -> Export:
    row = domain.connection
    return export_at(row.address, row.path or "") if row else Export("", "/")
