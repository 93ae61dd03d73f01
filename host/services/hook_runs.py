# SPDX-License-Identifier: GPL-2.0-or-later
"""Change the host from VDSM's hooks.

A hook uses the lock and the journal like ``apply``, but it has little time and no
operator, and storage and virtual machines may be in use. So it does live steps only,
and reports the rest of the plan in the host's log. Before VDSM sets up networks, a hook
sets the transport modes that logical networks ask for by ``ipoib_mode``: the steps are
those that the rules plan for a policy whose first rules name exactly these netdevs. So
a mode is refused, and ``auto`` is resolved, as in ``plan``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Callable, Optional, Union

from ovirt_rdma.host.changes.journal import (
    DONE,
    HOOK,
    REVERT,
    Ledger,
    Listener,
    Run,
    refuse_while_open,
)
from ovirt_rdma.host.changes.kinds.registry import HostEffects
from ovirt_rdma.host.changes.plan import gate
from ovirt_rdma.host.changes.run import Decided, HostRun, RecoveryIncomplete, decide_for
from ovirt_rdma.host.errors import Refused
from ovirt_rdma.host.facts.devices import OvirtNetwork
from ovirt_rdma.host.facts.model import Facts
from ovirt_rdma.host.paths import DAEMON_UNIT, POLICY_JSON, under
from ovirt_rdma.host.policy.model import InterfaceRule, Policy
from ovirt_rdma.host.policy.store import read
from ovirt_rdma.host.rules.base import (
    FAIL,
    LINK_DOWN,
    LIVE,
    Finding,
    Interface,
    Step,
    View,
)
from ovirt_rdma.host.rules.ipoib_rules import MODE, PROFILES
from ovirt_rdma.host.rules.registry import decide
from ovirt_rdma.host.services.network_request import WantedMode
from ovirt_rdma.host.system.commands import Runner, run_command
from ovirt_rdma.host.system.lock import LockHeld, one_run

# A tool gets less than the hook that waits for it (vdsm_hooks.main).
TOOL_TIMEOUT_S = 5.0

Say = Callable[[str], None]


class HookRun(HostRun):
    """A run of the hook ``by`` on the host below ``root``. ``say`` gets lines for the
    host's log. ``run`` runs tools, by default with TOOL_TIMEOUT_S on this host, and not
    at all below another root; ``effects`` makes the changes.

    Each change is verified; the whole host is not read again after a run, because that
    would take half of a hook's time.
    """

    def __init__(
        self,
        root: Union[str, Path],
        by: str,
        say: Say,
        run: Optional[Runner] = None,
        effects: Optional[HostEffects] = None,
    ) -> None:
        if run is None and Path(root) == Path("/"):
            run = partial(run_command, timeout_s=TOOL_TIMEOUT_S)
        effects = effects or HostEffects(root, run, activates=False)
        super().__init__(root, by, Listener(say), run, effects)

    def recover_live(self) -> None:
        """Do :meth:`HostRun.recover` as far as a hook may: a rollback may take down
        links that are in use by now, so a hook rolls back live steps only. Raises
        Refused for an open run that must be left to the operator.
        """
        try:
            refuse_while_open(self.journal.ledger(), may_end=is_live)
        except Refused as refused:
            # A log has no place for the fix.
            raise Refused(refused.id, f"{refused} ({refused.fix})") from None
        self.recover()


def is_live(run: Run) -> bool:
    """Whether the rollback of ``run`` takes no link down. A revert has no changes of
    its own: it may undo those of any run. Pure.
    """
    # The daemon's own undo nothing but children that nobody uses.
    undoes = run.verb == REVERT and run.by != DAEMON_UNIT
    return not undoes and all(act.effect == LIVE for act in run.applied)


def _may_go_back(ledger: Ledger, wanted: Sequence[WantedMode]) -> bool:
    """Whether a run that is open, or not confirmed, may revert what it has set on
    the netdevs of ``wanted``.
    """
    run = ledger.interrupted or ledger.awaiting
    acts = ledger.applied if run and run.verb == REVERT else run.applied if run else ()
    netdevs = {one.netdev for one in wanted}
    return any(act.step.partition("/")[2] in netdevs for act in acts)


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
    ``netdevs``. ``say`` gets a line for each step that was done, and one with the ids
    of all else that differs from the policy. ``by`` names the hook in the journal; for
    ``run`` and ``host`` see HookRun.

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
            hook.recover_live()
            prepared = decide_for(hook.facts(), policy)
            allowed = gate(prepared.decision.applicable, live_only=True).steps
            steps = [s for s in allowed if s.effect == LIVE and _is_for(s, netdevs)]
            facts, digest = prepared.facts, policy.digest
            result = hook.apply(steps, facts, verb=HOOK, policy=digest)
    except (LockHeld, Refused, RecoveryIncomplete) as refusal:
        say(f"nothing was done: {refusal.one_line}")
        return
    if result.outcome != DONE:
        say(result.sentence)
    left = _remaining(prepared, result.done, netdevs)
    if left:
        say(f"left: {', '.join(left)} (ovirt-rdma-host check)")


def _remaining(
    prepared: Decided, done: Collection[str], netdevs: Optional[Collection[str]]
) -> list[str]:
    """Return the ids of steps that were not done, and of failures without a step."""
    failed = [f for f in prepared.decision.findings if f.verdict == FAIL]
    found: list[Union[Step, Finding]] = [*prepared.decision.steps, *failed]
    ids = dict.fromkeys(
        f"{one.rule}/{one.subject}" for one in found if _is_for(one, netdevs)
    )
    return [one for one in ids if one not in done]


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
    what = f"network {wanted[0].network}: {wanted[0].mode} mode of {wanted[0].netdev}"
    hook = HookRun(root, by, say, run, host)
    try:
        steps, notes = mode_steps(hook.facts(), policy, wanted)
        for note in notes:
            say(note)
        if not steps and not _may_go_back(hook.journal.ledger(), wanted):
            return ""
        with one_run(root, lock_wait_s, by=by):
            hook.recover_live()
            facts = hook.facts()
            steps, _ = mode_steps(facts, policy, wanted)
            result = hook.apply(steps, facts, verb=HOOK, policy=digest)
    except ModeRefused as refused:
        return str(refused)
    except (LockHeld, Refused, RecoveryIncomplete) as refusal:
        return f"{what} cannot be set now: {refusal.one_line}"
    if result.outcome == DONE:
        return ""
    return f"{what} could not be set: {result.sentence}"


# The profile that keeps the mode must exist before the mode is set.
_RULES = (PROFILES.id, MODE.id)


class ModeRefused(Refused):
    """A mode cannot be set; the sentence is for the engine's event log."""


