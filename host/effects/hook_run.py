# SPDX-License-Identifier: GPL-2.0-or-later
"""How a hook of VDSM's changes the host: as ``apply`` does, by lock and journal, but in
little time, with nobody looking on, and while storage and VMs may be in use.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Callable, Optional, Union

from ovirt_rdma.host.commands import Runner, run_command
from ovirt_rdma.host.effects.boot_settings import keep_for_boot
from ovirt_rdma.host.effects.host_effects import HostEffects
from ovirt_rdma.host.effects.journal import Journal
from ovirt_rdma.host.effects.journal_records import HOOK, PARTLY
from ovirt_rdma.host.effects.ledger import Ledger
from ovirt_rdma.host.effects.prepare import FactsBefore
from ovirt_rdma.host.effects.recover import recover
from ovirt_rdma.host.effects.run import apply_steps
from ovirt_rdma.host.effects.run_result import RunRequest, RunResult
from ovirt_rdma.host.facts import Facts
from ovirt_rdma.host.rules.rule import LIVE, Step

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
