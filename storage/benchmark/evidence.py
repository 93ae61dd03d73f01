# SPDX-License-Identifier: GPL-2.0-or-later
"""Condense facts and counters into the evidence for a verdict. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Optional

from ovirt_rdma.host.facts.devices import PciLink, RdmaDevice, RdmaPort
from ovirt_rdma.host.facts.model import Facts
from ovirt_rdma.host.facts.statistics import (
    LOSSES,
    MountStatistics,
    Statistics,
    growth,
    moved_without_requests,
)
from ovirt_rdma.host.mount_options import transport_of
from ovirt_rdma.host.rules.adapters import mbps
from ovirt_rdma.storage.benchmark.model import LOCAL, NetworkPath, Sample
from ovirt_rdma.storage.readiness import ports_behind

MIXED = "mixed"


def path_to(facts: Facts, address: str) -> NetworkPath:
    """Return how ``facts``' host reaches ``address``."""
    route = next((one for one in facts.routes if one.destination == address), None)
    if route is None or route.netdev is None:
        return NetworkPath(address)
    mtu = next((d.mtu for d in facts.netdevs if d.name == route.netdev), None)
    found = ports_behind(
        facts.rdma_devices, facts.netdevs, route.netdev, route.source or ""
    )
    if not found:
        fastest, fastest_mbps = _faster(facts, 0, None)
        return NetworkPath(
            address,
            route.netdev,
            mtu,
            fastest=fastest,
            fastest_mbps=fastest_mbps,
        )
    device, port = found[0]
    rate = _rate(device, port)
    link = _pci_link(facts, device)
    fastest, fastest_mbps = _faster(facts, rate, (device.name, port.number))
    return NetworkPath(
        address,
        route.netdev,
        mtu,
        device.name,
        port.number,
        port.link_layer,
        rate,
        port.active_mtu,
        port.max_mtu,
        mbps(link.speed_gts, link.width) if link else None,
        _link_text(link),
        fastest,
        fastest_mbps,
    )


def _rate(device: RdmaDevice, port: RdmaPort) -> Optional[int]:
    # Soft-RoCE invents a rate if the netdev below has none (rxe_query_port).
    return None if device.is_soft_roce else port.data_rate_mbps


def _pci_link(facts: Facts, device: RdmaDevice) -> Optional[PciLink]:
    address = device.pci.address if device.pci else None
    return next((a.pci_link for a in facts.adapters if a.pci.address == address), None)


def _link_text(link: Optional[PciLink]) -> Optional[str]:
    if not link or not link.speed_gts or not link.width:
        return None
    return f"{link.speed_gts:g} GT/s x{link.width}"


def _faster(
    facts: Facts, rate: Optional[int], own: Optional[tuple[str, int]]
) -> tuple[Optional[str], Optional[int]]:
    """Return the fastest other port, if it is faster than ``rate`` (None: unknown)."""
    others = [
        (_rate(device, port) or 0, f"{device.name}/{port.number}")
        for device in facts.rdma_devices
        for port in device.ports
        if port.is_active and (device.name, port.number) != own
    ]
    best, name = max(others, default=(0, ""))
    if rate is None or best <= rate:
        return None, None
    return name, best


@dataclass(frozen=True)
class Cpu:
    """The times of one processor in /proc/stat, in ticks of USER_HZ; ``busy`` is
    without that of virtual machines.
    """

    busy: int
    total: int


@dataclass(frozen=True)
class Moment:
    """The counters of one moment.

    cpus: by name, as ``cpu0``; tcp_resent: segments, and tcp_out_of_order: those that
    arrived before an earlier one; None if unknown
    """

    statistics: Statistics
    cpus: tuple[tuple[str, Cpu], ...] = ()
    tcp_resent: Optional[int] = None
    tcp_out_of_order: Optional[int] = None


# proc(5): user nice system idle iowait irq softirq steal guest guest_nice. Time stolen
# by a hypervisor was not there to use. Guest times are part of user and nice; what
# virtual machines compute is not the work of this benchmark.
_IDLE = (3, 4)
_STEAL = 7
_TIMES = 8


def cpu_times(text: str) -> tuple[tuple[str, Cpu], ...]:
    """Return the processors in the text of /proc/stat."""
    found = []
    for line in text.split("\n"):
        words = line.split()
        if len(words) < 1 + _TIMES or not re.fullmatch(r"cpu[0-9]{1,5}", words[0]):
            continue
        known = words[1 : 1 + _TIMES + 2]
        if not all(re.fullmatch(r"[0-9]{1,20}", word) for word in known):
            continue
        times, guests = [int(word) for word in known[:_TIMES]], known[_TIMES:]
        total = sum(times) - times[_STEAL]
        busy = total - sum(times[at] for at in _IDLE) - sum(map(int, guests))
        found.append((words[0], Cpu(max(0, busy), total)))
    return tuple(found)


