# SPDX-License-Identifier: GPL-2.0-or-later
"""Read an engine through the SDK into plain data (:mod:`.model`).

It takes two rounds of few requests, and a third if there is a hosted engine. All hosts
are one request: the engine itself follows the links to NICs, network attachments and
hooks (``follow=``). The requests of a round run in parallel. A value of an enum that
the SDK does not know is None (Reader.parse_enum of ovirtsdk4/reader.py, 4.6.3).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Any, Optional

from ovirt_rdma.engine_sdk_tools.api.engine_session import EngineSession
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
from ovirt_rdma.engine_sdk_tools.permissions import check_may_change

_SSH = 22


def version_of(system: Any) -> Optional[str]:
    """Return the engine's version, for example ``4.5.7``."""
    info = system.product_info
    version = info.version if info else None
    if version is None or version.major is None:
        return None
    numbers = (version.major, version.minor, version.build)
    return ".".join(str(number) for number in numbers if number is not None)


def data_center_of(data_center: Any) -> DataCenter:
    """Return a data center of the SDK as plain data."""
    return DataCenter(
        data_center.id,
        data_center.name,
        _word(data_center.status),
        _level(data_center.version),
    )


def cluster_of(cluster: Any) -> Cluster:
    """Return a cluster of the SDK as plain data."""
    # An older SDK does not have these attributes.
    return Cluster(
        cluster.id,
        cluster.name,
        _id(cluster.data_center),
        _level(cluster.version),
        bool(getattr(cluster, "upgrade_in_progress", False)),
        getattr(cluster, "upgrade_correlation_id", None),
    )


def connection_of(connection: Any) -> Optional[StorageConnection]:
    """Return a storage connection of file storage; None for block storage."""
    if connection.path is None or connection.id is None:
        return None
    return StorageConnection(
        id=connection.id,
        type=_word(connection.type) or "",
        address=connection.address or None,
        path=connection.path,
        nfs_version=_word(connection.nfs_version),
        mount_options=connection.mount_options or "",
        timeo=connection.nfs_timeo,
        retrans=connection.nfs_retrans,
        vfs_type=connection.vfs_type,
    )


def domain_of(
    domain: Any,
    attached: Any,
    data_center: Optional[str],
    connection: Optional[StorageConnection],
) -> Domain:
    """Return a storage domain: ``domain`` as in /storagedomains, ``attached`` as in its
    data center, which alone shows its status.
    """
    return Domain(
        id=domain.id,
        name=domain.name,
        type=_word(domain.type) or "",
        storage_type=_word(domain.storage.type) or "" if domain.storage else "",
        data_center=data_center,
        status=_word(attached.status),
        master=bool(attached.master),
        connection=connection,
    )


def host_of(host: Any, *, nics: bool, attachments: bool, hooks: bool) -> Host:
    """Return a host of the SDK as plain data, with the requested lists."""
    ssh, summary, engine = host.ssh, host.summary, host.hosted_engine
    return Host(
        id=host.id,
        name=host.name,
        address=host.address or "",
        cluster=_id(host.cluster) or "",
        status=_word(host.status),
        spm=_word(host.spm.status) if host.spm else None,
        vms=(summary.total or 0) if summary else 0,
        port=(ssh.port or _SSH) if ssh else _SSH,
        fingerprint=ssh.fingerprint if ssh else None,
        public_key=ssh.public_key if ssh else None,
        hosted_engine=bool(engine and engine.configured),
        nics=_nics(host.nics or ()) if nics else None,
        attachments=(
            tuple(map(attachment_of, host.network_attachments or ()))
            if attachments
            else None
        ),
        hooks=(
            tuple(
                Hook(hook.name or "", hook.event_name or "")
                for hook in host.hooks or ()
            )
            if hooks
            else None
        ),
    )


