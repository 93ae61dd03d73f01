# SPDX-License-Identifier: GPL-2.0-or-later
"""Record the state before a conversion, and keep the baseline of several. Pure.

At its start a conversion records each domain with its mount options for the new
transport, and each host.

A conversion may be followed by another of the same domains: for later hosts, with
another domain, or to the other transport. Its records then take over the ``first``
values of the earlier ones, so the state before the first conversion is written once. A
conversion that fails is rolled back to the state that it found itself; a revert
restores the first. Only what somebody else has written since is left to them.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
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
    FileChange,
    HostRecord,
)
from ovirt_rdma.engine_sdk_tools.conversion.observation import Observation
from ovirt_rdma.engine_sdk_tools.conversion.preflight import ConversionRequest
from ovirt_rdma.engine_sdk_tools.domains.transport import export_at
from ovirt_rdma.engine_sdk_tools.hosts.policy import PolicyInForce, digest_of
from ovirt_rdma.engine_sdk_tools.hosts.report import (
    POLICY_TOO_LONG_FIX,
    policy_too_long,
)
from ovirt_rdma.engine_sdk_tools.model import Domain, Host, StorageConnection
from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.export import Export
from ovirt_rdma.host.mount_options import PORT, TRANSPORT, MountOptions, netid_for
from ovirt_rdma.host.paths import POLICY_YAML
from ovirt_rdma.host.policy.drop_ins import (
    PolicyFiles,
    with_rule,
)
from ovirt_rdma.host.policy.model import DEFAULT_PORT, TCP, Policy


def with_earlier(
    state: ConversionState,
    earlier: Sequence[ConversionState],
    observations: Mapping[str, Observation],
) -> ConversionState:
    """Return a new ``state`` with the baseline of ``earlier`` conversions of its
    domains, the latest first. ``observations`` are of its hosts, by name.
    """
    restored = [as_at_first(conversion) for conversion in earlier]
    sources = [_source(domain, earlier) for domain in state.domains]
    domains = tuple(
        _with_first(domain, earlier[source[0]], restored[source[0]], source[1])
        if source
        else domain
        for domain, source in zip(state.domains, sources)
    )
    known = [
        {h.id: h for h in conversion.hosts if h.touched or any(h.transports)}
        for conversion in restored
    ]

    def first_transport(
        records: Sequence[Optional[HostRecord]], host: HostRecord, number: int
    ) -> Optional[str]:
        source = sources[number]
        record = records[source[0]] if source else host
        if record is None or not record.transports:
            return None
        return record.transports[source[1] if source else number]

    def with_first(host: HostRecord) -> HostRecord:
        records = [of_conversion.pop(host.id, None) for of_conversion in known]
        if not any(records):
            return host
        first = tuple(first_transport(records, host, n) for n in range(len(domains)))
        for record in records:
            if record is not None:
                host = with_files_of(host, record, observations.get(host.name))
        return replace(host, first_transports=first, converted=True)

    hosts = tuple(with_first(host) for host in state.hosts)
    gone = {host.id: host for records in reversed(known) for host in records.values()}
    former = tuple(with_first(replace(h, transports=())) for h in gone.values())
    return replace(state, domains=domains, hosts=hosts, former=former)


def as_at_first(state: ConversionState) -> ConversionState:
    """Return ``state`` for a revert: its baseline is what it found, as if it were the
    first conversion.
    """
    if not state.is_again:
        return state
    hosts = tuple(_as_at_first(h, state.domains) for h in (*state.hosts, *state.former))
    domains = tuple(
        d if d.first is None else replace(d, options=d.first, first=None, touched=True)
        for d in state.domains
    )
    blind = state.blind and not any(host.push for host in hosts)
    return replace(state, domains=domains, hosts=hosts, former=(), blind=blind)


def _as_at_first(host: HostRecord, domains: Sequence[DomainRecord]) -> HostRecord:
    # Its own rule decides its mounts, after the revert too.
    own_rule = host.push and all(file.first == file.wanted for file in host.files)
    transports, converted = host.first_transports, host.converted
    if not transports:
        # It was added after the earlier conversion, whose mount options decided its
        # transports, so a revert treats it like the other hosts.
        before = tuple(zip(domains, host.transports or (None,) * len(domains)))
        transports = tuple(t if d.first is None else None for d, t in before)
        by_row = any(t for d, t in before if d.first is not None)
        converted = by_row and not own_rule
    return replace(
        host,
        push=host.push or bool(host.files),
        files=tuple(replace(file, found=file.first) for file in host.files),
        transports=transports,
        first_transports=(),
        converted=False,
        goal=FORWARD,
        stage=TODO,
        touched=converted or host.ours or (host.touched and not own_rule),
        why="",
    )


def _source(
    domain: DomainRecord, earlier: Sequence[ConversionState]
) -> Optional[tuple[int, int]]:
    """Return the numbers of the latest conversion of ``domain`` and of its record
    there; None if it was not converted.
    """
    for number, conversion in enumerate(earlier):
        for position, record in enumerate(conversion.domains):
            if record.id == domain.id:
                applies = conversion.stage == CONVERTED or record.first is not None
                return (number, position) if applies else None
    return None


def _with_first(
    domain: DomainRecord,
    earlier: ConversionState,
    restored: ConversionState,
    position: int,
) -> DomainRecord:
    record = earlier.domains[position]
    left = record.wanted if earlier.stage == CONVERTED else record.options
    # Options with another transport were set by somebody else, so a revert restores
    # them.
    stands = _wants_rdma(domain.options) == _wants_rdma(left)
    first = restored.domains[position].options if stands else domain.options
    return replace(domain, first=first)


def _wants_rdma(options: str) -> bool:
    return MountOptions.parse(options).wants_rdma


def with_files_of(
    host: HostRecord, earlier: HostRecord, observed: Optional[Observation]
) -> HostRecord:
    """Return ``host`` with the files that it has in an ``earlier`` record, and their
    first contents. A file that somebody else has written since is theirs.
    """
    files = {file.name: file for file in host.files}
    asked = observed is not None and not observed.problem
    present = observed.policy.contents if observed is not None and asked else {}
    for old in earlier.files:
        content = present.get(old.name) if asked else old.wanted
        new = files.get(old.name) or FileChange(old.name, content, content, content)
        if new.first in old.known:
            written = tuple(dict.fromkeys((*new.written, *old.known)))
            files[old.name] = replace(new, first=old.first, written=written)
    changes = tuple(files[name] for name in sorted(files))
    others = earlier.others
    if observed is not None and asked:
        others = digest_of_others(observed.policy, changes)
    return replace(host, files=changes, others=others)


def digest_of_others(policy: PolicyFiles, files: Sequence[FileChange]) -> str:
    """Return the digest of ``policy`` without ``files``."""
    return digest_of(policy.having({file.name: None for file in files}))


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
    new = _with_rules(observed.policy, named, rule_of(request))
    files = _changes(observed.policy.contents, new.contents)
    too_long = policy_too_long(new)
    if too_long:
        raise Problem(
            "policy-too-long", f"with the new rule, {too_long}", POLICY_TOO_LONG_FIX
        )
    others = digest_of_others(observed.policy, files)
    return replace(record, push=True, files=files, others=others)


def _changes(
    found: Mapping[str, str], wanted: Mapping[str, str]
) -> tuple[FileChange, ...]:
    names = (n for n in sorted({*found, *wanted}) if found.get(n) != wanted.get(n))
    return tuple(
        FileChange(n, found.get(n), found.get(n), wanted.get(n)) for n in names
    )


def _check_draft(policy: PolicyFiles, loaded: Optional[str]) -> None:
    """Raise Problem if a policy.yaml that is not loaded would be loaded."""
    if loaded is None and policy.parsed(POLICY_YAML).policy != Policy():
        raise Problem(
            "policy-not-loaded",
            "its policy.yaml is not loaded, but adding the rule would load it",
            "load it (ovirt-rdma-host policy load), or move the file away",
        )


@functools.lru_cache(_CACHED)
def _with_rules(
    policy: PolicyFiles, named: tuple[tuple[str, Export], ...], rule: str
) -> PolicyFiles:
    """Return the policy with a rule for each export."""
    for name, export in named:
        policy = with_rule(policy, export, rule, name, "policy.yaml")
    return policy


def rule_of(request: ConversionRequest) -> str:
    """Return the transport for the rule in the policies."""
    return request.rule if request.to == RDMA else TCP


def left_out(record: HostRecord) -> HostRecord:
    """Return ``record`` of a host that the operator wants unchanged."""
    return replace(
        record, left_out=True, goal=FORWARD, stage=LEFT, why="left out by --without"
    )
