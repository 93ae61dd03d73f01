# SPDX-License-Identifier: GPL-2.0-or-later
"""Find the domain of the hosted engine by the content types of its disks.

The engine's own rule uses the disks of the hosted engine's virtual machine
(create_views.sql:695, hosted_engine_storage_domains_ids_view), which the API does not
show for a domain. It shows the types of disks (DiskContentType.java:15-18). They are
read of as few domains as possible: only if hosts are configured for a hosted engine,
and first of the domain with the installer's usual name, which has only a few disks.

``follow=disks`` for all domains at once is not possible: the engine fails on the first
ISO domain, which has no such link (BackendStorageDomainResource.java:234,
LinkFollower.java:240-247), and a full domain's disks are thousands of lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

from ovirt_rdma.engine_sdk_tools.api.engine_session import EngineSession
from ovirt_rdma.engine_sdk_tools.api.errors import PASSING, EngineProblem
from ovirt_rdma.engine_sdk_tools.api.request import Read
from ovirt_rdma.engine_sdk_tools.model import FILE_TYPES, Domain, Engine

# Its name in the ovirt.ovirt role hosted_engine_setup (he_storage_domain_name).
USUAL_NAME = "hosted_storage"
CONTENT_TYPES = frozenset(
    {
        "hosted_engine",
        "hosted_engine_sanlock",
        "hosted_engine_metadata",
        "hosted_engine_configuration",
    }
)


@dataclass(frozen=True)
class _Result:
    """The ids of the hosted engine's domains; ``problem`` is a sentence if they are a
    guess.
    """

    ids: frozenset[str] = frozenset()
    problem: str = ""


# A session reads an engine many times, and this does not change meanwhile.
_known: WeakKeyDictionary[EngineSession, _Result] = WeakKeyDictionary()


def with_hosted_engine(session: EngineSession, engine: Engine) -> Engine:
    """Return ``engine`` with ``hosted_engine`` set for its file domains.

    If the disks do not show it, because they cannot be read or are older than their
    types, the usual name decides, and a sentence in ``problems`` says so. Raises
    EngineProblem if the engine does not answer.
    """
    candidates = _candidates(engine)
    if not candidates:
        return engine
    result = _known.get(session)
    if result is None:
        result = _known[session] = _find(session, candidates)
    domains = tuple(
        replace(domain, hosted_engine=domain.id in result.ids)
        for domain in engine.domains
    )
    problems = (*engine.problems, *((result.problem,) if result.problem else ()))
    return replace(engine, domains=domains, problems=problems)


def _candidates(engine: Engine) -> list[Domain]:
    """Return the possible domains: data on files, in a data center of a host that is
    configured for the hosted engine.
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


def _find(session: EngineSession, candidates: Sequence[Domain]) -> _Result:
    usual = [domain for domain in candidates if domain.name == USUAL_NAME]
    others = [domain for domain in candidates if domain.name != USUAL_NAME]
    why = ""
    for domains in (usual, others):
        ids, why = _with_its_disks(session, domains)
        if ids:
            return _Result(ids)
        if why:
            break
    named = frozenset(domain.id for domain in usual)
    if named:
        reason = why or "none of its disks has a content type of the hosted engine"
        return _Result(
            named,
            f"{USUAL_NAME} is assumed to be the hosted engine's domain because of its "
            f"name: {reason}",
        )
    if why:
        return _Result(named, f"the hosted engine's domain is unknown: {why}")
    # It is on block storage, or its disks are older than their types.
    return _Result()


def _with_its_disks(
    session: EngineSession, domains: Sequence[Domain]
) -> tuple[frozenset[str], str]:
    """Return the ids of ``domains`` with disks of the hosted engine, and why some could
    not be read.
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
    why = next((str(error) for error in answers if isinstance(error, Exception)), "")
    return (
        frozenset(
            domain.id
            for domain, answer in zip(domains, answers)
            if not isinstance(answer, Exception) and any(map(_is_its_disk, answer))
        ),
        why,
    )


def _is_its_disk(disk: Any) -> bool:
    return getattr(disk.content_type, "value", None) in CONTENT_TYPES
