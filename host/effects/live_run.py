# SPDX-License-Identifier: GPL-2.0-or-later
"""What hooks do of their own accord: the steps that nobody notices. All else of the
plan they only tell, for the host's log.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Optional, Union

from ovirt_rdma.host.commands import Runner
from ovirt_rdma.host.effects.gate import gate
from ovirt_rdma.host.effects.hook_run import HookRun, Say
from ovirt_rdma.host.effects.host_effects import HostEffects
from ovirt_rdma.host.effects.journal_records import DONE
from ovirt_rdma.host.effects.prepare import Prepared, decided_by
from ovirt_rdma.host.effects.run_result import Refused
from ovirt_rdma.host.paths import POLICY_JSON, under
from ovirt_rdma.host.policy_store import read
from ovirt_rdma.host.rules.rule import FAIL, LIVE, Finding, Step
from ovirt_rdma.host.run_lock import LockHeld, one_run

# The log is for people: `ovirt-rdma-host check` has the rest.
MOST_LINES = 20


def live_run(
    root: Union[str, Path],
    by: str,
    say: Say,
    netdevs: Optional[Collection[str]] = None,
    *,
    run: Optional[Runner] = None,
    host: Optional[HostEffects] = None,
) -> None:
    """Do the live steps of the plan for the host below ``root``, or only those about
    ``netdevs``, and ``say`` in a line each what was done and what else is not as the
    policy wants it. ``by`` names the hook in the journal; the rest is HookRun's.

    Does nothing without a policy, and where another run holds the lock. Raises Problem
    for a policy or a journal that cannot be used.
    """
    policy = read(under(root, POLICY_JSON))
    if policy is None:
        return
    hook = HookRun(root, by, say, run, host)
    hook.facts()
    try:
        with one_run(root, by=by):
            waits = hook.why_not()
            if waits:
                say(f"nothing was done: {waits}")
                return
            prepared = decided_by(hook.facts(), policy)
            steps = live_steps(prepared, netdevs)
            result = hook.apply(steps, policy.digest, prepared.facts)
    except (LockHeld, Refused) as no:
        say(f"nothing was done: {no.one_line}")
        return
    if result.outcome != DONE:
        say(result.sentence)
    lines = list(left_lines(prepared, result.done, netdevs))
    for text in lines[:MOST_LINES]:
        say(text)
    if len(lines) > MOST_LINES:
        say(f"and {len(lines) - MOST_LINES} more: ovirt-rdma-host check")


def live_steps(
    prepared: Prepared, netdevs: Optional[Collection[str]]
) -> tuple[Step, ...]:
    """Return the steps that a hook may do, in their order. Pure."""
    gated = gate(prepared.decision.to_do, live_only=True)
    return tuple(
        step for step in gated.steps if step.effect == LIVE and _about(step, netdevs)
    )


def left_lines(
    prepared: Prepared, done: Collection[str], netdevs: Optional[Collection[str]]
) -> Iterator[str]:
    """Yield a line for each step that is left, and each failure without one. Pure."""
    told = set()
    for step in prepared.decision.steps:
        told.add((step.rule, step.subject))
        if step.id in done or not _about(step, netdevs):
            continue
        why = f"cannot be: {step.refused}" if step.refused else f"is {step.effect}"
        fix = "" if step.refused else "; ovirt-rdma-host apply does it"
        yield f"left: {step.id}: {step.sentence}: {why}{fix}"
    for finding in prepared.decision.findings:
        subject = (finding.rule, finding.subject)
        if finding.verdict == FAIL and subject not in told and _about(finding, netdevs):
            fix = f" (fix: {finding.fix})" if finding.fix else ""
            yield f"{finding.rule}/{finding.subject}: {finding.sentence}{fix}"


def _about(one: Union[Step, Finding], netdevs: Optional[Collection[str]]) -> bool:
    return netdevs is None or one.subject in netdevs
