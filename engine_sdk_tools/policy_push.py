# SPDX-License-Identifier: GPL-2.0-or-later
"""One policy for many hosts: sent whole, loaded, and its digest read back.

A host whose load fails keeps what it had: policy.yaml is replaced only when the host
itself has found it in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

from ovirt_rdma.engine_sdk_tools.engine_facts import Host
from ovirt_rdma.engine_sdk_tools.host_report import (
    MAKE_SHORTER,
    HostDoor,
    HostReport,
    Pushed,
    policy_too_long,
)
from ovirt_rdma.engine_sdk_tools.progress import Listener, Silent
from ovirt_rdma.host.policy import Policy
from ovirt_rdma.host.policy_file import parse_policy
from ovirt_rdma.host.policy_json import digest
from ovirt_rdma.host.policy_remark import PolicyProblem, Remark

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
        raise PolicyProblem(where, (Remark(None, "", long),), MAKE_SHORTER)


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
