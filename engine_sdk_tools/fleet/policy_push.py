# SPDX-License-Identifier: GPL-2.0-or-later
"""Compare the policies of hosts with a policy file, and push a policy to many hosts.

A push sends the whole file, loads it and verifies the digest. A host replaces its
policy.yaml only if it has found the new one valid; if the load fails, it keeps the old.
"""

from __future__ import annotations

import difflib
import functools
import shlex
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Optional

from ovirt_rdma.engine_sdk_tools.api.request import Listener
from ovirt_rdma.engine_sdk_tools.api.request import step as reported
from ovirt_rdma.engine_sdk_tools.domains.transport import nfs_export
from ovirt_rdma.engine_sdk_tools.hosts.report import (
    AT_ONCE,
    POLICY_TOO_LONG_FIX,
    HostAccess,
    HostReport,
    Pushed,
    digest_without_drop_ins,
    loaded_policy,
    policy_too_long,
    status_part,
    with_own_bugs_caught,
)
from ovirt_rdma.engine_sdk_tools.model import FAIL, OK, Axis, Cell, Engine, Host, Matrix
from ovirt_rdma.engine_sdk_tools.model import UNKNOWN as NOT_KNOWN
from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.policy.forms import Diagnostic, PolicyProblem
from ovirt_rdma.host.policy.load import PolicyFile, PolicyFiles, parse_policy
from ovirt_rdma.host.policy.model import (
    Policy,
    RuleChange,
    differing_lines,
    digest,
    rule_changes,
)

KIND = "policies"
SAME = "same"
DRIFT = "drift"
UNKNOWN = "unknown"

# The time of difflib grows with the product of both lengths. A policy of 60,000 bytes,
# the maximum, has about 2,000 lines.
_MOST_LINES = 3000


