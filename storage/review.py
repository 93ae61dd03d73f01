# SPDX-License-Identifier: GPL-2.0-or-later
"""Every NFS mount of a host held against the policy: what it should be, what it is,
since when and why.

Pure. Lists all NFS mounts, also those that no rule names; changes none.
"""

from __future__ import annotations

import functools
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Callable, Optional

from ovirt_rdma.host.export import Export, ExportProblem
from ovirt_rdma.host.facts.model import CmId, DegradedMark, Facts, NfsMount
from ovirt_rdma.host.paths import VDSM_MOUNTS
from ovirt_rdma.host.policy.model import TCP, Policy, RuleMatch, rule_for
from ovirt_rdma.storage.proof import (
    RDMA,
    UNPROVEN,
    Proof,
    mark_of,
    mounted_s,
    prove,
    shown,
    utc,
)
from ovirt_rdma.storage.trunking import (
    OTHERS,
    REMOUNT,
    UNTOLD,
    because,
    by_connection,
    connection_of,
    remedy,
    sharers,
    took_over,
)

OK = "ok"
DEGRADED = "degraded"
NOT_COVERED = "not covered"
UNNAMED = "not named"
_POSIXFS = (
    "VDSM mounts no NFS domain with such options (nosharecache is missing), and no "
    "rule covers a PosixFS domain"
)

# The rule that names a source, such as "nas:/data".
MatchOf = Callable[[str], Optional[RuleMatch]]


@dataclass(frozen=True)
class MountReview:
    """One mount, the rule that names it (or None), the proof, and the verdict.

    ``since`` is when it was mounted, as ``2026-11-21T02:51:34Z``, None if not known.
    ``mark`` is what vdsmd has noted on it, where it is degraded; ``cause`` what can be
    seen of that where nobody has noted it. ``others`` use its connection too, so that
    only all of them together change their transport; ``against`` are those of them
    that the policy does not want over the transport that this one should have.
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

    @property
    def reason(self) -> Optional[str]:
        """Why it is degraded; None where it is not, or that is not known."""
        return self.mark.reason if self.mark else self.cause or None


def review_all(
    facts: Facts, policy: Policy, mounts: Optional[Sequence[NfsMount]] = None
) -> list[MountReview]:
    """Judge ``mounts`` of ``facts`` (None: all NFS mounts) by ``policy``, in order.

    A host may have thousands: each is held against the rules once.
    """
    together = by_connection(facts.nfs_mounts)
    match = functools.lru_cache(None)(lambda source: _match(source, policy))
    return [
        review(
            mount,
            policy,
            facts.cm_ids,
            utc(facts.booted_at, mounted_s(mount, facts.uptime_s)),
            mark_of(mount, facts.degraded_marks, facts.uptime_s),
            others=sharers(mount, together[connection_of(mount)]),
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
    """Judge one mount by ``policy``.

    ``cm_ids`` is None where nobody could tell, ``since`` when it was mounted,
    ``mark`` what vdsmd has noted on it; one that does not fit any more is passed over.
    ``others`` are the mounts on its connection. ``match_of`` may remember which rule
    names a source.
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
        return MountReview(mount, match, proof, UNPROVEN, sentence, UNTOLD, since, mark)
    if proof.transport == wanted:
        sentence = f"{runs}, as {by_rule}"
        return MountReview(mount, match, proof, OK, sentence, since=since)
    if mark is not None and mark.transport == proof.transport:
        since = mark.since or since
    else:
        mark = None
    shares = bool(others) and took_over(mount, match.rule.port) is not False
    cause = because(others) if shares else ""
    reason = mark.reason if mark else cause
    if mark is None and not _by_nfs_class(mount):
        sentence = f"{runs}, but {by_rule}; {_POSIXFS}"
        return MountReview(
            mount, match, proof, NOT_COVERED, sentence, _change_row(wanted), since
        )
    history = f"since {shown(since)}, " if since else ""
    history += f"because {reason}" if reason else "and vdsmd has not noted why"
    against = tuple(m for m in others if _wanted(match_of(m.source)) != wanted)
    steps = [mark.fix if mark else "", remedy(against) if against else ""]
    if wanted == TCP:
        steps.append(REMOUNT)
    else:
        ready = f"once all but '{OTHERS}' is" if others else "once it is"
        steps.append(f"{_check(mount)}; {ready} ready, {REMOUNT}")
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


def heal(found: MountReview, ready: bool) -> str:
    """Say how a degraded mount comes to what its rule says; ``ready``: for RDMA, but
    for standing mounts.
    """
    if found.verdict == NOT_COVERED:
        return found.fix
    domain = "only this storage domain (no running VM may use it)"
    if found.others:
        names = ", ".join(other.source for other in found.others)
        domain = (
            f"together all that use its connection (this one and {names}; no running "
            "VM may use them)"
        )
    now = (
        "put the host into maintenance in the engine and activate it again (its VMs "
        f"migrate), or deactivate and activate {domain}; the hosted engine's own "
        "domain takes a reboot of the host"
    )
    if found.against:
        now = f"{remedy(found.against)}; then {now}"
    if not ready and found.proof.transport != RDMA:
        return f"once it is ready, {now}"
    # What readiness cannot see, such as nfsmount.conf, would do it again.
    first = found.mark.fix if found.mark else ""
    return f"{first} (unless that is done); then {now}" if first else now


def is_of(found: MountReview, export: Export) -> bool:
    """Whether the mount is one of ``export``."""
    return _export(found.mount.source) == export


def _check(mount: NfsMount) -> str:
    return f"ovirt-rdma-host nfs check {shlex.quote(mount.source)}"


def _by_nfs_class(mount: NfsMount) -> bool:
    """Whether VDSM may have mounted it as an NFS domain: PosixFS domains with vfs_type
    nfs have the same places, and none of NFSConnection.DEFAULT_OPTIONS (VDSM 4.50,
    storageServer.py), of which nosharecache shows in mountinfo.

    The domain's own metadata would tell for certain, but reading them may hang.
    """
    domains = mount.mountpoint.startswith(f"{VDSM_MOUNTS}/")
    return not domains or "nosharecache" in mount.options.split(",")


def _change_row(wanted: Optional[str]) -> str:
    row = (
        "take RDMA out of the mount options of its storage connection"
        if wanted == TCP
        else "put proto=rdma (proto=rdma6 for IPv6) into the mount options of its "
        "storage connection"
    )
    return (
        f"{row}, create an NFS domain in its place, or let no rule name it; if it is "
        f"an NFS domain, {REMOUNT}"
    )


def _wanted(match: Optional[RuleMatch]) -> Optional[str]:
    if match is None:
        return None
    return TCP if match.rule.transport == TCP else RDMA


def _match(source: str, policy: Policy) -> Optional[RuleMatch]:
    export = _export(source)
    return rule_for(policy, export) if export else None


def _export(source: str) -> Optional[Export]:
    try:
        return Export.parse(source)
    except ExportProblem:
        return None
