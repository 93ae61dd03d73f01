# SPDX-License-Identifier: GPL-2.0-or-later
"""The SDK's objects as engine_facts. Pure; knows their attributes, imports no SDK.

An enum word that the SDK does not know arrives as None (Reader.parse_enum of
ovirtsdk4/reader.py, 4.6.3), and so it stays.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Any, Optional

from ovirt_rdma.engine_sdk_tools.engine_facts import (
    Attachment,
    Cluster,
    ClusterNetwork,
    DataCenter,
    Domain,
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
