# SPDX-License-Identifier: GPL-2.0-or-later
"""Check hosts for a domain: whether they can mount it, and whether it would share the
connection of another domain of its server. Pure.

A host uses one connection for all NFS 4 mounts of a server with the same minor version
(:mod:`ovirt_rdma.storage.mounts`). A new domain then gets the transport of the mounts
that the host already has. Only the host's report proves these; the engine's storage
connections are no proof, because hosts follow their policies. Since NFS 4.1, a server
is the same by its other addresses too, which only the mount shows.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Optional

from ovirt_rdma.engine_sdk_tools.domains.transport import (
    connection_transport,
    nfs_export,
    requested_transport,
    route_to,
    server_addresses,
)
from ovirt_rdma.engine_sdk_tools.hosts.report import HostReport, policy_of
from ovirt_rdma.engine_sdk_tools.model import Domain, Host, StorageConnection
from ovirt_rdma.engine_sdk_tools.names import listed
from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.export import RDMA, Export
from ovirt_rdma.host.facts.model import Facts, NfsMount
from ovirt_rdma.storage.mounts import (
    REMOUNT,
    ConflictingMounts,
    conflict_clause,
    conflicting_mounts,
)
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
        for step in local_steps(facts, route_to(facts, server_addresses(facts, export)))
        if step.verdict == NOT_READY
    ]
    for step in failed:
        fix = f" ({step.fix})" if step.fix else ""
        yield Sentence("host-not-ready", f"{head}: {step.detail}{fix}")
    ports = [port for device in facts.rdma_devices for port in device.ports]
    if not failed and not any(port.is_active for port in ports):
        sentence = f"{head}: none of its RDMA ports is ACTIVE (ibstat; rdma link)"
        yield Sentence("host-not-ready", sentence)


# Find domains that share a connection of the kernel, and so the transport.

# By the API's names; for any other name, host and server negotiate the version.
_VERSIONS = {"v3": "3", "v4_0": "4.0", "v4_1": "4.1", "v4_2": "4.2"}
# Other versions to suggest, in this order; NFS 3 shares no connection.
_OTHERS = ("v4_2", "v4_1", "v4_0")
_MAY_SHARE = (
    "the kernel uses one connection for all mounts of a server with the same NFS 4 "
    "minor version: all of them have the transport of the first mount on a host"
)


@dataclass(frozen=True)
class Sharing:
    """The reasons why a new domain would get another transport: ``offenders`` are
    proven by mounts on hosts, ``warnings`` are possible, and end with ``fix``.
    """

    offenders: tuple[Sentence, ...] = ()
    warnings: tuple[Sentence, ...] = ()
    fix: str = ""


def sharing(
    row: StorageConnection,
    domains: Sequence[Domain],
    up: Sequence[Host],
    reports: Mapping[str, HostReport],
    transport: str,
) -> Sharing:
    """Find what prevents ``transport`` for a new domain of ``row`` on the hosts ``up``.

    ``domains`` are the others of the data center.
    """
    offenders: list[Sentence] = []
    possible: dict[str, list[str]] = {}
    mounts: dict[str, NfsMount] = {}
    for host in up:
        clash = _on(reports.get(host.name), row, transport)
        if clash is None:
            continue
        mounts.update((mount.source, mount) for mount in clash.mounts)
        sentence = _preventing(clash, row, domains, transport)
        if clash.certain:
            offenders.append(Sentence("connection-shared", f"{host.name}: {sentence}"))
        else:
            possible.setdefault(sentence, []).append(host.name)
    warnings = [f"{text} (on {listed(names)})" for text, names in possible.items()]
    sources = {source for source in map(Export.maybe, mounts) if source is not None}
    clashing = [domain for domain in domains if _export(domain) in sources]
    by_hand = sources - {_export(domain) for domain in clashing}
    places = {m.mountpoint for s, m in mounts.items() if Export.maybe(s) in by_hand}
    for domain in domains_beside(row, domains):
        names = [h.name for h in up if _asked(domain, reports.get(h.name)) != transport]
        if names and domain not in clashing:
            clashing.append(domain)
            warnings.append(
                f"{domain.name} ({_export(domain)}) is not requested over "
                f"{transport.upper()} on {listed(names)}, and {_MAY_SHARE}"
            )
    if not offenders and not warnings:
        return Sharing()
    first = _first(clashing, places, up, reports, transport)
    version = _free_version(row, domains, up, reports, transport)
    fix = "; or ".join([*first, f"--nfs-version {version}"])
    with_fix = (Sentence("connection-may-be-shared", f"{w}; {fix}") for w in warnings)
    return Sharing(tuple(offenders), tuple(with_fix), fix)


def _preventing(
    clash: ConflictingMounts,
    row: StorageConnection,
    domains: Sequence[Domain],
    transport: str,
) -> str:
    known = {_export(domain): domain.name for domain in domains if _export(domain)}
    names = [
        known.get(Export.maybe(mount.source)) or f"the mount at {mount.mountpoint}"
        for mount in clash.mounts
    ]
    prevent = "prevents" if len(names) == 1 else "prevent"
    return (
        f"{listed(names)} {prevent if clash.certain else 'may prevent'} "
        f"{transport.upper()} for {row.export}: {conflict_clause(clash.mounts)}"
    )


def domains_beside(
    row: Optional[StorageConnection], domains: Iterable[Domain]
) -> Iterator[Domain]:
    """Yield those of ``domains`` that share a connection with ``row``, or may."""
    export = nfs_export(row)
    for domain in domains:
        other = nfs_export(domain.connection)
        if export is None or other is None or other == export:
            continue
        versions = {_version(row), _version(domain.connection)}
        same_server = other.server.lower() == export.server.lower()
        if same_server and "3" not in versions and len(versions - {None}) < 2:
            yield domain


def domains_left_on_other_transport(
    domains: Sequence[Domain], going: Sequence[Domain], to: str
) -> list[Sentence]:
    """Return a sentence for each of ``domains`` whose storage connection requests
    another transport than ``to``, while ``going``, which share a kernel connection and
    the data center with it, are converted.
    """
    ids = {domain.id for domain in going}
    sentences = []
    for domain in going:
        inside = [d for d in domains if d.data_center == domain.data_center]
        for other in domains_beside(domain.connection, inside):
            transport = _asked(other, None)
            if transport != to and other.id not in ids:
                sentence = (
                    f"the storage connection of {other.name} ({_export(other)}) "
                    f"requests {str(transport).upper()}, and {_MAY_SHARE}"
                )
                sentences.append(Sentence("connection-may-be-shared", sentence))
    return list(dict.fromkeys(sentences))


def _first(
    clashing: Sequence[Domain],
    places: Iterable[str],
    up: Sequence[Host],
    reports: Mapping[str, HostReport],
    transport: str,
) -> list[str]:
    """Return the commands that give all domains the same transport."""
    convert, remount = [], []
    for domain in clashing:
        if all(_asked(domain, reports.get(h.name)) == transport for h in up):
            remount.append(domain.name)
        # The hosted engine's domain cannot be converted from the engine.
        elif not domain.hosted_engine:
            convert.append(domain.name)
    steps = []
    if convert:
        names = shlex.join(convert)
        steps.append(f"ovirt-rdma domain convert {names} --to {transport} --rolling")
    if remount and transport == RDMA:
        steps.append(f"ovirt-rdma domain heal {shlex.join(remount)}")
    elif remount:
        steps.append(f"for {', '.join(remount)}, {REMOUNT}")
    if places:
        steps.append(f"umount {' '.join(map(shlex.quote, sorted(places)))}")
    return [f"first {' and '.join(steps)}"] if steps else []


def _free_version(
    row: StorageConnection,
    domains: Sequence[Domain],
    up: Sequence[Host],
    reports: Mapping[str, HostReport],
    transport: str,
) -> str:
    for version in _OTHERS:
        other = replace(row, nfs_version=version)
        if (
            version != row.nfs_version
            and not any(_on(reports.get(h.name), other, transport) for h in up)
            and not any(
                d.connection and connection_transport(d.connection) != transport
                for d in domains_beside(other, domains)
            )
        ):
            return _VERSIONS[version]
    return "3"


def _on(
    report: Optional[HostReport], row: StorageConnection, transport: str
) -> Optional[ConflictingMounts]:
    """Return the mounts on a host that clash with ``row``; None if there are none, or
    no facts.
    """
    export = nfs_export(row)
    if export is None or report is None or report.facts is None:
        return None
    addresses = server_addresses(report.facts, export)
    mounts = report.facts.nfs_mounts
    return conflicting_mounts(mounts, export, addresses, _version(row), transport)


def _asked(domain: Domain, report: Optional[HostReport]) -> Optional[str]:
    """Return the transport requested on a host for a domain; that of the storage
    connection if the host's policy is unknown.
    """
    row = domain.connection
    if row is None:
        return None
    asked = requested_transport(row, policy_of(report)).transport if report else None
    return asked or connection_transport(row)


def _version(row: Optional[StorageConnection]) -> Optional[str]:
    return _VERSIONS.get((row.nfs_version if row else None) or "")


def _export(domain: Domain) -> Optional[Export]:
    return nfs_export(domain.connection)
