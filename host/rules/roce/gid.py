# SPDX-License-Identifier: GPL-2.0-or-later
"""ROCE-GID-01: check type and addresses of the GIDs of RoCE ports. Pure.

RDMA CM finds a port by the GID of the source address.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from ovirt_rdma.host.rules.base import PASS, SKIP, WARN, Finding, Rule
from ovirt_rdma.host.rules.roce.ports import (
    RocePort,
    gid_of,
    global_addresses,
    roce_ports,
    without_roce,
)
from ovirt_rdma.host.rules.view import View

ID = "ROCE-GID-01"
V1, V2 = "IB/RoCE v1", "RoCE v2"


def decide(view: View) -> Iterator[Finding]:
    """Yield findings for each RoCE port."""
    ports = list(roce_ports(view))
    if not ports:
        yield without_roce(view, ID)
    for port in ports:
        yield from _port(port)


def _port(port: RocePort) -> Iterator[Finding]:
    types = {gid.type for gid in port.port.gids}
    if not types - {None}:
        sentence = f"{port.name} shows no GID with a type"
        yield Finding(ID, port.name, SKIP, sentence, _show_gids(port))
        return
    default = port.port.default_gid_type
    if V2 not in types:
        yield Finding(
            ID,
            port.name,
            WARN,
            f"{port.name} supports RoCE v1 only, which is limited to one Ethernet "
            "segment and to servers that support v1",
            "use ConnectX-3 Pro or later: many NFS servers support RoCE v2 only",
        )
    elif default == V1:
        folder = shlex.quote(f"/sys/kernel/config/rdma_cm/{port.device.name}")
        yield Finding(
            ID,
            port.name,
            WARN,
            f"RDMA CM uses RoCE v1 on {port.name}, although the port supports v2",
            f"mkdir -p {folder}; echo 'RoCE v2' > "
            f"{folder}/ports/{port.port.number}/default_roce_mode",
        )
    else:
        used = "" if default is None else f", and RDMA CM uses {default}"
        yield Finding(ID, port.name, PASS, f"{port.name} supports RoCE v2{used}")
    yield from _addresses(port)


def _addresses(port: RocePort) -> Iterator[Finding]:
    """Compare the addresses of the port's netdevs with its GID table."""
    gids = {gid.gid.lower() for gid in port.port.gids}
    if not port.with_address:
        names = ", ".join(base.name for base in port.bases) or port.name
        sentence = f"neither {names} nor a netdev above has an address"
        fix = "assign an address to the storage network: RDMA CM finds the port by it"
        yield Finding(ID, port.name, SKIP, sentence, fix)
    for netdev in port.with_address:
        missing = [a for a in global_addresses(netdev) if gid_of(a) not in gids]
        if missing:
            yield Finding(
                ID,
                netdev.name,
                WARN,
                f"{', '.join(missing)} of {netdev.name} is not in the GID table of "
                f"{port.name}: RDMA CM cannot use it there",
                f"ip link set {netdev.name} up; {_show_gids(port)}",
            )


def _show_gids(port: RocePort) -> str:
    folder = f"/sys/class/infiniband/{port.device.name}/ports/{port.port.number}"
    return f"grep . {folder}/gids/* shows the table"


RULE = Rule(ID, decide)

RULES = (RULE,)
