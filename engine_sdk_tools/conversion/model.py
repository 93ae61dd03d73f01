# SPDX-License-Identifier: GPL-2.0-or-later
"""The request for a conversion with its preflight checks, which are pure, and the
record of what it found at its start and what it has started, on disk.

This is enough to undo everything and, together with the present state of engine and
hosts, to resume after a kill at any point. A conversion that fails goes back to what it
found; a revert to the baseline, the ``first`` values, which each record takes over
unchanged from that of the conversion before.

It is written before and after each step; a lock per data center allows one run at a
time. An invalid file is left unchanged, because it may be the only record of how a
domain was mounted before.
"""

from __future__ import annotations

import contextlib
import fcntl
import hmac
import os
import re
import secrets
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, Optional, TypeVar

from ovirt_rdma.engine_sdk_tools.domains.transport import export_at
from ovirt_rdma.engine_sdk_tools.model import (
    Cluster,
    Domain,
    Engine,
    Host,
    Refused,
    counted,
    domain_status,
)
from ovirt_rdma.host.errors import Problem, Sentence
from ovirt_rdma.host.export import Export, engine_problems
from ovirt_rdma.host.policy.model import REQUIRE_RDMA
from ovirt_rdma.host.system.files import remove_unfinished, write_atomically
from ovirt_rdma.host.system.json_codec import (
    Envelope,
    Records,
    WrongRecord,
    plain,
    read_json,
)
from ovirt_rdma.host.system.lock import LockHeld
from ovirt_rdma.host.system.safe_file import read_file

RDMA = "rdma"
TCP = "tcp"

# The goal of a host.
FORWARD = "forward"
BACK = "back"

# Kinds of work.
CONVERT = "convert"
# Hosts only remount; policy and storage connection are unchanged.
HEAL = "heal"


class Stage:
    """The stages of a conversion, and of its hosts and domains."""

    # Stages of a conversion. UNDOING follows a failure, REVERTING is on request.
    CONVERTING = "converting"
    UNDOING = "undoing"
    REVERTING = "reverting"
    # Some hosts are converted and some not: it can be resumed or reverted.
    STOPPED = "stopped"
    CONVERTED = "converted"
    ROLLED_BACK = "rolled back"
    REVERTED = "reverted"

    UNDER_WAY = frozenset({CONVERTING, UNDOING, REVERTING})
    # In these stages the next conversion of the same domain is a new one.
    FINISHED = frozenset({CONVERTED, ROLLED_BACK, REVERTED})

    # Stages of a host or a domain. ENTERING and LEAVING maintenance are stored before
    # the request to the engine, to know who started the maintenance.
    TODO = "todo"
    ENTERING = "entering"
    # Offline: the host has its policy; then, none of the domains is mounted on it.
    PREPARED = "prepared"
    UNMOUNTED = "unmounted"
    LEAVING = "leaving"
    DONE = "done"
    # The host is in maintenance, or is not up, and stays so; its policy is in place.
    # The domain could not be activated.
    LEFT = "left"
    FAILED = "failed"
    # Of a domain, on the way back: it was removed meanwhile; the others continue.
    GONE = "gone"

    IN_PLAY = frozenset({ENTERING, LEAVING})
    OVER = frozenset({DONE, LEFT, FAILED})


@dataclass(frozen=True)
class ConversionRequest:
    """The operator's request.

    - ``by_row``: use the engine's mount options only, without the add-on on the hosts.
    - ``rule``: the transport in the rule of the policies.
    - ``allow_datacenter_down``: convert offline even if no other domain can be the
      master, and rolling even if only one host is up.
    - ``without``: names of hosts to leave unchanged.
    """

    to: str
    rolling: bool = False
    by_row: bool = False
    batch: int = 1
    rule: str = REQUIRE_RDMA
    allow_datacenter_down: bool = False
    without: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Take a batch of one host at least: without hosts, a run would be over."""
        object.__setattr__(self, "batch", max(1, self.batch))

    @property
    def policy_transport(self) -> str:
        """The transport in the rule of the policies."""
        return self.rule if self.to == RDMA else TCP


@dataclass(frozen=True)
class FileChange:
    """A file of a host's policy that conversions write; None stands for no file.

    - ``name``: that of a drop-in.
    - ``first``: its content before the first conversion; written once.
    - ``found``: at the start of this one, ``wanted``: with our rule.
    - ``written``: what earlier conversions wrote.
    """

    name: str
    first: Optional[str]
    found: Optional[str]
    wanted: Optional[str]
    written: tuple[Optional[str], ...] = ()

    @property
    def known(self) -> tuple[Optional[str], ...]:
        """All contents that are not somebody else's."""
        known = (self.wanted, self.found, self.first, *self.written)
        return tuple(dict.fromkeys(known))


