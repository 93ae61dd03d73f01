# SPDX-License-Identifier: GPL-2.0-or-later
"""What is against a conversion on one host: every offender. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Optional

from ovirt_rdma.engine_sdk_tools.conversion.model import RDMA
from ovirt_rdma.engine_sdk_tools.conversion.preflight import ConversionRequest
from ovirt_rdma.engine_sdk_tools.domains.transport import Mounts, export_at
from ovirt_rdma.engine_sdk_tools.hosts.policy import policy_of
from ovirt_rdma.engine_sdk_tools.hosts.report import HostReport
from ovirt_rdma.engine_sdk_tools.model import Domain, Host, status_words
from ovirt_rdma.host.export import Export, ExportProblem
from ovirt_rdma.host.facts.model import Facts
from ovirt_rdma.host.policy.model import TCP, Policy, rule_for
from ovirt_rdma.storage.readiness import NOT_READY, local_steps
from ovirt_rdma.storage.trunking import because, in_the_way

# What a host may be in a rolling conversion: others are on their way somewhere.
_SETTLED = ("up", "maintenance", "down")


def host_offenders(
    host: Host,
    report: Optional[HostReport],
    domains: Sequence[Domain],
    request: ConversionRequest,
) -> Iterator[str]:
    """Yield what is against the conversion on one host."""
    if host.name in request.without:
        return
    status = host.status
    if request.rolling and status not in _SETTLED:
        yield (
            f"{host.name} is {status_words(status)}; leave it out with --without "
            f"{host.name}"
        )
    if report is None:
        return
    facts = report.facts
    if facts is None:
        needed = not request.by_row and (request.rolling or status == "up")
        if needed:
            why = report.problem or "it gave no facts"
            yield (
                f"{host.name} is {status_words(status)}, and it is not known if it is "
                f"ready: {why}; to leave it out: --without {host.name}"
            )
        return
    force = policy_of(report)
    if request.rolling and not request.by_row:
        yield from _addon_offenders(host, report, request)
    elif not request.by_row and force.enabled and report.policy_text is None:
        # Its policy could be neither pushed nor put back.
        yield from [f"{host.name}: {report.problem}"] if report.problem else []
    if request.by_row and force.policy is not None:
        yield from _rule_offenders(host, force.policy, domains, request)
    if status == "up":
        yield from _cut_paths(host, facts, domains)
        yield from readiness_offenders(host, report, domains, request)


def _cut_paths(host: Host, facts: Facts, domains: Sequence[Domain]) -> Iterator[str]:
    """Yield domains whose path the engine shows cut off at a colon: each change of the
    row would write it so (StorageDomainMapper.java:215-231).
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
            yield (
                f"{host.name} mounts {longer[0]}, and the engine shows {export}: it "
                "cuts paths at a colon, and would store that with any change of the "
                f"connection of {domain.name}; rename the path on the server"
            )


def readiness_offenders(
    host: Host,
    report: HostReport,
    domains: Sequence[Domain],
    request: ConversionRequest,
) -> Iterator[str]:
    """Yield why mounts made anew on a host would not have the transport wanted."""
    facts = report.facts
    if facts is not None:
        policy = policy_of(report).policy
        yield from _clashes(host, facts, policy, domains, request)
        if request.to == RDMA:
            yield from _unready(host, facts, domains)


def _addon_offenders(
    host: Host, report: HostReport, request: ConversionRequest
) -> Iterator[str]:
    force = policy_of(report)
    if force.policy is None:
        yield f"{host.name}: {force.reason}"
    elif force.enabled is None:
        yield (
            f"{host.name}: the add-on is not enabled there (ovirt-rdma-host enable); "
            "without it on all hosts, use --engine-options"
        )


def _rule_offenders(
    host: Host, policy: Policy, domains: Sequence[Domain], request: ConversionRequest
) -> Iterator[str]:
    for domain in domains:
        match = rule_for(policy, _export(domain))
        if match and (match.rule.transport == TCP) == (request.to == RDMA):
            yield (
                f"{host.name}: {match.rule.title} of its policy says "
                f"{match.rule.transport} for {domain.name}, and goes over the engine's "
                "options; leave out --engine-options"
            )


def _clashes(
    host: Host,
    facts: Facts,
    policy: Optional[Policy],
    domains: Sequence[Domain],
    request: ConversionRequest,
) -> Iterator[str]:
    """Yield other mounts of the server that would keep ours off the transport: those
    that stay as they are, and share the kernel's one connection.
    """
    ours = {_export(domain) for domain in domains}
    mounts = Mounts(facts.nfs_mounts)
    for domain in domains:
        mount = mounts.vdsms(_export(domain))
        if mount is None or mount.address is None:
            continue
        found = in_the_way(
            facts.nfs_mounts,
            _export(domain),
            (mount.address,),
            mount.version,
            request.to,
        )
        if found is None or not found.certain:
            continue
        stay = tuple(
            other
            for other in found.mounts
            if _source(other.source) not in ours
            and not (request.rolling and _comes_along(other.source, policy, request.to))
        )
        if stay:
            yield (
                f"{host.name}: {because(stay)}: {domain.name} would come up over that "
                "too; convert them together, or give one another NFS version"
            )


def _comes_along(source: str, policy: Optional[Policy], to: str) -> bool:
    """Whether the host's policy has another mount come over ``to`` as well."""
    export = _source(source)
    match = rule_for(policy, export) if policy and export else None
    return match is not None and (match.rule.transport == TCP) == (to != RDMA)


def _unready(host: Host, facts: Facts, domains: Sequence[Domain]) -> Iterator[str]:
    mounts = Mounts(facts.nfs_mounts)
    for domain in domains:
        mount = mounts.vdsms(_export(domain))
        address = mount.address if mount else None
        route = next((r for r in facts.routes if r.destination == address), None)
        for step in local_steps(facts, route):
            if step.verdict == NOT_READY:
                yield f"{host.name}: {step.detail}"


def _export(domain: Domain) -> Export:
    row = domain.connection
    return export_at(row.address, row.path or "") if row else Export("", "/")


def _source(text: str) -> Optional[Export]:
    try:
        return Export.parse(text)
    except ExportProblem:
        return None
