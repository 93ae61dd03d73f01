# SPDX-License-Identifier: GPL-2.0-or-later
"""Record the state before a conversion, and keep the baseline of several. Pure.

At its start a conversion records each domain with its mount options for the new
transport, and each host.

A conversion may be followed by another to the same transport, for later hosts or
another domain. If that fails, it is rolled back to the state that it found itself; a
revert restores the baseline, the state that the first one found.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Optional

from ovirt_rdma.engine_sdk_tools.conversion.model import (
    CONVERTED,
    FORWARD,
    LEFT,
    RDMA,
    TODO,
    ConversionState,
    DomainRecord,
    HostRecord,
)
from ovirt_rdma.engine_sdk_tools.conversion.observation import Observation
from ovirt_rdma.engine_sdk_tools.conversion.preflight import ConversionRequest
from ovirt_rdma.engine_sdk_tools.domains.transport import export_at
from ovirt_rdma.engine_sdk_tools.hosts.answers import without_drop_ins
from ovirt_rdma.engine_sdk_tools.hosts.policy import PolicyInForce
from ovirt_rdma.engine_sdk_tools.hosts.report import (
    POLICY_TOO_LONG_FIX,
    policy_too_long,
)
from ovirt_rdma.engine_sdk_tools.model import Domain, Host, StorageConnection
from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.export import Export
from ovirt_rdma.host.mount_options import PORT, TRANSPORT, MountOptions, netid_for
from ovirt_rdma.host.paths import POLICY_YAML
from ovirt_rdma.host.policy import json_form
from ovirt_rdma.host.policy.drop_ins import parse_files, with_rule
from ovirt_rdma.host.policy.model import DEFAULT_PORT, TCP, Policy


def with_earlier(
    state: ConversionState, earlier: Sequence[ConversionState]
) -> ConversionState:
    """Return a new ``state`` with the baseline of ``earlier`` conversions of its
    domains to the same transport, the latest first.
    """
    baseline = state
    for conversion in earlier:
        if conversion.stage == CONVERTED:
            before = with_baseline(conversion)
        else:
            before = _rolled_back(conversion)
        baseline = _joined(baseline, before)
    if not earlier:
        return state
    return replace(state, first_domains=baseline.domains, first_hosts=baseline.hosts)


def with_baseline(state: ConversionState) -> ConversionState:
    """Return ``state`` for a revert to its baseline, as if it were the first
    conversion: with the baseline, and all hosts that were converted since.
    """
    if not state.first_domains:
        return state
    rows = {domain.id: domain for domain in state.first_domains}
    domains = tuple(
        replace(d, options=rows[d.id].options, touched=d.touched or rows[d.id].touched)
        for d in state.domains
    )
    converted = [n for n, domain in enumerate(domains) if rows[domain.id].touched]
    first = {host.id: host for host in state.first_hosts}
    hosts = [
        _restarted(h, first.pop(h.id, None), converted, domains) for h in state.hosts
    ]
    hosts += first.values()
    return replace(
        state,
        domains=domains,
        hosts=tuple(hosts),
        blind=state.blind and not any(host.push for host in hosts),
        first_domains=(),
        first_hosts=(),
    )


def _rolled_back(state: ConversionState) -> ConversionState:
    """Return the baseline of a conversion that was rolled back."""
    return replace(state, domains=state.first_domains, hosts=state.first_hosts)


def _restarted(
    host: HostRecord,
    first: Optional[HostRecord],
    converted: Collection[int],
    domains: Sequence[DomainRecord],
) -> HostRecord:
    """Return the record of ``host`` in the baseline, at the start of a revert.

    ``converted`` are the positions of domains that an earlier conversion converted.
    """
    if first is None:
        # The host was added while this conversion was paused.
        first = _added_later(host, converted, len(domains))
    # Its own rule decides its mounts, after the revert too.
    own_rule = first.push and first.policy == first.wanted
    return replace(
        first,
        name=host.name,
        found=host.found,
        goal=FORWARD,
        stage=TODO,
        touched=first.touched or host.ours or (host.touched and not own_rule),
        ours=host.ours,
    )


def _joined(baseline: ConversionState, earlier: ConversionState) -> ConversionState:
    """Return ``baseline`` with what ``earlier`` found, as far as that still applies."""
    rows = {domain.id: domain for domain in earlier.domains}
    numbers = {domain.id: n for n, domain in enumerate(earlier.domains)}
    positions = {
        n: numbers[d.id] for n, d in enumerate(baseline.domains) if d.id in numbers
    }
    known = {h.id: h for h in earlier.hosts if h.touched or any(h.transports)}
    count = len(baseline.domains)
    hosts = []
    for host in baseline.hosts:
        first = known.pop(host.id, None)
        if first is None:
            hosts.append(_added_later(host, positions, count))
        else:
            hosts.append(_known(host, first, positions, count))
    for removed in known.values():
        unmounted = replace(removed, transports=())
        hosts.append(_known(unmounted, removed, positions, count))
    domains = tuple(_row(domain, rows.get(domain.id)) for domain in baseline.domains)
    return replace(baseline, domains=domains, hosts=tuple(hosts))


def _row(domain: DomainRecord, first: Optional[DomainRecord]) -> DomainRecord:
    # Options that differ from those of the earlier conversion were set manually, so a
    # revert restores them.
    if first is None or domain.options != domain.wanted:
        return domain
    return replace(domain, options=first.options, touched=True)


def _added_later(
    host: HostRecord, converted: Collection[int], count: int
) -> HostRecord:
    """Return the baseline of a host that was added after the earlier conversion.

    The new mount options decided its transports, unless its own policy has the rules,
    so a revert treats it like the other hosts. ``converted`` are the positions of the
    domains of the earlier conversion.
    """
    before = host.transports or (None,) * count
    transports = tuple(None if n in converted else t for n, t in enumerate(before))
    own_rule = host.push and host.policy == host.wanted
    by_row = not own_rule and any(before[n] for n in converted)
    return replace(host, transports=transports, touched=host.touched or by_row)


def _known(
    host: HostRecord, first: HostRecord, positions: dict[int, int], count: int
) -> HostRecord:
    """Return the baseline of a host of the earlier conversion."""
    then = first.transports or (None,) * (1 + max(positions.values(), default=0))
    now = host.transports or (None,) * count
    transports = tuple(
        then[positions[n]] if n in positions else now[n] for n in range(count)
    )
    return replace(_policy(host, first), transports=transports, touched=True)


def _policy(host: HostRecord, first: HostRecord) -> HostRecord:
    """Return ``host`` with the policy that a revert restores."""
    with_first = replace(
        host,
        push=first.push,
        policy=first.policy,
        wanted=first.wanted,
        digest=first.digest,
    )
    if not host.push:
        return with_first
    if not first.push:
        return host
    if host.policy in (first.wanted, first.policy):
        between = () if host.policy is None else (host.policy,)
        return replace(host, policy=first.policy, between=(*host.between, *between))
    # The policy was changed since. With our rule in it, it is not a state to restore:
    # the revert reports it and leaves it. Without, it is what this conversion found.
    return with_first if host.policy == host.wanted else host


def row_options(row: StorageConnection, to: str) -> str:
    """Return the mount options of ``row`` for the transport ``to``, unchanged if they
    already choose it.

    ``rdma6`` for an IPv6 address, because ``rdma`` means IPv4 to mount.nfs (nfs(5)).
    A host with a rule for the export ignores them. Raises OptionsProblem for a port
    that is not a number, ExportProblem for a row without a valid export.
    """
    options = MountOptions.parse(row.mount_options)
    if to != RDMA:
        # TCP is mount's default; an RDMA port would be wrong for it.
        return (
            str(options.without(TRANSPORT, PORT))
            if options.wants_rdma
            else (row.mount_options)
        )
    if options.wants_rdma and options.port is not None:
        return row.mount_options
    address = export_at(row.address, row.path or "").address
    netid = netid_for(RDMA, ipv6=address is not None and address.version == 6)
    added = MountOptions.parse(f"proto={netid},port={DEFAULT_PORT}")
    kept = options.without(TRANSPORT, PORT)
    return str(MountOptions(kept.items + added.items))


# The size of the cache of policies: a fleet has few different ones.
_CACHED = 64


def ordered(hosts: Sequence[Host]) -> list[Host]:
    """Return the hosts that are up, the SPM last, then the others."""
    return sorted(hosts, key=lambda h: (h.status != "up", h.spm == "spm"))


def domain_record(domain: Domain, to: str) -> DomainRecord:
    """Return the record of a domain. Raises Problem for an invalid row."""
    row = domain.connection
    if row is None:
        raise Problem("domain-no-connection", "it has no storage connection")
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
    observed: Observation,
    force: PolicyInForce,
    domains: Sequence[DomainRecord],
    request: ConversionRequest,
) -> HostRecord:
    """Return the record of a host, with its new policy; ``force`` is the present one.
    Raises Problem if the rule cannot be added to its policy.
    """
    record = HostRecord(host.id, host.name, host.status)
    if observed.problem:
        return record
    exports = [export_at(d.address, d.path) for d in domains]
    mounted = observed.transports
    record = replace(record, transports=tuple(mounted.get(str(e)) for e in exports))
    if request.by_row or force.policy is None or force.enabled is None:
        return record
    _check_draft(observed.policy, observed.digest)
    named = tuple((f"domain {d.name}", e) for d, e in zip(domains, exports))
    text, digest = _with_rules(observed.policy, named, rule_of(request))
    if text != (observed.policy or "") and not observed.reads_drop_ins:
        raise without_drop_ins(host.name)
    too_long = policy_too_long(text)
    if too_long:
        raise Problem(
            "policy-too-long", f"with the new rule, {too_long}", POLICY_TOO_LONG_FIX
        )
    return replace(
        record, push=True, policy=observed.policy, wanted=text, digest=digest
    )


def _check_draft(text: Optional[str], loaded: Optional[str]) -> None:
    """Raise Problem if a policy.yaml that is not loaded would be loaded."""
    if loaded is None and text and parse_files(text, POLICY_YAML).policy != Policy():
        raise Problem(
            "policy-not-loaded",
            "its policy.yaml is not loaded, but adding the rule would load it",
            "load it (ovirt-rdma-host policy load), or move the file away",
        )


@functools.lru_cache(_CACHED)
def _with_rules(
    text: Optional[str], named: tuple[tuple[str, Export], ...], rule: str
) -> tuple[str, str]:
    """Return the policy with a rule for each export, and its digest."""
    policy = text or ""
    for name, export in named:
        policy = with_rule(policy, export, rule, name, "policy.yaml")
    return policy, json_form.digest(parse_files(policy, "policy.yaml").policy)


def rule_of(request: ConversionRequest) -> str:
    """Return the transport for the rule in the policies."""
    return request.rule if request.to == RDMA else TCP


def left_out(record: HostRecord) -> HostRecord:
    """Return ``record`` of a host that the operator wants unchanged."""
    return replace(
        record, left_out=True, goal=FORWARD, stage=LEFT, why="left out by --without"
    )
