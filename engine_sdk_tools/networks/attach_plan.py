# SPDX-License-Identifier: GPL-2.0-or-later
"""``network attach``, planned: which nic of which host gets the network, with which
address, and what the engine is asked for. Pure.

:mod:`ovirt_rdma.engine_sdk_tools.networks.attach` carries it out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Optional

from ovirt_rdma.engine_sdk_tools.api.request import Call
from ovirt_rdma.engine_sdk_tools.hosts.report import HostReport
from ovirt_rdma.engine_sdk_tools.model import Engine, Host, Network
from ovirt_rdma.engine_sdk_tools.names import hosts_named, listed, pick
from ovirt_rdma.engine_sdk_tools.networks.addresses import (
    Interface,
    check_addresses,
    counted,
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
    against_host,
    against_properties,
    unknown_mtu,
)
from ovirt_rdma.engine_sdk_tools.networks.nics import NicMatch, choose_nics
from ovirt_rdma.engine_sdk_tools.refusals import check


@dataclass(frozen=True)
class AttachPlan:
    """``rows`` in host order. ``networks`` are all of the data center, ``reports`` what
    the hosts told. ``warnings`` are sentences.
    """

    network: Network
    request: AttachRequest
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
        """What would be asked of the engine, host by host."""
        return tuple(self.call(row) for row in self.todo)

    def call(self, row: HostAttach) -> Call:
        """What would be asked of the engine for one host."""
        return attach_call(row, self.network, self.request.connectivity_s)


def plan_network_attach(
    engine: Engine,
    reports: Mapping[str, HostReport],
    declared: Mapping[str, Declared],
    request: AttachRequest,
) -> AttachPlan:
    """Return what has to be done for ``request``.

    ``engine`` is read with networks, nics and attachments, ``declared`` the custom
    properties by cluster level. Raises Problem for names that do not exist, and
    ChecksFailed with everything that is against any host.
    """
    network = pick(
        "network",
        request.network,
        engine.networks or (),
        request.data_center,
        engine.data_centers,
    )
    center = network.data_center or ""
    inside = {host.id for host in engine.hosts_of(center)}
    chosen_hosts = hosts_named(engine, request.hosts)
    hosts = in_host_order([host for host in chosen_hosts if host.id in inside])
    others = [host.name for host in chosen_hosts if host.id not in inside]
    against: list[str] = []
    if not hosts:
        against.append(
            f"none of the hosts is in the data center of {network.name}"
            + (f": {', '.join(others)}" if others else "")
        )
    networks = tuple(n for n in engine.networks or () if n.data_center == center)
    used = {host.cluster for host in hosts}
    clusters = [cluster for cluster in engine.clusters if cluster.id in used]
    against += against_properties(request.properties, declared, clusters)
    asked = request.addresses
    if asked is None:
        asked = counted(request.span, [host.name for host in hosts])
    plan = check_addresses(asked, hosts, engine.hosts, network.id)
    against += plan.problems
    base = AttachPlan(network, request, networks, reports)
    rows, refused, unknown = _rows(base, hosts, plan.addresses)
    against += refused
    check(against)
    warnings = _warnings(network, others, unknown)
    return replace(base, rows=tuple(rows), warnings=tuple(warnings))


def plan_host(
    plan: AttachPlan, host: Host, address: Interface
) -> tuple[Optional[HostAttach], list[str]]:
    """Return what has to be done on ``host``, and what is against it; the rows of
    ``plan`` do not matter.
    """
    request, network = plan.request, plan.network
    report = plan.reports.get(host.name)
    match = NicMatch.parse(request.nic_match)
    chosen, problem = choose_nics(host, match, report, request.bond)
    if chosen is None:
        return None, [problem]
    before = attachment_of(host, network.id)
    properties = {**dict(before.properties if before else ()), **request.properties}
    against = list(
        against_host(
            host,
            chosen,
            network,
            plan.networks,
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
    return row, against


def in_host_order(hosts: Sequence[Host]) -> tuple[Host, ...]:
    """Return ``hosts`` by name, numbers in names by their value: host2, host10."""

    def key(host: Host) -> list[tuple[int, int, str]]:
        parts = re.split(r"(\d+)", host.name)
        return [(1, int(p), "") if p.isdecimal() else (0, 0, p) for p in parts]

    return tuple(sorted(hosts, key=key))


def _rows(
    plan: AttachPlan, hosts: Sequence[Host], addresses: Mapping[str, Interface]
) -> tuple[list[HostAttach], list[str], list[str]]:
    rows, against, unknown = [], list[str](), []
    mode = plan.request.properties.get(IPOIB_MODE)
    for host in hosts:
        address = addresses.get(host.name)
        if address is None:
            continue
        report = plan.reports.get(host.name)
        row, refused = plan_host(plan, host, address)
        against += refused
        if row is not None:
            rows.append(row)
            if unknown_mtu(host, row.chosen, report, mode):
                unknown.append(host.name)
    return rows, against, unknown


def _warnings(
    network: Network, others: Sequence[str], unknown: Sequence[str]
) -> list[str]:
    found = []
    if others:
        found.append(
            f"not in the data center of {network.name}, and left out: {listed(others)}"
        )
    if unknown:
        found.append(
            f"nobody has told if the MTU {network.mtu or 1500} can be on "
            f"{listed(unknown)}; a host on which it cannot is taken back"
        )
    return found
