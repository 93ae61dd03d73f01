# SPDX-License-Identifier: GPL-2.0-or-later
"""Make the report from the engine's data and the hosts' own reports. Pure.

A host's facts are reduced to one row, so that those of hundreds of hosts need not be in
memory together.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Optional

from ovirt_rdma.engine_sdk_tools.domains.transport import (
    InUse,
    connection_transport,
    nfs_export,
    route_to,
    server_addresses,
    transports_in_use,
)
from ovirt_rdma.engine_sdk_tools.domains.transport import matrix_of as domain_matrix
from ovirt_rdma.engine_sdk_tools.fleet import check
from ovirt_rdma.engine_sdk_tools.hosts.report import (
    HostReport,
    versions_of,
    with_own_bugs_caught,
)
from ovirt_rdma.engine_sdk_tools.model import (
    NONE,
    OK,
    Cell,
    Domain,
    Engine,
    Host,
    worst_of,
)
from ovirt_rdma.engine_sdk_tools.report.model import (
    Attached,
    Device,
    EngineEvent,
    Fallen,
    PlanStep,
    Port,
    Report,
    ReportDomain,
    ReportHost,
    ServerPath,
    benchmarks_of,
    runs_of,
)
from ovirt_rdma.host.facts.adapter_models import model_of
from ovirt_rdma.host.facts.devices import (
    Neighbour,
    NetdevGraph,
    RdmaDevice,
    RdmaPort,
)
from ovirt_rdma.host.facts.model import Facts
from ovirt_rdma.host.policy.model import TCP, Policy
from ovirt_rdma.host.rules.base import Step
from ovirt_rdma.storage.benchmark.model import Benchmark

# Limits for what a host may have: it reports its facts, so they may be anything.
_MOST_DEVICES, _MOST_ATTACHED, _MOST_STEPS, _MOST_FALLEN = 64, 64, 200, 100
_MOST_NEIGHBOURS, _MOST_TEXT = 8, 255
# What a cell of no transport counts as.
_NOT_MOUNTED = "not mounted"


@dataclass(frozen=True)
class Row:
    """A host's part of the report, and its rows of both matrices."""

    host: ReportHost
    engine_host: Host
    check: check.HostRow
    transports: tuple[Cell, ...]
    used: tuple[Optional[str], ...]


def row_of(
    engine: Engine,
    host: Host,
    report: HostReport,
    policy: Optional[Policy],
    domains: Sequence[Domain],
) -> Row:
    """Return the part of ``host``. ``domains`` are the NFS domains of the report, the
    columns of its second matrix.
    """
    checked = check.row_of(host, report, policy, check.connections_of(engine, host))
    return with_own_bugs_caught(
        report, lambda report: _row(engine, host, report, checked, domains)
    )


def _row(
    engine: Engine,
    host: Host,
    report: HostReport,
    checked: check.HostRow,
    domains: Sequence[Domain],
) -> Row:
    cluster = next((c for c in engine.clusters if c.id == host.cluster), None)
    center = cluster.data_center if cluster else None
    inside = [d for d in domains if center is not None and d.data_center == center]
    found = transports_in_use(host, report, inside)
    used = {(d.id, d.data_center): one for d, one in zip(inside, found)}
    in_columns = [used.get((d.id, d.data_center)) for d in domains]
    cells = tuple(
        one.cell if one else Cell(NONE, "-", source="engine") for one in in_columns
    )
    facts = report.facts
    runs, runs_problem = runs_of(report.history)
    names = {c.id: c.name for c in engine.data_centers}
    return Row(
        ReportHost(
            host.name,
            host.id,
            host.address,
            names.get(center or ""),
            cluster.name if cluster else None,
            host.status,
            worst_of(c.verdict for c in (*checked.cells, *cells)),
            facts.kernel_release if facts else None,
            facts.software.vdsm_version if facts else None,
            versions_of(report),
            report.read_at,
            tuple(_devices(facts)) if facts else None,
            tuple(_paths(facts, zip(inside, found))) if facts else None,
            None if checked.steps is None else tuple(_steps(checked.steps)),
            tuple(_fallen(found))[:_MOST_FALLEN],
            runs,
            runs_problem,
            report.problem,
            report.fix,
        ),
        host,
        checked,
        cells,
        tuple(word_of(one) if one else None for one in in_columns),
    )


def report_of(
    engine: Engine,
    rows: Sequence[Row],
    policy: Optional[Policy],
    domains: Sequence[Domain],
    *,
    made_at: str,
    version: str,
    events: Optional[tuple[EngineEvent, ...]] = None,
    results: Iterable[Benchmark] = (),
    notes: tuple[str, ...] = (),
    policy_file: Optional[str] = None,
) -> Report:
    """Return the report of the rows of :func:`row_of`, and of ``results`` of ``bench``;
    ``notes`` come after those on the engine's data. ``policy_file`` has the policy.
    """
    checks = check.check(engine, [row.check for row in rows], policy, policy_file)
    transports = domain_matrix(
        engine, [(row.engine_host, row.transports) for row in rows], domains
    )
    hosts = []
    for row, cells in zip(rows, checks.cells):
        # The cell of the policy needs all hosts.
        worst = worst_of(c.verdict for c in (*cells, *row.transports))
        hosts.append(replace(row.host, worst=worst))
    centers = {center.id: center.name for center in engine.data_centers}
    return Report(
        made_at,
        version,
        engine.url,
        engine.version,
        tuple(hosts),
        tuple(
            _domain(
                domain,
                centers.get(domain.data_center or ""),
                (row.used[number] for row in rows),
            )
            for number, domain in enumerate(domains)
        ),
        checks,
        transports,
        events,
        benchmarks_of(
            results,
            [(host.name, host.address) for host in hosts],
            {
                domain.connection.export: domain.name
                for domain in domains
                if domain.connection
            },
        ),
        (*engine.problems, *notes),
    )


