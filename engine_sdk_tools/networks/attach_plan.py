# SPDX-License-Identifier: GPL-2.0-or-later
"""Plan ``network attach``: the NIC, address and request for each host. Pure.

:mod:`ovirt_rdma.engine_sdk_tools.networks.attach` carries the plan out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Optional

from ovirt_rdma.engine_sdk_tools.api.request import Call
from ovirt_rdma.engine_sdk_tools.hosts.report import HostReport
from ovirt_rdma.engine_sdk_tools.model import Engine, Host, Network
from ovirt_rdma.engine_sdk_tools.names import hosts_named, listed, network_named
from ovirt_rdma.engine_sdk_tools.networks.addresses import (
    Interface,
    addresses_from_range,
    check_addresses,
)
from ovirt_rdma.engine_sdk_tools.networks.attach_calls import (
    ATTACH,
    CHANGE,
    NOTHING,
    SYNC,
    AttachRequest,
    HostAttach,
    attach_call,
    attachment_of,
    out_of_sync,
    placed,
)
from ovirt_rdma.engine_sdk_tools.networks.checks import (
    IPOIB_MODE,
    Declared,
    host_refusals,
    property_refusals,
    unknown_mtu,
)
from ovirt_rdma.engine_sdk_tools.networks.nic_match import NicMatch
from ovirt_rdma.engine_sdk_tools.networks.nics import choose_nics
from ovirt_rdma.engine_sdk_tools.refusals import check
from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.facts.pkeys import full_member, partition_of


@dataclass(frozen=True)
class AttachPlan:
    """``rows`` in host order. ``networks`` are all networks of the data center with the
    name ``center``, ``reports`` those of the hosts. ``warnings`` are sentences.
    """

    network: Network
    request: AttachRequest
    center: str = ""
    networks: tuple[Network, ...] = ()
    reports: Mapping[str, HostReport] = field(default_factory=dict)
    rows: tuple[HostAttach, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def todo(self) -> tuple[HostAttach, ...]:
        """The hosts on which something has to change."""
        return tuple(row for row in self.rows if row.act != NOTHING)

    @property
    def calls(self) -> tuple[Call, ...]:
        """The requests to the engine, host by host."""
        return tuple(self.call(row) for row in self.todo)

    def call(self, row: HostAttach) -> Call:
        """The request to the engine for one host."""
        return attach_call(row, self.network, self.request.connectivity_s)


def plan_network_attach(
    engine: Engine,
    reports: Mapping[str, HostReport],
    declared: Mapping[str, Declared],
    request: AttachRequest,
) -> AttachPlan:
    """Return the plan for ``request``.

    ``engine`` is read with networks, NICs and attachments; ``declared`` are the custom
    properties by cluster level. Raises Problem for names that do not exist, and
    ChecksFailed with the refusals of all hosts.
    """
    network = network_named(engine, request.network, request.data_center)
    center = network.data_center or ""
    inside = {host.id for host in engine.hosts_of(center)}
    chosen_hosts = hosts_named(engine, request.hosts)
    hosts = in_host_order([host for host in chosen_hosts if host.id in inside])
    others = [host.name for host in chosen_hosts if host.id not in inside]
    refusals: list[Sentence] = []
    if not hosts:
        sentence = f"none of the hosts is in the data center of {network.name}"
        names = f": {', '.join(others)}" if others else ""
        refusals.append(Sentence("hosts-in-other-data-center", sentence + names))
    networks = tuple(n for n in engine.networks or () if n.data_center == center)
    used = {host.cluster for host in hosts}
    clusters = [cluster for cluster in engine.clusters if cluster.id in used]
    refusals += property_refusals(request.properties, declared, clusters)
    asked = request.addresses
    if asked is None:
        asked = addresses_from_range(request.span, [host.name for host in hosts])
    plan = check_addresses(asked, hosts, engine.hosts, network.id)
    refusals += plan.problems
    named = next((c.name for c in engine.data_centers if c.id == center), center)
    base = AttachPlan(network, request, named, networks, reports)
    rows, refused, unknown = _rows(base, hosts, plan.addresses)
    refusals += refused
    refusals += _other_partitions(rows, request)
    check(refusals)
    warnings = _warnings(network, others, unknown)
    return replace(base, rows=tuple(rows), warnings=tuple(warnings))


def plan_host(
    plan: AttachPlan, host: Host, address: Interface
) -> tuple[Optional[HostAttach], list[Sentence]]:
    """Return the plan for ``host`` and the refusals; does not use ``plan.rows``."""
    request, network = plan.request, plan.network
    report = plan.reports.get(host.name)
    match = NicMatch.parse(request.nic_match)
    chosen = choose_nics(host, match, report, request.bond)
    if isinstance(chosen, Sentence):
        return None, [chosen]
    before = attachment_of(host, network.id)
    properties = {**dict(before.properties if before else ()), **request.properties}
    refusals = list(
        host_refusals(
            host,
            chosen,
            network,
            plan.networks,
            center=plan.center,
            report=report,
            properties=properties,
        )
    )
    names = {nic.id: nic.name for nic in host.nics or ()}
    before_nic = names.get(before.nic or "") if before else None
    act, why = ATTACH, "it does not have the network"
    if before is not None:
        wrong = placed(host, before, chosen.target, str(address), properties)
        lagging = out_of_sync(before)
        act = CHANGE if wrong else SYNC if lagging else NOTHING
        why = "; ".join([*wrong, *lagging])
    row = HostAttach(host, chosen, address, act, before, before_nic, properties, why)
    return row, refusals


def in_host_order(hosts: Sequence[Host]) -> tuple[Host, ...]:
    """Sort ``hosts`` by name, and numbers in names by value: host2, host10."""

    def key(host: Host) -> list[tuple[int, int, str]]:
        parts = re.split(r"(\d+)", host.name)
        return [(1, int(p), "") if p.isdecimal() else (0, 0, p) for p in parts]

    return tuple(sorted(hosts, key=key))


def _rows(
    plan: AttachPlan, hosts: Sequence[Host], addresses: Mapping[str, Interface]
) -> tuple[list[HostAttach], list[Sentence], list[str]]:
    rows, refusals, unknown = [], list[Sentence](), []
    mode = plan.request.properties.get(IPOIB_MODE)
    for host in hosts:
        address = addresses.get(host.name)
        if address is None:
            continue
        report = plan.reports.get(host.name)
        row, refused = plan_host(plan, host, address)
        refusals += refused
        if row is not None:
            rows.append(row)
            if unknown_mtu(host, row.chosen, report, mode):
                unknown.append(host.name)
    return rows, refusals, unknown


def _other_partitions(
    rows: Sequence[HostAttach], request: AttachRequest
) -> Iterator[Sentence]:
    """Yield a refusal if the policies of the hosts have one name for two partitions."""
    named = NicMatch.parse(request.nic_match).partitions
    hosts: dict[str, str] = {}
    for row in rows:
        pkey = row.chosen.interface.pkey if row.chosen.interface else None
        if named and (partition := partition_of(pkey)) is not None:
            hosts.setdefault(full_member(partition), row.host.name)
    if len(hosts) > 1:
        where = ", ".join(f"{pkey} on {host}" for pkey, host in hosts.items())
        text = f"{listed(named)} is not the same partition on all hosts: {where}"
        yield Sentence("partition-differs", text)


def _warnings(
    network: Network, others: Sequence[str], unknown: Sequence[str]
) -> list[str]:
    warnings = []
    if others:
        warnings.append(
            f"left out, not in the data center of {network.name}: {listed(others)}"
        )
    if unknown:
        warnings.append(
            f"MTU {network.mtu or 1500} could not be verified on {listed(unknown)}; a "
            "host that does not support it is rolled back"
        )
    return warnings
