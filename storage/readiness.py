# SPDX-License-Identifier: GPL-2.0-or-later
"""Judge whether an RDMA mount of a server can work, from steps and verdicts. Pure.

One step that is certain to fail makes the result *not ready*. A step that could not be
tried makes it *unknown*, and the mount itself is the test.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Optional

from ovirt_rdma.host.facts.devices import (
    Guid,
    Netdev,
    NetdevGraph,
    RdmaDevice,
    RdmaPort,
)
from ovirt_rdma.host.facts.model import Facts, Route

READY = "ready"
NOT_READY = "not ready"
UNKNOWN = "unknown"

MODULE = "rpcrdma"
MODULE_STEP = "module"


@dataclass(frozen=True)
class Step:
    """One check: its ``name``, ``verdict``, what was found (``detail``), and a fix.

    ``refused``: the server itself said no.
    """

    name: str
    verdict: str
    detail: str
    fix: str = ""
    refused: bool = False


@dataclass(frozen=True)
class Readiness:
    """All steps for one server, in the order of the checks."""

    steps: tuple[Step, ...] = ()

    @property
    def verdict(self) -> str:
        """NOT_READY if a step is, else UNKNOWN if a step is, else READY."""
        verdicts = {step.verdict for step in self.steps}
        for verdict in (NOT_READY, UNKNOWN):
            if verdict in verdicts:
                return verdict
        return READY

    @property
    def deciding_step(self) -> Optional[Step]:
        """The first step that has the verdict; None if all are ready."""
        verdict = self.verdict
        if verdict == READY:
            return None
        return next(step for step in self.steps if step.verdict == verdict)

    @property
    def fix(self) -> str:
        """The fix of the first step that has the verdict and a fix; or empty."""
        steps = (step for step in self.steps if step.verdict == self.verdict)
        return next((step.fix for step in steps if step.fix), "")

    @property
    def reason(self) -> str:
        """The detail of the deciding step."""
        step = self.deciding_step
        return step.detail if step else "this host and the server are ready for RDMA"


def local_steps(facts: Facts, route: Optional[Route]) -> tuple[Step, ...]:
    """Check whether this host can reach ``route.destination`` over RDMA.

    Checks the module, the route (None if unknown), and the port that owns the source
    address.
    """
    module = _module_step(facts)
    if route is None:
        unknown = Step("route", UNKNOWN, "the route to the server is unknown")
        # Without a device the route does not matter.
        if not facts.rdma_devices:
            return module, unknown, _no_device()
        return module, unknown
    if route.netdev is None or route.source is None:
        problem = route.problem or "the kernel names no netdev"
        return (
            module,
            Step(
                "route",
                NOT_READY,
                f"no route to {route.destination}: {problem}",
                "check this host's network attachment for the storage network",
            ),
        )
    route_step = Step(
        "route", READY, f"{route.destination} by {route.netdev} from {route.source}"
    )
    return module, route_step, _port_step(facts, route.netdev, route.source)


def ports_behind(
    devices: Iterable[RdmaDevice],
    netdevs: Sequence[Netdev],
    netdev: str,
    source: str,
) -> list[tuple[RdmaDevice, RdmaPort]]:
    """Return the ports that own the IP address ``source`` on ``netdev``, as RDMA CM
    finds them.

    RoCE: the GID table contains the address, also one of a bond, VLAN or bridge above
    the port's netdev (drivers/infiniband/core/roce_gid_mgmt.c); this finds the host's
    own addresses too, although their route says ``lo``. InfiniBand: the GID ends in
    the port GUID, and so does the 20-byte address of the IPoIB netdev or of one below
    it. iWARP: the GID begins with the netdev's MAC address.
    """
    # The route to an address of this host says lo, which belongs to no port.
    below = {*NetdevGraph(netdevs).below(netdev)} - {"lo"}
    hardware = {d.address.replace(":", "").lower() for d in netdevs if d.name in below}
    guids = set(filter(None, map(Guid.of_address, hardware)))
    wanted = _gid_of(source)
    ports = []
    for device in devices:
        for port in device.ports:
            gids = {gid.gid.replace(":", "").lower() for gid in port.gids}
            if device.is_iwarp:
                owns = any(gid[:12] in hardware for gid in gids)
            elif port.is_infiniband:
                owns = any(Guid.of_gid(gid) in guids for gid in gids)
            else:
                owns = wanted in gids
            if owns:
                ports.append((device, port))
    return ports


def _module_step(facts: Facts) -> Step:
    if MODULE in facts.modules.loaded:
        return Step(MODULE_STEP, READY, f"{MODULE} is loaded")
    available = facts.modules.available
    if available is None:
        return Step(MODULE_STEP, UNKNOWN, f"{MODULE} is not loaded yet")
    if MODULE in available:
        return Step(MODULE_STEP, READY, f"{MODULE} loads with the first mount")
    return Step(
        MODULE_STEP,
        NOT_READY,
        f"kernel {facts.kernel_release} has no {MODULE} module",
        "install the kernel's extra modules, or the NFS part of the vendor's RDMA "
        "software",
    )


def _port_step(facts: Facts, netdev: str, source: str) -> Step:
    if not facts.rdma_devices:
        return _no_device()
    ports = ports_behind(facts.rdma_devices, facts.netdevs, netdev, source)
    if not ports:
        names = ", ".join(device.name for device in facts.rdma_devices)
        return Step(
            "port",
            NOT_READY,
            f"no RDMA port owns {source} on {netdev} (RDMA devices: {names})",
            "put the storage address on the RDMA port's netdev, or on one above it",
        )
    states = [f"{device.name}/{port.number} is {port.state}" for device, port in ports]
    if any(port.is_active for _, port in ports):
        return Step("port", READY, f"{' and '.join(states)} and owns {source}")
    return Step(
        "port",
        NOT_READY,
        f"the RDMA port is not ACTIVE: {', '.join(states)}",
        "check the cable, the switch port and, on InfiniBand, the subnet manager",
    )


def _no_device() -> Step:
    return Step(
        "port",
        NOT_READY,
        "this host has no RDMA device",
        "check that the adapter's driver is loaded: rdma link",
    )


def _gid_of(source: str) -> str:
    address = ipaddress.ip_address(source)
    if address.version == 4:
        address = ipaddress.ip_address(f"::ffff:{address}")
    return address.packed.hex()
