# SPDX-License-Identifier: GPL-2.0-or-later
"""Condense engine and hosts, as they are now, for the decisions of a conversion, and
record how they were before it. Pure, but for what reads virtual machines.

Virtual machines that prevent a conversion are read beforehand. Leases, inserted CDs,
image transfers and tasks cannot be read: the engine refuses the deactivation because of
them, which ends the conversion with the engine's reason and without a change.

A conversion may be followed by another of the same domains: for later hosts, with
another domain, or to the other transport. Its records then take over the ``first``
values of the earlier ones, so the state before the first conversion is written once. A
conversion that fails is rolled back to the state that it found itself; a revert
restores the first. Only what somebody else has written since is left to them.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Callable, Optional, TypeVar, Union

from ovirt_rdma.engine_sdk_tools.api.request import Read
from ovirt_rdma.engine_sdk_tools.api.session import Session
from ovirt_rdma.engine_sdk_tools.conversion.model import (
    FORWARD,
    HEAL,
    RDMA,
    TCP,
    ConversionRequest,
    ConversionState,
    DomainRecord,
    FileChange,
    HostRecord,
    Stage,
)
from ovirt_rdma.engine_sdk_tools.domains.transport import (
    Mounts,
    export_at,
    no_report,
    route_to,
)
from ovirt_rdma.engine_sdk_tools.hosts.report import (
    POLICY_TOO_LONG_FIX,
    HostReport,
    digest_of,
    policy_of,
    policy_too_long,
    with_own_bugs_caught,
)
from ovirt_rdma.engine_sdk_tools.model import (
    Domain,
    Engine,
    Host,
    StorageConnection,
    status_words,
)
from ovirt_rdma.host.errors import Problem, Sentence
from ovirt_rdma.host.export import PORT, TRANSPORT, Export, MountOptions, netid_for
from ovirt_rdma.host.facts.model import Facts, NfsMount
from ovirt_rdma.host.paths import POLICY_YAML
from ovirt_rdma.host.policy.load import NO_FILES, PolicyFiles, with_rule
from ovirt_rdma.host.policy.model import DEFAULT_PORT, Policy, RuleMatch, rule_for
from ovirt_rdma.storage.mounts import conflict_clause, conflicting_mounts, prove
from ovirt_rdma.storage.readiness import NOT_READY, local_steps

# Mounted, but the evidence for the transport does not agree.
UNPROVEN = "unproven"
_PROVEN = (RDMA, TCP)
UP = "up"
# The engine lets a host that is activated mount only domains with these statuses
# (ConnectHostToStoragePoolServerCommandBase.java:53-63).
MOUNTED = ("active", "inactive", "unknown")


@dataclass(frozen=True)
class Observation:
    """One host's condensed report. ``transports`` are those of mounted exports, by
    export; ``problem`` says why there is no report.
    """

    policy: PolicyFiles = NO_FILES
    digest: Optional[str] = None
    transports: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""


@dataclass(frozen=True)
class Snapshot:
    """A conversion with its engine and hosts at one time.

    - ``observations``: hosts with a report that is still valid, by name.
    - ``arrived``: hosts that are up after we activated them, and for which we have
      waited until they connected their storage, which happens after the status up.
    - ``unmarked``: names of clusters whose upgrade flag cannot be set or cleared.
    """

    state: ConversionState
    engine: Engine
    observations: Mapping[str, Observation] = field(default_factory=dict)
    arrived: Collection[str] = ()
    unmarked: Collection[str] = ()

    def host(self, record: HostRecord) -> Optional[Host]:
        """Return the host as it is in the engine now; None if it was removed."""
        return next((h for h in self.engine.hosts if h.id == record.id), None)

    def domain(self, record: DomainRecord) -> Optional[Domain]:
        """Return the domain as it is in its data center now; None if it was removed."""
        for domain in self.engine.domains:
            if domain.id == record.id and domain.data_center == self.state.data_center:
                return domain
        return None

    def status(self, record: Union[HostRecord, DomainRecord]) -> Optional[str]:
        """Return the status of a host or domain; None if it is unknown or removed."""
        present: Union[Host, Domain, None]
        if isinstance(record, HostRecord):
            present = self.host(record)
        else:
            present = self.domain(record)
        return present.status if present else None

    def takes_part(self, host: HostRecord) -> bool:
        """Whether a host was up at the start, or is up now."""
        return UP in (host.found, self.status(host))

    def is_mounted(self, domain: DomainRecord) -> bool:
        """Whether hosts that are up mount the domain now."""
        return self.status(domain) in MOUNTED

    def is_spm(self, record: HostRecord) -> bool:
        """Whether the host is the SPM now."""
        host = self.host(record)
        return host is not None and host.spm == "spm"

    def row(self, record: DomainRecord) -> Optional[StorageConnection]:
        """Return the domain's storage connection as it is now."""
        rows = self.engine.connections
        return next((row for row in rows if row.id == record.connection), None)

    def seen(self, name: str, observed: Observation) -> Snapshot:
        """Return the snapshot with another observation of a host."""
        return replace(self, observations={**self.observations, name: observed})

    def changed(self, kind: str, id: str, **changes: Any) -> Snapshot:
        """Return the snapshot with fields of one object of the engine changed; ``kind``
        is ``hosts``, ``domains``, ``clusters`` or ``connections``.
        """
        every = getattr(self.engine, kind)
        now = tuple(replace(one, **changes) if one.id == id else one for one in every)
        engine: dict[str, Any] = {kind: now}
        return replace(self, engine=replace(self.engine, **engine))


