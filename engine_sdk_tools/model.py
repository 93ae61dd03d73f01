# SPDX-License-Identifier: GPL-2.0-or-later
"""The engine as plain data for decisions: its objects, the names that people type,
matrices of hosts, and all objections to a plan as one error. Pure.

:mod:`ovirt_rdma.engine_sdk_tools.reader` reads it. Statuses are the API's words
(``up``, ``maintenance``); None if the engine sent no status or one that the SDK does
not know, so it never ends a wait.

A matrix has rows, columns, and a verdict in each cell; tables and JSON are made from it
alone (docs/matrix.md). A sentence that is true of several hosts is shown once, also if
it differs by the name or address of the host.
"""

from __future__ import annotations

import fnmatch
import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Interface, IPv6Interface, ip_interface
from typing import NamedTuple, Optional, Protocol, TypeVar, Union

from ovirt_rdma.host.errors import (
    ExitCode,
    Problem,
    Sentence,
    UsageProblem,
    did_you_mean,
)
from ovirt_rdma.host.system.json_codec import json_type


class _Objections(Problem):
    """All ``sentences`` against a plan, one line each; nothing was changed."""

    kind = ""

    def __init__(self, sentences: Sequence[str], fix: str = "") -> None:
        reasons = (text for text in sentences if isinstance(text, Sentence))
        super().__init__(self.kind, "\n".join(merged(sentences)), fix, reasons)
        self.sentences = tuple(sentences)


class ChecksFailed(_Objections):
    """Checks failed, and nothing was changed; one line per failure (exit code 3)."""

    kind = "checks-failed"
    exit_code = ExitCode.CHECKS_FAILED


class Refused(_Objections):
    """Refused as unsafe, and nothing was changed; one line per reason (exit code 4)."""

    kind = "refused"
    exit_code = ExitCode.REFUSED


def merged(sentences: Iterable[str]) -> list[Sentence]:
    """Return ``sentences``; those that differ only by the host before ": " are one."""
    hosts: dict[tuple[str, str], list[str]] = {}
    for sentence in sentences:
        name, colon, rest = sentence.partition(": ")
        if not colon or " " in name:
            name, rest = "", str(sentence)
        id = sentence.id if isinstance(sentence, Sentence) else ""
        names = hosts.setdefault((id, rest), [])
        if name not in names:
            names.append(name)
    return [
        Sentence(id, f"{', '.join(names)}: {rest}" if any(names) else rest)
        for (id, rest), names in hosts.items()
    ]


def check(sentences: Sequence[str], fix: str = "") -> None:
    """Raise ChecksFailed with all ``sentences``, each once, if there are any."""
    if sentences:
        raise ChecksFailed(tuple(dict.fromkeys(sentences)), fix)


# Domains whose data are files below a mount: they have their own storage connection
# (StorageType.isFileDomain in the engine).
FILE_TYPES = ("nfs", "posixfs", "glusterfs", "localfs")

# The API's name of each NFS version. Not auto: VDSM would use the options of vdsm.conf,
# and nolock.
NFS_VERSIONS = {"3": "v3", "4": "v4", "4.0": "v4_0", "4.1": "v4_1", "4.2": "v4_2"}


def nfs_text(word: str) -> str:
    """Return an NFS version of the engine's API, ``v4_2``, for people: ``4.2``."""
    return next((text for text, name in NFS_VERSIONS.items() if name == word), word)


# What the statuses of a host mean (VDSStatus.java:6-22): it works; somebody lets it
# rest; it comes to another status by itself; the engine installs it, or has not yet; it
# answers, but lacks something; it is out of reach, or an installation has failed.
WORKS, RESTS, COMES = "works", "rests", "comes"
INSTALLED_NOW, LACKS, BROKEN = "installed now", "lacks something", "broken"
HOST_STATUSES = {
    "up": WORKS,
    "maintenance": RESTS,
    "preparing_for_maintenance": COMES,
    "unassigned": COMES,
    "initializing": COMES,
    "connecting": COMES,
    "reboot": COMES,
    "kdumping": COMES,
    "installing": INSTALLED_NOW,
    "installing_os": INSTALLED_NOW,
    "pending_approval": INSTALLED_NOW,
    "non_operational": LACKS,
    "non_responsive": BROKEN,
    "down": BROKEN,
    "error": BROKEN,
    "install_failed": BROKEN,
}
# How long, in seconds, a host may be broken on its way to maintenance, and up.
BROKEN_IN_S, BROKEN_OUT_S = 600.0, 1800.0