def _nics(nics: Sequence[Any]) -> tuple[Nic, ...]:
    # In the form of API v3 the SDK reads the list's own <actions> as a NIC.
    nics = [nic for nic in nics if nic.id and nic.name]
    # The engine sends them in any order, and sentences about alike hosts are merged.
    nics.sort(key=lambda nic: nic.name)
    names = {nic.id: nic.name for nic in nics}
    return tuple(nic_of(nic, names) for nic in nics)


def nic_of(nic: Any, names: dict[str, str]) -> Nic:
    """Return a NIC of the SDK as plain data; ``names`` are those of the host's NICs, by
    id, for a bond's ports.
    """
    ports: tuple[str, ...] = ()
    mode = None
    if nic.bonding:
        slaves = nic.bonding.slaves or ()
        port_names = (slave.name or names.get(slave.id) for slave in slaves)
        ports = tuple(name for name in port_names if name)
        options = {option.name: option.value for option in nic.bonding.options or ()}
        mode = options.get("mode")
    return Nic(
        id=nic.id,
        name=nic.name,
        mac=nic.mac.address if nic.mac else None,
        mtu=nic.mtu,
        status=_word(nic.status),
        speed_bps=nic.speed,
        address=(nic.ip.address or None) if nic.ip else None,
        netmask=(nic.ip.netmask or None) if nic.ip else None,
        network=_id(nic.network),
        bond_ports=ports,
        bond_mode=mode,
        vlan_of=(nic.base_interface or None) if nic.vlan else None,
        unmanaged=_unmanaged(nic.network),
    )


def _unmanaged(network: Any) -> Optional[str]:
    """Return the name of a NIC's network without an id: the engine looks up the id
    among the networks of the cluster (BackendHostNicsResource.java:81-83).
    """
    return None if network is None or network.id else network.name or None


def attachment_of(attachment: Any) -> Attachment:
    """Return a network attachment of the SDK as plain data."""
    assigned = (each.ip for each in attachment.ip_address_assignments or ())
    return Attachment(
        id=attachment.id,
        network=_id(attachment.network) or "",
        nic=_id(attachment.host_nic),
        addresses=tuple(_address(ip) for ip in assigned if ip and ip.address),
        in_sync=attachment.in_sync,
        reported=tuple(
            Reported(
                reported.name or "",
                reported.expected_value,
                reported.actual_value,
                bool(reported.in_sync),
            )
            for reported in attachment.reported_configurations or ()
        ),
        properties=tuple(
            (custom.name, custom.value or "") for custom in attachment.properties or ()
        ),
    )


