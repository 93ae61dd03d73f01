# SPDX-License-Identifier: GPL-2.0-or-later
"""What decides on a host how storage is mounted: its policy in force, or stock. Pure.

Told by the host's report: whether the add-on is enabled, and the digest of what is
loaded, held against the policy.yaml that came along.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, Optional

from ovirt_rdma.engine_sdk_tools.hosts.report import HostReport
from ovirt_rdma.host.enablement.state import MODE_NFSMOUNT, MODE_VDSMD
from ovirt_rdma.host.policy.diagnostics import PolicyProblem
from ovirt_rdma.host.policy.json_form import digest
from ovirt_rdma.host.policy.load import parse_policy
from ovirt_rdma.host.policy.model import Policy

# A fleet has few different policies, and each is parsed once.
_KEPT = 64

NFSMOUNT = (
    "it is in mode nfsmount of an earlier version, which does not follow the policy"
)
NFSMOUNT_FIX = "on the host: ovirt-rdma-host disable, then enable --restart-vdsmd"


@dataclass(frozen=True)
class InForce:
    """``policy`` is what its mounts follow: the empty one where nothing of ours
    decides there, None where that cannot be told, and ``reason`` says why.

    ``enabled`` is the mode (``vdsmd``), None for not enabled or not known.
    """

    policy: Optional[Policy]
    reason: str = ""
    enabled: Optional[str] = None


def policy_of(report: HostReport) -> InForce:
    """Say by which policy the host mounts NFS storage when it is next connected."""
    if report.status is None:
        why = f": {report.problem}" if report.facts and report.problem else ""
        return InForce(None, f"the host did not tell its status{why}")
    enabled = part(report.status, "enabled")
    if not enabled:
        return InForce(None, "its status does not say whether the add-on is enabled")
    mode = enabled.get("mode")
    if mode == MODE_NFSMOUNT:
        return InForce(None, f"{NFSMOUNT}; {NFSMOUNT_FIX}", mode)
    if mode != MODE_VDSMD:
        return InForce(Policy(), "its mounts are stock: the add-on is not enabled")
    loaded = part(report.status, "policy")
    if not loaded.get("loaded") and not loaded.get("problem"):
        return InForce(Policy(), "no policy is loaded there", mode)
    policy, reason = _loaded(report, loaded)
    return InForce(policy, reason, mode)


def _loaded(report: HostReport, loaded: dict[str, Any]) -> tuple[Optional[Policy], str]:
    if loaded.get("problem"):
        return None, "the policy that it has loaded is broken"
    if report.policy_text is None:
        return None, report.problem or "its policy.yaml did not come along"
    policy, its_digest, mistakes = _parsed(report.policy_text)
    if policy is None:
        return None, f"its policy.yaml is broken: {mistakes}"
    if its_digest != loaded.get("digest"):
        return None, "it has another policy loaded than in its policy.yaml"
    return policy, ""


def part(status: Any, name: str) -> dict[str, Any]:
    """Return a part of a status document, empty where it is not there or odd."""
    found = status.get(name) if status else None
    return found if isinstance(found, dict) else {}


@functools.lru_cache(_KEPT)
def _parsed(text: str) -> tuple[Optional[Policy], str, str]:
    """The policy, its digest, and the mistakes where there is none."""
    try:
        policy = parse_policy(text, "policy.yaml").policy
    except PolicyProblem as problem:
        return None, "", problem.one_line
    return policy, digest(policy), ""