# Statuses that cannot follow "is" unchanged.
_STATUS_WORDS = {
    "contend": "contending",
    "error": "in error",
    "install_failed": "in the status 'install failed'",
    "maintenance": "in maintenance",
    "mixed": "in a mixed status",
    "non_operational": "non-operational",
    "non_responsive": "non-responsive",
    "reboot": "rebooting",
    "unknown": "in an unknown status",
}


def host_is(status: Optional[str], *meanings: str) -> bool:
    """Whether the status of a host has one of ``meanings``; an unknown one has none."""
    return HOST_STATUSES.get(status or "") in meanings


def status_words(status: Optional[str]) -> str:
    """Return a status of the API as it follows "is": ``in maintenance``, ``up``."""
    if status is None:
        return _STATUS_WORDS["unknown"]
    return _STATUS_WORDS.get(status, status.replace("_", " "))


def status_label(status: Optional[str]) -> str:
    """Return a status of the API for a table: ``maintenance``."""
    return (status or "unknown").replace("_", " ")


@dataclass(frozen=True)
class StorageConnection:
    """A storage connection of a file domain, in the API's words; ``nfs_version`` is
    ``v4_2`` or ``auto``, ``timeo`` in deciseconds.
    """

    id: str
    type: str
    address: Optional[str] = None
    path: Optional[str] = None
    nfs_version: Optional[str] = None
    mount_options: str = ""
    timeo: Optional[int] = None
    retrans: Optional[int] = None
    vfs_type: Optional[str] = None

    @property
    def export(self) -> str:
        """``SERVER:/PATH``, or the path alone if there is no server."""
        return f"{self.address}:{self.path}" if self.address else str(self.path)


@dataclass(frozen=True)
class Domain:
    """A storage domain; ``data_center`` is the id of the one it is attached to,
    ``type`` data, iso, export or image, ``status`` the one in the data center, or
    ``unattached``. ``connection`` is None for block domains, and ``hosted_engine``
    unknown.
    """

    id: str
    name: str
    type: str
    storage_type: str
    data_center: Optional[str] = None
    status: Optional[str] = None
    master: bool = False
    hosted_engine: bool = False
    connection: Optional[StorageConnection] = None


@dataclass(frozen=True)
class DataCenter:
    """A data center; ``version`` is ``4.7``, for example."""

    id: str
    name: str
    status: Optional[str] = None
    version: Optional[str] = None


@dataclass(frozen=True)
class Cluster:
    """A cluster. ``upgrade_in_progress`` is the engine's flag with which programs that
    move hosts to maintenance keep off each other, ``upgrade_correlation_id`` says whose
    it is. It stays if that program is killed.
    """

    id: str
    name: str
    data_center: Optional[str] = None
    version: Optional[str] = None
    upgrade_in_progress: bool = False
    upgrade_correlation_id: Optional[str] = None

    @property
    def our_upgrade(self) -> str:
        """The correlation id of conversions: one at a time runs in a data center. The
        engine stores up to 50 characters.
        """
        return f"ovirt-rdma-{self.data_center}"

    @property
    def is_ours(self) -> bool:
        """Whether a conversion has set its flag."""
        ours = self.upgrade_correlation_id == self.our_upgrade
        return self.upgrade_in_progress and ours


@dataclass(frozen=True)
class Nic:
    """A host's NIC. ``mac`` has 20 bytes for IPoIB.

    ``bond_ports`` are the names of a bond's ports, ``bond_mode`` the value of its
    option ``mode`` (``1`` or ``active-backup``). ``vlan_of`` is the name of the NIC
    below a VLAN, None for other NICs. ``unmanaged`` is the name of a network on it that
    the host's cluster does not have.
    """

    id: str
    name: str
    mac: Optional[str] = None
    mtu: Optional[int] = None
    status: Optional[str] = None
    address: Optional[str] = None
    netmask: Optional[str] = None
    network: Optional[str] = None
    bond_ports: tuple[str, ...] = ()
    bond_mode: Optional[str] = None
    vlan_of: Optional[str] = None
    unmanaged: Optional[str] = None

    @property
    def infiniband(self) -> bool:
        """Whether its MAC has InfiniBand's 20 bytes (RFC 4391, 9.1.1)."""
        return self.mac is not None and self.mac.count(":") == 19


