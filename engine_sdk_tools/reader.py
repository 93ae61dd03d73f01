# SPDX-License-Identifier: GPL-2.0-or-later
"""Read an engine through the SDK into plain data.

The SDK's objects as engine_facts. Pure; knows their attributes, imports no SDK.

An enum word that the SDK does not know arrives as None (Reader.parse_enum of
ovirtsdk4/reader.py, 4.6.3), and so it stays.

Reads an engine into engine_facts, in two rounds of few calls; in a third where
there is a hosted engine.

Hundreds of hosts are one call: the engine follows the links to nics, network
attachments and hooks itself (``follow=``). The calls of a round run in parallel.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Any, Optional, Protocol

from ovirt_rdma.engine_sdk_tools.api.request import Read
from ovirt_rdma.engine_sdk_tools.hosted_engine import with_hosted_engine
from ovirt_rdma.engine_sdk_tools.model import (
    FILE_TYPES,
    Attachment,
    Cluster,
    ClusterNetwork,
    DataCenter,
    Domain,
    Engine,
    Hook,
    Host,
    Network,
    Nic,
    Reported,
    StorageConnection,
)

_SSH = 22


def version_of(system: Any) -> Optional[str]:
    """The engine's version, as ``4.5.7``."""
    info = system.product_info
    version = info.version if info else None
    if version is None or version.major is None:
        return None
    numbers = (version.major, version.minor, version.build)
    return ".".join(str(number) for number in numbers if number is not None)


def data_center_of(one: Any) -> DataCenter:
    """A data center."""
    return DataCenter(one.id, one.name, _word(one.status), _level(one.version))


def cluster_of(one: Any) -> Cluster:
    """A cluster."""
    # An older SDK does not know of upgrades.
    upgrade = bool(getattr(one, "upgrade_in_progress", False))
    center = _id(one.data_center)
    return Cluster(one.id, one.name, center, _level(one.version), upgrade)


def connection_of(one: Any) -> Optional[StorageConnection]:
    """A storage connection that leads to files; None for one to blocks."""
    if one.path is None or one.id is None:
        return None
    return StorageConnection(
        id=one.id,
        type=_word(one.type) or "",
        address=one.address or None,
        path=one.path,
        nfs_version=_word(one.nfs_version),
        mount_options=one.mount_options or "",
        timeo=one.nfs_timeo,
        retrans=one.nfs_retrans,
        vfs_type=one.vfs_type,
    )


def domain_of(
    one: Any,
    there: Any,
    data_center: Optional[str],
    connection: Optional[StorageConnection],
) -> Domain:
    """A storage domain: ``one`` as /storagedomains has it, ``there`` as its data
    center has it, which alone tells its status.
    """
    return Domain(
        id=one.id,
        name=one.name,
        type=_word(one.type) or "",
        storage_type=_word(one.storage.type) or "" if one.storage else "",
        data_center=data_center,
        status=_word(there.status),
        master=bool(there.master),
        connection=connection,
    )


def host_of(one: Any, *, nics: bool, attachments: bool, hooks: bool) -> Host:
    """A host, with those of its lists that were asked for."""
    ssh, summary, engine = one.ssh, one.summary, one.hosted_engine
    return Host(
        id=one.id,
        name=one.name,
        address=one.address or "",
        cluster=_id(one.cluster) or "",
        status=_word(one.status),
        spm=_word(one.spm.status) if one.spm else None,
        vms=(summary.total or 0) if summary else 0,
        port=(ssh.port or _SSH) if ssh else _SSH,
        fingerprint=ssh.fingerprint if ssh else None,
        public_key=ssh.public_key if ssh else None,
        hosted_engine=bool(engine and engine.configured),
        nics=_nics(one.nics or ()) if nics else None,
        attachments=(
            tuple(map(attachment_of, one.network_attachments or ()))
            if attachments
            else None
        ),
        hooks=(
            tuple(
                Hook(hook.name or "", hook.event_name or "", hook.md5)
                for hook in one.hooks or ()
            )
            if hooks
            else None
        ),
    )


