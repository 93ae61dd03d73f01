# SPDX-License-Identifier: GPL-2.0-or-later
"""Policies of hosts held against a policy file: drift, and what differs. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Optional

from ovirt_rdma.engine_sdk_tools.engine_facts import Host
from ovirt_rdma.engine_sdk_tools.host_policy import part
from ovirt_rdma.engine_sdk_tools.host_report import HostReport, judged
from ovirt_rdma.engine_sdk_tools.matrix import FAIL, OK, Axis, Cell, Matrix
from ovirt_rdma.engine_sdk_tools.matrix import UNKNOWN as NOT_KNOWN
from ovirt_rdma.host.policy import Policy
from ovirt_rdma.host.policy_json import digest

KIND = "policies"
SAME = "same"
DRIFT = "drift"
UNKNOWN = "unknown"
VERDICTS = (SAME, DRIFT, UNKNOWN)

# difflib takes more than the product of both lengths; a policy of the 60,000 bytes that
# can be sent has some 2,000 lines.
_MOST_LINES = 3000


@dataclass(frozen=True)
class PolicyDrift:
    """A host's policy: ``digest`` of what is loaded, None for none or not known.
    ``address`` is the engine's of the host.

    ``diff`` are the lines of a unified diff from its policy.yaml to the file, empty
    where they are alike or its policy.yaml is not known.
    """

    host: str
    verdict: str
    sentence: str
    digest: Optional[str] = None
    fix: str = ""
    diff: tuple[str, ...] = ()
    address: str = ""


def compare(
    host: Host, report: HostReport, text: str, policy: Policy, where: str
) -> PolicyDrift:
    """Hold what ``host`` has loaded against ``policy``, whose YAML is ``text`` and
    which came from the file ``where``.
    """
    found = judged(report, lambda its: _compared(host, its, text, policy, where))
    return replace(found, address=host.address)


def _compared(
    host: Host, report: HostReport, text: str, policy: Policy, where: str
) -> PolicyDrift:
    name, wanted = host.name, digest(policy)
    if report.status is None:
        problem = report.problem or "the host did not tell its status"
        return PolicyDrift(name, UNKNOWN, problem, fix=report.fix)
    loaded = part(report.status, "policy")
    lines = _diff(report.policy_text, text, where)
    push = f"ovirt-rdma policy push {where} --hosts NAME,..."
    if loaded.get("problem"):
        problem = str(loaded["problem"])
        return PolicyDrift(name, DRIFT, problem, None, push, lines)
    has = report.policy_digest if loaded.get("loaded") else None
    if has == wanted:
        sentence = f"it has the policy of {where}"
        if lines:
            sentence += ", written differently"
        return PolicyDrift(name, SAME, sentence, has, diff=lines)
    if has is None:
        return PolicyDrift(name, DRIFT, "no policy is loaded", None, push, lines)
    sentence = f"its policy is {has}, not {wanted}"
    if report.policy_text is not None and not lines:
        sentence += "; its policy.yaml is the same, but not loaded"
        push = "on the host: ovirt-rdma-host policy load"
    return PolicyDrift(name, DRIFT, sentence, has, push, lines)


def matrix_of(found: Sequence[PolicyDrift]) -> Matrix:
    """Return the comparison as a matrix of one column; drift is a failure."""
    verdicts = {SAME: OK, DRIFT: FAIL, UNKNOWN: NOT_KNOWN}
    return Matrix(
        KIND,
        tuple(Axis(one.host, address=one.address) for one in found),
        (Axis("policy"),),
        tuple(
            (Cell(verdicts[one.verdict], one.verdict, one.sentence, one.fix),)
            for one in found
        ),
    )


def _diff(theirs: Optional[str], ours: str, where: str) -> tuple[str, ...]:
    if theirs is None or theirs == ours:
        return ()
    lines = len(theirs.splitlines())
    if lines > _MOST_LINES:
        return (f"its policy.yaml has {lines} lines, which are not compared",)
    return tuple(
        difflib.unified_diff(
            theirs.splitlines(),
            ours.splitlines(),
            "/etc/ovirt-rdma/policy.yaml of the host",
            where,
            lineterm="",
        )
    )
