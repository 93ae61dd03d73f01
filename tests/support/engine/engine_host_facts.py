# SPDX-License-Identifier: GPL-2.0-or-later
"""Make the facts of a simulated host: adapters, and the double's mounts in the form of
the kernel.
"""

from __future__ import annotations

import functools
import ipaddress
from dataclasses import replace
from typing import Optional

from engine_double import SimHost, World
from engine_double.mounts import PREFER_RDMA, TCP, asked_for, nfs_version

from ovirt_rdma.host.facts import dump
from ovirt_rdma.host.facts.devices import NetdevUse, RdmaDevice
from ovirt_rdma.host.facts.model import (
    CmId,
    DegradedMark,
    Facts,
    NfsMount,
    Route,
)
from ovirt_rdma.storage.mounts import conflict_clause, sharers
from support.engine.engine_host_devices import (
    DATA,
    base,
    devices_of,
    management,
    netdevs_of,
    network_manager_of,
    networks_of,
)

_SERVER_ADDRESS = "192.0.2.250"
_AGE_S = 600
_MOUNTED = "/rhev/data-center/mnt"
_NO_ANSWER = "the server did not answer over RDMA"


def facts_of(world: World, host: SimHost) -> Facts:
    """Return the facts that ``ovirt-rdma-host facts`` would report on ``host``."""
    golden = base()
    devices, way = devices_of(host), _storage_way(host)
    mounts = tuple(_mount(world, export, how) for export, how in host.mounts.items())
    addresses = sorted({mount.address or "" for mount in mounts} | {_SERVER_ADDRESS})
    return replace(
        golden,
        hostname=host.address,
        rdma_devices=devices,
        netdevs=netdevs_of(host),
        netdev_uses=_uses(host, mounts, way),
        network_manager=network_manager_of(host),
        ovirt_networks=networks_of(world, host),
        routes=tuple(Route(one, *way) for one in addresses),
        nfs_mounts=mounts,
        cm_ids=tuple(_cm_ids(devices, mounts, way[1])),
        degraded_marks=tuple(_marks(world, host, mounts, golden.uptime_s)),
    )


@functools.cache
def _sample(transport: str) -> NfsMount:
    name = {"rdma": "rxe-one-mount", "tcp": "no-rdma-tcp-mount"}[transport]
    return dump.load(DATA / "facts" / f"{name}.json").nfs_mounts[0]


def _storage_way(host: SimHost) -> tuple[Optional[str], Optional[str]]:
    """Return the netdev of the route to NFS servers, and the source address."""
    for nic in host.nics:
        if nic.infiniband and nic.address:
            return nic.name, nic.address
    managed = management(host)
    return ("ovirtmgmt", managed.address) if managed else (None, None)


def _uses(
    host: SimHost,
    mounts: tuple[NfsMount, ...],
    way: tuple[Optional[str], Optional[str]],
) -> tuple[NetdevUse, ...]:
    managed = management(host)
    found = []
    if managed is not None:
        found.append(NetdevUse(managed.name, "management", "network ovirtmgmt"))
    if way[0] is not None:
        for mount in mounts:
            what = f"{mount.source} at {mount.mountpoint}"
            found.append(NetdevUse(way[0], "nfs", what))
    return tuple(found)


def _address_of(world: World, server: str) -> str:
    """Return the address of a server's name: one each, in the order of their use."""
    known = world.more.setdefault("server addresses", {})
    first = ipaddress.ip_address(_SERVER_ADDRESS)
    return str(known.setdefault(server.lower(), first - len(known)))


def _mount(world: World, export: str, transport: str) -> NfsMount:
    sample = _sample(transport)
    server, path = export.rsplit(":", 1)
    try:
        address = str(ipaddress.ip_address(server.strip("[]")))
    except ValueError:
        address = _address_of(world, server)
    row = next((c for c in world.connections.values() if c.export == export), None)
    version = nfs_version(row)
    family = "6" if ":" in address else ""
    options = sample.options.replace(f"addr={sample.address}", f"addr={address}")
    options = options.replace("vers=4.2", f"vers={version}")
    options = options.replace(f"proto={transport}", f"proto={transport}{family}")
    # VDSM's name for it: "_" is doubled, "/" becomes "_" (storage/fileUtils.py).
    place = f"{server}:{path}".replace("_", "__").replace("/", "_")
    return replace(
        sample,
        source=export,
        mountpoint=f"{_MOUNTED}/{place}",
        options=options,
        version=version,
        protocol=f"{transport}{family}",
        address=address,
        age_s=_AGE_S,
    )


def _cm_ids(
    devices: tuple[RdmaDevice, ...],
    mounts: tuple[NfsMount, ...],
    source: Optional[str],
) -> list[CmId]:
    found = {}
    for number, mount in enumerate(mounts):
        if (mount.protocol or "").startswith("rdma") and devices:
            address = mount.address or ""
            to = f"[{address}]" if ":" in address else address
            found[to] = CmId(
                devices[-1].name,
                "CONNECT",
                "[rpcrdma]",
                f"{source}:{40001 + number}",
                f"{to}:20049",
            )
    return list(found.values())


def _marks(
    world: World, host: SimHost, mounts: tuple[NfsMount, ...], uptime_s: float
) -> list[DegradedMark]:
    """Return vdsmd's marks of mounts that should use RDMA by a rule but do not."""
    found = []
    # Block storage has no export.
    rows = [row for row in world.connections.values() if row.path]
    wishes = {row.export: asked_for(host, row) for row in rows}
    for mount in mounts:
        if not host.addon or (mount.protocol or "")[:3] != "tcp":
            continue
        if wishes.get(mount.source) == PREFER_RDMA:
            others = [m for m in sharers(mount, mounts) if wishes.get(m.source) == TCP]
            reason = conflict_clause(others) if others else _NO_ANSWER
            found.append(
                DegradedMark(
                    mount.mountpoint,
                    mount.source,
                    "rule",
                    PREFER_RDMA,
                    "tcp",
                    reason,
                    mounted_s=uptime_s - _AGE_S,
                )
            )
    return found
