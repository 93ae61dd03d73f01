# SPDX-License-Identifier: GPL-2.0-or-later
"""Setting the transport modes that networks ask for, before VDSM sets them up."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Optional, Union

from ovirt_rdma.host.commands import Runner
from ovirt_rdma.host.effects.hook_run import HookRun, Say
from ovirt_rdma.host.effects.host_effects import HostEffects
from ovirt_rdma.host.effects.journal_records import DONE
from ovirt_rdma.host.effects.run_result import Refused
from ovirt_rdma.host.network_modes import mode_steps
from ovirt_rdma.host.network_refusal import WantedMode
from ovirt_rdma.host.paths import POLICY_JSON, under
from ovirt_rdma.host.policy import Policy
from ovirt_rdma.host.policy_store import read
from ovirt_rdma.host.run_lock import LockHeld, one_run

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
