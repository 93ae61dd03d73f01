# SPDX-License-Identifier: GPL-2.0-or-later
"""Describe an engine as plain data for decisions, and check a host's status. Pure.

:mod:`ovirt_rdma.engine_sdk_tools.reader` reads it. Statuses are the API's words
(``up``, ``maintenance``); None if the engine sent no status or one that the SDK does
not know, so it never ends a wait.

The output of ``ovirt-rdma-host status -o json`` on a host is checked before it is used,
but only what is read here: a host reports more, and a newer one still more. A missing
part counts as unknown.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Optional, Union

from ovirt_rdma.host.system.json_codec import json_type

# Domains whose data are files below a mount: they have their own storage connection
# (StorageType.isFileDomain in the engine).
FILE_TYPES = ("nfs", "posixfs", "glusterfs", "localfs")

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
    if status in ("non_operational", "non_responsive"):
        return _STATUS_WORDS[status]
    return (status or "unknown").replace("_", " ")


@dataclass(frozen=True)
class StorageConnection:
    """A storage connection of a file domain.

    ``nfs_version`` is the API's word (``v4_2``, ``auto``), None if it is not set.
    ``mount_options`` is the engine's text, "" for none. ``timeo`` is in deciseconds.
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
    """A storage domain; ``data_center`` is the id of the one it is attached to.

    ``type`` is data, iso, export or image; ``storage_type`` nfs, posixfs, ...
    ``status`` is the one in the data center, ``unattached`` without a data center.
    ``connection`` is None for block domains. ``hosted_engine`` is known for file
    domains.
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
    """A cluster; ``version`` is ``4.7``, for example.

    ``upgrade_in_progress`` is the engine's flag, with which programs that move hosts to
    maintenance one by one keep off each other; it stays if that program is killed.
    ``upgrade_correlation_id`` says whose it is, or was.
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
class Attachment:
    """A network on a host's NIC; ``network`` and ``nic`` are ids.

    ``addresses`` have the form ``192.0.2.7/24``; ``properties`` are the custom ones.
    """

    id: str
    network: str
    nic: Optional[str] = None
    addresses: tuple[str, ...] = ()
    in_sync: Optional[bool] = None
    reported: tuple[Reported, ...] = ()
    properties: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Hook:
    """A VDSM hook that the engine knows: its name and event."""

    name: str
    event: str


@dataclass(frozen=True)
class Host:
    """A host; ``spm`` is the API's word (``spm``, ``none``, ``contending``).

    ``vms`` counts every virtual machine on it, including paused, starting and migrating
    ones: maintenance has to move each of them. ``fingerprint`` and ``public_key`` are
    of the SSH host key, as far as the engine reports them. ``nics``,
    ``attachments`` and ``hooks`` are None if they were not requested.
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
    """A logical network; ``vm``: virtual machines can use it (bridged).

    ``mtu`` 0 is the engine's default, 1500. ``clusters`` has one entry per cluster of
    the network.
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
    """One engine at one time. ``version`` is ``4.5.7``, for example.

    ``connections`` are all storage connections, including those without a domain.
    ``networks`` is None if they were not requested. ``problems`` are sentences about
    objects that could not be read.
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
        inside = {c.id for c in self.clusters if c.data_center == data_center}
        return tuple(host for host in self.hosts if host.cluster in inside)


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


# The longest texts: a digest has "sha256:" and 64 digits, a sentence may list the
# mistakes of a policy.
_WORD, _SENTENCE = 100, 10_000
_MOST_FILES = 20
# What is read of a status: truth values, and texts with the longest that is accepted.
_STATUS: dict[str, dict[str, Union[type[bool], int]]] = {
    "enabled": {"mode": _WORD},
    "running": {"program": _WORD},
    "policy": {
        "loaded": bool,
        "digest": _WORD,
        "problem": _SENTENCE,
        "fix": _SENTENCE,
    },
}


def status_mistake(document: object) -> Optional[str]:
    """Return the first mistake of a status document, with its key; None if it is valid.

    The value itself is never shown, because it may have any length.
    """
    return next(_mistakes(document), None)


def _mistakes(document: object) -> Iterator[str]:
    if not isinstance(document, dict):
        yield f"it is {json_type(document)}, not an object"
        return
    if document.get("version") is not None:
        yield from _mistake("version", document["version"], _WORD)
    for name in (*_STATUS, "package"):
        part = document.get(name)
        if part is None:
            continue
        if not isinstance(part, dict):
            yield f"{name} is {json_type(part)}, not an object"
        elif name == "package":
            yield from _package_mistakes(part)
        else:
            for key, wanted in _STATUS[name].items():
                if part.get(key) is not None:
                    yield from _mistake(f"{name}.{key}", part[key], wanted)


def _package_mistakes(files: dict[str, object]) -> Iterator[str]:
    if len(files) > _MOST_FILES:
        yield "package is too long"
    for file, value in files.items():
        yield from _mistake(f"package.{ascii(file)[1:-1][:40]}", value, bool)


def _mistake(key: str, value: object, wanted: Union[type[bool], int]) -> Iterator[str]:
    if isinstance(wanted, type):
        if not isinstance(value, bool):
            yield f"{key} is {json_type(value)}, not true or false"
    elif not isinstance(value, str):
        yield f"{key} is {json_type(value)}, not a string"
    elif len(value) > wanted:
        yield f"{key} is too long"