def _nics(every: Sequence[Any]) -> tuple[Nic, ...]:
    # In the form of API v3 the SDK takes the list's own <actions> for a nic.
    every = [one for one in every if one.id and one.name]
    names = {one.id: one.name for one in every}
    return tuple(nic_of(one, names) for one in every)


def nic_of(one: Any, names: dict[str, str]) -> Nic:
    """A nic; ``names`` of the host's nics by id, for a bond's ports."""
    ports: tuple[str, ...] = ()
    mode = None
    if one.bonding:
        slaves = one.bonding.slaves or ()
        found = (slave.name or names.get(slave.id) for slave in slaves)
        ports = tuple(name for name in found if name)
        options = {option.name: option.value for option in one.bonding.options or ()}
        mode = options.get("mode")
    return Nic(
        id=one.id,
        name=one.name,
        mac=one.mac.address if one.mac else None,
        mtu=one.mtu,
        status=_word(one.status),
        speed_bps=one.speed,
        address=(one.ip.address or None) if one.ip else None,
        netmask=(one.ip.netmask or None) if one.ip else None,
        network=_id(one.network),
        bond_ports=ports,
        bond_mode=mode,
        vlan_of=(one.base_interface or None) if one.vlan else None,
        unmanaged=_unmanaged(one.network),
    )


def _unmanaged(network: Any) -> Optional[str]:
    """The name of a nic's network that has no id: the engine looks for the id among
    the networks of the cluster (BackendHostNicsResource.java:81-83).
    """
    return None if network is None or network.id else network.name or None


def attachment_of(one: Any) -> Attachment:
    """A network on a host's nic."""
    assigned = (found.ip for found in one.ip_address_assignments or ())
    return Attachment(
        id=one.id,
        network=_id(one.network) or "",
        nic=_id(one.host_nic),
        addresses=tuple(_address(ip) for ip in assigned if ip and ip.address),
        in_sync=one.in_sync,
        reported=tuple(
            Reported(
                found.name or "",
                found.expected_value,
                found.actual_value,
                bool(found.in_sync),
            )
            for found in one.reported_configurations or ()
        ),
        properties=tuple(
            (found.name, found.value or "") for found in one.properties or ()
        ),
    )


def network_of(one: Any, clusters: Sequence[Any]) -> Network:
    """A logical network, with what ``clusters``, read with theirs, say of it."""
    usages = [_word(usage) for usage in one.usages or ()]
    return Network(
        id=one.id,
        name=one.name,
        data_center=_id(one.data_center),
        mtu=one.mtu or 0,
        vm="vm" in usages,
        vlan=one.vlan.id if one.vlan else None,
        clusters=tuple(
            ClusterNetwork(
                cluster.id,
                bool(there.required),
                tuple(w for w in map(_word, there.usages or ()) if w),
            )
            for cluster in clusters
            for there in cluster.networks or ()
            if there.id == one.id
        ),
    )


def _address(ip: Any) -> str:
    if not ip.netmask:
        return str(ip.address)
    try:
        return str(ipaddress.ip_interface(f"{ip.address}/{ip.netmask}"))
    except ValueError:
        return f"{ip.address}/{ip.netmask}"


def _level(version: Any) -> Optional[str]:
    if version is None or version.major is None:
        return None
    return f"{version.major}.{version.minor}"


def _word(value: Any) -> Optional[str]:
    return None if value is None else str(getattr(value, "value", value))


def _id(link: Any) -> Optional[str]:
    return link.id if link else None


class ReadsEngine(Protocol):
    """What reading needs of a session."""

    @property
    def url(self) -> str:
        """The API's address."""

    def read_all(self, reads: Sequence[Read]) -> list[Any]:
        """Do ``reads`` in parallel; an exception stands for what is not there."""