@dataclass(frozen=True)
class PolicyDrift:
    """A host's policy: ``digest`` of the loaded one, None for none or unknown; ``diff``
    a unified diff from its policy.yaml to the file, empty if equal or unknown.
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
    """Compare the loaded policy of ``host`` with ``policy``: ``text`` of ``where``."""

    def drift(report: HostReport) -> PolicyDrift:
        wanted = digest(policy)
        if report.status is None:
            problem = report.problem or "the host did not report its status"
            return PolicyDrift(host.name, UNKNOWN, problem, fix=report.fix)
        loaded = status_part(report.status, "policy")
        lines = _diff(report.policy_text, text, where)
        file, only = shlex.quote(where), shlex.quote(host.name)
        push = f"ovirt-rdma policy push {file} --hosts {only}"
        has = None
        if loaded.get("loaded") and not loaded.get("problem"):
            has = digest_without_drop_ins(report)
        if has == wanted:
            sentence = f"it has the policy of {where}"
            if report.drop_ins:
                sentence += f", and drop-ins: {', '.join(sorted(report.drop_ins))}"
            if lines:
                sentence += ", written differently"
            return PolicyDrift(host.name, SAME, sentence, has, diff=lines)
        sentence = str(loaded.get("problem") or "no policy is loaded")
        if has is not None:
            sentence = f"its policy is {has}, not {wanted}"
            if report.policy_text is not None and not lines:
                sentence += "; its policy.yaml is the same, but not loaded"
                push = "on the host: ovirt-rdma-host policy load"
        return PolicyDrift(host.name, DRIFT, sentence, has, push, lines)

    return replace(with_own_bugs_caught(report, drift), address=host.address)


def matrix_of(found: Sequence[PolicyDrift]) -> Matrix:
    """Return the comparison as a matrix of one column; drift is a failure."""
    verdicts = {SAME: OK, DRIFT: FAIL, UNKNOWN: NOT_KNOWN}
    return Matrix(
        KIND,
        tuple(Axis(drift.host, address=drift.address) for drift in found),
        (Axis("policy"),),
        tuple(
            (Cell(verdicts[drift.verdict], drift.verdict, drift.sentence, drift.fix),)
            for drift in found
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


@dataclass(frozen=True)
class Effect:
    """What a push changes on ``hosts``: ``lines`` of the policy, and the rules of
    storage domains and mounted exports. ``unknown`` is the reason if that is not known.
    """

    hosts: tuple[str, ...]
    lines: tuple[str, ...] = ()
    changes: tuple[RuleChange, ...] = ()
    unknown: str = ""

    @property
    def sentences(self) -> tuple[str, ...]:
        """The effect for people, line by line."""
        if self.unknown:
            return (f"what changes there is not known: {self.unknown}",)
        return (*self.lines, *map(str, self.changes))


@dataclass(frozen=True)
class PolicyPushPlan:
    """``text`` is the policy, ``digest`` what hosts must have after it, without
    drop-ins, and ``before`` what they have, by name: None for no policy, no entry for
    unknown. ``warnings`` are on the policy, ``effects`` on the hosts that were asked.
    """

    hosts: tuple[Host, ...]
    text: str
    policy: Policy
    digest: str
    before: dict[str, Optional[str]]
    warnings: tuple[Diagnostic, ...] = ()
    effects: tuple[Effect, ...] = ()

    def change(self, host: Host) -> str:
        """Return the effect on a host: ``changed``, ``same`` or ``unknown``."""
        if host.name not in self.before:
            return "unknown"
        return "same" if self.before[host.name] == self.digest else "changed"


@dataclass(frozen=True)
class PolicyPushResult:
    """The result by the host's name, in the plan's order."""

    pushed: dict[str, Pushed]

    @property
    def failed(self) -> tuple[Pushed, ...]:
        """The hosts on which the push failed."""
        return tuple(pushed for pushed in self.pushed.values() if pushed.problem)


def plan_policy_push(
    hosts: Sequence[Host],
    text: str,
    where: str,
    reports: Iterable[HostReport] = (),
    engine: Optional[Engine] = None,
) -> PolicyPushPlan:
    """Validate ``text``, from ``where``, and return its effect on each of ``hosts``;
    ``engine`` has the domains. Raises PolicyProblem with every mistake.
    """
    parsed = check_policy(text, where)
    before: dict[str, Optional[str]] = {}
    alike: dict[Effect, list[str]] = {}
    domains_of = _exports(engine) if engine else {}
    for report in reports:
        if report.status is not None:
            before[report.host] = digest_without_drop_ins(report)
        domains = domains_of.get(report.host, {})
        effect = with_own_bugs_caught(
            report, functools.partial(_effect, text=text, domains=domains)
        )
        alike.setdefault(effect, []).append(report.host)
    return PolicyPushPlan(
        tuple(hosts),
        text,
        parsed.policy,
        digest(parsed.policy),
        before,
        tuple(parsed.warnings),
        tuple(
            replace(effect, hosts=tuple(names))
            for effect, names in alike.items()
            if effect.sentences
        ),
    )


def _exports(engine: Engine) -> dict[str, dict[str, str]]:
    """Return the domains of each host's data center by export, by the host's name."""
    found: dict[str, dict[str, str]] = {}
    for center in engine.data_centers:
        exports = {
            str(export): f"storage domain {domain.name}"
            for domain in engine.domains
            if domain.data_center == center.id
            and (export := nfs_export(domain.connection))
        }
        found.update((host.name, exports) for host in engine.hosts_of(center.id))
    return found


def _effect(report: HostReport, text: str, domains: Mapping[str, str]) -> Effect:
    present, why = loaded_policy(report)
    if present is None:
        return Effect((), unknown=why)
    after = PolicyFiles(text, report.drop_ins or {})
    try:
        new = after.parsed("policy.yaml").policy
    except PolicyProblem as problem:
        return Effect((), unknown=f"with its drop-ins: {problem.one_line}")
    mounts = report.facts.nfs_mounts if report.facts else ()
    exports = {**{mount.source: "mounted" for mount in mounts}, **domains}
    return Effect(
        (), differing_lines(present, new), rule_changes(present, new, exports)
    )


def check_policy(text: str, where: str) -> PolicyFile:
    """Return the policy ``text``. Raises PolicyProblem with every mistake, and for one
    that is too long to be sent to a host.
    """
    long = policy_too_long(text)
    if long:
        too_long = Diagnostic(None, "", Sentence("policy-file-too-long", long))
        raise PolicyProblem(where, (too_long,), POLICY_TOO_LONG_FIX)
    return parse_policy(text, where)


def push_policy(
    access: HostAccess,
    plan: PolicyPushPlan,
    listener: Optional[Listener] = None,
    job: Optional[Listener] = None,
) -> PolicyPushResult:
    """Send the policy to all hosts, AT_ONCE at a time. ``listener`` gets a step for
    each, ``job``, which asks the engine for each step, one for each round.
    """
    listener = listener or Listener()
    job = job or Listener()
    listener.plan(tuple(host.name for host in plan.hosts), len(plan.hosts))
    pushed: dict[str, Pushed] = {}
    for start in range(0, len(plan.hosts), AT_ONCE):
        hosts = plan.hosts[start : start + AT_ONCE]
        step = f"push the policy to {', '.join(host.name for host in hosts)}"
        with ExitStack() as steps:
            now = steps.enter_context(reported(job, step))
            # They end in the order of the hosts, so they begin in the other one.
            each = {
                host.name: steps.enter_context(reported(listener, _STEP, host.name))
                for host in reversed(hosts)
            }
            answers = access.push_policy(hosts, plan.text)
            for host in hosts:
                verified = _verified(host, answers.get(host.name), plan.digest)
                pushed[host.name] = verified
                each[host.name].problem = verified.problem
            failed = [host.name for host in hosts if pushed[host.name].problem]
            now.problem = f"failed: {', '.join(failed)}" if failed else ""
    return PolicyPushResult(pushed)


def _verified(host: Host, pushed: Optional[Pushed], wanted: str) -> Pushed:
    """Compare the digest that the host reports with the one that was sent."""
    if pushed is None:
        return Pushed(host.name, problem=f"no answer from {host.name}")
    if pushed.problem or pushed.file_digest == wanted:
        return pushed
    has = pushed.file_digest
    return replace(
        pushed,
        problem=f"{host.name} has {f'the policy {has}' if has else 'no policy'} after "
        f"the push, not {wanted}",
        fix="install the same version of ovirt-rdma on the host and here",
    )
