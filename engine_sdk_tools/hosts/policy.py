# SPDX-License-Identifier: GPL-2.0-or-later
"""Determine the policy in force on a host from its report. Pure.

The report shows whether the add-on is enabled, and the digest of the loaded policy,
which is compared with the policy.yaml in the report.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, Optional

from ovirt_rdma.engine_sdk_tools.hosts.report import HostReport, bug_report
from ovirt_rdma.host.enablement.state import MODE_VDSMD
from ovirt_rdma.host.policy.drop_ins import NO_FILES, PolicyFiles
from ovirt_rdma.host.policy.forms import PolicyProblem
from ovirt_rdma.host.policy.model import Policy, digest

# Policies to keep parsed: a fleet has only a few different ones.
_KEPT = 64


@dataclass(frozen=True)
class PolicyInForce:
    """``policy`` is the policy in force: the empty one if the add-on does not decide on
    the host, None if unknown. ``reason`` says why.

    ``enabled`` is the mode (``vdsmd``), None for not enabled or unknown.
    """

    policy: Optional[Policy]
    reason: str = ""
    enabled: Optional[str] = None


def policy_of(report: HostReport) -> PolicyInForce:
    """Return the policy that the host follows at its next NFS mount."""
    if report.status is None:
        why = f": {report.problem}" if report.facts and report.problem else ""
        return PolicyInForce(None, f"the host did not report its status{why}")
    enabled = status_part(report.status, "enabled")
    if not enabled:
        return PolicyInForce(
            None, "its status does not show whether the add-on is enabled"
        )
    mode = enabled.get("mode")
    if mode != MODE_VDSMD:
        return PolicyInForce(Policy(), "stock VDSM mounts: the add-on is not enabled")
    policy, reason = loaded_policy(report)
    return PolicyInForce(policy, reason, mode)


def loaded_policy(report: HostReport) -> tuple[Optional[Policy], str]:
    """Return the policy that is loaded on the host, whether or not the add-on is
    enabled: the empty one if there is none, None if it is unknown. The text says why.
    """
    if report.status is None:
        return None, report.problem or "the host did not report its status"
    loaded = status_part(report.status, "policy")
    if report.drop_ins is None:
        return None, "its status does not list the drop-ins of its policy"
    if not loaded.get("loaded") and not loaded.get("problem"):
        return Policy(), "no policy is loaded on the host"
    return _loaded(report, loaded)


def _loaded(report: HostReport, loaded: dict[str, Any]) -> tuple[Optional[Policy], str]:
    if loaded.get("problem"):
        return None, "its loaded policy is invalid"
    if report.policy == NO_FILES:
        return None, report.problem or "its report has no policy.yaml"
    policy, its_digest, mistakes = _parsed(report.policy)
    if policy is None:
        return None, f"its policy.yaml is invalid: {mistakes}"
    if its_digest != loaded.get("digest"):
        return None, "its loaded policy is not the one in its policy.yaml"
    return policy, ""


def digest_without_drop_ins(report: HostReport) -> Optional[str]:
    """Return the digest of the loaded policy as it would be without the host's
    drop-ins, to compare it with a policy file; None for no policy or unknown.

    Drop-ins belong to the host's storage domains, not to the file.
    """
    loaded = report.policy_digest
    if not report.drop_ins or _parsed(report.policy)[1] != loaded:
        return loaded
    return _parsed(PolicyFiles(report.policy_text))[1]


def digest_with_drop_ins(text: str, report: HostReport) -> str:
    """Return the digest that the host has with ``text`` as its policy.yaml; "" if that
    and its drop-ins are not valid together.
    """
    return digest_of(PolicyFiles(text, report.drop_ins or {}))


def digest_of(files: PolicyFiles) -> str:
    """Return the digest that a host with ``files`` reports; "" if they are invalid."""
    return _parsed(files)[1]


def status_part(status: Any, name: str) -> dict[str, Any]:
    """Return a part of a status document, empty if it is missing or not an object."""
    value = status.get(name) if status else None
    return value if isinstance(value, dict) else {}


@functools.lru_cache(_KEPT)
def _parsed(files: PolicyFiles) -> tuple[Optional[Policy], str, str]:
    """Return the policy and its digest, or None and the mistakes."""
    try:
        policy = files.parsed("policy.yaml").policy
    except PolicyProblem as problem:
        return None, "", problem.one_line
    except Exception as error:  # noqa: BLE001  (a text that our parser does not survive)
        return None, "", bug_report("the host", error)[0]
    return policy, digest(policy), ""
