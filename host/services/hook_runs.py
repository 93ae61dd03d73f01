# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs that VDSM's hooks start.

How a hook of VDSM's changes the host: as ``apply`` does, by lock and journal, but in
little time, with nobody looking on, and while storage and VMs may be in use.

What hooks do of their own accord: the steps that nobody notices. All else of the
plan they only tell, for the host's log.

Setting the transport modes that networks ask for, before VDSM sets them up.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Callable, Optional, Union

from ovirt_rdma.host.changes.boot import keep_for_boot
from ovirt_rdma.host.changes.gate import gate
from ovirt_rdma.host.changes.journal import Journal
from ovirt_rdma.host.changes.kinds.host import HostEffects
from ovirt_rdma.host.changes.kinds.model import (
    DONE,
    HOOK,
    PARTLY,
    Refused,
    RunRequest,
    RunResult,
)
from ovirt_rdma.host.changes.ledger import Ledger
from ovirt_rdma.host.changes.prepare import FactsBefore, Prepared, decided_by
from ovirt_rdma.host.changes.recover import recover
from ovirt_rdma.host.changes.run import apply_steps
from ovirt_rdma.host.facts.model import Facts
from ovirt_rdma.host.network_setup.modes import mode_steps
from ovirt_rdma.host.network_setup.validate import WantedMode
from ovirt_rdma.host.paths import POLICY_JSON, under
from ovirt_rdma.host.policy.model import Policy
from ovirt_rdma.host.policy.store import read
from ovirt_rdma.host.rules.base import FAIL, LIVE, Finding, Step
from ovirt_rdma.host.system.commands import Runner, run_command
from ovirt_rdma.host.system.lock import LockHeld, one_run

# A tool gets less than the hook that waits for it (vdsm_hooks.points).
TOOL_TIMEOUT_S = 5.0

Say = Callable[[str], None]


class HookRun:
    """What the hook ``by`` does to the host below ``root``; lines for the host's log go
    to ``say``. Tools are run through ``run``, by default with TOOL_TIMEOUT_S on this
    host, and below another root not at all; effects go through ``host``.
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
        self.facts = FactsBefore(root, run)
        self._by = by
        self._host = host or HostEffects(root, run, activates=False)
        self._journal = Journal(root)

    def why_not(self) -> str:
        """Take back what an earlier run left, as far as a hook may; say, as a sentence,
        why no run can follow, or "". The caller holds the lock.

        Raises JournalProblem, and Refused where somebody would notice.
        """
        waits = in_the_way(self._journal.ledger())
        if waits:
            return waits
        now = self._host.now()
        result = recover(self._host, self._journal, now, self, self.facts)
        if result is None:
            return ""
        self._keep_for_boot()
        if result.outcome == PARTLY:
            return result.sentence
        self.say(result.sentence)
        return ""

    def apply(self, steps: Sequence[Step], policy: str, facts: Facts) -> RunResult:
        """Do ``steps``, decided from ``facts`` by the policy of the digest ``policy``.
        What each act has set is read back; the whole host is not read again, as that
        would take half of a hook's time. The caller holds the lock, and
        :meth:`why_not` had nothing to say. Raises as apply_steps does.
        """
        request = RunRequest(HOOK, self._by, policy, facts)
        result = apply_steps(self._host, self._journal, steps, request, self)
        if result.run is not None:
            self._keep_for_boot()
        return result

    def _keep_for_boot(self) -> None:
        trouble = keep_for_boot(self.root, self._journal)
        if trouble:
            self.say(trouble)

    # As a run's listener:

    def doing(self, step_id: str, sentence: str) -> None:
        """Say nothing yet."""

    def done(self, step_id: str, before: str, after: str) -> None:
        """Say what was done; a run that is killed later cannot."""
        self.say(f"{step_id}: {before} -> {after}")

    def note(self, sentence: str) -> None:
        """Say it."""
        self.say(sentence)


def in_the_way(ledger: Ledger) -> str:
    """Say, as a sentence, which open run a hook has to leave to the operator, or "".
    Pure.

    To take it back may take links down that are in use by now; so a hook recovers only
    what nobody notices.
    """
    if ledger.awaiting:
        number = ledger.awaiting.number
        return f"run {number} awaits confirmation (ovirt-rdma-host confirm, or revert)"
    run = ledger.interrupted
    if run and any(act.act.effect != LIVE for act in run.held):
        return (
            f"run {run.number} ({run.begin.by}) was interrupted, and to take it back "
            "may take a link down (ovirt-rdma-host apply, or revert, does it)"
        )
    return ""


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


# Another hook is done by then; an admin's apply may not be, and that is said.
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
    """Set what ``wanted`` asks for on the host below ``root``; return "", or why it is
    refused or could not be, a sentence for the engine's event log: then all is as
    before. ``by`` names the hook in the journal; the rest is HookRun's.

    Needs no policy. Raises Problem for one, or a journal, that cannot be used: that is
    our own trouble.
    """
    stored = read(under(root, POLICY_JSON))
    policy, digest = (stored.policy, stored.digest) if stored else (Policy(), "")
    hook = HookRun(root, by, say, run, host)
    hook.facts()
    try:
        with one_run(root, lock_wait_s, by=by):
            waits = hook.why_not()
            if waits:
                return f"{_what(wanted)} cannot be set now: {waits}"
            facts = hook.facts()
            found = mode_steps(facts, policy, wanted)
            for note in found.notes:
                say(note)
            if found.refused or not found.steps:
                return found.refused
            result = hook.apply(found.steps, digest, facts)
    except (LockHeld, Refused) as no:
        return f"{_what(wanted)} cannot be set now: {no.one_line}"
    if result.outcome == DONE:
        return ""
    return f"{_what(wanted)} could not be set: {result.sentence}"


def _what(wanted: Sequence[WantedMode]) -> str:
    first = wanted[0]
    return f"network {first.network}: {first.mode} mode of {first.netdev}"
