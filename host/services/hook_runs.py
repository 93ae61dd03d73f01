# SPDX-License-Identifier: GPL-2.0-or-later
"""Change the host from VDSM's hooks.

A hook uses the lock and the journal like ``apply``, but it has little time and no
operator, and storage and virtual machines may be in use. So it does live steps only,
and reports the rest of the plan in the host's log. Before VDSM sets up networks, a hook
sets the transport modes that they request.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Callable, Optional, Union

from ovirt_rdma.host.changes.gate import gate
from ovirt_rdma.host.changes.journal import Journal, Ledger
from ovirt_rdma.host.changes.kinds.host import HostEffects
from ovirt_rdma.host.changes.kinds.model import (
    DONE,
    HOOK,
    PARTLY,
    Listener,
    Refused,
    RunRequest,
    RunResult,
)
from ovirt_rdma.host.changes.revert import recover
from ovirt_rdma.host.changes.run import Decided, EarlyFacts, apply_steps, decide_for
from ovirt_rdma.host.facts.model import Facts
from ovirt_rdma.host.network_setup.modes import mode_steps
from ovirt_rdma.host.network_setup.request import WantedMode
from ovirt_rdma.host.paths import POLICY_JSON, under
from ovirt_rdma.host.policy.model import Policy
from ovirt_rdma.host.policy.store import read
from ovirt_rdma.host.rules.base import FAIL, LIVE, Finding, Step
from ovirt_rdma.host.system.commands import Runner, run_command
from ovirt_rdma.host.system.lock import LockHeld, one_run

# A tool gets less than the hook that waits for it (vdsm_hooks.main).
TOOL_TIMEOUT_S = 5.0

Say = Callable[[str], None]


class HookRun(Listener):
    """A run of the hook ``by`` on the host below ``root``. ``say`` gets lines for the
    host's log. ``run`` runs tools, by default with TOOL_TIMEOUT_S on this host, and not
    at all below another root; ``host`` makes the changes.
    """

    def __init__(
        self,
        root: Union[str, Path],
        by: str,
        say: Say,
        run: Optional[Runner] = None,
        host: Optional[HostEffects] = None,
    ) -> None:
        if run is None and Path(root) == Path("/"):
            run = partial(run_command, timeout_s=TOOL_TIMEOUT_S)
        self.root = root
        self.run = run
        self.say = say
        # Read before the lock is taken, and for the run under it.
        self.facts = EarlyFacts(root, run)
        self._by = by
        self._host = host or HostEffects(root, run, activates=False)
        self._journal = Journal(root)

    def recover(self) -> str:
        """Roll back an interrupted run, as far as a hook may. Return, as a sentence,
        why no run can follow, or "". The caller has the lock.

        Raises JournalProblem, and Refused where a link in use would go down.
        """
        blocked = blocked_by(self._journal.ledger())
        if blocked:
            return blocked
        now = self._host.now()
        result = recover(self._host, self._journal, now, self, self.facts)
        if result is None:
            return ""
        if result.outcome == PARTLY:
            return result.sentence
        self.say(result.sentence)
        return ""

    def apply(self, steps: Sequence[Step], policy: str, facts: Facts) -> RunResult:
        """Do ``steps``, decided from ``facts`` by the policy with the digest
        ``policy``. Each change is verified; the whole host is not read again, because
        that would take half of a hook's time. The caller has the lock, and
        :meth:`recover` returned "". Raises as apply_steps does.
        """
        request = RunRequest(HOOK, self._by, policy, facts)
        return apply_steps(self._host, self._journal, steps, request, self)

    # The methods of a run's listener:

    def done(self, step_id: str, before: str, after: str) -> None:
        """Log the step now, because the run may be killed later."""
        self.say(f"{step_id}: {before} -> {after}")

    def note(self, sentence: str) -> None:
        """Log the sentence."""
        self.say(sentence)


def blocked_by(ledger: Ledger) -> str:
    """Return, as a sentence, the open run that a hook must leave to the operator, or
    "". Pure.

    A rollback may take down links that are in use by now; so a hook rolls back live
    steps only.
    """
    if ledger.awaiting:
        number = ledger.awaiting.number
        return f"run {number} awaits confirmation (ovirt-rdma-host confirm, or revert)"
    run = ledger.interrupted
    if run and any(act.act.effect != LIVE for act in run.applied):
        return (
            f"run {run.number} ({run.by}) was interrupted, and its rollback may "
            "take a link down (roll it back with ovirt-rdma-host apply, or revert)"
        )
    return ""


# More lines are not read; `ovirt-rdma-host check` prints all.
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
    """Do the live steps of the plan for the host below ``root``, or only those for
    ``netdevs``. ``say`` gets a line for each step that was done, and for all else that
    differs from the policy. ``by`` names the hook in the journal; for ``run`` and
    ``host`` see HookRun.

    Does nothing without a policy, or if another run has the lock. Raises Problem where
    the policy or the journal cannot be used.
    """
    policy = read(under(root, POLICY_JSON))
    if policy is None:
        return
    hook = HookRun(root, by, say, run, host)
    hook.facts()
    try:
        with one_run(root, by=by):
            blocked = hook.recover()
            if blocked:
                say(f"nothing was done: {blocked}")
                return
            prepared = decide_for(hook.facts(), policy)
            steps = live_steps(prepared, netdevs)
            result = hook.apply(steps, policy.digest, prepared.facts)
    except (LockHeld, Refused) as refusal:
        say(f"nothing was done: {refusal.one_line}")
        return
    if result.outcome != DONE:
        say(result.sentence)
    lines = list(remaining_lines(prepared, result.done, netdevs))
    for text in lines[:MOST_LINES]:
        say(text)
    if len(lines) > MOST_LINES:
        say(f"and {len(lines) - MOST_LINES} more: ovirt-rdma-host check")


def live_steps(
    prepared: Decided, netdevs: Optional[Collection[str]]
) -> tuple[Step, ...]:
    """Return the steps that a hook may do, in their order. Pure."""
    gated = gate(prepared.decision.applicable, live_only=True)
    return tuple(
        step for step in gated.steps if step.effect == LIVE and _is_for(step, netdevs)
    )


def remaining_lines(
    prepared: Decided, done: Collection[str], netdevs: Optional[Collection[str]]
) -> Iterator[str]:
    """Yield a line for each step that was not done, and each failure without a step.
    Pure.
    """
    steps = set()
    for step in prepared.decision.steps:
        steps.add((step.rule, step.subject))
        if step.id in done or not _is_for(step, netdevs):
            continue
        why = f"refused: {step.refused}" if step.refused else f"is {step.effect}"
        fix = "" if step.refused else "; ovirt-rdma-host apply does it"
        yield f"left: {step.id}: {step.sentence}: {why}{fix}"
    for finding in prepared.decision.findings:
        if finding.verdict != FAIL or not _is_for(finding, netdevs):
            continue
        if (finding.rule, finding.subject) not in steps:
            fix = f" (fix: {finding.fix})" if finding.fix else ""
            yield f"{finding.rule}/{finding.subject}: {finding.sentence}{fix}"


def _is_for(outcome: Union[Step, Finding], netdevs: Optional[Collection[str]]) -> bool:
    return netdevs is None or outcome.subject in netdevs


# Another hook ends within that time; an admin's apply may not, which is reported.
LOCK_WAIT_S = 2.0


def set_modes(
    root: Union[str, Path],
    wanted: Sequence[WantedMode],
    by: str,
    say: Say,
    *,
    run: Optional[Runner] = None,
    host: Optional[HostEffects] = None,
    lock_wait_s: float = LOCK_WAIT_S,
) -> str:
    """Set the modes ``wanted`` on the host below ``root``. Return "", or why that was
    refused or has failed, as a sentence for the engine's event log: all is as before
    then. ``by`` names the hook in the journal; for ``run`` and ``host`` see HookRun.

    Needs no policy. Raises Problem where the policy or the journal cannot be used,
    which is not a mistake of the networks.
    """
    stored = read(under(root, POLICY_JSON))
    policy, digest = (stored.policy, stored.digest) if stored else (Policy(), "")
    hook = HookRun(root, by, say, run, host)
    hook.facts()
    try:
        with one_run(root, lock_wait_s, by=by):
            blocked = hook.recover()
            if blocked:
                return f"{_what(wanted)} cannot be set now: {blocked}"
            facts = hook.facts()
            decision = mode_steps(facts, policy, wanted)
            for note in decision.notes:
                say(note)
            if decision.refused or not decision.steps:
                return decision.refused
            result = hook.apply(decision.steps, digest, facts)
    except (LockHeld, Refused) as refusal:
        return f"{_what(wanted)} cannot be set now: {refusal.one_line}"
    if result.outcome == DONE:
        return ""
    return f"{_what(wanted)} could not be set: {result.sentence}"


def _what(wanted: Sequence[WantedMode]) -> str:
    first = wanted[0]
    return f"network {first.network}: {first.mode} mode of {first.netdev}"
