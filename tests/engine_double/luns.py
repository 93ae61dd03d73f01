# SPDX-License-Identifier: GPL-2.0-or-later
"""LUNs as hosts offer them, and domains on them (fcp)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Optional

from ovirtsdk4 import types

from engine_double.answers import Answer, Refusal, listed
from engine_double.behaviours import behaviour
from engine_double.hosts_of_the_world import SimHost
from engine_double.routing import Call, known, route
from engine_double.views import word
from engine_double.world import SimDomain, World, new_id

_REST = "restapi/resource/BackendStorageDomainsResource.java"
_SAN = "bll/storage/domain/AddSANStorageDomainCommand.java"
OF_ALL_TYPES = behaviour(
    "LUN-01",
    "A host's storage lists the LUNs of all types, with the type of each, and what the "
    "engine has on it: a domain or a disk.",
    "restapi/resource/BackendHostStorageResource.java:58-64",
    "bll/storage/disk/lun/GetDeviceListQuery.java:49-64",
    "mapper/StorageLogicalUnitMapper.java:79-87",
)
UP_ONLY = behaviour(
    "LUN-02",
    "The storage of a host that is not up cannot be listed: 400.",
    "bll/storage/disk/lun/GetDeviceListQuery.java:36",
    "bll/storage/disk/lun/GetDeviceListQuery.java:69-83",
)
NO_LUN = behaviour(
    "LUN-03",
    "A domain on LUNs wants one at least: 409, and each with its id: 400.",
    f"{_REST}:224-226",
    f"{_SAN}:89-92",
)
IN_USE = behaviour(
    "LUN-04",
    "A LUN that the engine knows as a domain's or a disk's is refused: 409.",
    f"{_SAN}:93-95",
    "bll/storage/domain/StorageDomainCommandBase.java:222-250",
)
NO_LOOK = behaviour(
    "LUN-05",
    "Whether hosts see the LUN, and what is on it, is known to the host alone: VDSM "
    "refuses one that it does not see or that has a volume group, with 400 and event "
    "957.",
    f"{_SAN}:78-85",
    "bll/storage/domain/AddStorageDomainCommand.java:170-172",
)


@dataclass
class SimLun:
    """A LUN. ``without``: names of hosts that do not see it. ``status`` is VDSM's."""

    id: str
    type: str = "fcp"
    size: int = 100 << 30
    status: str = "free"
    domain: Optional[str] = None
    disk: Optional[str] = None
    paths: int = 2
    without: tuple[str, ...] = ()


def luns_of(world: World) -> dict[str, SimLun]:
    """Return the LUNs by WWID; tests add theirs."""
    found: dict[str, SimLun] = world.more.setdefault("luns", {})
    return found


@route("GET", "/hosts/{host}/storage", query=("report_status",))
def list_storage(call: Call) -> Answer:
    world = call.world
    host: SimHost = known(world.hosts, call.ids["host"])
    if host.status != "up" and world.does(UP_ONLY):
        text = f"Cannot fetch storage devices, host {host.address} is not UP."
        raise Refusal(400, text)
    status = call.flag("report_status", True)
    seen = [one for one in luns_of(world).values() if host.name not in one.without]
    return listed("host_storages", [_shown(world, one, status) for one in seen])


def _shown(world: World, one: SimLun, status: bool) -> types.HostStorage:
    unit = types.LogicalUnit(
        id=one.id,
        vendor_id="LIO-ORG",
        product_id="lab",
        size=one.size,
        paths=one.paths,
        active_paths=one.paths,
        storage_domain_id=one.domain if world.does(OF_ALL_TYPES) else None,
        disk_id=one.disk,
        status=word(types.LunStatus, one.status) if status else None,
    )
    kind = word(types.StorageType, one.type)
    return types.HostStorage(id=one.id, type=kind, logical_units=[unit])


def add_on_luns(call: Call, host: SimHost) -> SimDomain:
    """Make a domain on the LUNs of the request, or refuse it."""
    world, body = call.world, call.body
    units = body.storage.logical_units or ()
    if any(not unit.id for unit in units) and world.does(NO_LUN):
        raise Refusal(400, "LogicalUnit [id] required", reason="Incomplete parameters")
    if not units and world.does(NO_LUN):
        raise Refusal(409, "Cannot create Storage. Select at least one LUN.")
    luns = [luns_of(world).get(unit.id) for unit in units]
    taken = [one.id for one in luns if one and (one.domain or one.disk)]
    if taken and world.does(IN_USE):
        raise Refusal(409, f"The following LUNs are already in use: {taken}.")
    for one in luns:
        bad = one is None or host.name in one.without or one.status != "free"
        if bad and world.does(NO_LOOK):
            text = f"Storage Domain {body.name} could not be added."
            about: dict[str, Any] = {"correlation_id": call.correlation_id}
            world.log.record(957, "error", text, host=host.id, **about)
            raise Refusal(400, "Failed to create volume group.")
    found = SimDomain(new_id(), body.name, body.type.value, "fcp")
    for one in luns:
        if one is not None:
            one.domain, one.status = found.id, "used"
    world.domains[found.id] = found
    return found


def free_luns(world: World, domain: str, format: bool) -> None:
    """Take a removed domain off its LUNs; unformatted, its volume group stays."""
    for one in luns_of(world).values():
        if one.domain == domain:
            one.domain = None
            one.status = "free" if format else "used"
