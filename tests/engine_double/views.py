# SPDX-License-Identifier: GPL-2.0-or-later
"""Show the world's data as ovirtsdk4's types.

Other modules of the double register what a ``follow=`` adds:

    @followed("hosts", "nics")
    def nics_of(world, host): return [types.HostNic(...), ...]
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from typing import Any, Optional, TypeVar

from ovirtsdk4 import types

from engine_double.answers import API, Mistake, linked
from engine_double.behaviours import behaviour
from engine_double.world import (
    SimCluster,
    SimConnection,
    SimDataCenter,
    SimDomain,
    SimHost,
    World,
)

ACTIVE_ONLY = behaviour(
    "HOST-01",
    "A host's summary counts as active what is up: not what is paused, powering up or "
    "migrating; total counts all.",
    "mapper/HostMapper.java:284-288",
    "vdsbroker/vdsbroker/VdsBrokerObjectsBuilder.java:1354-1357",
)
UPGRADE = behaviour(
    "HOST-02",
    "A cluster shows whether an upgrade of its hosts is in progress.",
    "mapper/ClusterMapper.java:289-295",
)
CUT = behaviour(
    "CONN-20",
    "A row is shown split at its first colon and cut at the second; one with an IPv6 "
    "address is shown whole.",
    "mapper/StorageDomainMapper.java:308-320",
)
ONLY_THERE = behaviour(
    "DOMAIN-40",
    "Only its data center shows a domain's status; elsewhere there is none but "
    "unattached.",
    "restapi/resource/BackendStorageDomainsResource.java:452-462",
    "restapi/resource/BackendStorageDomainResource.java:288-297",
)
E = TypeVar("E", bound=enum.Enum)
Following = Callable[[World, Any], list[Any]]
FOLLOWED: dict[tuple[str, str], Following] = {}


def followed(collection: str, link: str) -> Callable[[Following], Following]:
    """Register what ``follow=link`` adds to the objects of ``collection``."""

    def enter(following: Following) -> Following:
        FOLLOWED[collection, link] = following
        return following

    return enter


def follow_links(
    world: World, collection: str, links: Iterable[str], source: Any, shown: Any
) -> Any:
    """Add to ``shown``, the view of ``source``, the objects that ``links`` name."""
    for link in links:
        following = FOLLOWED.get((collection, link))
        if following is None:
            raise Mistake(f"the double cannot follow {link} of {collection}")
        setattr(shown, link, following(world, source))
        # As in the engine, a followed object replaces its link.
        shown.links_of_the_double.pop(link.replace("_", ""), None)
    return shown


def word(kind: type[E], text: Optional[str]) -> Optional[E]:
    """Return an enum's member by the API's word; the double shows no other words."""
    return None if text is None else kind(text)


def with_href(obj: Any, href: str) -> Any:
    obj.href = f"{API}{href}"
    return obj


def _with_links(obj: Any, href: str, *rels: str) -> Any:
    with_href(obj, href)
    return linked(obj, **{rel: f"{obj.href}/{rel}" for rel in rels})


def reference(kind: Any, collection: str, name: str) -> Any:
    """An object of which only id and address are shown."""
    return with_href(kind(id=name), f"/{collection}/{name}")


def data_center_view(world: World, found: SimDataCenter) -> types.DataCenter:
    major, minor = map(int, found.version.split("."))
    view = types.DataCenter(
        id=found.id,
        name=found.name,
        status=word(types.DataCenterStatus, found.status),
        version=types.Version(major=major, minor=minor),
    )
    rels = ("clusters", "networks", "storagedomains")
    return _with_links(view, f"/datacenters/{found.id}", *rels)


def cluster_view(world: World, found: SimCluster) -> types.Cluster:
    major, minor = map(int, found.version.split("."))
    view = types.Cluster(
        id=found.id,
        name=found.name,
        data_center=reference(types.DataCenter, "datacenters", found.data_center),
        version=types.Version(major=major, minor=minor),
        upgrade_in_progress=found.upgrade_in_progress and world.does(UPGRADE),
        upgrade_correlation_id=found.upgrade_correlation_id,
    )
    rels = ("enabledfeatures", "networks")
    return _with_links(view, f"/clusters/{found.id}", *rels)


def host_view(world: World, found: SimHost) -> types.Host:
    spm = types.SpmStatus.SPM if found.spm else types.SpmStatus.NONE
    if found.spm_contending:
        spm = types.SpmStatus.CONTENDING
    hosted = types.HostedEngine(configured=True)
    view = types.Host(
        id=found.id,
        name=found.name,
        address=found.address,
        cluster=reference(types.Cluster, "clusters", found.cluster),
        status=word(types.HostStatus, found.status),
        memory=found.memory,
        spm=types.Spm(priority=5, status=spm),
        ssh=types.Ssh(
            port=found.port,
            fingerprint=found.fingerprint,
            public_key=found.public_key,
        ),
        summary=_vm_summary(world, found),
        # In a list, the engine shows it only with all_content; removed there.
        hosted_engine=hosted if found.hosted_engine else None,
    )
    rels = (
        "devices",
        "hooks",
        "networkattachments",
        "nics",
        "statistics",
        "storage",
        "unmanagednetworks",
    )
    return _with_links(view, f"/hosts/{found.id}", *rels)


def _vm_summary(world: World, found: SimHost) -> types.VmSummary:
    """Return counts: ``total`` are all, ``active`` those that run."""
    leaving = found.more.get("leaving", ())
    migrating = [name for name in found.vms if name in leaving]
    active = [n for n in found.vms if n not in (*found.inactive_vms, *migrating)]
    if not world.does(ACTIVE_ONLY):
        active, migrating = found.vms, []
    return types.VmSummary(
        active=len(active), migrating=len(migrating), total=len(found.vms)
    )


def connection_view(world: World, found: SimConnection) -> types.StorageConnection:
    address, path = _split(world, found)
    view = types.StorageConnection(
        id=found.id, type=word(types.StorageType, found.type)
    )
    if found.type == "iscsi":
        view.address, view.port, view.target = found.address, 3260, found.target
        return with_href(view, f"/storageconnections/{found.id}")
    view.address, view.path = address, path
    view.mount_options = found.mount_options
    if found.type == "nfs":
        view.nfs_version = word(types.NfsVersion, found.nfs_version)
        view.nfs_timeo, view.nfs_retrans = found.nfs_timeo, found.nfs_retrans
    else:
        view.vfs_type = found.vfs_type
    return with_href(view, f"/storageconnections/{found.id}")


def domain_view(
    world: World, found: SimDomain, data_center: Optional[str] = None
) -> types.StorageDomain:
    """A domain; with ``data_center`` as that one sees it, else without a status."""
    status = found.status if data_center or not world.does(ONLY_THERE) else None
    if found.data_center is None:
        status = "unattached"
    view = types.StorageDomain(
        id=found.id,
        name=found.name,
        type=word(types.StorageDomainType, found.type),
        master=found.master,
        status=word(types.StorageDomainStatus, status),
        storage=_host_storage(world, found),
    )
    if found.data_center:
        centre = reference(types.DataCenter, "datacenters", found.data_center)
        view.data_centers = [centre]
        view.data_center = centre if data_center else None
    if data_center:
        address = f"/datacenters/{data_center}/storagedomains/{found.id}"
        return _with_links(view, address, "disks")
    rels = ("disks", "storageconnections", "vms")
    return _with_links(view, f"/storagedomains/{found.id}", *rels)


def _host_storage(world: World, found: SimDomain) -> types.HostStorage:
    storage = types.HostStorage(type=word(types.StorageType, found.storage_type))
    connection = world.connections.get(found.connection or "")
    if connection is None or found.storage_type not in ("nfs", "posixfs"):
        return storage
    storage.address, storage.path = _split(world, connection)
    storage.mount_options = connection.mount_options
    storage.vfs_type = connection.vfs_type
    if found.storage_type == "nfs":
        storage.nfs_version = word(types.NfsVersion, connection.nfs_version)
        storage.nfs_timeo = connection.nfs_timeo
        storage.nfs_retrans = connection.nfs_retrans
    return storage


def _split(world: World, found: SimConnection) -> tuple[Optional[str], str]:
    if found.address.startswith("[") or not world.does(CUT):
        return found.address, found.path
    return found.address or None, found.path.split(":")[0]
