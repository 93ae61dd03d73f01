# SPDX-License-Identifier: GPL-2.0-or-later
"""Which domain is the hosted engine's: its disks say so, by their content type.

The engine's own rule looks at the disks of the hosted engine's virtual machine
(create_views.sql:695, hosted_engine_storage_domains_ids_view), which the API does not
show of a domain. The disks' types it shows (DiskContentType.java:15-18). They are read
of as few domains as will do: there is a hosted engine only where hosts are configured
for it; there is one; and its domain is mostly called as its installer calls it, so
that this one, which has nothing but a few disks, is asked first.

``follow=disks`` for all domains at once is no way: the engine fails on the first ISO
domain, which has no such link (BackendStorageDomainResource.java:234,
LinkFollower.java:240-247), and a full domain's disks are thousands of lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from ovirt_rdma.engine_sdk_tools.api.errors import PASSING, EngineProblem
from ovirt_rdma.engine_sdk_tools.api.request import Read
from ovirt_rdma.engine_sdk_tools.model import FILE_TYPES, Domain, Engine

# What the ovirt.ovirt role hosted_engine_setup calls it (he_storage_domain_name).
USUAL_NAME = "hosted_storage"
CONTENT_TYPES = frozenset(
    {
        "hosted_engine",
        "hosted_engine_sanlock",
        "hosted_engine_metadata",
        "hosted_engine_configuration",
    }
)


class ReadsAll(Protocol):
    """What reading needs of a session."""

    def read_all(self, reads: Sequence[Read]) -> list[Any]:
        """Do ``reads`` in parallel; an exception stands for what is not there."""


@dataclass(frozen=True)
class _Found:
    """The ids of the hosted engine's domains, and a sentence where they are a guess."""

    ids: frozenset[str] = frozenset()
    problem: str = ""


# A session reads an engine time and again, and this does not change meanwhile.
_known: WeakKeyDictionary[ReadsAll, _Found] = WeakKeyDictionary()


def with_hosted_engine(session: ReadsAll, engine: Engine) -> Engine:
    """Return ``engine`` with ``hosted_engine`` set of its domains on files.

    Where no disks tell, because they cannot be read or are older than their types,
    the usual name does, and a sentence in ``problems`` says so. Raises EngineProblem
    where the engine does not answer.
    """
    candidates = _candidates(engine)
    if not candidates:
        return engine
    found = _known.get(session)
    if found is None:
        found = _known[session] = _look(session, candidates)
    domains = tuple(
        replace(domain, hosted_engine=domain.id in found.ids)
        for domain in engine.domains
    )
    problems = (*engine.problems, *((found.problem,) if found.problem else ()))
    return replace(engine, domains=domains, problems=problems)


def _candidates(engine: Engine) -> list[Domain]:
    """Return the domains that may be it: data on files, in a data center of a host
    that is configured for the hosted engine.
    """
    clusters = {host.cluster for host in engine.hosts if host.hosted_engine}
    centers = {c.data_center for c in engine.clusters if c.id in clusters}
    return [
        domain
        for domain in engine.domains
        if domain.type == "data"
        and domain.storage_type in FILE_TYPES
        and domain.data_center in centers - {None}
    ]


def _look(session: ReadsAll, candidates: Sequence[Domain]) -> _Found:
    usual = [domain for domain in candidates if domain.name == USUAL_NAME]
    others = [domain for domain in candidates if domain.name != USUAL_NAME]
    why = ""
    for some in (usual, others):
        ids, problem = _with_its_disks(session, some)
        if ids:
            return _Found(ids)
        why = problem
        if why:
            break
    named = frozenset(domain.id for domain in usual)
    if named:
        because = why or "none of its disks says what it is for"
        return _Found(
            named,
            f"{USUAL_NAME} is taken for the hosted engine's domain by its name alone: "
            f"{because}",
        )
    if why:
        return _Found(named, f"which domain is the hosted engine's is not known: {why}")
    # On block storage, or its disks are older than their types.
    return _Found()


def _with_its_disks(
    session: ReadsAll, domains: Sequence[Domain]
) -> tuple[frozenset[str], str]:
    """Return the ids of ``domains`` that have disks of the hosted engine, and why some
    could not be read.
    """
    reads = [
        Read(f"storagedomains/{domain.id}/disks", f"reading the disks of {domain.name}")
        for domain in domains
    ]
    try:
        answers = session.read_all(reads)
    except EngineProblem as error:
        if error.kind in PASSING:
            raise
        return frozenset(), str(error)
    why = next((str(one) for one in answers if isinstance(one, Exception)), "")
    return (
        frozenset(
            domain.id
            for domain, answer in zip(domains, answers)
            if not isinstance(answer, Exception) and any(map(_of_it, answer))
        ),
        why,
    )


def _of_it(disk: Any) -> bool:
    return getattr(disk.content_type, "value", None) in CONTENT_TYPES
