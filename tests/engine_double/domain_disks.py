# SPDX-License-Identifier: GPL-2.0-or-later
"""Serve the disks of a storage domain, by which the hosted engine's is recognized."""

from __future__ import annotations

from ovirtsdk4 import types

from engine_double.answers import Answer, Refusal, listed
from engine_double.behaviours import behaviour
from engine_double.routing import Call, known, route
from engine_double.views import followed, with_href
from engine_double.world import SimDomain, World, new_id

_RESOURCES = "restapi/resource"
OF_HOSTED_ENGINE = behaviour(
    "DOMAIN-16",
    "The hosted engine's domain has disks with content types of their own, whatever "
    "its name; other data domains have their OVF stores.",
    "common/businessentities/storage/DiskContentType.java:15-18",
    f"{_RESOURCES}/AbstractBackendStorageDomainDisksResource.java:40-60",
)
NO_LINK = behaviour(
    "DOMAIN-17",
    "follow=disks is taken for domains, but the whole list fails with 500 where one of "
    "them is of type ISO or image, which have no such link.",
    f"{_RESOURCES}/BackendStorageDomainResource.java:233-239",
    f"{_RESOURCES}/utils/LinkFollower.java:240-249",
)
WITHOUT_DISKS = ("iso", "image")
_HOSTED_ENGINE = (
    ("he_virtio_disk", "hosted_engine"),
    ("he_sanlock", "hosted_engine_sanlock"),
    ("he_metadata", "hosted_engine_metadata"),
    ("HostedEngineConfigurationImage", "hosted_engine_configuration"),
)


@route("GET", "/storagedomains/{domain}/disks", query=("max", "unregistered"))
def list_disks(call: Call) -> Answer:
    found = known(call.world.domains, call.ids["domain"])
    if call.flag("unregistered"):
        return listed("disks", [])
    return listed("disks", call.first(_disks(call.world, found)))


@followed("storagedomains", "disks")
def disks_of(world: World, found: SimDomain) -> list[types.Disk]:
    """Return the disks; raise Refusal as the engine does if it has no such link."""
    if found.type in WITHOUT_DISKS and world.does(NO_LINK):
        raise Refusal(500, "Problem fetching 'disks' from StorageDomain")
    return _disks(world, found)


def _disks(world: World, found: SimDomain) -> list[types.Disk]:
    named: list[tuple[str, str]] = []
    if found.type == "data" and found.data_center:
        named += [("OVF_STORE", "ovf_store")] * 2
    if found.hosted_engine and world.does(OF_HOSTED_ENGINE):
        named += _HOSTED_ENGINE
    named += [(name, "data") for name in found.disks]
    return [_disk(found, number, *words) for number, words in enumerate(named, start=1)]


def _disk(found: SimDomain, number: int, name: str, content: str) -> types.Disk:
    made = new_id(f"disk {found.id} {number}")
    disk = types.Disk(
        id=made,
        name=name,
        alias=name,
        content_type=types.DiskContentType(content),
        status=types.DiskStatus.OK,
        format=types.DiskFormat.RAW,
        storage_domains=[types.StorageDomain(id=found.id)],
    )
    return with_href(disk, f"/disks/{made}")