def word_of(used: InUse) -> str:
    """Return what a host uses for a domain: ``rdma``, ``tcp``, ``not mounted``,
    ``unproven`` or ``unknown``.
    """
    if used.transport is not None:
        return used.transport
    if used.mounted is None:
        return "unknown"
    return "unproven" if used.mounted else _NOT_MOUNTED


def _domain(
    domain: Domain, center: Optional[str], column: Iterable[Optional[str]]
) -> ReportDomain:
    connection = domain.connection
    counted = Counter(word for word in column if word is not None)
    return ReportDomain(
        domain.name,
        domain.id,
        center,
        domain.status,
        _server(domain),
        connection.export if connection else "",
        connection.nfs_version if connection else None,
        connection_transport(connection) if connection else TCP,
        tuple(counted.most_common()),
    )


def _server(domain: Domain) -> str:
    export = nfs_export(domain.connection)
    return export.server if export else ""


def _devices(facts: Facts) -> Iterator[Device]:
    graph = NetdevGraph(facts.netdevs)
    for device in facts.rdma_devices[:_MOST_DEVICES]:
        yield Device(
            device.name,
            _product(device),
            device.driver,
            device.firmware,
            tuple(
                Port(
                    port.number,
                    port.state,
                    port.link_layer,
                    port.rate_mbps,
                    (port.sm_lid or None) if port.is_infiniband else None,
                    tuple(_attached_to(facts, graph, device, port))[:_MOST_ATTACHED],
                    tuple(map(_cut, port.neighbours[:_MOST_NEIGHBOURS])),
                )
                for port in device.ports[:_MOST_DEVICES]
            ),
        )


def _cut(neighbour: Neighbour) -> Neighbour:
    """Return ``neighbour`` with texts no longer than those that a host reads."""
    return Neighbour(*(text and text[:_MOST_TEXT] for text in astuple(neighbour)))


def _product(device: RdmaDevice) -> str:
    model = model_of(device.pci) if device.pci else None
    if model is not None:
        return model.name
    if device.is_soft_roce:
        return "Soft-RoCE"
    return device.hca_type or ""


def _attached_to(
    facts: Facts, graph: NetdevGraph, device: RdmaDevice, port: RdmaPort
) -> Iterator[Attached]:
    base = [
        netdev.name
        for netdev in facts.netdevs
        if netdev.rdma_device == device.name and netdev.rdma_port == port.number
    ]
    # The netdev of a Soft-RoCE or RoCE port may only be in the GID table.
    base += [gid.netdev for gid in port.gids if gid.netdev]
    for name in graph.above(*base):
        attached = _attached(facts, name)
        if attached.subnets or attached.network:
            yield attached


def _attached(facts: Facts, name: str) -> Attached:
    netdev = next((n for n in facts.netdevs if n.name == name), None)
    network = next(
        (
            network.name
            for network in facts.ovirt_networks
            # A bridge has the network's name.
            if name in (network.southbound, network.name)
        ),
        None,
    )
    return Attached(name, network, tuple(_subnets(netdev.addresses if netdev else ())))


def _subnets(addresses: Iterable[str]) -> Iterator[str]:
    for text in addresses:
        try:
            network = ipaddress.ip_interface(text).network
        except ValueError:
            continue
        if not network.is_link_local:
            yield str(network)


def _paths(facts: Facts, found: Iterable[tuple[Domain, InUse]]) -> Iterator[ServerPath]:
    by_server: dict[str, list[tuple[Domain, InUse]]] = {}
    for domain, used in found:
        by_server.setdefault(_server(domain), []).append((domain, used))
    for server, those in by_server.items():
        export = nfs_export(those[0][0].connection)
        known = server_addresses(facts, export) if export else ()
        route = route_to(facts, known)
        netdev = route.netdev if route else None
        counted = Counter(word_of(used) for _, used in those)
        yield ServerPath(
            server,
            netdev,
            _attached(facts, netdev) if netdev else None,
            tuple(counted.most_common()),
        )


def _steps(steps: Sequence[Step]) -> Iterator[PlanStep]:
    for step in steps[:_MOST_STEPS]:
        yield PlanStep(
            step.id,
            step.effect,
            step.sentence,
            step.before,
            step.after,
            step.reason,
            step.refused,
            step.users,
        )


def _fallen(found: Iterable[InUse]) -> Iterator[Fallen]:
    for used in found:
        review = used.review
        if review is not None and review.mark is not None and used.cell.verdict != OK:
            mark = review.mark
            yield Fallen(
                mark.export, mark.transport, mark.rule, mark.reason, review.since
            )