def tcp_resent(snmp: str, netstat: str) -> Optional[int]:
    """Return RetransSegs less TCPDSACKRecv, of the texts of /proc/net/snmp and netstat;
    None if either is not there.

    With a DSACK the other side says that it had the segment already (RFC 2883): it was
    late, not lost.
    """
    resent = _tcp(snmp, "Tcp:", "RetransSegs")
    late = _tcp(netstat, "TcpExt:", "TCPDSACKRecv")
    return None if resent is None or late is None else resent - late


def tcp_out_of_order(text: str) -> Optional[int]:
    """Return TCPOFOQueue in the text of /proc/net/netstat; None if it is not there.

    The kernel counts a segment that arrives behind a gap (tcp_data_queue_ofo in
    net/ipv4/tcp_input.c): the only sign of losses on a host that reads.
    """
    return _tcp(text, "TcpExt:", "TCPOFOQueue")


def _tcp(text: str, title: str, name: str) -> Optional[int]:
    lines = [line.split() for line in text.split("\n") if line.startswith(title)]
    for names, values in zip(lines[::2], lines[1::2]):
        found = dict(zip(names, values)).get(name, "")
        if re.fullmatch(r"[0-9]{1,20}", found):
            return int(found)
    return None


def sample_between(
    before: Moment, after: Moment, mountpoint: str, path: Optional[NetworkPath]
) -> Sample:
    """Return what was counted between two moments, for the mount at ``mountpoint``."""
    seconds = max(0.01, after.statistics.taken_s - before.statistics.taken_s)
    old, new = _mount(before, mountpoint), _mount(after, mountpoint)
    shares, cpu_s = _cpu(before, after, seconds)
    errors, packets = _port(before, after, path)
    counted = _counted(old, new) if old and new else {}
    return Sample(
        seconds=round(seconds, 2),
        cpu_s=round(cpu_s, 3),
        cpus=max(1, len(after.cpus)),
        busiest_cpu=round(max(shares, default=0.0), 3),
        path_errors=errors,
        packets=packets,
        tcp_resent=growth(before.tcp_resent, after.tcp_resent),
        tcp_out_of_order=growth(before.tcp_out_of_order, after.tcp_out_of_order),
        **counted,  # type: ignore[arg-type]
    )


def _mount(moment: Moment, mountpoint: str) -> Optional[MountStatistics]:
    mounts = moment.statistics.mounts
    return next((one for one in mounts if one.mountpoint == mountpoint), None)


def _cpu(before: Moment, after: Moment, seconds: float) -> tuple[list[float], float]:
    """Return the busy share of each processor, and the busy seconds of all."""
    earlier = dict(before.cpus)
    shares = []
    for name, now in after.cpus:
        then = earlier.get(name)
        total = now.total - then.total if then else 0
        if then and total > 0:
            shares.append(min(1.0, max(0, now.busy - then.busy) / total))
    return shares, sum(shares) * seconds


def _port(
    before: Moment, after: Moment, path: Optional[NetworkPath]
) -> tuple[Optional[int], Optional[int]]:
    """Return errors and received packets of the port on ``path``."""
    if path is None or path.device is None:
        return None, None
    own = (path.device, path.port)
    old = next((p for p in before.statistics.ports if (p.device, p.port) == own), None)
    new = next((p for p in after.statistics.ports if (p.device, p.port) == own), None)
    if old is None or new is None:
        return None, None
    grown = (growth(old.get(name), new.get(name)) for name in LOSSES)
    known = [count for count in grown if count is not None]
    return (
        sum(known) if known else None,
        growth(old.packets, new.packets),
    )


def _counted(old: MountStatistics, new: MountStatistics) -> dict[str, object]:
    kinds = {transport_of(one.protocol) for one in new.transports}
    operations, transmissions, rtt, queue = (
        max(0, _total(new, field) - _total(old, field))
        for field in ("operations", "transmissions", "rtt_ms", "queue_ms")
    )
    sends, backlog, connects = (
        max(0, _sum(new, name) - _sum(old, name))
        for name in ("sends", "bklog_u", "connect_count")
    )
    transport = kinds.pop() if len(kinds) == 1 else MIXED if kinds else None
    if moved_without_requests(old, new):
        transport = LOCAL
    return {
        "transport": transport,
        "connections": len(new.transports),
        "rsize": new.rsize,
        "wsize": new.wsize,
        "operations": operations,
        "transmissions": transmissions,
        "rtt_ms": _average(rtt, operations),
        "queue_ms": _average(queue, operations),
        "backlog": _average(backlog, sends),
        "reconnects": connects if len(new.transports) == len(old.transports) else 0,
    }


def _total(mount: MountStatistics, field: str) -> int:
    return sum(getattr(one, field) for one in (*mount.reads, *mount.writes))


def _sum(mount: MountStatistics, counter: str) -> int:
    return sum(one.get(counter) or 0 for one in mount.transports)


def _average(total: int, count: int) -> float:
    return round(total / count, 3) if count else 0.0


def slots_of(facts: Facts) -> Optional[int]:
    """Return the slots of an RDMA connection to come; None if unknown."""
    return facts.tuning.rdma_slots if facts.tuning else None
