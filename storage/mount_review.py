# SPDX-License-Identifier: GPL-2.0-or-later
"""Every NFS mount of a host held against the policy: what it should be, what it is.

Pure. Lists all NFS mounts, also those that no rule names; changes none.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

from ovirt_rdma.host.export import Export, ExportProblem
from ovirt_rdma.host.facts import CmId, NfsMount
from ovirt_rdma.host.policy import PREFER_RDMA, TCP, Policy, RuleMatch, rule_for
from ovirt_rdma.storage.proof import RDMA, Proof, prove

OK = "ok"
DEGRADED = "degraded"
UNPROVEN = "unproven"
UNNAMED = "not named"

_REMOUNT = "put the host into maintenance and activate it again"


@dataclass(frozen=True)
class MountReview:
    """One mount, the rule that names it (or None), the proof, and the verdict."""

    mount: NfsMount
    match: Optional[RuleMatch]
    proof: Proof
    verdict: str
    sentence: str
    fix: str = ""


def review(
    mount: NfsMount, policy: Policy, cm_ids: Optional[Sequence[CmId]] = None
) -> MountReview:
    """Judge one mount by ``policy``; ``cm_ids`` is None where nobody could tell."""
    proof = prove(mount, cm_ids)
    match = _match(mount, policy)
    shown = f"{mount.source} runs over {proof.transport or 'an unproven transport'}"
    if match is None:
        return MountReview(mount, None, proof, UNNAMED, f"{shown}; no rule names it")
    wanted = TCP if match.rule.transport == TCP else RDMA
    by_rule = f"{match.rule.title} says {match.rule.transport}"
    if proof.transport is None:
        return MountReview(
            mount,
            match,
            proof,
            UNPROVEN,
            f"{mount.source}: the kernel's signals do not agree ({proof})",
            _check(mount),
        )
    if proof.transport == wanted:
        return MountReview(mount, match, proof, OK, f"{shown}, as {by_rule}")
    fix = _REMOUNT
    if match.rule.transport != TCP:
        fix = f"{_check(mount)}; once it is ready, {_REMOUNT}"
    but = "fell back" if match.rule.transport == PREFER_RDMA else "is wrong"
    return MountReview(
        mount, match, proof, DEGRADED, f"{shown}, but {by_rule}: it {but}", fix
    )


def _check(mount: NfsMount) -> str:
    return f"ovirt-rdma-host nfs check {shlex.quote(mount.source)}"


def _match(mount: NfsMount, policy: Policy) -> Optional[RuleMatch]:
    try:
        return rule_for(policy, Export.parse(mount.source))
    except ExportProblem:
        return None