def wanted_transports(
    state: ConversionState, host: HostRecord
) -> dict[str, Optional[str]]:
    """Return the transport that ``host`` should use, by export; None if that is
    unknown, and nothing has to be proven.
    """
    return {str(d.export): _wanted(state, host, d) for d in state.domains}


def _wanted(
    state: ConversionState, host: HostRecord, domain: DomainRecord
) -> Optional[str]:
    own = dict(host.transports).get(domain.id)
    if state.kind == HEAL:
        return own
    if host.goal == FORWARD:
        return state.request.to
    if domain.stage == Stage.GONE:
        return None
    # A host without that mount that came up since: as the others, if they agree.
    hosts = (host,) if own or not host.touched else state.hosts
    before = {dict(h.transports).get(domain.id) for h in hosts} - {None}
    only = before.pop() if len(before) == 1 else None
    return only if only in _PROVEN else None


def unlike(now: Snapshot, host: HostRecord, observed: Observation) -> tuple[str, ...]:
    """Return a sentence per mount of ``host`` that is not as it should be."""
    wrong = []
    mounted = {str(d.export) for d in now.state.domains if now.is_mounted(d)}
    for export, wanted in wanted_transports(now.state, host).items():
        transport = observed.transports.get(export)
        if wanted in (None, transport) or not (transport or export in mounted):
            continue
        if transport is None:
            wrong.append(f"{export} is not mounted")
        elif transport == UNPROVEN:
            wrong.append(f"{export} is mounted, but its transport is unproven")
        else:
            wrong.append(f"{export} is mounted over {transport.upper()}")
    return tuple(wrong)


def running_on(session: Session, domains: Sequence[Domain]) -> dict[str, list[str]]:
    """Return the names of running virtual machines with a disk on each domain."""
    reads = [
        Read(
            f"storagedomains/{domain.id}/vms",
            f"reading the virtual machines of {domain.name}",
        )
        for domain in domains
    ]
    running = {}
    for domain, answer in zip(domains, session.read_all(reads)):
        # A status that the SDK does not know is not "down".
        vms = [] if isinstance(answer, Exception) else list(answer or ())
        running[domain.name] = [
            vm.name for vm in vms if vm.status is None or vm.status.value != "down"
        ]
    return running


def pinned_on(session: Session, hosts: Sequence[Host]) -> dict[str, list[str]]:
    """Return the names of running virtual machines that must not leave their host, by
    the host's id. The engine also shows machines with passthrough devices as pinned.
    """
    if not any(host.vms for host in hosts):
        return {}
    # The engine answers an invalid search with an empty list, not with an error.
    search = {"search": "status!=down"}
    read = Read("vms", "reading the running virtual machines", arguments=search)
    ids = {host.id for host in hosts}
    pinned: dict[str, list[str]] = {}
    for vm in session.read_all([read])[0]:
        policy = vm.placement_policy
        affinity = policy.affinity.value if policy and policy.affinity else None
        if affinity == "pinned" and vm.host is not None and vm.host.id in ids:
            pinned.setdefault(vm.host.id, []).append(vm.name)
    return pinned


# Record the state before a conversion, and keep the baseline of several.