@dataclass(frozen=True)
class Reported:
    """A property of a network on a host that the engine compares (``mtu``)."""

    name: str
    expected: Optional[str]
    actual: Optional[str]
    in_sync: bool


@dataclass(frozen=True)
class Assignment:
    """How a network gets its address of one IP ``version``, 4 or 6, on a host.
    ``method`` is the API's word (``static``, ``dhcp``), None if it sent none; only a
    static one has an address. ``netmask`` is 255.255.255.0, for IPv6 the prefix.
    """

    version: int
    method: Optional[str]
    address: Optional[str] = None
    netmask: Optional[str] = None
    gateway: Optional[str] = None

    @property
    def interface(self) -> Optional[Union[IPv4Interface, IPv6Interface]]:
        """Address and prefix; None if there are none, or none that Python reads."""
        try:
            return ip_interface(f"{self.address}/{self.netmask}")
        except ValueError:
            return None


@dataclass(frozen=True)
class Attachment:
    """A network on a host's NIC, both ids."""

    id: str
    network: str
    nic: Optional[str] = None
    assignments: tuple[Assignment, ...] = ()
    in_sync: Optional[bool] = None
    reported: tuple[Reported, ...] = ()
    properties: tuple[tuple[str, str], ...] = ()

    @property
    def addresses(self) -> tuple[str, ...]:
        """Its static addresses, as ``192.0.2.7/24``."""
        return tuple(
            str(one.interface or f"{one.address}/{one.netmask or '?'}")
            for one in self.assignments
            if one.address
        )


@dataclass(frozen=True)
class Hook:
    """A VDSM hook that the engine knows: its name and event."""

    name: str
    event: str


@dataclass(frozen=True)
class Host:
    """A host; ``spm`` is ``spm``, ``none`` or ``contending``. ``vms`` counts all that
    maintenance has to move: also paused, starting and migrating ones. ``fingerprint``
    and ``public_key`` are of the SSH host key. ``nics``, ``attachments`` and ``hooks``
    are None if not requested.
    """

    id: str
    name: str
    address: str
    cluster: str
    status: Optional[str] = None
    spm: Optional[str] = None
    vms: int = 0
    port: int = 22
    fingerprint: Optional[str] = None
    public_key: Optional[str] = None
    hosted_engine: bool = False
    nics: Optional[tuple[Nic, ...]] = None
    attachments: Optional[tuple[Attachment, ...]] = None
    hooks: Optional[tuple[Hook, ...]] = None


@dataclass(frozen=True)
class Network:
    """A logical network; ``vm``: virtual machines can use it (bridged). ``mtu`` 0 is
    the engine's default, 1500.
    """

    id: str
    name: str
    data_center: Optional[str] = None
    mtu: int = 0
    vm: bool = True
    vlan: Optional[int] = None
    clusters: tuple[ClusterNetwork, ...] = ()


@dataclass(frozen=True)
class ClusterNetwork:
    """A logical network in a cluster; ``usages`` are the API's words."""

    cluster: str
    required: bool
    usages: tuple[str, ...] = ()


@dataclass(frozen=True)
class Engine:
    """One engine at one time. ``connections`` has those without a domain too,
    ``networks`` is None if not requested, ``problems`` are sentences on what could not
    be read.
    """

    url: str
    version: Optional[str] = None
    data_centers: tuple[DataCenter, ...] = ()
    clusters: tuple[Cluster, ...] = ()
    hosts: tuple[Host, ...] = ()
    domains: tuple[Domain, ...] = ()
    connections: tuple[StorageConnection, ...] = ()
    networks: Optional[tuple[Network, ...]] = None
    problems: tuple[str, ...] = ()

    def hosts_of(self, data_center: str) -> tuple[Host, ...]:
        """Return the hosts of the data center with this id, in the engine's order."""
        return tuple(h for h in self.hosts if self.center_of(h) == data_center)

    def center_of(self, host: Host) -> Optional[str]:
        """Return the id of the host's data center; None if its cluster is in none."""
        return next(
            (c.data_center for c in self.clusters if c.id == host.cluster), None
        )

    def center_name(self, id: Optional[str]) -> Optional[str]:
        """Return the name of the data center with this id."""
        return next((c.name for c in self.data_centers if c.id == id), None)


