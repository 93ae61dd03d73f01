# SPDX-License-Identifier: GPL-2.0-or-later
"""Make the report from the engine's data and the hosts' own reports. Pure.

A host's facts are reduced to one row, so that those of hundreds of hosts need not be in
memory together.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
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
    Fallen,
    PlanStep,
    Port,
    Report,
    ReportDomain,
    ReportHost,
    ServerPath,
    benchmarks_of,
    picked,
    shortened,
)
from ovirt_rdma.host.facts.adapter_models import model_of
from ovirt_rdma.host.facts.devices import NetdevGraph
from ovirt_rdma.host.facts.model import Facts
from ovirt_rdma.host.policy.model import TCP, Policy
from ovirt_rdma.storage.benchmark.model import Benchmark

# Of each list that a host reports, and of a text: its facts may be anything.
_MOST, _MOST_TEXT = 200, 255


@dataclass(frozen=True)
class Row:
    """A host's part of the report, and its rows of both matrices. ``used`` is what it
    uses for each domain; None for those of other data centers.
    """

    host: ReportHost
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
    return with_own_bugs_caught(report, partial(_row, engine, host, checked, domains))


def _row(
    engine: Engine,
    host: Host,
    checked: check.HostRow,
    domains: Sequence[Domain],
    report: HostReport,
) -> Row:
    cluster = next((c for c in engine.clusters if c.id == host.cluster), None)
    center = cluster.data_center if cluster else None
    inside = [d for d in domains if center is not None and d.data_center == center]
    found = dict(zip(inside, transports_in_use(host, report, inside)))
    nothing = Cell(NONE, "-", source="engine")
    cells = tuple(found[d].cell if d in found else nothing for d in domains)
    facts = report.facts
    known = _attached(facts) if facts else {}
    part = picked(
        ReportHost,
        host,
        report,
        data_center=next((c.name for c in engine.data_centers if c.id == center), None),
        cluster=cluster.name if cluster else None,
        worst=worst_of(cell.verdict for cell in (*checked.cells, *cells)),
        versions=versions_of(report),
        devices=tuple(_devices(facts, known)) if facts else None,
        paths=tuple(_paths(facts, known, found)) if facts else None,
        steps=None
        if checked.steps is None
        else tuple(picked(PlanStep, step) for step in checked.steps[:_MOST]),
        fallen=tuple(_fallen(found.values()))[:_MOST],
    )
    used = tuple(_word(found[d]) if d in found else None for d in domains)
    return Row(part, checked, cells, used)


def report_of(
    engine: Engine,
    rows: Sequence[Row],
    policy: Optional[Policy],
    domains: Sequence[Domain],
    *,
    made_at: str,
    version: str,
    results: Iterable[Benchmark] = (),
    notes: tuple[str, ...] = (),
    policy_file: Optional[str] = None,
) -> Report:
    """Return the report of the rows of :func:`row_of`, and of ``results`` of ``bench``;
    ``notes`` come after those on the engine's data. ``policy_file`` has the policy.
    """
    checks = check.check(engine, [row.check for row in rows], policy, policy_file)
    hosts = []
    for row, cells in zip(rows, checks.cells):
        # The cell of the policy needs all hosts.
        worst = worst_of(cell.verdict for cell in (*cells, *row.transports))
        hosts.append(replace(row.host, worst=worst))
    shown = []
    for number, domain in enumerate(domains):
        connection, export = domain.connection, nfs_export(domain.connection)
        centers = (c.name for c in engine.data_centers if c.id == domain.data_center)
        used = Counter(word for row in rows if (word := row.used[number]))
        shown.append(
            ReportDomain(
                domain.name,
                domain.id,
                next(centers, None),
                domain.status,
                export.server if export else "",
                connection.export if connection else "",
                connection.nfs_version if connection else None,
                connection_transport(connection) if connection else TCP,
                tuple(used.most_common()),
            )
        )
    return Report(
        made_at,
        version,
        engine.url,
        engine.version,
        tuple(hosts),
        tuple(shown),
        checks,
        domain_matrix(
            engine, [(row.check.host, row.transports) for row in rows], domains
        ),
        benchmarks_of(
            results,
            [(host.name, host.address) for host in hosts],
            {domain.export: domain.name for domain in shown if domain.export},
        ),
        (*engine.problems, *notes),
    )


def _word(used: InUse) -> str:
    """Return what a host uses for a domain, as docs/report.md lists it."""
    if used.transport is not None:
        return used.transport
    if used.mounted is None:
        return "unknown"
    return "unproven" if used.mounted else "not mounted"


def _attached(facts: Facts) -> dict[str, Attached]:
    """Return the network and subnets on each netdev, by its name."""
    networks: dict[Optional[str], str] = {}
    for network in facts.ovirt_networks:
        # A bridge has the network's name.
        for name in (network.southbound, network.name):
            networks.setdefault(name, network.name)
    return {
        netdev.name: Attached(
            netdev.name, networks.get(netdev.name), tuple(_subnets(netdev.addresses))
        )
        for netdev in facts.netdevs
    }


def _subnets(addresses: Iterable[str]) -> Iterator[str]:
    for text in addresses:
        try:
            network = ipaddress.ip_interface(text).network
        except ValueError:
            continue
        if not network.is_link_local:
            yield str(network)


def _devices(facts: Facts, known: dict[str, Attached]) -> Iterator[Device]:
    graph = NetdevGraph(facts.netdevs)
    for device in facts.rdma_devices[:_MOST]:
        ports = []
        for port in device.ports[:_MOST]:
            its = (device.name, port.number)
            base = [n for n in facts.netdevs if (n.rdma_device, n.rdma_port) == its]
            # The netdev of a Soft-RoCE or RoCE port may only be in the GID table.
            gids = [gid.netdev for gid in port.gids if gid.netdev]
            above = graph.above(*(netdev.name for netdev in base), *gids)
            attached = [known[name] for name in above if name in known]
            some = [one for one in attached if one.subnets or one.network][:_MOST]
            ends = shortened(port.neighbours[:_MOST], _MOST_TEXT)
            ports.append(picked(Port, port, attached=tuple(some), neighbours=ends))
        model = model_of(device.pci) if device.pci else None
        product = "Soft-RoCE" if device.is_soft_roce else device.hca_type or ""
        product = model.name if model else product
        yield picked(Device, device, product=product, ports=tuple(ports))


def _paths(
    facts: Facts, known: dict[str, Attached], found: dict[Domain, InUse]
) -> Iterator[ServerPath]:
    servers: dict[str, Counter[str]] = {}
    netdevs: dict[str, Optional[str]] = {}
    for domain, used in found.items():
        export = nfs_export(domain.connection)
        server = export.server if export else ""
        servers.setdefault(server, Counter())[_word(used)] += 1
        if export and server not in netdevs:
            route = route_to(facts, server_addresses(facts, export))
            netdevs[server] = route.netdev if route else None
    for server, counted in servers.items():
        netdev = netdevs.get(server)
        attached = known.get(netdev, Attached(netdev)) if netdev else None
        yield ServerPath(server, netdev, attached, tuple(counted.most_common()))


def _fallen(found: Iterable[InUse]) -> Iterator[Fallen]:
    for used in found:
        review = used.review
        if review is not None and review.mark is not None and used.cell.verdict != OK:
            yield picked(Fallen, review.mark, since=review.since)