def network_of(network: Any, clusters: Sequence[Any]) -> Network:
    """Return a logical network as plain data, with its use in ``clusters``, which were
    read with their networks.
    """
    usages = [_word(usage) for usage in network.usages or ()]
    return Network(
        id=network.id,
        name=network.name,
        data_center=_id(network.data_center),
        mtu=network.mtu or 0,
        vm="vm" in usages,
        vlan=network.vlan.id if network.vlan else None,
        clusters=tuple(
            ClusterNetwork(
                cluster.id,
                bool(inside.required),
                tuple(w for w in map(_word, inside.usages or ()) if w),
            )
            for cluster in clusters
            for inside in cluster.networks or ()
            if inside.id == network.id
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


def read_engine(
    session: EngineSession,
    *,
    networks: bool = False,
    nics: bool = False,
    hooks: bool = False,
    attachments: bool = False,
    to_change: bool = False,
) -> Engine:
    """Read data centers, clusters, hosts, domains and connections.

    ``networks``, ``nics``, ``hooks`` and ``attachments`` request these too; otherwise
    they are None. An object that is removed meanwhile is a sentence in ``problems``.
    Raises EngineProblem if the engine cannot be read, and ``to_change`` it ChecksFailed
    for a user who may only read.
    """
    problems: list[str] = []
    links = {"nics": nics, "network_attachments": attachments, "hooks": hooks}
    follow = ",".join(link for link, wanted in links.items() if wanted)
    reads = [
        Read("", "reading the engine's version", "get"),
        Read("datacenters", "reading the data centers"),
        Read("clusters", "reading the clusters", arguments=_follow(networks)),
        # Without all_content the answer has no hosted_engine.
        Read(
            "hosts",
            "reading the hosts",
            arguments={"all_content": True, **({"follow": follow} if follow else {})},
        ),
        Read("storagedomains", "reading the storage domains"),
        Read("storageconnections", "reading the storage connections"),
    ]
    if networks:
        reads.append(Read("networks", "reading the networks"))
    answers = [_present(answer) for answer in session.read_all(reads)]
    system, centers, clusters, hosts, domains, connections = answers[:6]
    if to_change:
        check_may_change(session, system)
    rows = tuple(row for row in map(connection_of, connections) if row is not None)
    data_centers = tuple(map(data_center_of, centers))
    engine = Engine(
        url=session.url,
        version=version_of(system),
        data_centers=data_centers,
        clusters=tuple(map(cluster_of, clusters)),
        hosts=tuple(
            host_of(host, nics=nics, attachments=attachments, hooks=hooks)
            for host in hosts
        ),
        domains=_domains(
            session, domains, [c.id for c in data_centers], rows, problems
        ),
        connections=rows,
        networks=(
            tuple(network_of(network, clusters) for network in answers[6])
            if networks
            else None
        ),
        problems=tuple(problems),
    )
    return with_hosted_engine(session, engine)


def _domains(
    session: EngineSession,
    listed: Sequence[Any],
    centers: Sequence[str],
    rows: Sequence[StorageConnection],
    problems: list[str],
) -> tuple[Domain, ...]:
    """Join the domains with their data centers, which alone show their status, and
    with their connections.

    An ISO domain may be attached to several data centers: it is listed once for each.
    """
    by_export: dict[tuple[Optional[str], str], StorageConnection] = {
        (row.type, row.export): row for row in rows
    }
    unjoined = [
        domain.id
        for domain in listed
        if _storage_type(domain) in FILE_TYPES and _export_of(domain) not in by_export
    ]
    reads = [
        Read(f"datacenters/{id}/storagedomains", "reading a data center's domains")
        for id in centers
    ] + [
        Read(f"storagedomains/{id}/storageconnections", "reading a domain's connection")
        for id in unjoined
    ]
    answers = session.read_all(reads)
    attached: dict[str, list[tuple[str, Any]]] = {}
    for center, answer in zip(centers, answers):
        for domain in _list_of(answer, problems):
            attached.setdefault(domain.id, []).append((center, domain))
    own = {}
    for id, answer in zip(unjoined, answers[len(centers) :]):
        own_rows = map(connection_of, _list_of(answer, problems))
        own[id] = next((row for row in own_rows if row is not None), None)
    domains = []
    for domain in listed:
        row = by_export.get(_export_of(domain)) or own.get(domain.id)
        attachments = attached.get(domain.id)
        if not attachments:
            domains.append(domain_of(domain, domain, None, row))
        for center, inside in attachments or ():
            domains.append(domain_of(domain, inside, center, row))
    return tuple(domains)


def _storage_type(domain: Any) -> Optional[str]:
    kind = domain.storage.type if domain.storage else None
    return str(kind.value) if kind else None


def _export_of(domain: Any) -> tuple[Optional[str], str]:
    storage = domain.storage
    if storage is None:
        return None, ""
    address = f"{storage.address}:" if storage.address else ""
    return _storage_type(domain), f"{address}{storage.path}"


def _follow(networks: bool) -> dict[str, Any]:
    return {"follow": "networks"} if networks else {}


def _present(answer: Any) -> Any:
    """Return the answer to a request that every engine can answer, or raise it."""
    if isinstance(answer, Exception):
        raise answer
    return answer


def _list_of(answer: Any, problems: list[str]) -> list[Any]:
    if isinstance(answer, Exception):
        problems.append(str(answer))
        return []
    return list(answer or ())
