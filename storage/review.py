# SPDX-License-Identifier: GPL-2.0-or-later
"""Compare every NFS mount of a host with the policy. Pure.

The review shows for each mount the transport that it should have and has, since when,
and why. Mounts that no rule names are listed too.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Callable, Optional

from ovirt_rdma.host.export import Export, nfs_check
from ovirt_rdma.host.facts.model import CmId, DegradedMark, Facts, NfsMount
from ovirt_rdma.host.mount_options import RDMA, MountOptions
from ovirt_rdma.host.paths import VDSM_MOUNTS
from ovirt_rdma.host.policy.model import TCP, Policy, RuleMatch, rule_for
from ovirt_rdma.storage.proof import (
    UNPROVEN,
    Proof,
    mark_of,
    mounted_s,
    prove,
    time_for_people,
    utc_time,
)
from ovirt_rdma.storage.trunking import (
    OTHERS,
    REMOUNT,
    UNPROVEN_FIX,
    by_connection,
    conflict_clause,
    conflict_fix,
    connection_of,
    others_at,
    uses_earlier_connection,
)

OK = "ok"
DEGRADED = "degraded"
NOT_COVERED = "not covered"
UNNAMED = "not named"
NCONNECT = "nconnect"
_POSIXFS = (
    "VDSM mounts no NFS domain with such options (nosharecache is missing), and no "
    "rule covers a PosixFS domain"
)

# The rule that names a source, such as "nas:/data".
MatchOf = Callable[[str], Optional[RuleMatch]]


@dataclass(frozen=True)
class Negotiated:
    """A number that a mount was asked to have, by the policy or its options, and has;
    None if it is unknown.
    """

    asked: Optional[int]
    made: Optional[int]

    def __str__(self) -> str:
        made = "unknown" if self.made is None else str(self.made)
        return made if self.asked is None else f"{made} ({self.asked} asked for)"


@dataclass(frozen=True)
class MountReview:
    """One mount, the rule that names it (or None), the proof, and the verdict.

    ``since`` is when it was mounted, as ``2026-11-21T02:51:34Z``; None if unknown.
    ``mark`` is what vdsmd recorded about a degraded mount; ``cause`` is the reason that
    can be seen without a mark. ``others`` use the same connection, so they can only
    change their transport together with this mount; ``against`` are those of them for
    which the policy chooses another transport than for this one.
    """

    mount: NfsMount
    match: Optional[RuleMatch]
    proof: Proof
    verdict: str
    sentence: str
    fix: str = ""
    since: Optional[str] = None
    mark: Optional[DegradedMark] = None
    cause: str = ""
    others: tuple[NfsMount, ...] = ()
    against: tuple[NfsMount, ...] = ()

    def negotiated(self, name: str) -> Negotiated:
        """Compare ``rsize``, ``wsize`` or ``nconnect`` with what was asked for.

        The kernel shows no size that was asked for, and nconnect only if it took it.
        """
        shown = MountOptions.parse(self.mount.options).number(name)
        options = self.match.rule.options if self.match else ""
        asked = MountOptions.parse(options).number(name)
        if name != NCONNECT:
            return Negotiated(asked, shown)
        return Negotiated(asked or shown, len(self.mount.protocols) or None)

    @property
    def reason(self) -> Optional[str]:
        """Why it is degraded; None if it is not, or if the reason is unknown."""
        return self.mark.reason if self.mark else self.cause or None


def review_all(
    facts: Facts,
    policy: Policy,
    mounts: Optional[Sequence[NfsMount]] = None,
    *,
    sharing: bool = True,
) -> list[MountReview]:
    """Compare ``mounts`` of ``facts`` (None: all NFS mounts) with ``policy``, in order.

    A host may have thousands of mounts: each source is matched with the rules once.
    Without ``sharing``, which is no part of a verdict, nobody looks for the mounts on
    one connection: each may have thousands of others.
    """
    together = by_connection(facts.nfs_mounts) if sharing else {}
    together.pop(None, None)  # those that share none
    marks: dict[str, list[DegradedMark]] = {}
    for mark in facts.degraded_marks:
        marks.setdefault(mark.mountpoint, []).append(mark)
    match = functools.lru_cache(None)(lambda source: _match(source, policy))
    return [
        review(
            mount,
            policy,
            facts.cm_ids,
            utc_time(facts.booted_at, mounted_s(mount, facts.uptime_s)),
            mark_of(mount, marks.get(mount.mountpoint, ()), facts.uptime_s),
            others=others_at(mount, together.get(connection_of(mount), ())),
            match_of=match,
        )
        for mount in (facts.nfs_mounts if mounts is None else mounts)
    ]


def review(
    mount: NfsMount,
    policy: Policy,
    cm_ids: Optional[Sequence[CmId]] = None,
    since: Optional[str] = None,
    mark: Optional[DegradedMark] = None,
    *,
    others: tuple[NfsMount, ...] = (),
    match_of: Optional[MatchOf] = None,
) -> MountReview:
    """Compare one mount with ``policy``.

    ``cm_ids`` is None if they are unknown, ``since`` is when it was mounted. ``mark``
    is what vdsmd recorded about it; it is ignored if the transport has changed.
    ``others`` are the mounts on its connection. ``match_of`` may cache which rule names
    a source.
    """
    proof = prove(mount, cm_ids)
    match_of = match_of or (lambda source: _match(source, policy))
    match = match_of(mount.source)
    runs = f"{mount.source} runs over {proof.transport or 'an unproven transport'}"
    if match is None:
        sentence = f"{runs}; no rule names it"
        return MountReview(mount, None, proof, UNNAMED, sentence, since=since)
    wanted = _wanted(match)
    by_rule = f"{match.rule.title} says {match.rule.transport}"
    if proof.transport is None:
        sentence = f"{mount.source}: the kernel's signals do not agree ({proof})"
        return MountReview(
            mount, match, proof, UNPROVEN, sentence, UNPROVEN_FIX, since, mark
        )
    if proof.transport == wanted:
        sentence = f"{runs}, as {by_rule}"
        return MountReview(mount, match, proof, OK, sentence, since=since)
    if mark is not None and mark.transport == proof.transport:
        since = mark.since or since
    else:
        mark = None
    shares = (
        bool(others) and uses_earlier_connection(mount, match.rule.port) is not False
    )
    cause = conflict_clause(others) if shares else ""
    reason = mark.reason if mark else cause
    if mark is None and not _by_nfs_class(mount):
        sentence = f"{runs}, but {by_rule}; {_POSIXFS}"
        return MountReview(
            mount, match, proof, NOT_COVERED, sentence, _change_row(wanted), since
        )
    history = f"since {time_for_people(since)}, " if since else ""
    history += f"because {reason}" if reason else "for a reason that is not recorded"
    against = tuple(m for m in others if _wanted(match_of(m.source)) != wanted)
    steps = [mark.fix if mark else "", conflict_fix(against) if against else ""]
    if wanted == TCP:
        steps.append(REMOUNT)
    else:
        ready = f"once all but '{OTHERS}' is" if others else "once it is"
        steps.append(f"{nfs_check(mount.source)}; {ready} ready, {REMOUNT}")
    return MountReview(
        mount,
        match,
        proof,
        DEGRADED,
        f"{runs}, but {by_rule}; {history}",
        "; then ".join(step for step in steps if step),
        since,
        mark,
        cause,
        others,
        against,
    )


def remount_fix(degraded: MountReview, ready: bool) -> str:
    """Return how a degraded mount gets the transport that its rule says.

    ``ready``: the host is ready for RDMA, apart from mounts that share a connection.
    """
    if degraded.verdict == NOT_COVERED:
        return degraded.fix
    domain = "only this storage domain (no running VM may use it)"
    if degraded.others:
        names = ", ".join(other.source for other in degraded.others)
        domain = (
            f"all domains on its connection together (this one and {names}; no running "
            "VM may use them)"
        )
    now = (
        "put the host into maintenance in the engine and activate it again (its VMs "
        f"migrate), or deactivate and activate {domain}; the hosted engine's own "
        "domain needs a reboot of the host"
    )
    if degraded.against:
        now = f"{conflict_fix(degraded.against)}; then {now}"
    if not ready and degraded.proof.transport != RDMA:
        return f"once it is ready, {now}"
    # Causes that readiness does not check, such as nfsmount.conf, would act again.
    first = degraded.mark.fix if degraded.mark else ""
    return f"{first} (if not done yet); then {now}" if first else now


def is_mount_of(mount_review: MountReview, export: Export) -> bool:
    """Whether the mount is one of ``export``."""
    return export.same_as(Export.maybe(mount_review.mount.source))


def _by_nfs_class(mount: NfsMount) -> bool:
    """Whether VDSM may have mounted it as an NFS domain.

    PosixFS domains with vfs_type nfs have mount points in the same folder, but none of
    NFSConnection.DEFAULT_OPTIONS (VDSM 4.50, storageServer.py), of which mountinfo
    shows nosharecache. The metadata of the domain would be certain, but reading it may
    hang.
    """
    domains = mount.mountpoint.startswith(f"{VDSM_MOUNTS}/")
    return not domains or "nosharecache" in mount.options.split(",")


def _change_row(wanted: Optional[str]) -> str:
    row = (
        "remove RDMA from the mount options of its storage connection"
        if wanted == TCP
        else "add proto=rdma (proto=rdma6 for IPv6) to the mount options of its "
        "storage connection"
    )
    return (
        f"{row}, replace it by an NFS domain, or change the policy so that no rule "
        f"names it; if it is an NFS domain, {REMOUNT}"
    )


def _wanted(match: Optional[RuleMatch]) -> Optional[str]:
    if match is None:
        return None
    return TCP if match.rule.transport == TCP else RDMA


def _match(source: str, policy: Policy) -> Optional[RuleMatch]:
    export = Export.maybe(source)
    return rule_for(policy, export) if export else None