def domain_status(engine: Engine, domain: Domain) -> str:
    """Return the status of a domain as it follows "is", with the cause of an unknown
    one.

    While a data center has no SPM, the status of all its domains is unknown
    (SetStoragePoolStatusCommand.java:36-41), also while no host is up to report it
    (IrsProxyImpl.java:245-253); the SPM alone reports that of ISO and export domains
    (the same, 361-383).
    """
    words = status_words(domain.status)
    center = next((c for c in engine.data_centers if c.id == domain.data_center), None)
    if domain.status != "unknown" or center is None:
        return words
    hosts = engine.hosts_of(center.id)
    because = [
        f"{host.name} is {status_words(host.status)}"
        for host in hosts
        if host.status not in ("up", "maintenance")
    ]
    spm = next((host for host in hosts if host.spm == "spm"), None)
    if center.status != "up":
        because.insert(0, f"data center {center.name} is {status_words(center.status)}")
    elif all(host.status != "up" for host in hosts):
        because.insert(0, "no host is up")
    elif spm is None:
        because.insert(0, "no host is SPM")
    elif spm.status == "up":
        because = [f"{spm.name}, the SPM, has not reported it yet"]
    return f"{words} because {', and '.join(because)}"


_MOST_FILES = 20
# What is read of a status: texts with their longest (a digest has "sha256:" and 64
# digits, a sentence may list the mistakes of a policy), and truth values, 0.
_STATUS = {
    "version": 100,
    "enabled.mode": 100,
    "running.program": 100,
    "policy.loaded": 0,
    "policy.digest": 100,
    "policy.problem": 10_000,
    "policy.fix": 10_000,
}


def status_mistake(document: object) -> Optional[str]:
    """Return the first mistake in ``ovirt-rdma-host status -o json``, None if it is
    valid. A missing part counts as unknown; what is not read here may be anything: a
    newer host reports more. The value is never shown: it may have any length.
    """
    if not isinstance(document, dict):
        return f"it is {json_type(document)}, not an object"
    for path, longest in _STATUS.items():
        name, _, key = path.partition(".")
        part = document.get(name)
        if key and part is not None:
            if not isinstance(part, dict):
                return f"{name} is {json_type(part)}, not an object"
            part = part.get(key)
        if part is not None and not isinstance(part, str if longest else bool):
            wanted = "a string" if longest else "true or false"
            return f"{path} is {json_type(part)}, not {wanted}"
        if isinstance(part, str) and len(part) > longest:
            return f"{path} is too long"
    files = {} if document.get("package") is None else document["package"]
    good = isinstance(files, dict) and len(files) <= _MOST_FILES
    if good and all(isinstance(one, (bool, type(None))) for one in files.values()):
        return None
    return f"package is not an object of up to {_MOST_FILES} files, each true or false"


_NEAREST = 3
# Longer lists are not printed: 250 hosts would not help.
_LISTED = 12


class NameProblem(UsageProblem):
    """No object has this name, or several have it (exit code 2)."""


class Named(Protocol):
    """An object with the engine's id, and the name that people use."""

    @property
    def id(self) -> str:
        """The engine's id."""

    @property
    def name(self) -> str:
        """The name that people use."""


T = TypeVar("T", bound=Named)


def pick(
    kind: str,
    name: str,
    candidates: Iterable[T],
    data_center: Optional[str] = None,
    data_centers: Sequence[DataCenter] = (),
) -> T:
    """Return the candidate with the name or id ``name``; ``kind`` is its noun.
    ``data_center`` (name or id) is the one of ``data_centers`` that it must belong to.
    Raises NameProblem if none or several match.
    """
    every, where = tuple(candidates), ""
    inside = every
    if data_center is not None:
        center = pick("data center", data_center, data_centers)
        inside = tuple(one for one in every if _data_center(one) == center.id)
        where = f" in data center {center.name!r}"
    matches = [one for one in inside if name in (one.name, one.id)]
    if len(matches) == 1:
        return matches[0]
    if not matches:
        fix = nearest(name, [one.name for one in inside])
        if any(name in (one.name, one.id) for one in every):
            fix = "omit --datacenter, or give the right one"
        raise NameProblem("name-unknown", f"there is no {kind} {name!r}{where}", fix)
    names = {center.id: center.name for center in data_centers}
    places = [names.get(center, "none") for center in map(_data_center, matches)]
    raise NameProblem(
        "name-ambiguous",
        f"{kind} {name!r} is ambiguous: the data centers "
        f"{' and '.join(map(repr, places))} have one each",
        f"add --datacenter {shlex.quote(places[0])}",
    )


