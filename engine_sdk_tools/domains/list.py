# SPDX-License-Identifier: GPL-2.0-or-later
"""Make the rows of ``domain list``: the file domains of an engine. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Optional

from ovirt_rdma.engine_sdk_tools.domains.transport import (
    InUse,
    connection_transport,
    nfs_export,
    transports_in_use,
    verifiable,
)
from ovirt_rdma.engine_sdk_tools.hosts.report import HostReport
from ovirt_rdma.engine_sdk_tools.matrix import UNKNOWN
from ovirt_rdma.engine_sdk_tools.model import FILE_TYPES, Domain, Engine, Host
from ovirt_rdma.engine_sdk_tools.names import (
    NameProblem,
    data_center_named,
    domain_named,
)


@dataclass(frozen=True)
class OnHost:
    """A domain on one host: the requested transport (``rdma``, ``tcp``; None: unknown),
    ``by`` what it is requested, and ``in_use``: a transport, ``not mounted``,
    ``unproven`` or ``unknown``.
    """

    host: str
    asked: Optional[str]
    by: str
    in_use: str


@dataclass(frozen=True)
class DomainRow:
    """A domain; ``by_row`` is the transport that its storage connection requests, None
    if it is not NFS. ``hosts`` are those of its data center that were asked.
    """

    domain: Domain
    data_center: Optional[str]
    by_row: Optional[str]
    hosts: tuple[OnHost, ...] = ()

    @property
    def asked(self) -> dict[str, int]:
        """Number of hosts by requested transport (``rdma``, ``unknown``)."""
        return _counted(host.asked or "unknown" for host in self.hosts)

    @property
    def in_use(self) -> dict[str, int]:
        """Number of hosts by transport in use."""
        return _counted(host.in_use for host in self.hosts)


def file_domains(engine: Engine, data_center: Optional[str] = None) -> list[Domain]:
    """Return the domains on files, of the data center with this id or of all."""
    return [
        domain
        for domain in engine.domains
        if domain.storage_type in FILE_TYPES
        and data_center in (None, domain.data_center)
    ]


def domains_to_verify(
    engine: Engine, names: Sequence[str], data_center: Optional[str] = None
) -> list[Domain]:
    """Return the domains of ``names``, each once; without names, all NFS domains that
    are attached. ``data_center`` is a name or id.

    Raises NameProblem for an unknown name, and for a domain that is not NFS or not
    attached.
    """
    if not names:
        center = None
        if data_center is not None:
            center = data_center_named(engine, data_center).id
        every = file_domains(engine, center)
        return [domain for domain in every if verifiable(domain) and domain.data_center]
    chosen = [domain_named(engine, name, data_center) for name in names]
    odd = [
        f"{domain.name} is on {domain.storage_type or 'unknown storage'}, not NFS: it "
        "has no transport to prove"
        if not verifiable(domain)
        else f"{domain.name} is in no data center: no host mounts it"
        for domain in chosen
        if not verifiable(domain) or not domain.data_center
    ]
    if odd:
        raise NameProblem("domain-not-verifiable", "\n".join(odd), "leave it out")
    return list(dict.fromkeys(chosen))


def domain_rows(
    engine: Engine,
    domains: Sequence[Domain],
    reports: Iterable[tuple[Host, HostReport]],
) -> tuple[DomainRow, ...]:
    """Return a row for each of ``domains``. Reports are not kept, only their result for
    each domain, so ``reports`` can be an iterator over many hosts.
    """
    centers = {center.id: center.name for center in engine.data_centers}
    clusters = {cluster.id: cluster.data_center for cluster in engine.clusters}
    hosts: dict[tuple[str, Optional[str]], list[OnHost]] = {}
    for host, report in reports:
        center = clusters.get(host.cluster)
        inside = [d for d in domains if d.data_center and d.data_center == center]
        for domain, used in zip(inside, transports_in_use(host, report, inside)):
            hosts.setdefault((domain.id, center), []).append(_on_host(used))
    return tuple(
        DomainRow(
            domain,
            centers.get(domain.data_center or ""),
            _by_row(domain),
            tuple(hosts.get((domain.id, domain.data_center), ())),
        )
        for domain in domains
    )


def _on_host(used: InUse) -> OnHost:
    in_use = used.transport or used.cell.text
    if used.mounted is None and used.cell.verdict == UNKNOWN:
        in_use = "unknown"
    return OnHost(used.host, used.asked.transport, used.asked.by, in_use)


def _by_row(domain: Domain) -> Optional[str]:
    connection = domain.connection
    if connection is None or nfs_export(connection) is None:
        return None
    return connection_transport(connection)


def _counted(words: Iterable[str]) -> dict[str, int]:
    return dict(Counter(words).most_common())
