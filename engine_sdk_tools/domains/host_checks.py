# SPDX-License-Identifier: GPL-2.0-or-later
"""Check, by their facts, the hosts that will mount a new domain. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Optional

from ovirt_rdma.engine_sdk_tools.domains.transport import (
    connection_transport,
    requested_transport,
)
from ovirt_rdma.engine_sdk_tools.hosts.policy import policy_of
from ovirt_rdma.engine_sdk_tools.hosts.report import HostReport
from ovirt_rdma.engine_sdk_tools.model import Host, StorageConnection
from ovirt_rdma.engine_sdk_tools.names import listed
from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.export import Export
from ovirt_rdma.host.facts.model import Facts, Route
from ovirt_rdma.host.mount_options import RDMA
from ovirt_rdma.storage.readiness import NOT_READY, local_steps


def host_problems(
    up: Sequence[Host],
    reports: Mapping[str, HostReport],
    export: Export,
    row: StorageConnection,
    transport: str,
) -> tuple[list[Sentence], list[str]]:
    """Return why hosts that are ``up`` cannot mount the domain, and warnings."""
    offenders: list[Sentence] = []
    silent = []
    for host in up:
        report = reports.get(host.name)
        if report is None or report.facts is None:
            silent.append(host.name)
            continue
        asked = requested_transport(row, policy_of(report))
        if asked.transport not in (None, transport):
            sentence = (
                f"{host.name}: {asked.by} of its policy requests {asked.transport} for "
                f"{export}, not {transport}"
            )
            offenders.append(Sentence("policy-other-transport", sentence))
        elif transport == RDMA:
            offenders += _not_ready(host, report.facts, export)
    warnings = []
    if silent and transport == RDMA:
        warnings.append(
            f"no report from {listed(silent)}: if such a host cannot mount the domain, "
            "only the engine's events show it; then everything is rolled back"
        )
    if connection_transport(row) != transport and not offenders and not silent:
        warnings.append(
            f"the mount options do not request {transport}; the hosts use it because "
            "of their policies"
        )
    return offenders, warnings


def _not_ready(host: Host, facts: Facts, export: Export) -> Iterator[Sentence]:
    head = f"{host.name} is not ready for RDMA"
    failed = [
        step
        for step in local_steps(facts, _route(facts, export))
        if step.verdict == NOT_READY
    ]
    for step in failed:
        fix = f" ({step.fix})" if step.fix else ""
        yield Sentence("host-not-ready", f"{head}: {step.detail}{fix}")
    ports = [port for device in facts.rdma_devices for port in device.ports]
    if not failed and not any(port.is_active for port in ports):
        sentence = f"{head}: none of its RDMA ports is ACTIVE (ibstat; rdma link)"
        yield Sentence("host-not-ready", sentence)


def _route(facts: Facts, export: Export) -> Optional[Route]:
    """Return the route to the server, if the facts have it: they have only the servers
    of present mounts, by address.
    """
    known = server_addresses(facts, export)
    return next((r for r in facts.routes if r.destination in known), None)


def server_addresses(facts: Facts, export: Export) -> set[str]:
    """Return the addresses of the export's server that the facts have."""
    known = {str(export.address)} if export.address else set()
    for mount in facts.nfs_mounts:
        server = mount.source.rpartition(":/")[0].strip("[]")
        if server.lower() == export.server.lower() and mount.address:
            known.add(mount.address)
    return known