def nearest(name: str, names: Sequence[str]) -> str:
    """Return a hint with the nearest of ``names``, or a short list of all."""
    near = did_you_mean(name, names, _NEAREST)
    if near:
        return near
    if not names:
        return "the engine shows none to this user"
    # Several data centers may each have the same name.
    known = sorted(set(names))
    if len(known) > _LISTED:
        return "see the administration portal for the names"
    return f"available: {', '.join(known)}"


def listed(names: Sequence[str], most: int = _LISTED, joint: str = ", ") -> str:
    """Return up to ``most`` names with commas, and the number of the others."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return joint.join(names[:most]) + more


def counted(number: int, noun: str) -> str:
    """Return ``1 host``, ``2 hosts``; for nouns whose plural ends in s."""
    return f"{number} {noun}" + ("" if number == 1 else "s")


def natural(text: str) -> tuple[tuple[int, int, str], ...]:
    """Return a key that sorts names with their numbers: hv2 before hv10."""
    return tuple(
        # int() refuses numbers of more than 4300 digits.
        (0, int(part), "") if part.isascii() and part.isdigit() else (1, 0, part)
        for part in re.split(r"([0-9]{1,18})", text)
        if part
    )


def data_center_named(engine: Engine, name: str) -> DataCenter:
    """Return the data center; raises NameProblem."""
    return pick("data center", name, engine.data_centers)


def domain_named(
    engine: Engine, name: str, data_center: Optional[str] = None
) -> Domain:
    """Return the storage domain, of any storage type; raises NameProblem."""
    return pick(
        "storage domain", name, engine.domains, data_center, engine.data_centers
    )


def network_named(
    engine: Engine, name: str, data_center: Optional[str] = None
) -> Network:
    """Return the network of an engine read with its networks; raises NameProblem."""
    networks = engine.networks or ()
    return pick("network", name, networks, data_center, engine.data_centers)


def hosts_named(
    engine: Engine, names: Iterable[str], data_center: Optional[str] = None
) -> tuple[Host, ...]:
    """Return the hosts that match ``names``, each once, in the engine's order; without
    names, all. A name may be an id, an address, a glob, or several of these with
    commas. ``data_center`` (name or id) limits them. Raises NameProblem with all that
    match none, and for an empty one.
    """
    candidates = engine.hosts
    if data_center is not None:
        candidates = engine.hosts_of(data_center_named(engine, data_center).id)
    patterns = [part.strip() for text in names for part in text.split(",")]
    if not patterns:
        return candidates
    if not all(patterns):
        raise NameProblem(
            "host-name-empty",
            "the name of a host is empty",
            "name the hosts; without any name, all are meant",
        )
    chosen = {p: {h.id for h in candidates if _matches(p, h)} for p in patterns}
    wrong = [pattern for pattern, ids in chosen.items() if not ids]
    if wrong:
        known = [host.name for host in candidates]
        where = f" in data center {data_center!r}" if data_center else ""
        raise NameProblem(
            "host-unknown",
            f"there is no host {' or '.join(map(repr, wrong))}{where}",
            "; ".join(dict.fromkeys(nearest(pattern, known) for pattern in wrong)),
        )
    ids = set[str]().union(*chosen.values())
    return tuple(host for host in candidates if host.id in ids)


def _matches(pattern: str, host: Host) -> bool:
    if pattern in (host.name, host.id, host.address):
        return True
    glob = any(character in pattern for character in "*?[")
    return glob and fnmatch.fnmatchcase(host.name, pattern)


def _data_center(named: object) -> str:
    return str(getattr(named, "data_center", None) or "")


# The verdicts of a cell. UNKNOWN never counts as good, because there is no proof.
OK = "ok"
WARN = "warn"
FAIL = "fail"
UNKNOWN = "unknown"
# Not applicable: the host does not belong to the domain's data center.
NONE = "none"

# The worst first.
VERDICTS = (FAIL, UNKNOWN, WARN, OK, NONE)
# Those that need attention.
ATTENTION = VERDICTS[:3]
# What stands before a text, so that its verdict is readable without colour.
BEFORE = {WARN: "WARN", FAIL: "FAIL", UNKNOWN: "?"}


@dataclass(frozen=True)
class Cell:
    """A cell: ``verdict``, a short ``text`` for the table, a sentence, and a fix.

    ``source`` is the origin of the verdict: ``engine``, ``host`` or ``both``.
    """

    verdict: str
    text: str
    sentence: str = ""
    fix: str = ""
    source: str = "host"

    @property
    def shown(self) -> str:
        """The text, with the verdict before it unless that is OK or NONE."""
        if self.verdict == NONE:
            return self.text or "-"
        return " ".join(part for part in (BEFORE.get(self.verdict), self.text) if part)


@dataclass(frozen=True)
class Axis:
    """A row or column: the name shown, the engine's id, and the address of a host."""

    name: str
    id: str = ""
    address: str = ""