def read_engine(
    session: ReadsEngine,
    *,
    networks: bool = False,
    nics: bool = False,
    hooks: bool = False,
    attachments: bool = False,
) -> Engine:
    """Read data centers, clusters, hosts, domains and connections.

    ``networks``, ``nics``, ``hooks`` and ``attachments`` say what to read besides;
    without them these are None. What vanished meanwhile is a sentence in
    ``problems``. Raises EngineProblem where the engine cannot be read.
    """
    problems: list[str] = []
    links = {"nics": nics, "network_attachments": attachments, "hooks": hooks}
    follow = ",".join(link for link, wanted in links.items() if wanted)
    reads = [
        Read("", "reading the engine's version", "get"),
        Read("datacenters", "reading the data centers"),
        Read("clusters", "reading the clusters", words=_follow(networks)),
        # all_content: or hosted_engine is left out.
        Read(
            "hosts",
            "reading the hosts",
            words={"all_content": True, **({"follow": follow} if follow else {})},
        ),
        Read("storagedomains", "reading the storage domains"),
        Read("storageconnections", "reading the storage connections"),
    ]
    if networks:
        reads.append(Read("networks", "reading the networks"))
    got = [
        _present(read, answer) for read, answer in zip(reads, session.read_all(reads))
    ]
    system, centers, clusters, hosts, domains, connections = got[:6]
    rows = tuple(
        row for row in (connection_of(one) for one in connections) if row is not None
    )
    data_centers = tuple(data_center_of(one) for one in centers)
    engine = Engine(
        url=session.url,
        version=version_of(system),
        data_centers=data_centers,
        clusters=tuple(cluster_of(one) for one in clusters),
        hosts=tuple(
            host_of(one, nics=nics, attachments=attachments, hooks=hooks)
            for one in hosts
        ),
        domains=_domains(
            session, domains, [c.id for c in data_centers], rows, problems
        ),
        connections=rows,
        networks=(
            tuple(network_of(one, clusters) for one in got[6]) if networks else None
        ),
        problems=tuple(problems),
    )
    return with_hosted_engine(session, engine)


def _domains(
    session: ReadsEngine,
    listed: Sequence[Any],
    centers: Sequence[str],
    rows: Sequence[StorageConnection],
    problems: list[str],
) -> tuple[Domain, ...]:
    """Join the domains with their data centers, which alone know their status, and
    with their connections.

    An ISO domain may be attached to several data centers: it is there once for each.
    """
    by_place: dict[tuple[Optional[str], str], StorageConnection] = {
        (row.type, row.export): row for row in rows
    }
    unjoined = [
        one.id
        for one in listed
        if _storage_type(one) in FILE_TYPES and _place_of(one) not in by_place
    ]
    reads = [
        Read(f"datacenters/{one}/storagedomains", "reading a data center's domains")
        for one in centers
    ] + [
        Read(
            f"storagedomains/{one}/storageconnections", "reading a domain's connection"
        )
        for one in unjoined
    ]
    answers = session.read_all(reads)
    attached: dict[str, list[tuple[str, Any]]] = {}
    for center, answer in zip(centers, answers):
        for one in _rest(answer, problems):
            attached.setdefault(one.id, []).append((center, one))
    own = {}
    for domain, answer in zip(unjoined, answers[len(centers) :]):
        found = [connection_of(one) for one in _rest(answer, problems)]
        own[domain] = next((row for row in found if row is not None), None)
    made = []
    for one in listed:
        row = by_place.get(_place_of(one)) or own.get(one.id)
        places = attached.get(one.id)
        if not places:
            made.append(domain_of(one, one, None, row))
        for center, there in places or ():
            made.append(domain_of(one, there, center, row))
    return tuple(made)


def _storage_type(domain: Any) -> Optional[str]:
    kind = domain.storage.type if domain.storage else None
    return str(kind.value) if kind else None


def _place_of(domain: Any) -> tuple[Optional[str], str]:
    storage = domain.storage
    if storage is None:
        return None, ""
    address = f"{storage.address}:" if storage.address else ""
    return _storage_type(domain), f"{address}{storage.path}"


def _follow(networks: bool) -> dict[str, Any]:
    return {"follow": "networks"} if networks else {}


def _present(read: Read, answer: Any) -> Any:
    """What a read gave that no engine is without."""
    if isinstance(answer, Exception):
        raise answer
    return answer


def _rest(answer: Any, problems: list[str]) -> list[Any]:
    if isinstance(answer, Exception):
        problems.append(str(answer))
        return []
    return list(answer or ())