# A domain's id and the transport of its mount.
Transports = tuple[tuple[str, Optional[str]], ...]


@dataclass(frozen=True)
class HostRecord:
    """A host.

    - ``found``: its status at the start.
    - ``push``: policies are sent to it.
    - ``files``: those of its policy that conversions change.
    - ``others``: the digest of the rest of its policy at the start; "" for unknown.
    - ``transports``: the domains' ids, each with the transport of its mount at the
      start, None if not mounted; none if unknown. For a heal, those that the mounts
      should have.
    - ``first_transports``: those before the first conversion; empty if this conversion
      is the first for the host.
    - ``converted``: an earlier conversion changed it.
    - ``touched``: something on it was changed.
    - ``ours``: we started its maintenance, if it is in one, and have to end it.
    - ``event``: id of the engine's newest event before the last request for its
      maintenance or activation.
    - ``left_out``: the operator wants no change on it.
    """

    id: str
    name: str
    found: Optional[str]
    push: bool = False
    files: tuple[FileChange, ...] = ()
    others: str = ""
    transports: Transports = ()
    first_transports: Transports = ()
    converted: bool = False
    goal: str = FORWARD
    stage: str = Stage.TODO
    touched: bool = False
    ours: bool = False
    why: str = ""
    event: int = 0
    left_out: bool = False

    @property
    def contents(self) -> dict[str, Optional[str]]:
        """The contents of ``files`` for its goal, by name."""
        return {f.name: f.found if self.goal == BACK else f.wanted for f in self.files}


@dataclass(frozen=True)
class DomainRecord:
    """A domain with its storage connection.

    - ``found``: its status at the start.
    - ``options``: the mount options at the start.
    - ``wanted``: the mount options of the goal.
    - ``first``: the mount options before the first conversion, written once; None if
      this conversion is the first.
    - ``touched``: it was activated with the new options, so hosts may have mounted it
      with them; or, rolling, they were set, and are set back.
    """

    id: str
    name: str
    found: Optional[str]
    connection: str
    address: Optional[str]
    path: str
    options: str
    wanted: str
    first: Optional[str] = None
    master: bool = False
    stage: str = Stage.TODO
    touched: bool = False

    @property
    def export(self) -> Export:
        """What hosts mount."""
        return export_at(self.address, self.path)


@dataclass(frozen=True)
class ConversionState:
    """One conversion.

    - ``hosts``: in the order in which they are converted.
    - ``doing``: the last step that was started, "" when it is done.
    - ``why``: why it stopped; of a heal that did not, what it left as it is.
    - ``begun_at``: in seconds since 1970.
    - ``former``: hosts of earlier conversions that are not in the data center; a revert
      includes them.
    """

    kind: str
    data_center: str
    request: ConversionRequest
    domains: tuple[DomainRecord, ...]
    hosts: tuple[HostRecord, ...]
    stage: str = Stage.CONVERTING
    doing: str = ""
    why: str = ""
    job: Optional[str] = None
    begun_at: float = 0.0
    former: tuple[HostRecord, ...] = ()

    @property
    def title(self) -> str:
        """``data1`` or ``data1, data2``."""
        return ", ".join(domain.name for domain in self.domains)

    @property
    def undoes(self) -> bool:
        """Whether it restores the state before."""
        return self.stage in (Stage.UNDOING, Stage.REVERTING)

    @property
    def goal(self) -> str:
        """The goal of the hosts whose turn it is."""
        return FORWARD if self.stage == Stage.CONVERTING else BACK

    @property
    def is_again(self) -> bool:
        """Whether an earlier conversion of its domains still applies."""
        return any(domain.first is not None for domain in self.domains)

    def host(self, name: str) -> HostRecord:
        """Return the host of this name."""
        return next(host for host in self.hosts if host.name == name)

    def with_batch(self, hosts: int) -> ConversionState:
        """Return the state with that many hosts in a batch."""
        return replace(self, request=replace(self.request, batch=hosts))

    def with_host(self, name: str, **changes: Any) -> ConversionState:
        """Return the state with some fields of one host changed."""
        return self.with_hosts((name,), **changes)

    def with_hosts(self, names: Iterable[str], **changes: Any) -> ConversionState:
        """Return the state with the same fields of several hosts changed."""
        chosen = frozenset(names)
        hosts = (replace(h, **changes) if h.name in chosen else h for h in self.hosts)
        return replace(self, hosts=tuple(hosts))

    def with_domain(self, name: str, **changes: Any) -> ConversionState:
        """Return the state with some fields of one domain changed."""
        domains = (replace(d, **changes) if d.name == name else d for d in self.domains)
        return replace(self, domains=tuple(domains))