@dataclass(frozen=True)
class Matrix:
    """``cells[row][column]`` of ``hosts`` or ``domains``; ``notes`` are sentences below
    it.
    """

    kind: str
    rows: tuple[Axis, ...]
    columns: tuple[Axis, ...]
    cells: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()

    @property
    def worst(self) -> str:
        """The worst verdict; none for an empty matrix."""
        return worst_of(cell.verdict for row in self.cells for cell in row)


def worst_of(verdicts: Iterable[str]) -> str:
    """Return the worst of ``verdicts``: fail, unknown, warn, ok; none for nothing."""
    return min(verdicts, key=VERDICTS.index, default=NONE)


# Up to this many names are listed; of more, only their number is shown.
NAMES_SHOWN = 4


class OnHost(NamedTuple):
    """A sentence about one host, and its fix; ``verdict`` separates equal sentences."""

    host: str
    address: str
    sentence: str
    fix: str = ""
    verdict: str = ""


class OnHosts(NamedTuple):
    """A sentence about several hosts, in which HOST replaces the name of each, and its
    fix: that of the first host, with all of them where it has ``--hosts``.
    """

    hosts: tuple[str, ...]
    sentence: str
    fix: str = ""
    verdict: str = ""

    @property
    def line(self) -> str:
        """The names of the hosts, then the sentence."""
        return f"{listed(self.hosts, NAMES_SHOWN)}: {self.sentence}"


def group_by_sentence(sentences: Iterable[OnHost]) -> list[OnHosts]:
    """Return each sentence once with all its hosts, in the order of occurrence."""
    groups: dict[tuple[str, str, str], dict[str, OnHost]] = {}
    for on_host in sentences:
        groups.setdefault(key_of(on_host), {}).setdefault(on_host.host, on_host)
    grouped = []
    for (verdict, sentence, _), hosts in groups.items():
        first = next(iter(hosts.values()))
        text = first.sentence if len(hosts) == 1 else sentence
        grouped.append(OnHosts(tuple(hosts), text, _for_all(first, hosts), verdict))
    return grouped


def _for_all(first: OnHost, names: Iterable[str]) -> str:
    own = rf"--hosts {re.escape(shlex.quote(first.host))}(?![\w.-])"
    together = f"--hosts {shlex.quote(','.join(names))}"
    return re.sub(own, lambda _: together, first.fix)


def key_of(on_host: OnHost) -> tuple[str, str, str]:
    """Return the verdict, and sentence and fix without the host's name and address."""
    # The longer first, because the address may start with the name.
    own = sorted({on_host.host, on_host.address} - {""}, key=len, reverse=True)
    texts = [on_host.sentence, on_host.fix]
    if any(name in text for name in own for text in texts):
        names = "|".join(re.escape(name) for name in own)
        # Whole names only, no part of host10, of host1-b or of host1.example.com.
        whole = re.compile(rf"(?<![\w.-])(?:{names})(?![\w-]|\.\w)")
        texts = [
            whole.sub(lambda name: "HOST" if name.start() else "the host", text)
            for text in texts
        ]
    return on_host.verdict, texts[0], texts[1]


def problems_of(matrix: Matrix) -> list[OnHosts]:
    """Return the sentences of cells that are not OK, the worst first."""
    return sorted(
        group_by_sentence(sentences_of(matrix, ATTENTION)),
        key=lambda problem: VERDICTS.index(problem.verdict),
    )


def sentences_of(matrix: Matrix, verdicts: Collection[str]) -> Iterator[OnHost]:
    """Yield the sentences of the cells with one of ``verdicts``, host by host."""
    for row, cells in zip(matrix.rows, matrix.cells):
        for cell in cells:
            if cell.verdict in verdicts and cell.sentence:
                yield OnHost(
                    row.name, row.address, cell.sentence, cell.fix, cell.verdict
                )
