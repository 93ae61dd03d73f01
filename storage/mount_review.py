# SPDX-License-Identifier: GPL-2.0-or-later
"""Every NFS mount of a host held against the policy: what it should be, what it is,
since when and why.

Pure. Lists all NFS mounts, also those that no rule names; changes none.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

from ovirt_rdma.host.export import Export, ExportProblem
from ovirt_rdma.host.facts import CmId, DegradedMark, Facts, NfsMount
from ovirt_rdma.host.policy import TCP, Policy, RuleMatch, rule_for
from ovirt_rdma.storage.mount_age import mark_of, mounted_s, shown, utc
from ovirt_rdma.storage.proof import RDMA, Proof, prove

OK = "ok"
DEGRADED = "degraded"
UNPROVEN = "unproven"
UNNAMED = "not named"

# Only a mount that is made anew changes its transport.
REMOUNT = "put the host into maintenance and activate it again"


@dataclass(frozen=True)
class MountReview:
    """One mount, the rule that names it (or None), the proof, and the verdict.

    ``since`` is when it was mounted, as ``2026-11-21T02:51:34Z``, None if not known.
    ``mark`` is what vdsmd has noted on it, where it is degraded.
    """

    mount: NfsMount
    match: Optional[RuleMatch]
    proof: Proof
    verdict: str
    sentence: str
    fix: str = ""
    since: Optional[str] = None
    mark: Optional[DegradedMark] = None

    @property
    def reason(self) -> Optional[str]:
        """Why it is degraded; None where it is not, or nobody has noted that."""
        return self.mark.reason if self.mark else None


def review_all(facts: Facts, policy: Policy) -> list[MountReview]:
    """Judge all NFS mounts in ``facts`` by ``policy``, in the kernel's order."""
    return [
        review(
            mount,
            policy,
            facts.cm_ids,
            utc(facts.booted_at, mounted_s(mount, facts.uptime_s)),
            mark_of(mount, facts.degraded_marks, facts.uptime_s),
        )
        for mount in facts.nfs_mounts
    ]


def review(
    mount: NfsMount,
    policy: Policy,
    cm_ids: Optional[Sequence[CmId]] = None,
    since: Optional[str] = None,
    mark: Optional[DegradedMark] = None,
) -> MountReview:
    """Judge one mount by ``policy``.

    ``cm_ids`` is None where nobody could tell, ``since`` when it was mounted, and
    ``mark`` what vdsmd has noted on it; one that does not fit any more is passed over.
    """
    proof = prove(mount, cm_ids)
    match = _match(mount, policy)
    runs = f"{mount.source} runs over {proof.transport or 'an unproven transport'}"
    if match is None:
        sentence = f"{runs}; no rule names it"
        return MountReview(mount, None, proof, UNNAMED, sentence, since=since)
    wanted = TCP if match.rule.transport == TCP else RDMA
    by_rule = f"{match.rule.title} says {match.rule.transport}"
    if proof.transport is None:
        sentence = f"{mount.source}: the kernel's signals do not agree ({proof})"
        return MountReview(
            mount, match, proof, UNPROVEN, sentence, _check(mount), since
        )
    if proof.transport == wanted:
        sentence = f"{runs}, as {by_rule}"
        return MountReview(mount, match, proof, OK, sentence, since=since)
    fix = REMOUNT if wanted == TCP else f"{_check(mount)}; once it is ready, {REMOUNT}"
    if mark is not None and mark.transport == proof.transport:
        since = mark.since or since
        fix = f"{mark.fix}; then {fix}" if mark.fix else fix
    else:
        mark = None
    history = f"since {shown(since)}, " if since else ""
    history += f"because {mark.reason}" if mark else "and vdsmd has not noted why"
    sentence = f"{runs}, but {by_rule}; {history}"
    return MountReview(mount, match, proof, DEGRADED, sentence, fix, since, mark)


def heal(found: MountReview, ready: bool) -> str:
    """Say how a degraded mount comes to what its rule says; ``ready``: for RDMA."""
    now = (
        "put the host into maintenance in the engine and activate it again (its VMs "
        "migrate), or deactivate and activate only this storage domain (no running "
        "VM may use it); the hosted engine's own domain takes a reboot of the host"
    )
    if not ready and found.proof.transport != RDMA:
        return f"once it is ready, {now}"
    # What readiness cannot see, such as nfsmount.conf, would do it again.
    first = found.mark.fix if found.mark else ""
    return f"{first} (unless that is done); then {now}" if first else now


def is_of(found: MountReview, export: Export) -> bool:
    """Whether the mount is one of ``export``."""
    return _export(found.mount) == export


def _check(mount: NfsMount) -> str:
    return f"ovirt-rdma-host nfs check {shlex.quote(mount.source)}"


def _match(mount: NfsMount, policy: Policy) -> Optional[RuleMatch]:
    export = _export(mount)
    return rule_for(policy, export) if export else None


def _export(mount: NfsMount) -> Optional[Export]:
    try:
        return Export.parse(mount.source)
    except ExportProblem:
        return None
