# SPDX-License-Identifier: GPL-2.0-or-later
"""Put the report's data into words, for its page and its picture. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Optional

from ovirt_rdma.engine_sdk_tools.matrix import FAIL, NONE, OK, UNKNOWN, WARN
from ovirt_rdma.engine_sdk_tools.report.model import Device, Port, Report, ReportHost
from ovirt_rdma.host.facts.devices import SWITCH, Neighbour

# The worst first.
VERDICTS = (FAIL, UNKNOWN, WARN, OK, NONE)
# Before a host's name, so that its verdict is readable without colour.
SIGNS = {OK: "✓", WARN: "!", FAIL: "✕", UNKNOWN: "?", NONE: "-"}
# From this rate on, in Mb/s, a rate is shown in Gb/s.
_GB = 1000


def counted(number: int, noun: str) -> str:
    """Return ``1 host``, ``2 hosts``; for nouns whose plural ends in s."""
    return f"{number} {noun}" + ("" if number == 1 else "s")


def worst(hosts: Iterable[ReportHost]) -> str:
    """Return the worst verdict of hosts."""
    present = {host.worst for host in hosts}
    return next((verdict for verdict in VERDICTS if verdict in present), NONE)


def rate_text(mbps: Optional[int]) -> str:
    """Return a rate for people: ``100 Gb/s``; "" if it is unknown."""
    if not mbps:
        return ""
    return f"{mbps / _GB:g} Gb/s" if mbps >= _GB else f"{mbps} Mb/s"


def device_text(device: Device) -> str:
    """Return a device for people: ``mlx5_0, ConnectX-5 (mlx5_core)``."""
    product = f", {device.product}" if device.product else ""
    driver = f" ({device.driver})" if device.driver else ""
    return f"{device.name}{product}{driver}"


def port_text(port: Port) -> str:
    """Return a port for people: ``port 1 ACTIVE, InfiniBand 100 Gb/s, ib0``."""
    netdevs = ", ".join(dict.fromkeys(one.netdev for one in port.attached))
    parts = (
        f"port {port.number} {port.state}",
        f"{port.link_layer} {rate_text(port.rate_mbps)}".strip(),
        netdevs or "no IP address",
    )
    return ", ".join(part for part in parts if part)


def neighbour_text(neighbour: Neighbour) -> str:
    """Return what a port is cabled to for people: a switch by its name, ``leaf1``, all
    else with its kind, ``hv2 mlx5_0 (host)``.
    """
    name = neighbour.name or neighbour.id or "without a name"
    if neighbour.kind == SWITCH:
        return name
    return f"{name} ({neighbour.kind or 'of unknown kind'})"


def transports_text(counted: Iterable[tuple[str, int]]) -> str:
    """Return the numbers by transport: ``7 rdma, 1 tcp``."""
    return ", ".join(f"{number} {word}" for word, number in counted)


def verdict_text(report: Report) -> str:
    """Return the report in one sentence."""
    hosts, bad = report.hosts, [h for h in report.hosts if h.worst == FAIL]
    unknown = [h for h in hosts if h.worst == UNKNOWN]
    doubtful = [h for h in hosts if h.worst == WARN]
    if not hosts:
        return "The engine has no host."
    if not bad and not unknown and not doubtful:
        return (
            f"All is well: {counted(len(hosts), 'host')}, and each domain is mounted "
            "as requested."
        )
    parts = [
        f"{len(some)} {one if len(some) == 1 else many}"
        for some, one, many in (
            (bad, "has a failed check", "have a failed check"),
            (unknown, "is not known to be well", "are not known to be well"),
            (doubtful, "has a warning", "have a warning"),
        )
        if some
    ]
    return f"Of {counted(len(hosts), 'host')}, {', '.join(parts)}."
