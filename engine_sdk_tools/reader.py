# SPDX-License-Identifier: GPL-2.0-or-later
"""Read the engine as data, with few requests: also which domain is the hosted engine's,
and whether our user may change anything.

A user may read their own permissions, those of their groups included, and what each
role permits. A role may be for some objects only, and an action may need several: the
engine decides that at each request.

The engine's own rule uses the disks of the hosted engine's virtual machine
(create_views.sql:695, hosted_engine_storage_domains_ids_view). The API shows only the
types of a domain's disks (DiskContentType.java:15-18), and not of all domains at once:
with ``follow=disks`` it fails on the first ISO domain (BackendStorageDomainResource
.java:234, LinkFollower.java:240-247). So they are read of as few domains as possible:
if hosts are configured for a hosted engine, and first of the one with the usual name.

It takes two rounds of few requests, and a third if there is a hosted engine; a step of
a run on hosts reads only these again. All hosts are one request: the engine itself
follows the links to NICs, network attachments and hooks (``follow=``). The requests of
a round run in parallel. A value of an enum that the SDK does not know is None
(Reader.parse_enum of ovirtsdk4/reader.py, 4.6.3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Optional
from weakref import WeakKeyDictionary

from ovirt_rdma.engine_sdk_tools.api.request import (
    ADMINISTRATOR,
    PASSING,
    EngineProblem,
    Read,
)
from ovirt_rdma.engine_sdk_tools.api.session import Session
from ovirt_rdma.engine_sdk_tools.model import (
    FILE_TYPES,
    Assignment,
    Attachment,
    ChecksFailed,
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
from ovirt_rdma.host.errors import Sentence

_READ_ONLY = Sentence(
    "user-may-only-read",
    "this user may read the engine and change nothing: no role of the user, or of the "
    "user's groups, permits a change",
)
# Each verb that changes the engine needs some of these (ActionGroup.java). That a
# permit is an administrator's says nothing: group Everyone has assign_cpu_profile
# (dbscripts/data/00600_insert_permissions.sql).
_CHANGING = frozenset(
    {
        *("configure_cluster_network", "configure_host_network"),
        *("create_storage_domain", "create_storage_pool_network"),
        *("edit_cluster_configuration", "edit_host_configuration"),
        *("edit_storage_domain_configuration", "manipulate_host"),
        "manipulate_storage_domain",
    }
)


def _check_may_change(session: Session, system: Any) -> None:
    """Raise ChecksFailed if no role of our user permits what our verbs change;
    ``system`` is the SDK's Api. What cannot be read refuses nobody. Raises
    EngineProblem.
    """
    user = system.authenticated_user
    if user is None:
        return
    doing = "reading the permissions of this user"
    try:
        found = session.read(Read(f"users/{user.id}/permissions", doing))
        roles = sorted({one.role.id for one in found if one.role})
        permits = [session.read(Read(f"roles/{role}/permits", doing)) for role in roles]
    except EngineProblem as problem:
        if problem.kind in PASSING:
            raise
        return
    if roles and not any(one.name in _CHANGING for some in permits for one in some):
        raise ChecksFailed([_READ_ONLY], ADMINISTRATOR)


# The hosted engine's domain, in the ovirt.ovirt role hosted_engine_setup
# (he_storage_domain_name).
USUAL_NAME = "hosted_storage"
CONTENT_TYPES = frozenset(
    {
        "hosted_engine",
        "hosted_engine_sanlock",
        "hosted_engine_metadata",
        "hosted_engine_configuration",
    }
)


# By session, which reads an engine many times, and this does not change meanwhile: the
# ids of the hosted engine's domains, and a sentence if they are a guess.
_known: WeakKeyDictionary[Session, tuple[set[str], str]] = WeakKeyDictionary()


def _with_hosted_engine(session: Session, engine: Engine) -> Engine:
    """Return ``engine`` with ``hosted_engine`` set. If disks do not show it, being
    unreadable or older than their types, the usual name decides, and ``problems`` say
    so. Raises EngineProblem.
    """
    # Data on files, in a data center of a host that is configured for it.
    clusters = {host.cluster for host in engine.hosts if host.hosted_engine}
    centers = {c.data_center for c in engine.clusters if c.id in clusters} - {None}
    candidates = [
        domain
        for domain in engine.domains
        if domain.type == "data"
        and domain.storage_type in FILE_TYPES
        and domain.data_center in centers
    ]
    if not candidates:
        return engine
    if session not in _known:
        _known[session] = _hosted_engine_domains(session, candidates)
    ids, problem = _known[session]
    domains = tuple(
        replace(domain, hosted_engine=domain.id in ids) for domain in engine.domains
    )
    problems = (*engine.problems, problem) if problem else engine.problems
    return replace(engine, domains=domains, problems=problems)


def _hosted_engine_domains(
    session: Session, candidates: Sequence[Domain]
) -> tuple[set[str], str]:
    why = ""
    for domain in sorted(candidates, key=lambda one: one.name != USUAL_NAME):
        doing = f"reading the disks of {domain.name}"
        try:
            disks = session.read(Read(f"storagedomains/{domain.id}/disks", doing))
        except EngineProblem as problem:
            if problem.kind in PASSING:
                raise
            why = why or str(problem)
            continue
        if any(_word(disk.content_type) in CONTENT_TYPES for disk in disks):
            return {domain.id}, ""
    usual = {domain.id for domain in candidates if domain.name == USUAL_NAME}
    if usual:
        reason = why or "none of its disks has a content type of the hosted engine"
        why = (
            f"{USUAL_NAME} is assumed to be the hosted engine's domain because of its "
            f"name: {reason}"
        )
    elif why:
        why = f"the hosted engine's domain is unknown: {why}"
    # Without a reason, it is on block storage, or its disks are older than their types.
    return usual, why


_SSH = 22


def version_of(system: Any) -> Optional[str]:
    """Return the engine's version, as ``4.5.7``; ``system`` is the SDK's Api."""
    info = system.product_info
    version = info.version if info else None
    if version is None or version.major is None:
        return None
    numbers = (version.major, version.minor, version.build)
    return ".".join(str(number) for number in numbers if number is not None)


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


def host_of(
    host: Any, *, nics: bool = False, attachments: bool = False, hooks: bool = False
) -> Host:
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
        attachments=tuple(map(attachment_of, host.network_attachments or ()))
        if attachments
        else None,
        hooks=tuple(Hook(h.name or "", h.event_name or "") for h in host.hooks or ())
        if hooks
        else None,
    )


def _nics(nics: Sequence[Any]) -> tuple[Nic, ...]:
    # In the form of API v3 the SDK reads the list's own <actions> as a NIC.
    nics = [nic for nic in nics if nic.id and nic.name]
    # The engine sends them in any order, and sentences about alike hosts are merged.
    nics.sort(key=lambda nic: nic.name)
    names = {nic.id: nic.name for nic in nics}
    return tuple(_nic(nic, names) for nic in nics)


def _nic(nic: Any, names: Mapping[str, str]) -> Nic:
    bonding, network, ip = nic.bonding, nic.network, nic.ip
    slaves = (bonding.slaves if bonding else None) or ()
    ports = (slave.name or names.get(slave.id) for slave in slaves)
    options = (bonding.options if bonding else None) or ()
    return Nic(
        id=nic.id,
        name=nic.name,
        mac=nic.mac.address if nic.mac else None,
        mtu=nic.mtu,
        status=_word(nic.status),
        address=(ip.address or None) if ip else None,
        netmask=(ip.netmask or None) if ip else None,
        network=_id(network),
        bond_ports=tuple(name for name in ports if name),
        bond_mode=next((o.value for o in options if o.name == "mode"), None),
        vlan_of=(nic.base_interface or None) if nic.vlan else None,
        # Without an id: the engine looks that up among the networks of the cluster
        # (BackendHostNicsResource.java:81-83).
        unmanaged=network.name or None if network and not network.id else None,
    )


def attachment_of(attachment: Any) -> Attachment:
    """Return a network attachment of the SDK as plain data."""
    assigned = map(_assignment, attachment.ip_address_assignments or ())
    return Attachment(
        id=attachment.id,
        network=_id(attachment.network) or "",
        nic=_id(attachment.host_nic),
        # The engine adds the method none for a version that nobody has set.
        assignments=tuple(one for one in assigned if one.method != "none"),
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


def _network_of(network: Any, clusters: Sequence[Any]) -> Network:
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


def _assignment(each: Any) -> Assignment:
    method, ip = _word(each.assignment_method), each.ip
    if ip is None:
        return Assignment(4, method)
    version = 6 if _word(ip.version) == "v6" or ":" in (ip.address or "") else 4
    given = (ip.address, ip.netmask, ip.gateway)
    return Assignment(version, method, *(text or None for text in given))


def _level(version: Any) -> Optional[str]:
    if version is None or version.major is None:
        return None
    return f"{version.major}.{version.minor}"


def _word(value: Any) -> Optional[str]:
    return None if value is None else str(getattr(value, "value", value))


def _id(link: Any) -> Optional[str]:
    return link.id if link else None


def read_engine(
    session: Session,
    *,
    networks: bool = False,
    nics: bool = False,
    hooks: bool = False,
    attachments: bool = False,
    to_change: bool = False,
) -> Engine:
    """Read data centers, clusters, hosts, domains and connections, and what else is
    requested. An object that is removed meanwhile is a sentence in ``problems``. Raises
    EngineProblem, and ``to_change`` it ChecksFailed for a user who may only read.
    """
    problems: list[str] = []
    links = {"nics": nics, "network_attachments": attachments, "hooks": hooks}
    follow = ",".join(link for link, wanted in links.items() if wanted)
    reads = [
        Read("", "reading the engine's version", "get"),
        Read("datacenters", "reading the data centers"),
        _clusters_read("networks" if networks else ""),
        _hosts_read(follow),
        Read("storagedomains", "reading the storage domains"),
        Read("storageconnections", "reading the storage connections"),
    ]
    if networks:
        reads.append(Read("networks", "reading the networks"))
    answers = [_present(answer) for answer in session.read_all(reads)]
    system, centers, clusters, hosts, domains, connections = answers[:6]
    if to_change:
        _check_may_change(session, system)
    rows = tuple(row for row in map(connection_of, connections) if row is not None)
    data_centers = tuple(
        DataCenter(c.id, c.name, _word(c.status), _level(c.version)) for c in centers
    )
    engine = Engine(
        url=session.url,
        version=version_of(system),
        data_centers=data_centers,
        clusters=tuple(map(cluster_of, clusters)),
        hosts=tuple(
            host_of(host, nics=nics, attachments=attachments, hooks=hooks)
            for host in hosts
        ),
        domains=_domains(session, domains, data_centers, rows, problems),
        connections=rows,
        networks=tuple(_network_of(network, clusters) for network in answers[6])
        if networks
        else None,
        problems=tuple(problems),
    )
    return _with_hosted_engine(session, engine)


def with_hosts_now(
    session: Session, engine: Engine, *, clusters: bool = False
) -> Engine:
    """Return ``engine`` with its hosts, and with ``clusters`` these too, as they are
    now: what a step on hosts needs, in one or two requests. Raises EngineProblem.
    """
    reads = [_hosts_read(), *([_clusters_read()] if clusters else [])]
    hosts, *more = map(_present, session.read_all(reads))
    now = tuple(map(cluster_of, more[0])) if more else engine.clusters
    return replace(engine, hosts=tuple(map(host_of, hosts)), clusters=now)


def _hosts_read(follow: str = "") -> Read:
    # Without all_content the answer has no hosted_engine.
    words = {"all_content": True, **({"follow": follow} if follow else {})}
    return Read("hosts", "reading the hosts", arguments=words)


def _clusters_read(follow: str = "") -> Read:
    words = {"follow": follow} if follow else {}
    return Read("clusters", "reading the clusters", arguments=words)


def _domains(
    session: Session,
    listed: Sequence[Any],
    centers: Sequence[DataCenter],
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
        if _export_of(domain)[0] in FILE_TYPES and _export_of(domain) not in by_export
    ]
    reads = [
        Read(f"datacenters/{c.id}/storagedomains", "reading a data center's domains")
        for c in centers
    ] + [
        Read(f"storagedomains/{id}/storageconnections", "reading a domain's connection")
        for id in unjoined
    ]
    answers = session.read_all(reads)
    attached: dict[str, list[tuple[Optional[str], Any]]] = {}
    for center, answer in zip(centers, answers):
        for domain in _list_of(answer, problems):
            attached.setdefault(domain.id, []).append((center.id, domain))
    own = {}
    for id, answer in zip(unjoined, answers[len(centers) :]):
        found = map(connection_of, _list_of(answer, problems))
        own[id] = next((row for row in found if row is not None), None)
    return tuple(
        Domain(
            id=domain.id,
            name=domain.name,
            type=_word(domain.type) or "",
            storage_type=_export_of(domain)[0] or "",
            data_center=center,
            # Its data center alone shows these.
            status=_word(inside.status),
            master=bool(inside.master),
            connection=by_export.get(_export_of(domain)) or own.get(domain.id),
        )
        for domain in listed
        for center, inside in attached.get(domain.id, [(None, domain)])
    )


def _export_of(domain: Any) -> tuple[Optional[str], str]:
    """Return the storage type and the export."""
    storage = domain.storage
    if storage is None:
        return None, ""
    address = f"{storage.address}:" if storage.address else ""
    return _word(storage.type), f"{address}{storage.path}"


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