def with_earlier(
    state: ConversionState,
    earlier: Sequence[ConversionState],
    observations: Mapping[str, Observation],
) -> ConversionState:
    """Return a new ``state`` with the baseline of ``earlier`` conversions of its
    domains, the latest first. ``observations`` are of its hosts, by name.
    """
    restored = [as_at_first(conversion) for conversion in earlier]
    # The number of the latest conversion of a domain, if it still applies.
    sources: dict[str, int] = {}
    domains = []
    for domain in state.domains:
        first = domain.first
        for number, conversion in enumerate(earlier):
            record = next((d for d in conversion.domains if d.id == domain.id), None)
            if record is None:
                continue
            if conversion.stage == Stage.CONVERTED or record.first is not None:
                sources[domain.id] = number
                first = _first_options(domain, record, conversion, restored[number])
            break
        domains.append(replace(domain, first=first))
    known = [
        {
            h.id: h
            for h in conversion.hosts
            if h.touched or any(dict(h.transports).values())
        }
        for conversion in restored
    ]

    def with_first(host: HostRecord) -> HostRecord:
        records = [of_conversion.get(host.id) for of_conversion in known]
        if not any(records):
            return host
        first = []
        for domain in domains:
            record = records[sources[domain.id]] if domain.id in sources else host
            before = dict(record.transports) if record else {}
            first.append((domain.id, before.get(domain.id)))
        for record in records:
            if record is not None:
                host = with_files_of(host, record, observations.get(host.name))
        return replace(host, first_transports=tuple(first), converted=True)

    hosts = tuple(with_first(host) for host in state.hosts)
    gone = {host.id: host for records in reversed(known) for host in records.values()}
    present = {host.id for host in hosts}
    former = tuple(
        with_first(replace(host, transports=()))
        for id, host in gone.items()
        if id not in present
    )
    return replace(state, domains=tuple(domains), hosts=hosts, former=former)


def _first_options(
    domain: DomainRecord,
    record: DomainRecord,
    earlier: ConversionState,
    restored: ConversionState,
) -> str:
    """Return the mount options before the first conversion. ``record`` is that of
    ``domain`` in the ``earlier`` one.
    """
    left = record.wanted if earlier.stage == Stage.CONVERTED else record.options
    # Options with another transport were set by somebody else, so a revert restores
    # them.
    now, then = (MountOptions.parse(o).wants_rdma for o in (domain.options, left))
    first = next(d.options for d in restored.domains if d.id == domain.id)
    return first if now == then else domain.options


def as_at_first(state: ConversionState) -> ConversionState:
    """Return ``state`` for a revert, as if it were the first conversion."""
    if not state.is_again:
        return state
    hosts = tuple(_as_at_first(h, state.domains) for h in (*state.hosts, *state.former))
    domains = tuple(
        d if d.first is None else replace(d, options=d.first, first=None, touched=True)
        for d in state.domains
    )
    return replace(state, domains=domains, hosts=hosts, former=())


