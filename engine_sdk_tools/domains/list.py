# SPDX-License-Identifier: GPL-2.0-or-later
"""The file domains of an engine, a row each: what ``domain list`` shows. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Optional

from ovirt_rdma.engine_sdk_tools.domains.transport import (
    InUse,
    look,
    nfs_export,
    row_transport,
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
    """A domain on one host: ``asked`` for (``rdma``, ``tcp``; None: not known) ``by``
    whom, and ``in_use``: a transport, ``not mounted``, ``unproven`` or ``unknown``.
    """

    host: str
    asked: Optional[str]
    by: str
    in_use: str


@dataclass(frozen=True)
class DomainRow:
    """A domain; ``by_row`` is the transport that the engine's row asks for, None where
    it is not NFS. ``hosts`` are those of its data center that were asked.
    """

    domain: Domain
    data_center: Optional[str]
    by_row: Optional[str]
    hosts: tuple[OnHost, ...] = ()

    @property
    def asked(self) -> dict[str, int]:
        """How many hosts are asked for which transport (``rdma``, ``unknown``)."""
        return _counted(one.asked or "unknown" for one in self.hosts)

    @property
    def in_use(self) -> dict[str, int]:
        """How many hosts use which transport."""
        return _counted(one.in_use for one in self.hosts)


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
    """Return the domains of ``names``, each once; without names all that are NFS and
    attached. ``data_center`` is a name or id.

    Raises NameProblem for a wrong name, and for one whose domain no host can mount
    over RDMA or TCP.
    """
    if not names:
        center = None
        if data_center is not None:
            center = data_center_named(engine, data_center).id
        every = file_domains(engine, center)
        return [one for one in every if verifiable(one) and one.data_center]
    chosen = [domain_named(engine, name, data_center) for name in names]
    odd = [
        f"{one.name} is on {one.storage_type or 'unknown storage'}, not NFS: it has no "
        "transport to prove"
        if not verifiable(one)
        else f"{one.name} is in no data center: no host mounts it"
        for one in chosen
        if not verifiable(one) or not one.data_center
    ]
    if odd:
        raise NameProblem("domain-not-nfs", "\n".join(odd), "leave it out")
    return list(dict.fromkeys(chosen))


def domain_rows(
    engine: Engine,
    domains: Sequence[Domain],
    reports: Iterable[tuple[Host, HostReport]],
) -> tuple[DomainRow, ...]:
    """Return a row for each of ``domains``. Of each report no more than a word for
    each domain is kept, so ``reports`` may come one by one.
    """
    centers = {one.id: one.name for one in engine.data_centers}
    clusters = {one.id: one.data_center for one in engine.clusters}
    found: dict[tuple[str, Optional[str]], list[OnHost]] = {}
    for host, report in reports:
        center = clusters.get(host.cluster)
        mine = [d for d in domains if d.data_center and d.data_center == center]
        for domain, used in zip(mine, look(host, report, mine)):
            found.setdefault((domain.id, center), []).append(_on_host(used))
    return tuple(
        DomainRow(
            domain,
            centers.get(domain.data_center or ""),
            _by_row(domain),
            tuple(found.get((domain.id, domain.data_center), ())),
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
    return row_transport(connection)


def _counted(words: Iterable[str]) -> dict[str, int]:
    return dict(Counter(words).most_common())
