# SPDX-License-Identifier: GPL-2.0-or-later
"""Reads an engine into engine_facts, in two rounds of few calls; in a third where
there is a hosted engine.

Hundreds of hosts are one call: the engine follows the links to nics, network
attachments and hooks itself (``follow=``). The calls of a round run in parallel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional, Protocol

from ovirt_rdma.engine_sdk_tools.call import Read
from ovirt_rdma.engine_sdk_tools.engine_facts import (
    FILE_TYPES,
    Domain,
    Engine,
    StorageConnection,
)
from ovirt_rdma.engine_sdk_tools.hosted_engine import with_hosted_engine
from ovirt_rdma.engine_sdk_tools.sdk_records import (
    cluster_of,
    connection_of,
    data_center_of,
    domain_of,
    host_of,
    network_of,
    version_of,
)


class ReadsEngine(Protocol):
    """What reading needs of a session."""

    @property
    def url(self) -> str:
        """The API's address."""

    def read_all(self, reads: Sequence[Read]) -> list[Any]:
        """Do ``reads`` in parallel; an exception stands for what is not there."""


def read_engine(
    session: ReadsEngine,
    *,
    networks: bool = False,
    nics: bool = False,
    hooks: bool = False,
    attachments: bool = False,
) -> Engine:
    """Read data centers, clusters, hosts, domains and connections.

    ``networks``, ``nics``, ``hooks`` and ``attachments`` say what to read besides;
    without them these are None. What vanished meanwhile is a sentence in
    ``problems``. Raises EngineProblem where the engine cannot be read.
    """
    problems: list[str] = []
    links = {"nics": nics, "network_attachments": attachments, "hooks": hooks}
    follow = ",".join(link for link, wanted in links.items() if wanted)
    reads = [
        Read("", "reading the engine's version", "get"),
        Read("datacenters", "reading the data centers"),
        Read("clusters", "reading the clusters", words=_follow(networks)),
        # all_content: or hosted_engine is left out.
        Read(
            "hosts",
            "reading the hosts",
            words={"all_content": True, **({"follow": follow} if follow else {})},
        ),
        Read("storagedomains", "reading the storage domains"),
        Read("storageconnections", "reading the storage connections"),
    ]
    if networks:
        reads.append(Read("networks", "reading the networks"))
    got = [
        _present(read, answer) for read, answer in zip(reads, session.read_all(reads))
    ]
    system, centers, clusters, hosts, domains, connections = got[:6]
    rows = tuple(
        row for row in (connection_of(one) for one in connections) if row is not None
    )
    data_centers = tuple(data_center_of(one) for one in centers)
    engine = Engine(
        url=session.url,
        version=version_of(system),
        data_centers=data_centers,
        clusters=tuple(cluster_of(one) for one in clusters),
        hosts=tuple(
            host_of(one, nics=nics, attachments=attachments, hooks=hooks)
            for one in hosts
        ),
        domains=_domains(
            session, domains, [c.id for c in data_centers], rows, problems
        ),
        connections=rows,
        networks=(
            tuple(network_of(one, clusters) for one in got[6]) if networks else None
        ),
        problems=tuple(problems),
    )
    return with_hosted_engine(session, engine)


def _domains(
    session: ReadsEngine,
    listed: Sequence[Any],
    centers: Sequence[str],
    rows: Sequence[StorageConnection],
    problems: list[str],
) -> tuple[Domain, ...]:
    """Join the domains with their data centers, which alone know their status, and
    with their connections.

    An ISO domain may be attached to several data centers: it is there once for each.
    """
    by_place: dict[tuple[Optional[str], str], StorageConnection] = {
        (row.type, row.export): row for row in rows
    }
    unjoined = [
        one.id
        for one in listed
        if _storage_type(one) in FILE_TYPES and _place_of(one) not in by_place
    ]
    reads = [
        Read(f"datacenters/{one}/storagedomains", "reading a data center's domains")
        for one in centers
    ] + [
        Read(
            f"storagedomains/{one}/storageconnections", "reading a domain's connection"
        )
        for one in unjoined
    ]
    answers = session.read_all(reads)
    attached: dict[str, list[tuple[str, Any]]] = {}
    for center, answer in zip(centers, answers):
        for one in _rest(answer, problems):
            attached.setdefault(one.id, []).append((center, one))
    own = {}
    for domain, answer in zip(unjoined, answers[len(centers) :]):
        found = [connection_of(one) for one in _rest(answer, problems)]
        own[domain] = next((row for row in found if row is not None), None)
    made = []
    for one in listed:
        row = by_place.get(_place_of(one)) or own.get(one.id)
        places = attached.get(one.id)
        if not places:
            made.append(domain_of(one, one, None, row))
        for center, there in places or ():
            made.append(domain_of(one, there, center, row))
    return tuple(made)


def _storage_type(domain: Any) -> Optional[str]:
    kind = domain.storage.type if domain.storage else None
    return str(kind.value) if kind else None


def _place_of(domain: Any) -> tuple[Optional[str], str]:
    storage = domain.storage
    if storage is None:
        return None, ""
    address = f"{storage.address}:" if storage.address else ""
    return _storage_type(domain), f"{address}{storage.path}"


def _follow(networks: bool) -> dict[str, Any]:
    return {"follow": "networks"} if networks else {}


def _present(read: Read, answer: Any) -> Any:
    """What a read gave that no engine is without."""
    if isinstance(answer, Exception):
        raise answer
    return answer


def _rest(answer: Any, problems: list[str]) -> list[Any]:
    if isinstance(answer, Exception):
        problems.append(str(answer))
        return []
    return list(answer or ())