# Store the state of a conversion on disk, atomically and with a digest.

CONVERSION = Envelope("conversion", digested="state")
# The file contains the hosts' policies.
FILE_MODE = 0o600
FOLDER_MODE = 0o700
MACHINE_ID = Path("/etc/machine-id")
_APPLICATION = bytes.fromhex("5a3c1be6d47f4e0c9b21f08e6d95a7c4")

_Record = TypeVar("_Record")
# A Guid, the form of all ids of the engine.
_ID = re.compile("[0-9a-f-]{36}")


class StateFileProblem(Problem):
    """The state file cannot be used or written."""


class StateFolder:
    """The folder with the states of all conversions of this machine, one file each."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextmanager
    def only_run(self, data_center: str) -> Iterator[None]:
        """Hold the lock of a data center: one run at a time changes its hosts. Raises
        LockHeld (75), and StateFileProblem if it cannot be opened or the id is invalid.
        """
        path = self._folder / f"{_checked(data_center)}.lock"
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=FOLDER_MODE)
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
            descriptor = os.open(path, flags, FILE_MODE)
        except OSError as error:
            raise _unwritable(path, error) from error
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise LockHeld(
                    "conversion-running",
                    "another run of ovirt-rdma is changing hosts of this data center",
                    "wait until it has ended, then run this command again",
                ) from None
            remove_unfinished(self._folder)
            yield
        finally:
            os.close(descriptor)

    def owner(self) -> str:
        """Return the name of this folder for others, created once: machine and a random
        word. A copy of it elsewhere gets its own. Raises StateFileProblem.
        """
        path = self._folder / f"owner-{_this_machine()}"
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=FOLDER_MODE)
            if not path.exists():
                text = f"{socket.gethostname()} {secrets.token_hex(4)}\n"
                # The first of several runs that start at the same time wins.
                with contextlib.suppress(FileExistsError):
                    write_atomically(path, text.encode(), FILE_MODE, replace=False)
            owner = read_file(path).decode("utf-8", "replace").strip()
        except OSError as error:
            raise _unwritable(path, error) from error
        if not owner:
            raise StateFileProblem(
                "owner-file-empty",
                f"{path} is empty; it should have the name of this machine for the "
                "engine's tasks",
                "remove the file; if a task is still open then, use --take-over",
            )
        return owner

    def file_for(self, state: ConversionState) -> StateFile:
        """Return the file of a state: by data center for a heal, else by domain."""
        key = state.data_center if state.kind == HEAL else state.domains[0].id
        return StateFile(self.path_for(state.kind, key))

    def path_for(self, kind: str, id: str) -> Path:
        """Return the path for a ``kind`` of run on ``id``. Raises StateFileProblem."""
        return self._folder / f"{kind}-{_checked(id)}.json"

    def states(self, data_center: str) -> list[ConversionState]:
        """Return all states of a data center. Raises StateFileProblem for an invalid
        file, because it is unknown which domains are in it.
        """
        kinds = (CONVERT, HEAL)
        paths = [p for k in kinds for p in sorted(self._folder.glob(f"{k}-*.json"))]
        states = [StateFile(path).read() for path in paths]
        return [s for s in states if s is not None and s.data_center == data_center]


def _this_machine() -> str:
    """Return a digest that a clone with another machine-id(5) or name does not have, as
    sd_id128_get_machine_app_specific(3) makes it: the id is not to be published.
    """
    id = b""
    with contextlib.suppress(OSError):
        id = read_file(MACHINE_ID).strip()
    name = socket.gethostname().encode()
    return hmac.new(id, _APPLICATION + name, "sha256").hexdigest()[:16]


class RecordFile(Generic[_Record]):
    """A file with one dataclass of plain data, and its digest. Subclasses have the
    ``record``, the ``envelope``, and ``id`` and ``fix`` for an invalid file. ``last``
    is the state that was written last, also if that failed: it is true all the same.
    """

    record: type[_Record]
    envelope: Envelope
    id: str
    fix: str

    def __init__(self, path: Path) -> None:
        self.path = path
        self.last: Optional[_Record] = None

    def read(self) -> Optional[_Record]:
        """Return the stored state, None if there is none. Raises StateFileProblem."""
        try:
            self.path.stat()
        except FileNotFoundError:
            return None
        except OSError:
            pass  # its reader says why
        try:
            data = self.envelope.content(read_json(self.path)).get("state")
            return Records("the state").read(self.record, data)
        except WrongRecord as error:
            raise StateFileProblem(
                self.id,
                f"the state file {self.path} is invalid: {error}; nothing was changed, "
                "the file included",
                error.fix or self.fix,
            ) from None

    def write(self, state: _Record) -> None:
        """Replace the stored state. Raises StateFileProblem, and keeps the old one."""
        self.last = state
        text = self.envelope.text({"state": plain(state)}, indent=1)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=FOLDER_MODE)
            write_atomically(self.path, text.encode("ascii"), FILE_MODE)
        except OSError as error:
            raise _unwritable(self.path, error) from error


class StateFile(RecordFile[ConversionState]):
    """The state of one conversion."""

    record = ConversionState
    envelope = CONVERSION
    id = "conversion-state-invalid"
    fix = (
        "it records how the domains were mounted before: keep a copy, then fix it or "
        "restore it from a backup; without one, see with 'ovirt-rdma domain verify' "
        "which hosts are converted, move the file away and convert again, to the "
        "transport that you want"
    )


def _checked(name: str) -> str:
    """Return ``name`` if it is a valid id of the engine, to use it in a file name."""
    if not _ID.fullmatch(name):
        raise StateFileProblem(
            "engine-id-invalid",
            f"the engine has sent an invalid id: {name!a}",
            "check that this is the engine that you mean",
        )
    return name


def _unwritable(path: Path, error: OSError) -> StateFileProblem:
    return StateFileProblem(
        "conversion-state-not-written",
        f"{path}: the state cannot be stored: {error.strerror or error}",
        "free disk space, or run the command as a user with write access",
    )


_HOSTED_ENGINE = (
    "convert it manually: note what 'hosted-engine --get-shared-config mnt_options "
    "--type=he_local' prints, and run 'hosted-engine --set-shared-config mnt_options "
    "proto=rdma,port=20049 --type=he_local', with those before these, on every "
    "hosted-engine host, and on one of them also with --type=he_shared; set the same "
    "options in the engine's storage connection (PUT with force=true); then enable "
    "global maintenance, and host by host, the one with the engine's virtual machine "
    "last: put it into maintenance in the engine, reboot it, activate it"
)


def refused(id: str, text: str, fix: str) -> Refused:
    """Return the refusal with one reason."""
    return Refused([Sentence(id, text)], fix)


def check_domains(
    engine: Engine, domains: Sequence[Domain], request: ConversionRequest
) -> None:
    """Raise Refused with everything for which a domain cannot be converted at all."""
    against = [*_unfit(engine, domains, request)]
    if against:
        fixes = dict.fromkeys(fix for _, _, fix in against)
        sentences = [Sentence(id, text) for id, text, _ in against]
        raise Refused(sentences, "; ".join(fixes))


def _unfit(
    engine: Engine, domains: Sequence[Domain], request: ConversionRequest
) -> Iterator[tuple[str, str, str]]:
    """Yield why domains cannot be converted: an id, a sentence, and what to do."""
    for domain in domains:
        name = domain.name
        if domain.hosted_engine:
            yield (
                "domain-of-hosted-engine",
                f"{name} is the hosted engine's domain: its agent mounts it before "
                "the engine starts, and the engine never unmounts it",
                _HOSTED_ENGINE,
            )
        elif domain.storage_type != "nfs" or domain.connection is None:
            yield (
                "domain-not-nfs",
                f"{name} is of type {domain.storage_type}, not nfs: ovirt-rdma "
                "converts NFS domains only, and the engine cannot change the type of a "
                "domain",
                "create an NFS domain and move the disks to it",
            )
        elif domain.data_center is None:
            fix = "attach it first, or create a new one (domain create)"
            yield "domain-not-attached", _not_attached(domain), fix
        its = {d.data_center for d in engine.domains if d.id == domain.id}
        if domain.data_center and its - {domain.data_center, None}:
            yield (
                "domain-in-several-data-centers",
                f"{name} is attached to {len(its)} data centers, which share its "
                "storage connection",
                "detach it from the others first",
            )
    centers = {d.data_center for d in domains if d.data_center}
    if len(centers) > 1:
        yield (
            "domains-of-several-data-centers",
            "the domains are in several data centers",
            "convert the domains of each data center separately",
        )
    if not request.rolling and len(centers) == 1 and not request.allow_datacenter_down:
        names = _last_active(engine, domains)
        if names:
            yield (
                "domain-last-active",
                f"no data domain other than {names} is active: its maintenance takes "
                "the whole data center down",
                "use --rolling, or --allow-datacenter-down",
            )


def data_center_of(domain: Domain) -> str:
    """Return the data center of a domain, by id. Raises Refused if it is in none."""
    if domain.data_center is None:
        raise Refused([_not_attached(domain)], "attach it first")
    return domain.data_center


def _not_attached(domain: Domain) -> Sentence:
    text = f"{domain.name} is not attached to a data center, so no host mounts it"
    return Sentence("domain-not-attached", text)


def _last_active(engine: Engine, domains: Sequence[Domain]) -> str:
    """Return the names of the active data domains if all of them go to maintenance."""
    going = {d.id for d in domains}
    active = [
        d
        for d in engine.domains
        if d.data_center == domains[0].data_center
        and d.type == "data"
        and d.status == "active"
    ]
    masters = [d for d in domains if d.master and d.status == "active"]
    if not masters or any(d.id not in going for d in active):
        return ""
    return ", ".join(d.name for d in active)


def domain_offenders(
    engine: Engine,
    domain: Domain,
    request: ConversionRequest,
    options: str,
    users: Sequence[str],
) -> Iterator[Sentence]:
    """Yield objections to the domain's status, its running ``users``, and new
    ``options``.
    """
    status, wrong = domain.status, ""
    if request.rolling and status != "active":
        wrong = ": for a rolling conversion it has to be active; in maintenance it can "
        wrong += "be converted without --rolling"
    elif status not in ("active", "maintenance"):
        wrong = "; it has to be active or in maintenance"
    if wrong:
        text = f"{domain.name} is {domain_status(engine, domain)}{wrong}"
        yield Sentence("domain-not-active", text)
    if not request.rolling and status == "active" and users:
        yield in_use(domain.name, users, "move their disks, or use --rolling")
    for problem in engine_problems(options):
        yield Sentence("mount-options-refused", f"{domain.name}: {problem}")


def in_use(name: str, users: Sequence[str], otherwise: str) -> Sentence:
    """Return the objection that virtual machines run on a domain that goes down; what
    can be done ``otherwise`` than to stop them.
    """
    return Sentence(
        "domain-in-use",
        f"{name} is in use by running virtual machines: {', '.join(users)}; stop "
        f"them, {otherwise}",
    )


def fleet_offenders(
    hosts: Sequence[Host],
    request: ConversionRequest,
    clusters: Sequence[Cluster] = (),
    pinned: Optional[Mapping[str, Sequence[str]]] = None,
) -> Iterator[Sentence]:
    """Yield objections to the hosts as a whole. ``pinned`` are the names of running
    virtual machines that must not leave their host, by its id.
    """
    yield from without_offenders(hosts, request)
    if not request.rolling:
        return
    up = [host for host in hosts if host.status == "up"]
    going = [host for host in up if host.name not in request.without]
    if not going:
        other = "other " if up else ""
        yield Sentence("no-host-up", f"no {other}host of the data center is up")
    yield from moving_offenders(
        clusters, up, going, pinned or {}, request.batch, can_be_left_out=True
    )
    if len(up) == 1 and going and not up[0].vms and not request.allow_datacenter_down:
        yield Sentence(
            "host-only-one-up",
            f"{only_one(up[0])}; add --allow-datacenter-down if that is acceptable, or "
            "omit --rolling",
        )


def without_offenders(
    hosts: Sequence[Host], request: ConversionRequest
) -> Iterator[Sentence]:
    """Yield the hosts in ``without`` that cannot be left out."""
    known = {host.name: host for host in hosts}
    for name in request.without:
        if name not in known:
            yield Sentence(
                "host-unknown", f"--without {name}: the data center has no such host"
            )
        elif not request.rolling and known[name].status == "up":
            yield Sentence(
                "host-up-left-out",
                f"{name} is up and mounts the domain with the other hosts: without "
                "--rolling, only hosts that are not up can be left out",
            )


def upgrade_offenders(
    clusters: Sequence[Cluster], going: Sequence[Host]
) -> Iterator[Sentence]:
    """Yield the clusters of ``going`` that others upgrade, which moves hosts too."""
    concerned = {host.cluster for host in going}
    for cluster in clusters:
        others = cluster.upgrade_in_progress and not cluster.is_ours
        if cluster.id in concerned and others:
            yield upgrade_running(cluster)


def upgrade_running(cluster: Cluster) -> Sentence:
    """Return the objection that another program upgrades ``cluster``."""
    return Sentence(
        "cluster-upgrade-running",
        f"cluster {cluster.name} is being upgraded, which also moves its hosts to "
        "maintenance; wait until the upgrade has ended (if none is running, end it: "
        f"POST /ovirt-engine/api/clusters/{cluster.id}/upgrade with upgrade_action "
        "finish)",
    )


def only_one(host: Host) -> Sentence:
    """Return the warning that no other host than ``host`` is up."""
    return Sentence(
        "host-only-one-up",
        f"{host.name} is the only host that is up: the data center has no storage "
        "while it is in maintenance",
    )


def moving_offenders(
    clusters: Sequence[Cluster],
    up: Sequence[Host],
    going: Sequence[Host],
    pinned: Mapping[str, Sequence[str]],
    batch: int,
    *,
    can_be_left_out: bool = False,
) -> Iterator[Sentence]:
    """Yield why hosts ``going`` cannot go to maintenance, ``batch`` at a time: others
    upgrade their cluster; virtual machines must not leave them
    (MaintenanceNumberOfVdssCommand.java:335: MigrationSupport); or no host of ``up`` is
    left in their cluster for the virtual machines. The SPM goes alone.
    """
    yield from upgrade_offenders(clusters, going)
    for host in going:
        names = pinned.get(host.id, ())
        out = ""
        if can_be_left_out:
            out = f", or leave the host out (--without {host.name})"
        if names:
            yield Sentence(
                "host-vms-pinned",
                f"{host.name} has running virtual machines that are pinned to it: "
                f"{', '.join(names)}; stop them{out}",
            )
    for cluster in dict.fromkeys(host.cluster for host in going):
        up_inside = [host for host in up if host.cluster == cluster]
        going_inside = [host for host in going if host.cluster == cluster]
        machines = sum(host.vms for host in going_inside)
        together = [host for host in going_inside if host.spm != "spm"] or going_inside
        if not machines or min(batch, len(together)) < len(up_inside):
            continue
        names = ", ".join(host.name for host in up_inside)
        why = f"{names} is the only host of its cluster that is up, so its"
        if len(up_inside) > 1:
            why = f"--batch {batch} moves {names} to maintenance at once, which are "
            why += "all hosts of their cluster that are up, so their"
        vms = counted(machines, "virtual machine")
        yield Sentence("evacuation-impossible", f"{why} {vms} cannot be migrated")


def warnings(hosts: Sequence[Host], request: ConversionRequest) -> Iterator[Sentence]:
    """Yield warnings for the operator to read before the conversion."""
    if request.by_row and request.rolling:
        yield Sentence(
            "engine-options-changed-first",
            "the engine's mount options are changed first: a host that reboots or is "
            "activated before its turn may not be ready for them, and becomes "
            "non-operational then",
        )
    left_out = [h for h in hosts if h.name in request.without]
    away = [h.name for h in hosts if h.status != "up" and h not in left_out]
    if away:
        yield Sentence(
            "hosts-not-up",
            f"not up: {', '.join(away)}; their status is not changed, and their "
            "transport is unproven until they are up (ovirt-rdma domain verify)",
        )
    for host in left_out:
        yield Sentence(
            "host-left-out",
            f"{host.name} is left out and was not checked: when it is activated, it "
            "mounts by its own policy or, without a rule, by the engine's options, "
            f"over {request.to.upper()}; run this command again for it then",
        )
    up = [h for h in hosts if h.status == "up"]
    if request.rolling and len(up) == 1:
        yield only_one(up[0])
