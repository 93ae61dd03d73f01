# SPDX-License-Identifier: GPL-2.0-or-later
"""Check hosts: what prevents storage over RDMA on each, as a matrix, and failed checks
as events of the engine, for those who watch it.

A subnet manager knows nodes and ports by their GUIDs alone: opensm takes two nodes with
one GUID for a cable that was moved, asks again, and writes ``FATAL: duplicated guids``
(report_duplicated_guid() in opensm/osm_node_info_rcv.c). One of the two has no LID
then, or the other's. No single host can see that: here the reports of all hosts are
compared. Derived GUIDs of VFs (:mod:`ovirt_rdma.host.rules.virtual_functions`) differ;
equal ones are set by hand, by another program, or by a copy of a firmware image.

The readiness for RDMA to NFS servers comes from the host's facts, which have routes
only to servers of present mounts. No server is asked, so that what only the server can
answer stays unknown. The engine's view and the host's own report are in separate cells:
a host may be up and not ready, or ready and down.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import NamedTuple, Optional

from ovirt_rdma.engine_sdk_tools.api.request import Call, EngineProblem, types
from ovirt_rdma.engine_sdk_tools.api.session import Session
from ovirt_rdma.engine_sdk_tools.domains.transport import (
    nfs_export,
    requested_transport,
    route_to,
    rule_without_effect,
    server_addresses,
)
from ovirt_rdma.engine_sdk_tools.hosts.report import (
    HostReport,
    digest_without_drop_ins,
    health_cell,
    hooks_cell,
    not_reported,
    paths_cell,
    policy_of,
    status_part,
    versions_of,
    with_own_bugs_caught,
)
from ovirt_rdma.engine_sdk_tools.job import ORIGIN
from ovirt_rdma.engine_sdk_tools.model import (
    BROKEN,
    FAIL,
    LACKS,
    NONE,
    OK,
    UNKNOWN,
    WARN,
    Axis,
    Cell,
    Engine,
    Host,
    Matrix,
    StorageConnection,
    host_is,
    listed,
    status_label,
    status_words,
)
from ovirt_rdma.host import __version__
from ovirt_rdma.host.daemon.versions import Versions, unknown_version, version_advice
from ovirt_rdma.host.export import RDMA, Export
from ovirt_rdma.host.facts.devices import Guid
from ovirt_rdma.host.facts.model import Facts
from ovirt_rdma.host.paths import VDSMD_UNIT
from ovirt_rdma.host.policy.model import Policy, digest
from ovirt_rdma.host.rules import base
from ovirt_rdma.host.rules.base import Step
from ovirt_rdma.host.rules.registry import Decision, decide
from ovirt_rdma.host.services.enablement import BY_LAUNCHER, BY_STOCK, MODE_VDSMD, MODES
from ovirt_rdma.storage import readiness

_OF_VFS = (
    "guids: derived under virtual_functions in the policy of each of these hosts gives "
    "every VF GUIDs of its own; then on each: ovirt-rdma-host apply"
)
_OF_ADAPTERS = (
    "if both are one machine, remove one of them from the engine; else give one "
    "adapter other GUIDs by mstflint (sg), then power that host off and on"
)


class GuidOwner(NamedTuple):
    """Who has a GUID: ``what`` is ``mlx5_0``, ``mlx5_0/1`` (a port), or ``VF 3 of
    mlx5_0``; ``is_vf``: a virtual function, whose GUIDs its host sets.
    """

    host: str
    what: str
    is_vf: bool = False

    def __str__(self) -> str:
        return f"{self.what} on {self.host}"


# The GUIDs of one host, each with its owners.
Guids = Mapping[str, tuple[GuidOwner, ...]]


def guids_of(host: str, facts: Facts) -> Guids:
    """Return the GUIDs on InfiniBand of ``host``. A PCI function counts once: a port
    may have its node's GUID, and a VF is known from both functions. Zeros are nobody's.
    """
    owners: dict[str, dict[str, GuidOwner]] = {}
    for place, guid, owner in _owned(host, facts):
        known = Guid((guid or "").replace(":", "").lower())
        if known.assigned:
            owners.setdefault(known.in_groups, {}).setdefault(place, owner)
    return {guid: tuple(found.values()) for guid, found in owners.items()}


def _owned(host: str, facts: Facts) -> Iterator[tuple[str, Optional[str], GuidOwner]]:
    """Yield the place (a PCI address, or a device's name), a GUID and its owner."""
    by_address = {d.pci.address: d for d in facts.rdma_devices if d.pci}
    for adapter in facts.adapters:
        pf = by_address.get(adapter.pci.address)
        name = pf.name if pf else adapter.pci.address
        if pf is not None and not any(port.is_infiniband for port in pf.ports):
            continue
        for vf in adapter.virtual_functions:
            owner = GuidOwner(host, f"VF {vf.number} of {name}", is_vf=True)
            for guid in (vf.node_guid, *(port.guid for port in vf.ports)):
                yield vf.address, guid, owner
    for device in facts.rdma_devices:
        place = device.pci.address if device.pci else device.name
        ports = [port for port in device.ports if port.is_infiniband]
        for port in ports:
            yield place, port.guid, GuidOwner(host, f"{device.name}/{port.number}")
        if ports:
            yield place, device.node_guid, GuidOwner(host, device.name)


def shared_guids(hosts: Iterable[Guids]) -> dict[str, tuple[GuidOwner, ...]]:
    """Return the GUIDs that have several owners, on one host or on several."""
    owners: dict[str, list[GuidOwner]] = {}
    for guids in hosts:
        for guid, found in guids.items():
            owners.setdefault(guid, []).extend(found)
    return {guid: tuple(found) for guid, found in owners.items() if len(found) > 1}


def with_shared_guids(
    cell: Cell, host: str, shared: Mapping[str, tuple[GuidOwner, ...]]
) -> Cell:
    """Return ``cell``, that of the host's RDMA ports, as FAIL if the host has some of
    the ``shared`` GUIDs; what it says by itself is kept.
    """
    sentences, of_vfs = [], True
    for guid, owners in shared.items():
        if any(owner.host == host for owner in owners):
            sentences.append(
                f"{' and '.join(map(str, owners))} have the same GUID {guid}"
            )
            # Equal GUIDs of physical functions are of one machine, or of firmware.
            of_vfs = of_vfs and any(owner.is_vf for owner in owners)
    if not sentences:
        return cell
    texts = [listed(sentences, SENTENCES, "; ")]
    fixes = [_OF_VFS if of_vfs else _OF_ADAPTERS]
    if cell.verdict != OK:
        texts.insert(0, cell.sentence)
        fixes.insert(0, cell.fix)
    return replace(
        cell,
        verdict=FAIL,
        sentence="; ".join(filter(None, texts)),
        fix="; ".join(filter(None, fixes)),
    )


# Make the cells of ``hosts check`` for one host.

# A cell has the first sentences, and of a text of the host so many characters.
SENTENCES = 3
_LONGEST = 1000


def status_cell(host: Host) -> Cell:
    """Return the cell of the host's status in the engine; only ``up`` is good."""
    verdict, fix = WARN, ""
    if host.status in ("up", None):
        verdict = OK if host.status else UNKNOWN
    elif host_is(host.status, LACKS, BROKEN) or host.status == "pending_approval":
        verdict = FAIL
        fix = "see the events of the host in the administration portal"
    sentence = f"the host is {status_words(host.status)}"
    return Cell(verdict, status_label(host.status), sentence, fix, "engine")


def package_cell(report: HostReport) -> Cell:
    """Return whether all files exist, in our version; ``rpm -V`` shows edits."""
    files = status_part(report.status, "package")
    if not files:
        return not_reported(report)
    missing = [name for name, exists in files.items() if not exists]
    fix = "install the package ovirt-rdma-host on the host"
    if missing:
        if len(missing) == len(files):
            return Cell(FAIL, "missing", "the add-on is not installed", fix)
        sentence = f"files of the add-on are missing: {', '.join(missing)}"
        return Cell(FAIL, "incomplete", sentence, fix)
    version = (report.status or {}).get("version")
    if version == __version__:
        return Cell(OK, version, "all files of the add-on exist, in this version")
    fix = "install the same version on both"
    if version is None:
        return Cell(UNKNOWN, "unknown", "the host did not report the version", fix)
    sentence = f"its version is {version}, not that of this machine, {__version__}"
    return Cell(FAIL, version, sentence, fix)


def enabled_cell(report: HostReport) -> Cell:
    """Return whether the add-on is enabled, and in which mode."""
    if report.status is None:
        return not_reported(report)
    mode = status_part(report.status, "enabled").get("mode")
    if mode in MODES:
        return Cell(OK, str(mode), f"enabled in mode {mode}")
    return Cell(
        FAIL,
        "no",
        "the add-on is not enabled: stock VDSM mounts the storage",
        "on the host: ovirt-rdma-host enable --restart-vdsmd",
    )


def running_cell(host: Host, report: HostReport) -> Cell:
    """Return whether vdsmd is running, and in the mode that is enabled."""
    if report.status is None:
        return not_reported(report)
    running = status_part(report.status, "running")
    mode = status_part(report.status, "enabled").get("mode")
    if not running:
        verdict = FAIL if host.status == "up" else WARN
        return Cell(verdict, "no", "vdsmd is not running", source="host")
    launched = running.get("program") == BY_LAUNCHER
    text = BY_LAUNCHER if launched else BY_STOCK
    restart = "on the host: systemctl restart vdsmd"
    if launched and mode != MODE_VDSMD:
        sentence = "vdsmd still uses the add-on, which is no longer enabled"
        return Cell(WARN, text, sentence, restart)
    if not launched and mode == MODE_VDSMD:
        sentence = "stock vdsmd is running, although mode vdsmd is enabled"
        because = running.get("because")
        if isinstance(because, str) and because:
            # Such as an update of VDSM with a form that this version does not know.
            sentence = f"the launcher started stock vdsmd: {because[:_LONGEST]}"
            restart = "on the host: solve that, then systemctl restart vdsmd"
        return Cell(FAIL, text, sentence, restart)
    return _loaded_cell(text, versions_of(report), launched=launched)


def _loaded_cell(text: str, versions: Optional[Versions], *, launched: bool) -> Cell:
    """Return whether vdsmd and the daemon have loaded what is installed."""
    vdsmd = versions.vdsmd if versions else None
    if launched and (vdsmd is None or vdsmd.restart_needed is None):
        advice = unknown_version(VDSMD_UNIT)
        return Cell(UNKNOWN, text, advice.sentence, f"on the host: {advice.fix}")
    advices = tuple(version_advice(versions)) if versions else ()
    if advices:
        shown = f"{text} {vdsmd.version}" if vdsmd and launched else text
        sentence = "; ".join(advice.sentence for advice in advices)
        fix = f"on the host: {'; '.join(advice.fix for advice in advices)}"
        return Cell(WARN, shown, sentence, fix)
    if not launched or vdsmd is None:
        return Cell(OK, text, "stock vdsmd runs")
    started = "vdsmd was started by the launcher"
    return Cell(OK, text, f"{started}, and has loaded version {vdsmd.version}")


def rules_cell(report: HostReport, decision: Optional[Decision]) -> Cell:
    """Return the findings of ``decision``, which is None without the host's facts."""
    if decision is None:
        return not_reported(report)
    to_do = len(decision.applicable)
    apply = "on the host: ovirt-rdma-host apply"
    for theirs, verdict in ((base.FAIL, FAIL), (base.WARN, WARN)):
        found = [f for f in decision.findings if f.verdict == theirs]
        if found:
            texts = [f"{f.rule}: {f.sentence}" for f in found]
            fix = apply if to_do else found[0].fix
            fix = fix or "on the host: ovirt-rdma-host check"
            text = f"{len(found)} {verdict}"
            return Cell(verdict, text, listed(texts, SENTENCES, "; "), fix)
    if to_do:
        sentence = f"the host does not match its policy: {to_do} to do"
        return Cell(WARN, f"{to_do} to do", sentence, apply)
    return Cell(OK, "ok", "no rule fails or warns")


def ports_cell(report: HostReport) -> Cell:
    """Return whether an RDMA port is ACTIVE."""
    facts = report.facts
    if facts is None:
        return not_reported(report)
    ports = [
        (device.name, port) for device in facts.rdma_devices for port in device.ports
    ]
    if not ports:
        fix = "check that the adapter's driver is loaded: rdma link"
        return Cell(FAIL, "none", "there is no RDMA device", fix)
    states = ", ".join(f"{name}/{port.number} is {port.state}" for name, port in ports)
    active = sum(port.is_active for _, port in ports)
    text = f"{active} of {len(ports)}"
    if active:
        return Cell(OK, text, states)
    fix = "check the cable, the switch port and, on InfiniBand, the subnet manager"
    return Cell(FAIL, text, states, fix)


_WORST_FIRST = (FAIL, UNKNOWN, WARN, NONE, OK)
_OF_POSIXFS = (
    "set the transport in the mount options of its storage connection, or create an "
    "NFS domain instead"
)


def servers_cell(report: HostReport, rows: Sequence[StorageConnection]) -> Cell:
    """Return whether the host is ready for RDMA to the servers of ``rows``, as far as
    it decides: module, route, port. FAIL and unknown count if RDMA is requested.
    """
    facts = report.facts
    if facts is None:
        return not_reported(report)
    force = policy_of(report)
    wanted: dict[str, tuple[Export, bool]] = {}
    cells: list[Cell] = []
    for row in rows:
        export = nfs_export(row)
        if export is not None:
            rdma = requested_transport(row, force).transport == RDMA
            _, before = wanted.get(export.server, (export, False))
            wanted[export.server] = (export, before or rdma)
    for server, (export, rdma) in wanted.items():
        route = route_to(facts, server_addresses(facts, export))
        ready = readiness.Readiness(readiness.local_steps(facts, route))
        verdict, sentence = OK, f"ready for RDMA to {server}, by the host's own report"
        if ready.verdict == readiness.NOT_READY:
            verdict = FAIL if rdma else WARN
            sentence = f"not ready for RDMA to {server}: {ready.reason}"
        elif ready.verdict != readiness.READY:
            verdict = UNKNOWN if rdma else NONE
            sentence = f"readiness for RDMA to {server} is unknown: {ready.reason}"
        cells.append(
            Cell(verdict, server, sentence, "" if verdict == OK else ready.fix)
        )
    if not cells:
        return Cell(NONE, "-", "its data center has no NFS storage domain")
    text = f"{sum(cell.verdict == OK for cell in cells)} of {len(cells)}"
    for row in rows:
        rule = rule_without_effect(row, force)
        if rule is not None:
            sentence = (
                f"{rule.title} requests {rule.transport} for {nfs_export(row)}, but "
                "rules have no effect on a PosixFS domain"
            )
            cells.append(Cell(WARN, "PosixFS", sentence, _OF_POSIXFS))
    worst = min(cells, key=lambda cell: _WORST_FIRST.index(cell.verdict))
    return replace(worst, text=text)


# Make the matrix of ``hosts check``: readiness of hosts for storage over RDMA.

KIND = "hosts"
STATUS, PATHS = "status", "paths"
COLUMNS = (
    STATUS,
    "hooks",
    "package",
    "enabled",
    "running",
    "policy",
    "rules",
    "rdma ports",
    "nfs servers",
    "health",
    PATHS,
)
_POLICY, _PORTS = COLUMNS.index("policy"), COLUMNS.index("rdma ports")
# Characters of a digest to show, without "sha256:": enough to distinguish policies.
_DIGITS = 8


@dataclass(frozen=True)
class HostRow:
    """A host's cells, the digest of its policy, whether it reported a status, its
    InfiniBand GUIDs, and ``steps``, its plan, None without its facts.
    """

    host: Host
    cells: tuple[Cell, ...]
    digest: Optional[str] = None
    reported: bool = False
    guids: Guids = field(default_factory=dict)
    steps: Optional[tuple[Step, ...]] = None


def row_of(
    host: Host,
    report: HostReport,
    policy: Optional[Policy],
    connections: Sequence[StorageConnection] = (),
) -> HostRow:
    """Return a host's row; ``policy`` is the one that it should have, ``connections``
    those of its data center. :func:`check`, which has all hosts, fills the cell of the
    policy, and adds equal GUIDs.
    """

    def row(report: HostReport) -> HostRow:
        own = policy_of(report).policy if policy is None else policy
        # The empty policy still finds faults.
        decision = decide(report.facts, own or Policy()) if report.facts else None
        loaded = status_part(report.status, "policy")
        problem = loaded.get("problem")
        policy_cell = not_reported(report)
        if problem:
            policy_cell = Cell(
                FAIL, "broken", str(problem), str(loaded.get("fix") or "")
            )
        return HostRow(
            host,
            (
                status_cell(host),
                hooks_cell(host),
                package_cell(report),
                enabled_cell(report),
                running_cell(host, report),
                policy_cell,
                rules_cell(report, decision),
                ports_cell(report),
                servers_cell(report, connections),
                health_cell(report),
                paths_cell(report),
            ),
            digest_without_drop_ins(report) if loaded.get("loaded") else None,
            report.status is not None and not problem,
            {} if report.facts is None else guids_of(host.name, report.facts),
            decision.steps if decision else None,
        )

    return with_own_bugs_caught(report, row)


def connections_of(engine: Engine, host: Host) -> tuple[StorageConnection, ...]:
    """Return the connections of the domains of a host's data center."""
    center = engine.center_of(host)
    return tuple(
        domain.connection
        for domain in engine.domains
        if domain.connection and center and domain.data_center == center
    )


def check(
    engine: Engine,
    rows: Sequence[HostRow],
    policy: Optional[Policy],
    policy_file: Optional[str] = None,
) -> Matrix:
    """Return the matrix of the rows of :func:`row_of`.

    A host with another policy than ``policy`` FAILs. Without one, hosts FAIL whose
    policy differs from that of most hosts, or all if there is no majority. The ports of
    hosts FAIL that have an InfiniBand GUID in common. ``policy_file`` has the policy.
    The column of paths is there if a host has some.
    """
    reference = _reference(rows, policy)
    shared = shared_guids(row.guids for row in rows)
    cells = []
    for row in rows:
        own = list(row.cells)
        if row.reported:
            own[_POLICY] = _policy_cell(row, reference, policy_file)
        own[_PORTS] = with_shared_guids(own[_PORTS], row.host.name, shared)
        cells.append(tuple(own))
    columns: tuple[str, ...] = COLUMNS
    if all(own[-1].verdict in (NONE, UNKNOWN) for own in cells):
        columns, cells = columns[:-1], [own[:-1] for own in cells]
    return Matrix(
        KIND,
        tuple(Axis(row.host.name, row.host.id, row.host.address) for row in rows),
        tuple(Axis(name) for name in columns),
        tuple(cells),
        engine.problems,
    )


class _Reference(NamedTuple):
    """The digest that hosts should have (None: no policy), and ``whose`` it is; "" if
    there is no reference because the hosts differ. ``example`` is a host that has it.
    """

    digest: Optional[str]
    whose: str = ""
    example: str = ""


def _reference(rows: Sequence[HostRow], policy: Optional[Policy]) -> _Reference:
    if policy is not None:
        return _Reference(digest(policy), "this machine's")
    counted = Counter(row.digest for row in rows if row.reported).most_common(2)
    if len(counted) == 2 and counted[0][1] == counted[1][1]:
        return _Reference(None)
    most = counted[0][0] if counted else None
    having = (row.host.name for row in rows if row.reported and row.digest == most)
    return _Reference(most, "that of most hosts", next(having, ""))


def _policy_cell(row: HostRow, reference: _Reference, file: Optional[str]) -> Cell:
    text = row.digest.partition(":")[2][:_DIGITS] if row.digest else "none"
    if reference.whose and row.digest == reference.digest:
        if row.digest is None:
            return Cell(WARN, text, "no policy is loaded, as on the other hosts")
        return Cell(OK, text, f"its policy is {reference.whose}")
    has = f"its policy is {row.digest}" if row.digest else "no policy is loaded"
    other = f"not {reference.whose}" if reference.whose else "and the hosts differ"
    fix = "say with --policy which policy they should have"
    if reference.example:
        fix = f"push the policy.yaml of {reference.example} to it, with policy push"
    if reference.whose and file is not None:
        named, host = shlex.quote(file), shlex.quote(row.host.name)
        fix = f"ovirt-rdma policy push {named} --hosts {host}"
    return Cell(FAIL, text, f"{has}, {other}", fix)


# Write failed checks of hosts, and paths that are down, as events of the engine.

# The engine's text in its AppErrors.properties, and its key, if it has no text.
_KNOWN = re.compile(
    "External Event with this custom id already exists"
    "|EXTERNAL_EVENT_DUPLICATE_CUSTOM_ID"
)


class HostFailure(NamedTuple):
    """The failed checks of one host: its id and name in the engine, the names of the
    checks, a text with sentences and fixes, and whether it only warns: of paths.
    """

    host: str
    name: str
    checks: tuple[str, ...]
    text: str
    warns: bool = False


def failures(matrix: Matrix) -> tuple[HostFailure, ...]:
    """Return the hosts with failed checks, or whose paths warn: the next fault may cut
    their storage off. The engine has own events about a host's status. Pure.
    """
    found = []
    for row, cells in zip(matrix.rows, matrix.cells):
        names, texts, failed = [], [], False
        for column, cell in zip(matrix.columns, cells):
            warns = cell.verdict == WARN and column.name == PATHS
            if warns or (cell.verdict == FAIL and column.name != STATUS):
                failed |= not warns
                names.append(column.name)
                fix = f" (fix: {cell.fix})" if cell.fix else ""
                text = f"{column.name}: {cell.sentence}{fix}"
                texts.append(text[:_LONGEST])
        if names:
            text = "; ".join(texts)
            found.append(HostFailure(row.id, row.name, tuple(names), text, not failed))
    return tuple(found)


def write_events(
    session: Session, failed: Sequence[HostFailure], now: datetime
) -> Iterator[str]:
    """Write one event per host, and yield the hosts that got one.

    The engine refuses a second event with the same origin and custom_id
    (AddExternalEventCommand.java:47-51). The custom_id is made from the host, the names
    of its failed checks and the day in UTC, so a check each hour says it once a day.
    Raises EngineProblem if the engine does not accept an event for another reason.
    """
    for failure in failed:
        severity, word = types.LogSeverity.ERROR, "failed"
        if failure.warns:
            severity, word = types.LogSeverity.WARNING, "warn"
        known = (*failure.checks, word) if failure.warns else failure.checks
        text = "\0".join((f"{now:%Y-%m-%d}", failure.host, *known))
        number = hashlib.sha256(text.encode()).digest()[:4]
        event = types.Event(
            origin=ORIGIN,
            severity=severity,
            # A positive int of Java.
            custom_id=int.from_bytes(number, "big") >> 1 or 1,
            description=f"ovirt-rdma: checks of {failure.name} {word}: {failure.text}",
            # The event does not get that of the request (EventMapper.java:199-201).
            correlation_id=session.correlation_id,
            host=types.Host(id=failure.host),
        )
        doing = f"writing an event about {failure.name}"
        try:
            session.report_progress(Call("events", "add", doing, {"event": event}))
        except EngineProblem as problem:
            if not _KNOWN.search(f"{problem.detail} {problem}"):
                raise
        else:
            yield failure.name
