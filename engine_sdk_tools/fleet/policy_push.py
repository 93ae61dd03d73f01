# SPDX-License-Identifier: GPL-2.0-or-later
"""Compare and push one policy to many hosts.

Policies of hosts held against a policy file: drift, and what differs. Pure.

One policy for many hosts: sent whole, loaded, and its digest read back.

A host whose load fails keeps what it had: policy.yaml is replaced only when the host
itself has found it in order.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Optional

from ovirt_rdma.engine_sdk_tools.api.progress import Listener, Silent
from ovirt_rdma.engine_sdk_tools.hosts.policy import part
from ovirt_rdma.engine_sdk_tools.hosts.report import (
    MAKE_SHORTER,
    HostDoor,
    HostReport,
    Pushed,
    judged,
    policy_too_long,
)
from ovirt_rdma.engine_sdk_tools.matrix import FAIL, OK, Axis, Cell, Matrix
from ovirt_rdma.engine_sdk_tools.matrix import UNKNOWN as NOT_KNOWN
from ovirt_rdma.engine_sdk_tools.model import Host
from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.policy.diagnostics import PolicyProblem, Remark
from ovirt_rdma.host.policy.json_form import digest
from ovirt_rdma.host.policy.load import parse_policy
from ovirt_rdma.host.policy.model import Policy

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


_STEP = "push the policy"
AT_ONCE = 60


@dataclass(frozen=True)
class PolicyPushPlan:
    """``text`` is the policy as YAML, ``digest`` what hosts have to show after it.

    ``before`` has the digest that each host shows now, by its name: None for no policy,
    and no entry for a host that nobody asked or that did not say. ``warnings`` are
    what looks odd in the policy.
    """

    hosts: tuple[Host, ...]
    text: str
    policy: Policy
    digest: str
    before: dict[str, Optional[str]]
    warnings: tuple[Remark, ...] = ()

    def change(self, host: Host) -> str:
        """What the push means for a host: ``changed``, ``same`` or ``unknown``."""
        if host.name not in self.before:
            return "unknown"
        return "same" if self.before[host.name] == self.digest else "changed"


@dataclass(frozen=True)
class PolicyPushResult:
    """What became of it, by the host's name, in the plan's order."""

    pushed: dict[str, Pushed]

    @property
    def failed(self) -> tuple[Pushed, ...]:
        """The hosts that do not show the digest that they should."""
        return tuple(one for one in self.pushed.values() if one.problem)


def plan_policy_push(
    hosts: Sequence[Host],
    text: str,
    where: str,
    reports: Optional[dict[str, HostReport]] = None,
) -> PolicyPushPlan:
    """Validate ``text`` and say what it means for each of ``hosts``.

    ``where`` names the policy in sentences. Raises PolicyProblem with every mistake.
    """
    refuse_too_long(text, where)
    parsed = parse_policy(text, where)
    before = {
        name: report.policy_digest
        for name, report in (reports or {}).items()
        if report.status is not None
    }
    return PolicyPushPlan(
        tuple(hosts),
        text,
        parsed.policy,
        digest(parsed.policy),
        before,
        tuple(parsed.warnings),
    )


def refuse_too_long(text: str, where: str) -> None:
    """Raise PolicyProblem for a policy that cannot be sent to a host."""
    long = policy_too_long(text)
    if long:
        too_long = Remark(None, "", Sentence("policy-file-too-long", long))
        raise PolicyProblem(where, (too_long,), MAKE_SHORTER)


def carry_out(
    door: HostDoor,
    plan: PolicyPushPlan,
    listener: Optional[Listener] = None,
    job: Optional[Listener] = None,
) -> PolicyPushResult:
    """Send the policy to the hosts, many at a time; all are tried.

    ``listener`` is told of each host. ``job``, which a call to the engine a step costs,
    of each round of hosts.
    """
    listener = listener or Silent()
    job = job or Silent()
    listener.plan(tuple(host.name for host in plan.hosts), len(plan.hosts))
    pushed: dict[str, Pushed] = {}
    for start in range(0, len(plan.hosts), AT_ONCE):
        some = plan.hosts[start : start + AT_ONCE]
        step = f"push the policy to {', '.join(host.name for host in some)}"
        job.begin(step)
        for host in some:
            listener.begin(_STEP, host.name)
        answers = door.push_policy(some, plan.text)
        for host in some:
            one = _judged(host, answers.get(host.name), plan.digest)
            pushed[host.name] = one
            listener.end(_STEP, host.name, one.problem)
        failed = [host.name for host in some if pushed[host.name].problem]
        job.end(step, problem=f"failed: {', '.join(failed)}" if failed else "")
    return PolicyPushResult(pushed)


def _judged(host: Host, pushed: Optional[Pushed], wanted: str) -> Pushed:
    """Hold the digest that the host shows against the one that was sent."""
    if pushed is None:
        return Pushed(host.name, problem=f"nothing came back from {host.name}")
    if pushed.problem or pushed.digest == wanted:
        return pushed
    shows = f"shows the policy {pushed.digest}" if pushed.digest else "shows none"
    return Pushed(
        host.name,
        pushed.digest,
        pushed.before,
        f"{host.name} {shows} after the push, not {wanted}",
        "is the same version of ovirt-rdma on the host and here?",
    )
