# SPDX-License-Identifier: GPL-2.0-or-later
"""What a conversion notes of hosts and domains at its begin. Pure."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Optional

from ovirt_rdma.engine_sdk_tools.asked_transport import export_at
from ovirt_rdma.engine_sdk_tools.conversion.checks import ConversionRequest
from ovirt_rdma.engine_sdk_tools.conversion.row_options import row_options
from ovirt_rdma.engine_sdk_tools.conversion.sight import sight_of
from ovirt_rdma.engine_sdk_tools.conversion.state import RDMA, DomainRecord, HostRecord
from ovirt_rdma.engine_sdk_tools.engine_facts import Domain, Host
from ovirt_rdma.engine_sdk_tools.host_policy import policy_of
from ovirt_rdma.engine_sdk_tools.host_report import (
    MAKE_SHORTER,
    HostReport,
    policy_too_long,
)
from ovirt_rdma.engine_sdk_tools.policy_with_rule import with_rule
from ovirt_rdma.host import policy_json
from ovirt_rdma.host.export import Export
from ovirt_rdma.host.paths import POLICY_YAML
from ovirt_rdma.host.policy import TCP, Policy
from ovirt_rdma.host.policy_file import parse_policy
from ovirt_rdma.host.problem import Problem

# A fleet has few different policies.
_KEPT = 64


def ordered(hosts: Sequence[Host]) -> list[Host]:
    """Up hosts, the SPM last of them, then the others."""
    return sorted(hosts, key=lambda h: (h.status != "up", h.spm == "spm"))


def domain_record(domain: Domain, to: str) -> DomainRecord:
    """Return what is noted of a domain. Raises Problem for a row that cannot be."""
    row = domain.connection
    if row is None:
        raise Problem("it has no storage connection")
    return DomainRecord(
        id=domain.id,
        name=domain.name,
        found=domain.status,
        connection=row.id,
        address=row.address,
        path=row.path or "",
        options=row.mount_options,
        wanted=row_options(row, to),
        master=domain.master,
    )


def host_record(
    host: Host,
    report: Optional[HostReport],
    domains: Sequence[DomainRecord],
    request: ConversionRequest,
) -> HostRecord:
    """Return what is noted of a host, with its policy of the goal. Raises Problem where
    the rule cannot be put into its policy.
    """
    record = HostRecord(host.id, host.name, host.status)
    if report is None or report.facts is None:
        return record
    exports = [export_at(d.address, d.path) for d in domains]
    seen = sight_of(report, exports).transports
    record = replace(record, transports=tuple(seen.get(str(e)) for e in exports))
    force = policy_of(report)
    if request.by_row or force.policy is None or force.enabled is None:
        return record
    _check_draft(report.policy_text, report.policy_digest)
    named = tuple((f"domain {d.name}", e) for d, e in zip(domains, exports))
    text, digest = _with_rules(report.policy_text, named, rule_of(request))
    long = policy_too_long(text)
    if long:
        raise Problem(f"with the new rule, {long}", MAKE_SHORTER)
    return replace(
        record, push=True, policy=report.policy_text, wanted=text, digest=digest
    )


def _check_draft(text: Optional[str], loaded: Optional[str]) -> None:
    """Raise Problem where a policy.yaml that is not in force would come into force."""
    if loaded is None and text and parse_policy(text, POLICY_YAML).policy != Policy():
        raise Problem(
            "its policy.yaml is not loaded, and would be with the new rule",
            "load it (ovirt-rdma-host policy load), or move the file away",
        )


@functools.lru_cache(_KEPT)
def _with_rules(
    text: Optional[str], named: tuple[tuple[str, Export], ...], rule: str
) -> tuple[str, str]:
    """Return the policy with a rule for each export, and its digest."""
    made = text or ""
    for name, export in named:
        made = with_rule(made, export, rule, name, "policy.yaml")
    return made, policy_json.digest(parse_policy(made, "policy.yaml").policy)


def rule_of(request: ConversionRequest) -> str:
    """Return the transport that the policies' rule gets."""
    return request.rule if request.to == RDMA else TCP
