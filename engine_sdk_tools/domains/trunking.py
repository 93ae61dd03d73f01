# SPDX-License-Identifier: GPL-2.0-or-later
"""Domains of one server that share the kernel's one connection on a host, so that a new
one gets the transport which is there. Pure.

That is so for NFS 4 with the same minor version: :mod:`ovirt_rdma.storage.trunking`.
What a host has mounted only its report proves; by the engine's rows it may be so,
because hosts follow their policies. From 4.1 on a server is the same by its other
addresses too, which only the mount finds out.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Optional

from ovirt_rdma.engine_sdk_tools.domains.host_checks import server_addresses
from ovirt_rdma.engine_sdk_tools.domains.transport import (
    asked_for,
    nfs_export,
    row_transport,
)
from ovirt_rdma.engine_sdk_tools.hosts.policy import policy_of
from ovirt_rdma.engine_sdk_tools.hosts.report import HostReport
from ovirt_rdma.engine_sdk_tools.model import Domain, Host, StorageConnection
from ovirt_rdma.engine_sdk_tools.names import listed
from ovirt_rdma.host.export import Export, ExportProblem
from ovirt_rdma.host.facts.model import NfsMount
from ovirt_rdma.storage.proof import RDMA
from ovirt_rdma.storage.trunking import REMOUNT, InTheWay, because, in_the_way

# By the API's words; for any other, host and server agree on a version.
_VERSIONS = {"v3": "3", "v4_0": "4.0", "v4_1": "4.1", "v4_2": "4.2"}
# The ways out, in this order; NFS 3 shares nothing.
_OTHERS = ("v4_2", "v4_1", "v4_0")
_MAY_SHARE = (
    "the kernel uses one connection for all mounts of a server that have the same "
    "NFS 4 minor version: the transport of the first that a host mounts is that of all"
)


@dataclass(frozen=True)
class Sharing:
    """What keeps a new domain off its transport: ``offenders`` are proven by what hosts
    have mounted, ``warnings`` may come true, and end with the ways out that
    ``fix`` has for the offenders.
    """

    offenders: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    fix: str = ""


def sharing(
    row: StorageConnection,
    domains: Sequence[Domain],
    up: Sequence[Host],
    reports: Mapping[str, HostReport],
    transport: str,
) -> Sharing:
    """Say what keeps a new domain of ``row`` off ``transport`` on the hosts ``up``.

    ``domains`` are the others of the data center.
    """
    offenders: list[str] = []
    maybe: dict[str, list[str]] = {}
    standing: dict[str, NfsMount] = {}
    for host in up:
        found = _on(reports.get(host.name), row, transport)
        if found is None:
            continue
        standing.update((mount.source, mount) for mount in found.mounts)
        said = _keeping(found, row, domains, transport)
        if found.certain:
            offenders.append(f"{host.name}: {said}")
        else:
            maybe.setdefault(said, []).append(host.name)
    warnings = [f"{said} (on {listed(names)})" for said, names in maybe.items()]
    sources = {source for source in map(_source, standing) if source is not None}
    clashing = [domain for domain in domains if _export(domain) in sources]
    by_hand = sources - {_export(domain) for domain in clashing}
    places = {m.mountpoint for s, m in standing.items() if _source(s) in by_hand}
    for domain in domains_beside(row, domains):
        names = [h.name for h in up if _asked(domain, reports.get(h.name)) != transport]
        if names and domain not in clashing:
            clashing.append(domain)
            warnings.append(
                f"{domain.name} ({_export(domain)}) is not asked for over "
                f"{transport.upper()} on {listed(names)}, and {_MAY_SHARE}"
            )
    if not offenders and not warnings:
        return Sharing()
    first = _first(clashing, places, up, reports, transport)
    version = _free_version(row, domains, up, reports, transport)
    fix = "; or ".join([*first, f"--nfs-version {version}"])
    return Sharing(tuple(offenders), tuple(f"{one}; {fix}" for one in warnings), fix)


def _keeping(
    found: InTheWay, row: StorageConnection, domains: Sequence[Domain], transport: str
) -> str:
    known = {_export(domain): domain.name for domain in domains if _export(domain)}
    names = [
        known.get(_source(mount.source)) or f"the mount at {mount.mountpoint}"
        for mount in found.mounts
    ]
    keep = "keeps" if len(names) == 1 else "keep"
    return (
        f"{listed(names)} {keep if found.certain else 'may keep'} {row.export} off "
        f"{transport.upper()}: {because(found.mounts)}"
    )


def domains_beside(
    row: Optional[StorageConnection], domains: Iterable[Domain]
) -> Iterator[Domain]:
    """Yield those of ``domains`` that share the connection of ``row``, or may."""
    mine = nfs_export(row)
    for domain in domains:
        its = nfs_export(domain.connection)
        if mine is None or its is None or its == mine:
            continue
        versions = {_version(row), _version(domain.connection)}
        same_server = its.server.lower() == mine.server.lower()
        if same_server and "3" not in versions and len(versions - {None}) < 2:
            yield domain


def left_behind(
    domains: Sequence[Domain], going: Sequence[Domain], to: str
) -> list[str]:
    """Return a sentence for each of ``domains`` that the engine's row leaves over
    another transport than ``to``, while ``going``, of the same connection and data
    center, get it.
    """
    ids = {domain.id for domain in going}
    found = []
    for mine in going:
        inside = [d for d in domains if d.data_center == mine.data_center]
        for other in domains_beside(mine.connection, inside):
            its = _asked(other, None)
            if its != to and other.id not in ids:
                found.append(
                    f"{other.name} ({_export(other)}) is asked for over "
                    f"{str(its).upper()} by the engine's row, and {_MAY_SHARE}"
                )
    return list(dict.fromkeys(found))


def _first(
    clashing: Sequence[Domain],
    places: Iterable[str],
    up: Sequence[Host],
    reports: Mapping[str, HostReport],
    transport: str,
) -> list[str]:
    """Say what can be done first, so that all have the same transport."""
    convert, anew = [], []
    for domain in clashing:
        if all(_asked(domain, reports.get(h.name)) == transport for h in up):
            anew.append(domain.name)
        # The hosted engine's domain cannot be converted from the engine.
        elif not domain.hosted_engine:
            convert.append(domain.name)
    words = []
    if convert:
        names = shlex.join(convert)
        words.append(f"ovirt-rdma domain convert {names} --to {transport}")
    if anew and transport == RDMA:
        words.append(f"ovirt-rdma domain heal {shlex.join(anew)}")
    elif anew:
        words.append(f"for {', '.join(anew)}, {REMOUNT}")
    if places:
        words.append(f"umount {' '.join(map(shlex.quote, sorted(places)))}")
    return [f"first {' and '.join(words)}"] if words else []


def _free_version(
    row: StorageConnection,
    domains: Sequence[Domain],
    up: Sequence[Host],
    reports: Mapping[str, HostReport],
    transport: str,
) -> str:
    for word in _OTHERS:
        mine = replace(row, nfs_version=word)
        if (
            word != row.nfs_version
            and not any(_on(reports.get(h.name), mine, transport) for h in up)
            and not any(
                d.connection and row_transport(d.connection) != transport
                for d in domains_beside(mine, domains)
            )
        ):
            return _VERSIONS[word]
    return "3"


def _on(
    report: Optional[HostReport], row: StorageConnection, transport: str
) -> Optional[InTheWay]:
    """Return what stands in the way of ``row`` on a host, as far as it is known."""
    export = nfs_export(row)
    if export is None or report is None or report.facts is None:
        return None
    addresses = server_addresses(report.facts, export)
    mounts = report.facts.nfs_mounts
    return in_the_way(mounts, export, addresses, _version(row), transport)


def _asked(domain: Domain, report: Optional[HostReport]) -> Optional[str]:
    """Return the transport that a host uses for a domain; by the row, where the host's
    policy is not known.
    """
    row = domain.connection
    if row is None:
        return None
    asked = asked_for(row, policy_of(report)).transport if report else None
    return asked or row_transport(row)


def _version(row: Optional[StorageConnection]) -> Optional[str]:
    return _VERSIONS.get((row.nfs_version if row else None) or "")


def _export(domain: Domain) -> Optional[Export]:
    return nfs_export(domain.connection)


def _source(text: str) -> Optional[Export]:
    try:
        return Export.parse(text)
    except ExportProblem:
        return None