def _as_at_first(host: HostRecord, domains: Sequence[DomainRecord]) -> HostRecord:
    # Its own rule decides its mounts, after the revert too.
    own_rule = host.push and all(file.first == file.wanted for file in host.files)
    transports, converted = host.first_transports, host.converted
    if not transports:
        # It was added after the earlier conversion, whose mount options decided its
        # transports, so a revert treats it like the other hosts.
        again = {d.id for d in domains if d.first is not None}
        by_row = any(t for id, t in host.transports if id in again)
        transports = tuple(one for one in host.transports if one[0] not in again)
        converted = by_row and not own_rule
    return replace(
        host,
        push=host.push or bool(host.files),
        files=tuple(replace(file, found=file.first) for file in host.files),
        transports=transports,
        first_transports=(),
        converted=False,
        goal=FORWARD,
        stage=Stage.TODO,
        touched=converted or host.ours or (host.touched and not own_rule),
        why="",
    )


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
    choose it. ``rdma6`` for an IPv6 address: ``rdma`` means IPv4 to mount.nfs (nfs(5)).
    A host with a rule for the export ignores them. Raises OptionsProblem for a port
    that is not a number, ExportProblem for a row without a valid export.
    """
    options = MountOptions.parse(row.mount_options)
    if to != RDMA:
        # TCP is mount's default; an RDMA port would be wrong for it.
        plain = options.without(TRANSPORT, PORT)
        return str(plain) if options.wants_rdma else row.mount_options
    if options.wants_rdma and options.port is not None:
        return row.mount_options
    address = export_at(row.address, row.path or "").address
    netid = netid_for(RDMA, ipv6=address is not None and address.version == 6)
    added = MountOptions.parse(f"proto={netid},port={DEFAULT_PORT}")
    kept = options.without(TRANSPORT, PORT)
    return str(MountOptions(kept.items + added.items))


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


def left_out(record: HostRecord) -> HostRecord:
    """Return ``record`` of a host that the operator wants unchanged."""
    return replace(
        record,
        left_out=True,
        goal=FORWARD,
        stage=Stage.LEFT,
        why="left out by --without",
    )


# Read the reports of a data center's hosts, and judge them.

_T = TypeVar("_T")

# Statuses that a host may have in a rolling conversion; the others are transitional or
# report an error.
_SETTLED = ("up", "maintenance", "down")


def of_each(
    hosts: Sequence[Host],
    reports: Iterable[HostReport],
    work: Callable[[ReportedHost], _T],
) -> dict[str, _T]:
    """Return ``work`` of each host, by its name, in the order of ``hosts``.

    Reports have some hundred kilobytes each, so they are read one by one, in any order,
    and only the results are kept. A host without a report, or whose report makes our
    own code fail, has one that says so.
    """
    by_name = {host.name: host for host in hosts}
    results: dict[str, _T] = {}

    def of_one(report: HostReport) -> _T:
        return work(ReportedHost(by_name[report.host], report))

    for report in reports:
        if report.host in by_name:
            results[report.host] = with_own_bugs_caught(report, of_one)
    for host in hosts:
        if host.name not in results:
            results[host.name] = of_one(no_report(host))
    return {host.name: results[host.name] for host in hosts}


def observe(
    hosts: Sequence[Host],
    reports: Iterable[HostReport],
    domains: Sequence[DomainRecord],
) -> dict[str, Observation]:
    """Return the observations of ``hosts``, by name, from their ``reports``."""
    return of_each(hosts, reports, lambda seen: seen.observed(domains))


@dataclass(frozen=True)
class Started:
    """A host at the start of a conversion: the ``objections`` to it, and its record,
    None if its new policy cannot be composed.
    """

    observed: Observation
    record: Optional[HostRecord]
    objections: Sequence[Sentence] = ()


class ReportedHost:
    """A host of the engine with its report; ``force`` is the policy in force."""

    def __init__(self, host: Host, report: HostReport) -> None:
        self.host = host
        self.force = policy_of(report)
        self.problem = ""
        if report.facts is None:
            self.problem = report.problem or "it reported no facts"
        self._report = report
        self._facts = report.facts or Facts(host.name, "", 0.0)
        self._mounts = Mounts(self._facts.nfs_mounts)

    def observed(self, domains: Sequence[DomainRecord]) -> Observation:
        """Return what the report says of the host and ``domains``."""
        if self.problem:
            return Observation(problem=self.problem)
        transports = {}
        for export in (domain.export for domain in domains):
            mount = self._mounts.vdsms(export)
            if mount is not None:
                proof = prove(mount, self._facts.cm_ids)
                transports[str(export)] = proof.transport or UNPROVEN
        report = self._report
        return Observation(report.policy, report.policy_digest, transports)

    def started(
        self,
        domains: Sequence[DomainRecord],
        request: ConversionRequest,
        checked: Optional[Sequence[DomainRecord]] = None,
    ) -> Started:
        """Return the host at the start of a conversion of ``domains``, of which only
        the ``checked`` can be objected to.
        """
        host, observed = self.host, self.observed(domains)
        record = HostRecord(host.id, host.name, host.status)
        if host.name in request.without:
            return Started(observed, left_out(record))
        checked = domains if checked is None else checked
        against = list(self.objections(checked, request))
        try:
            record = self._with_policy(record, observed, domains, request)
            return Started(observed, record, against)
        except Problem as problem:
            parts = filter(None, (problem.one_line, problem.fix))
            against.append(Sentence(problem.id, f"{host.name}: {'; '.join(parts)}"))
            return Started(observed, None, against)

    def _with_policy(
        self,
        record: HostRecord,
        observed: Observation,
        domains: Sequence[DomainRecord],
        request: ConversionRequest,
    ) -> HostRecord:
        """Return the record with its transports and its new policy. Raises Problem if
        the rules cannot be added to the present one.
        """
        if self.problem:
            return record
        found = observed.policy
        transports = observed.transports
        mounted = tuple((d.id, transports.get(str(d.export))) for d in domains)
        record = replace(record, transports=mounted)
        if request.by_row or self.force.policy is None or self.force.enabled is None:
            return record
        if observed.digest is None and found.parsed(POLICY_YAML).policy != Policy():
            raise Problem(
                "policy-not-loaded",
                "its policy.yaml is not loaded, but adding the rule would load it",
                "load it (ovirt-rdma-host policy load), or move the file away",
            )
        named = tuple((f"domain {domain.name}", domain.export) for domain in domains)
        new = _with_rules(found, named, request.policy_transport)
        before, after = found.contents, new.contents
        files = tuple(
            FileChange(name, before.get(name), before.get(name), after.get(name))
            for name in sorted({*before, *after})
            if before.get(name) != after.get(name)
        )
        too_long = policy_too_long(new)
        if too_long:
            raise Problem(
                "policy-too-long", f"with the new rule, {too_long}", POLICY_TOO_LONG_FIX
            )
        others = digest_of_others(found, files)
        return replace(record, push=True, files=files, others=others)

    def objections(
        self, domains: Sequence[DomainRecord], request: ConversionRequest
    ) -> Iterator[Sentence]:
        """Yield the objections to a conversion of ``domains`` on this host."""
        host, force = self.host, self.force
        if request.rolling and host.status not in _SETTLED:
            yield Sentence(
                "host-status-unsuitable",
                f"{host.name} is {status_words(host.status)}; leave it out with "
                f"--without {host.name}",
            )
        if self.problem:
            # Without a policy for it, a host that is not up needs nothing.
            if host.status == "up" or (request.rolling and not request.by_row):
                yield Sentence(
                    "host-readiness-unknown",
                    f"{host.name} is {status_words(host.status)}, but its readiness is "
                    f"unknown: {self.problem}; to leave it out: --without "
                    f"{host.name}",
                )
            return
        if request.by_row:
            for domain in domains:
                match = self._rule_of(domain.export)
                if match and (match.rule.transport == TCP) == (request.to == RDMA):
                    yield Sentence(
                        "policy-rule-contradicts",
                        f"{host.name}: {match.rule.title} of its policy sets "
                        f"{match.rule.transport} for {domain.name} and overrides the "
                        "engine's options; omit --engine-options",
                    )
        elif force.policy is None and (request.rolling or force.enabled):
            # It could neither be pushed nor restored.
            yield Sentence("policy-unknown", f"{host.name}: {force.reason}")
        elif request.rolling and force.enabled is None:
            yield Sentence(
                "addon-not-enabled",
                f"{host.name}: the add-on is not enabled (ovirt-rdma-host enable); to "
                "convert without the add-on on any host, use --engine-options",
            )
        if host.status != "up":
            return
        for domain in domains:
            # Any change of the storage connection would store the path as the engine
            # shows it (StorageDomainMapper.java:215-231).
            head = f"{domain.export}:"
            sources = [m.source for m in self._facts.nfs_mounts]
            longer = next((s for s in sources if s.startswith(head)), None)
            if longer and self._mounts.vdsms(domain.export) is None:
                yield Sentence(
                    "domain-path-truncated",
                    f"{host.name} mounts {longer}, but the engine shows "
                    f"{domain.export}: it truncates paths at a colon, and would store "
                    "the truncated path with any change of the storage connection of "
                    f"{domain.name}; rename the path on the server",
                )
        yield from self.remount_objections(domains, request)

    def remount_objections(
        self, domains: Sequence[DomainRecord], request: ConversionRequest
    ) -> Iterator[Sentence]:
        """Yield why a remount of ``domains`` would not get the requested transport."""
        name, to, mounts = self.host.name, request.to, self._facts.nfs_mounts
        ours = {domain.export for domain in domains}

        def stays(other: NfsMount) -> bool:
            """Whether it is not remounted with the domains."""
            match = self._rule_of(Export.maybe(other.source))
            too = match is not None and (match.rule.transport == TCP) == (to != RDMA)
            return Export.maybe(other.source) not in ours and not (
                request.rolling and too
            )

        for domain in domains:
            mount = self._mounts.vdsms(domain.export)
            if mount is None or mount.address is None:
                continue
            # They share one connection of the kernel (trunking), with its transport.
            clash = conflicting_mounts(
                mounts, domain.export, (mount.address,), mount.version, to
            )
            found = clash.mounts if clash is not None and clash.certain else ()
            staying = tuple(filter(stays, found))
            if staying:
                yield Sentence(
                    "server-connection-shared",
                    f"{name}: {conflict_clause(staying)}: {domain.name} "
                    "would be mounted over that connection too; convert them together, "
                    "or use different NFS versions",
                )
        for domain in domains if to == RDMA else ():
            mount = self._mounts.vdsms(domain.export)
            route = route_to(self._facts, (mount.address if mount else None,))
            for step in local_steps(self._facts, route):
                if step.verdict == NOT_READY:
                    yield Sentence("host-not-ready", f"{name}: {step.detail}")

    def _rule_of(self, export: Optional[Export]) -> Optional[RuleMatch]:
        if self.force.policy is None or export is None:
            return None
        return rule_for(self.force.policy, export)


# A fleet has few different policies.
@functools.lru_cache(64)
def _with_rules(
    policy: PolicyFiles, named: tuple[tuple[str, Export], ...], rule: str
) -> PolicyFiles:
    """Return the policy with a rule for each export."""
    for name, export in named:
        policy = with_rule(policy, export, rule, name)
    return policy