def mode_steps(
    facts: Facts, policy: Policy, wanted: Sequence[WantedMode]
) -> tuple[list[Step], list[str]]:
    """Return the steps for ``wanted``, whose networks need not exist yet, and sentences
    for the host's own log. Raises ModeRefused. Pure.
    """
    facts = replace(facts, ovirt_networks=_networks(facts.ovirt_networks, wanted))
    interfaces = {interface.name: interface for interface in View(facts, policy).ipoib}
    known = [request for request in wanted if request.netdev in interfaces]
    rules = tuple(_rule(interfaces[request.netdev], request) for request in known)
    host = replace(policy.host, interfaces=(*rules, *policy.host.interfaces))
    decision = decide(facts, replace(policy, host=host))
    steps: list[Step] = []
    for request in known:
        for step in decision.steps:
            if step.rule in _RULES and step.subject == request.netdev:
                _refuse(step, request)
                steps.append(step)
    return steps, [*_notes(wanted, interfaces)]


def _refuse(step: Step, wanted: WantedMode) -> None:
    """Raise ModeRefused if ``step`` must not be done for ``wanted``."""
    head = f"network {wanted.network}: {wanted.netdev}"
    if step.refused:
        shown = step.after if step.rule == MODE.id else wanted.mode
        why = f"{head} cannot be set to {shown} mode: {step.refused}"
        raise ModeRefused("mode-refused", why)
    if step.effect == LINK_DOWN and step.users:
        raise ModeRefused(
            "netdevs-in-use",
            f"{head} is in use ({'; '.join(step.users)}), and the change to "
            f"{wanted.mode} mode takes its link down for a moment: put the host into "
            "maintenance first",
        )


def _notes(
    wanted: Iterable[WantedMode], interfaces: dict[str, Interface]
) -> Iterable[str]:
    for request in wanted:
        head = (
            f"network {request.network} asks for {request.mode} mode of "
            f"{request.netdev}"
        )
        interface = interfaces.get(request.netdev)
        if interface is None:
            yield f"{head}: its RDMA port could not be determined; unchanged"
            continue
        ipoib = interface.netdev.ipoib
        if ipoib is None or ipoib.mode is None:
            yield f"{head}: its present mode could not be read; unchanged"
        rule, mode = interface.policy, interface.policy.transport_mode
        if mode not in (None, request.mode):
            yield (
                f"{head}, but the policy ({rule.title}) asks for {mode}: "
                "remove transport_mode from that rule; otherwise ovirt-rdma-host apply "
                "sets the policy's mode"
            )


def _rule(interface: Interface, wanted: WantedMode) -> InterfaceRule:
    """Return a rule for ``interface`` only: the policy's rule with another mode."""
    ipoib = interface.netdev.ipoib
    return replace(
        interface.policy,
        name=f"network {wanted.network}",
        link_layer=None,
        device=interface.device.name,
        pci=None,
        port=interface.port.number,
        guid=None,
        pkey=ipoib.pkey if ipoib else None,
        transport_mode=wanted.mode,
    )


def _networks(
    present: Sequence[OvirtNetwork], wanted: Sequence[WantedMode]
) -> tuple[OvirtNetwork, ...]:
    """Return the host's networks after the setup: the wanted MTU decides the mode."""
    new = {
        request.network: OvirtNetwork(
            request.network,
            request.base,
            mtu=request.mtu if (request.mtu or 0) > 0 else None,
        )
        for request in wanted
    }
    bases = {request.base for request in wanted}
    kept = (n for n in present if n.name not in new and n.southbound not in bases)
    return (*kept, *new.values())
