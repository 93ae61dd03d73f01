# SPDX-License-Identifier: GPL-2.0-or-later
"""The state before a conversion, for a revert: hosts, domains, mount options.

What was before the first of several conversions to one goal. Pure.

A conversion that has ended may be followed by another, for hosts that came later or for
one domain more. A failure of it goes back to what it found itself; a revert goes back
to what the first one found.

A storage connection's mount options with another transport. Pure.

Only what chooses the transport changes; all else stays as it is written.

What a conversion notes of hosts and domains at its begin. Pure.

What a host's report gives a conversion, so that the report itself may go: it is some
hundred kilobytes, and there may be hundreds. Pure.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Optional

from ovirt_rdma.engine_sdk_tools.conversion.host_preflight import host_offenders
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
from ovirt_rdma.engine_sdk_tools.conversion.observation import Sight, sight_of
from ovirt_rdma.engine_sdk_tools.conversion.preflight import ConversionRequest
from ovirt_rdma.engine_sdk_tools.domains.transport import export_at
from ovirt_rdma.engine_sdk_tools.hosts.policy import policy_of
from ovirt_rdma.engine_sdk_tools.hosts.report import (
    MAKE_SHORTER,
    HostReport,
    judged,
    policy_too_long,
)
from ovirt_rdma.engine_sdk_tools.model import Domain, Host, StorageConnection
from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.export import Export
from ovirt_rdma.host.paths import POLICY_YAML
from ovirt_rdma.host.policy import json_form
from ovirt_rdma.host.policy.edit import with_rule
from ovirt_rdma.host.policy.load import parse_policy
from ovirt_rdma.host.policy.model import DEFAULT_PORT, TCP, Policy
from ovirt_rdma.storage.mount_options import PORT, TRANSPORT, MountOptions


def keeping(
    state: ConversionState, earlier: Sequence[ConversionState]
) -> ConversionState:
    """Return ``state``, which begins, with the originals of ``earlier`` conversions of
    its domains to its goal, the latest first.
    """
    origin = state
    for one in earlier:
        ended = one.stage == CONVERTED
        origin = _joined(origin, with_originals(one) if ended else _first(one))
    if not earlier:
        return state
    return replace(state, first_domains=origin.domains, first_hosts=origin.hosts)


def with_originals(state: ConversionState) -> ConversionState:
    """Return ``state`` as if it were the first of its kind, for a revert: with what
    was found then, and with all hosts that were converted since.
    """
    if not state.first_domains:
        return state
    rows = {domain.id: domain for domain in state.first_domains}
    domains = tuple(
        replace(d, options=rows[d.id].options, touched=d.touched or rows[d.id].touched)
        for d in state.domains
    )
    since = [n for n, domain in enumerate(domains) if rows[domain.id].touched]
    first = {host.id: host for host in state.first_hosts}
    hosts = [_again(h, first.pop(h.id, None), since, domains) for h in state.hosts]
    hosts += first.values()
    return replace(
        state,
        domains=domains,
        hosts=tuple(hosts),
        blind=state.blind and not any(host.push for host in hosts),
        first_domains=(),
        first_hosts=(),
    )


def _first(state: ConversionState) -> ConversionState:
    """What was before a conversion that was taken back, and is so again."""
    return replace(state, domains=state.first_domains, hosts=state.first_hosts)


def _again(
    host: HostRecord,
    first: Optional[HostRecord],
    since: Collection[int],
    domains: Sequence[DomainRecord],
) -> HostRecord:
    if first is None:
        # It came in while this conversion stood still.
        first = _late(host, since, len(domains))
    # Its own rule makes its mounts, also after the revert.
    own = first.push and first.policy == first.wanted
    return replace(
        first,
        name=host.name,
        found=host.found,
        goal=FORWARD,
        stage=TODO,
        touched=first.touched or host.ours or (host.touched and not own),
        ours=host.ours,
    )


def _joined(origin: ConversionState, earlier: ConversionState) -> ConversionState:
    """Return ``origin`` with what ``earlier`` has found, where that still counts."""
    rows = {domain.id: domain for domain in earlier.domains}
    numbers = {domain.id: n for n, domain in enumerate(earlier.domains)}
    places = {n: numbers[d.id] for n, d in enumerate(origin.domains) if d.id in numbers}
    known = {h.id: h for h in earlier.hosts if h.touched or any(h.transports)}
    count = len(origin.domains)
    hosts = []
    for host in origin.hosts:
        first = known.pop(host.id, None)
        if first is None:
            hosts.append(_late(host, places, count))
        else:
            hosts.append(_known(host, first, places, count))
    for gone in known.values():
        none = replace(gone, transports=())
        hosts.append(_known(none, gone, places, count))
    domains = tuple(_row(domain, rows.get(domain.id)) for domain in origin.domains)
    return replace(origin, domains=domains, hosts=tuple(hosts))


def _row(domain: DomainRecord, first: Optional[DomainRecord]) -> DomainRecord:
    # One that is not as the earlier left it was set by hand: that is to come back.
    if first is None or domain.options != domain.wanted:
        return domain
    return replace(domain, options=first.options, touched=True)


def _late(host: HostRecord, since: Collection[int], count: int) -> HostRecord:
    """A host that was not there: what it was mounted over came of the new rows, unless
    its own policy has the rules. So after a revert it goes with the others.
    """
    before = host.transports or (None,) * count
    mine = tuple(None if n in since else t for n, t in enumerate(before))
    own = host.push and host.policy == host.wanted
    by_row = not own and any(before[n] for n in since)
    return replace(host, transports=mine, touched=host.touched or by_row)


def _known(
    host: HostRecord, first: HostRecord, places: dict[int, int], count: int
) -> HostRecord:
    then = first.transports or (None,) * (1 + max(places.values(), default=0))
    now = host.transports or (None,) * count
    mine = tuple(then[places[n]] if n in places else now[n] for n in range(count))
    return replace(_policy(host, first), transports=mine, touched=True)


def _policy(host: HostRecord, first: HostRecord) -> HostRecord:
    """The policy of ``host`` that a revert puts back."""
    theirs = replace(
        host,
        push=first.push,
        policy=first.policy,
        wanted=first.wanted,
        digest=first.digest,
    )
    if not host.push:
        return theirs
    if not first.push:
        return host
    if host.policy in (first.wanted, first.policy):
        between = () if host.policy is None else (host.policy,)
        return replace(host, policy=first.policy, between=(*host.between, *between))
    # Somebody changed it since. With our rule in it, it is none to go back to: the
    # revert says so, and leaves it. Without, it is what this conversion found.
    return theirs if host.policy == host.wanted else host


def row_options(row: StorageConnection, to: str) -> str:
    """Return the options of ``row`` for ``to``; as they are where they say so.

    ``rdma6`` for an IPv6 address, because ``rdma`` means IPv4 to mount.nfs (nfs(5)).
    A host with a rule for the export does not look at it. Raises OptionsProblem for a
    port that is no number, ExportProblem for a row that names no export.
    """
    options = MountOptions.parse(row.mount_options)
    if to != RDMA:
        # Without a word TCP is mount's own choice; an RDMA port would be wrong then.
        return (
            str(options.without(TRANSPORT, PORT))
            if options.wants_rdma
            else (row.mount_options)
        )
    if options.wants_rdma and options.port is not None:
        return row.mount_options
    address = export_at(row.address, row.path or "").address
    netid = "rdma6" if address is not None and address.version == 6 else "rdma"
    added = MountOptions.parse(f"proto={netid},port={DEFAULT_PORT}")
    kept = options.without(TRANSPORT, PORT)
    return str(MountOptions(kept.items + added.items))


# A fleet has few different policies.
_KEPT = 64


def ordered(hosts: Sequence[Host]) -> list[Host]:
    """Up hosts, the SPM last of them, then the others."""
    return sorted(hosts, key=lambda h: (h.status != "up", h.spm == "spm"))


def domain_record(domain: Domain, to: str) -> DomainRecord:
    """Return what is noted of a domain. Raises Problem for a row that cannot be."""
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
        raise Problem("policy-too-long", f"with the new rule, {long}", MAKE_SHORTER)
    return replace(
        record, push=True, policy=report.policy_text, wanted=text, digest=digest
    )


def _check_draft(text: Optional[str], loaded: Optional[str]) -> None:
    """Raise Problem where a policy.yaml that is not in force would come into force."""
    if loaded is None and text and parse_policy(text, POLICY_YAML).policy != Policy():
        raise Problem(
            "policy-not-loaded",
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
    return made, json_form.digest(parse_policy(made, "policy.yaml").policy)


def rule_of(request: ConversionRequest) -> str:
    """Return the transport that the policies' rule gets."""
    return request.rule if request.to == RDMA else TCP


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
