# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs: read the host, decide its steps, and do them (record, change and verify each,
or roll back everything); revert applied changes; roll back a run that was killed or not
confirmed.

The host is read and decided under the lock before a run changes anything, and again
after it, to verify it. The steps that are applied are always those that are decided
now; with a plan file, only if they are those of the file. So an edited file cannot name
a target that our rules would not change. Before a run, the present values are read:
they are what an undo restores, and they must be those for which the plan was made.

A revert is refused if it would take down the link of a netdev that is in use. Before a
profile or P_Key child is deleted, networks and addresses that somebody has set up on it
since count as uses too: nmstate puts the engine's network into the profile that it
finds, which may be ours.

``change_status`` says for ``status`` what is applied, and what a revert would leave.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Callable, Optional, Union

from ovirt_rdma.host.changes.boot import boot_settings
from ovirt_rdma.host.changes.journal import (
    APPLY,
    DONE,
    PARTLY,
    REVERT,
    ROLLED_BACK,
    Journal,
    JournalProblem,
    JournalWriter,
    Ledger,
    Listener,
    Run,
    RunResult,
    iso,
    refuse_while_open,
)
from ovirt_rdma.host.changes.kinds.kind import (
    AtomicChange,
    EffectFailed,
    Host,
    Kind,
    Property,
)
from ovirt_rdma.host.changes.kinds.netdev import MTU_FILE
from ovirt_rdma.host.changes.kinds.registry import HostEffects, kind_of, kind_of_act
from ovirt_rdma.host.changes.plan import SavedPlan, differences, link_in_use
from ovirt_rdma.host.changes.undo import Undo, UndoChange
from ovirt_rdma.host.collect.collector import HostReader
from ovirt_rdma.host.errors import Problem, Refused, Sentence, UsageProblem
from ovirt_rdma.host.facts.model import Facts
from ovirt_rdma.host.facts.uses import NetdevUsers
from ovirt_rdma.host.paths import JOURNAL, POLICY_JSON, POLICY_YAML, under
from ovirt_rdma.host.policy.store import Signature, StoredPolicy, read, signature_of
from ovirt_rdma.host.rules.base import LINK_DOWN, REBOOT, Change, Step
from ovirt_rdma.host.rules.ipoib import static_addresses
from ovirt_rdma.host.rules.registry import Decision, decide
from ovirt_rdma.host.system.commands import CommandFailed, NotInstalled, Runner
from ovirt_rdma.host.system.signals import Signals, delayed_signals


@dataclass(frozen=True)
class Decided:
    """The facts of a host, the policy in force, and the decision for it."""

    facts: Facts
    policy: StoredPolicy
    decision: Decision

    def hold_against(self, plan: SavedPlan) -> None:
        """Raise Refused, with all differences, unless ``plan`` is up to date."""
        now = self.facts.hostname, self.policy.digest, self.decision.applicable
        reasons = differences(plan, *now)
        if reasons:
            new = f"ovirt-rdma-host plan --out {shlex.quote(plan.path)}"
            fix = f"review a new plan: {new}"
            raise Refused("plan-outdated", "the plan is outdated", fix, reasons=reasons)


def loaded_policy(root: Union[str, Path]) -> StoredPolicy:
    """Return the policy in force. Raises Problem if there is none."""
    stored = read(under(root, POLICY_JSON))
    if stored is None:
        raise Problem(
            "policy-not-loaded",
            "no policy is loaded",
            f"write {POLICY_YAML}, then: ovirt-rdma-host policy load",
        )
    return stored


def decide_for(facts: Facts, policy: StoredPolicy) -> Decided:
    """Decide by ``policy`` for a host with these ``facts``. Pure."""
    return Decided(facts, policy, decide(facts, policy.policy))


_FIX = "run ovirt-rdma-host plan again"


def atomic_changes_of(
    host: HostEffects, steps: Iterable[Step], facts: Facts
) -> tuple[AtomicChange, ...]:
    """Return the atomic changes of ``steps``, which were decided from ``facts``, in
    order, each with the present values of ``host`` as ``before``. No value is changed.

    If a run sets a property twice, the second change has the value of the first as
    ``before``; something that the run itself makes has none. Raises Refused where none
    of our rules makes such a change, a value cannot be read, or it is not the value for
    which the plan was made.
    """
    manager = facts.network_manager
    managed = manager.managed if manager and manager.running else ()
    # The UUIDs of new profiles, by netdev.
    uuids: dict[Optional[str], str] = {}
    complete: list[AtomicChange] = []
    makers: list[Kind] = []
    known: dict[Property, Optional[str]] = {}
    recreated = False
    for step in steps:
        changes = list(step.changes)
        while changes:
            kind = kind_of(changes[0])
            together, changes = changes[:1], changes[1:]
            if kind.needs_uuid and kind.netdev not in uuids:
                uuids[kind.netdev] = host.new_uuid(kind.netdev or "")
                together += [c for c in changes if c.target == kind.change.target]
                changes = [c for c in changes if c.target != kind.change.target]
            act = AtomicChange(
                step=step.id,
                effect=step.effect,
                changes=tuple(together),
                uuid=uuids[kind.netdev] if kind.needs_uuid else None,
                place=kind.place(facts),
                lasting=kind.lasts(kind.netdev in managed or kind.netdev in uuids),
            )
            _refuse_foreign(host, act)
            first = kind_of_act(act)
            made = (first.is_maker and first.needs_uuid) or any(
                maker.owns(first) for maker in makers
            )
            before = []
            for change in together:
                kind = kind_of(change, act.uuid)
                if kind.sets not in known:
                    value = None if made else _read(host, act, change)
                    # A new port MTU recreates the netdevs: the plan has the MTU that
                    # they get.
                    if recreated and kind.sysfs_file == MTU_FILE:
                        value = _smaller(value, change.before)
                    elif not made:
                        _check(kind, value)
                    known[kind.sets] = value
                before.append(known[kind.sets])
                known[kind.sets] = change.after
                recreated = recreated or kind.port is not None
            if first.is_maker:
                makers.append(first)
            complete.append(act.with_before(tuple(before)))
            # No undo would restore a value that no rule could have set.
            _refuse_foreign(host, complete[-1])
    return tuple(complete)


def _refuse_foreign(host: HostEffects, act: AtomicChange) -> None:
    for refusal in filter(None, map(host.refusal, act.changes)):
        raise Refused("change-not-allowed", refusal, _FIX)


def _read(host: HostEffects, act: AtomicChange, change: Change) -> Optional[str]:
    host.make_readable(change, act.place)
    reading = host.read(change, act.uuid, act.place)
    if reading.problem:
        raise Refused("value-unreadable", f"{act.step}: {reading.problem}", _FIX)
    return reading.value


def _smaller(now: Optional[str], planned: Optional[str]) -> Optional[str]:
    """Return the MTU ``now``, or ``planned`` if it is smaller: the new port MTU allows
    no more, and an undo restores this value before that of the port.
    """
    if now and planned and now.isdecimal() and planned.isdecimal():
        return min(now, planned, key=int)
    return now


def _check(kind: Kind, value: Optional[str]) -> None:
    if not kind.still_holds(value):
        was, now = map(kind.value_text, (kind.change.before, value))
        raise Refused(
            "value-changed-since-plan",
            f"{kind.describe()} has changed since the plan was made: it was {was}, and "
            f"is {now}",
            _FIX,
        )


class _Stopped(Exception):
    """The run must be rolled back; the text says why, as a clause."""


@dataclass
class _Run:
    host: HostEffects
    writer: JournalWriter
    run: Run
    signals: Signals
    verify: Callable[[], Collection[str]]

    def carry_out(
        self, steps: Sequence[Step], acts: Sequence[AtomicChange]
    ) -> RunResult:
        boot = self.host.boot_id()
        changes = [
            replace(act, run=self.run.number, number=number, boot=boot)
            for number, act in enumerate(acts)
        ]
        known = {step.id: step for step in steps}
        try:
            for step_id, of_step in groupby(changes, key=lambda one: one.step):
                self._do(known[step_id], list(of_step))
            self._verify(steps)
            self._check_signals()
            count = f"{len(steps)} step{'' if len(steps) == 1 else 's'}"
            sentence = f"{count} done and verified"
            number, now = self.run.number, self.host.now()
            self.writer.end(number, DONE, now, sentence, must=True)
        except (_Stopped, Problem) as error:
            return self._roll_back(str(error))
        except Exception as error:
            # A bug of ours must not leave the host half changed either.
            self._roll_back(f"internal error: {error!r}")
            raise
        return RunResult(number, DONE, sentence, tuple(known))

    def _roll_back(self, reason: str) -> RunResult:
        undo = Undo(self.host, self.writer.ledger, self.run)
        return undo.finish(self.writer, reason)

    def _do(self, step: Step, changes: Sequence[AtomicChange]) -> None:
        self._check_signals()
        self.writer.doing(step.id, step.sentence)
        # All before the first is made: one can alter what another sets.
        self.writer.record(*changes, must=True)
        for change in changes:
            self._check_signals()
            try:
                self.host.do(change)
            except EffectFailed as error:
                if error.untouched:
                    why = "it was not done"
                    self.writer.record(replace(change, undone_by=change.run, why=why))
                raise _Stopped(f"{step.id} failed: {error}") from None
            found = self._read_back(step, change)
            self.writer.record(replace(change, found=found), must=True)
        self.writer.done(step.id, step.before, step.after)

    def _read_back(self, step: Step, act: AtomicChange) -> tuple[Optional[str], ...]:
        values = []
        for change in act.changes:
            reading = self.host.read(change, act.uuid, act.place)
            if reading.problem:
                raise _Stopped(f"{step.id} could not be verified: {reading.problem}")
            kind = kind_of(change, act.uuid)
            if not kind.accepts(reading.value):
                wanted = kind.value_text(change.after)
                raise _Stopped(
                    f"{step.id} was not accepted: {kind.describe()} was set to "
                    f"{wanted}, and is {kind.value_text(reading.value)}"
                )
            values.append(reading.value)
        return tuple(values)

    def _verify(self, steps: Sequence[Step]) -> None:
        still_planned = self.verify()
        for step in steps:
            if step.id in still_planned and not _may_be_planned_again(step):
                raise _Stopped(f"{step.id} was done, and is still planned")

    def _check_signals(self) -> None:
        if self.signals.asked:
            raise _Stopped(f"{self.signals.asked} asked the run to end")


def _may_be_planned_again(step: Step) -> bool:
    """Whether the step may still be planned although it was done: it takes effect at
    the next boot, or it sets an MTU that the broadcast group limits.
    """
    if step.effect == REBOOT:
        return True
    only_mtu = all(kind_of(change).is_mtu for change in step.changes)
    return only_mtu and any(change.clamped for change in step.changes)


def interrupted_users(
    groups: Iterable[Sequence[UndoChange]], facts: Facts
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each step whose undo takes links down that are in use, with the users as
    text. Pure.

    Besides link-down steps, these are those whose undo takes a link down only.
    """
    users = NetdevUsers(facts)
    for group in groups:
        kinds = [(undo.act, kind_of_act(undo.act)) for undo in group]
        if not any(a.effect == LINK_DOWN or k.undo_interrupts for a, k in kinds):
            continue
        texts = [text for _, kind in kinds for text in kind.interrupts(users)]
        for _, kind in kinds:
            for name in kind.touched(facts) if kind.is_maker else ():
                texts += _set_up_on(users.carriers(name), facts)
        if texts:
            yield group[0].act.step, tuple(dict.fromkeys(texts))


def _set_up_on(names: Collection[str], facts: Facts) -> Iterator[str]:
    """Yield the addresses of these netdevs that are of no logical network. Others have
    set them up: we made the profile or child without any.
    """
    carrying = {network.southbound for network in facts.ovirt_networks}
    for netdev in facts.netdevs:
        if netdev.name in names and netdev.name not in carrying:
            for address in static_addresses(netdev):
                yield f"address: {address} on {netdev.name}"


def _refuse_in_use(
    undo: Undo, facts: Optional[Facts], sentence: str, then: str
) -> None:
    """Raise Refused, with the steps of ``undo`` that take down a link in use, unless
    that is allowed: then there are no ``facts``.
    """
    if facts is None:
        return
    groups = [group for group in undo.groups if undo.is_needed(group)]
    reasons = [link_in_use(*entry) for entry in interrupted_users(groups, facts)]
    if reasons:
        fix = (
            "put the host into maintenance, detach the engine's networks that are "
            f"named, {then}"
        )
        raise Refused("netdevs-in-use", sentence, fix, reasons=reasons)


def may_be_rolled_back(ledger: Ledger, number: int) -> bool:
    """Whether run ``number``, which has a timeout, may still be rolled back: it awaits
    confirmation, is running, or a revert of it is. Pure.
    """
    run, opened = ledger.run(number), ledger.interrupted
    if run is None or run.confirm_by is None or run.confirmed:
        return False
    if opened and (opened.number == number or opened.verb == REVERT):
        return True
    return run.awaits_confirmation


class RecoveryIncomplete(Problem):
    """A run that was open is only partly rolled back, so no other may follow it."""


class HostRun:
    """Runs of ``by`` (``ovirt-rdma-host apply``, a hook's name) on the host below
    ``root``. ``run`` runs tools that read, ``effects`` makes the changes (None: the
    ordinary ones), ``listener`` receives the progress. The caller takes the lock.

    All methods raise JournalProblem where the journal cannot be used.
    """

    def __init__(
        self,
        root: Union[str, Path],
        by: str,
        listener: Listener,
        run: Optional[Runner] = None,
        effects: Optional[HostEffects] = None,
    ) -> None:
        self.root, self.by, self.listener, self.run = root, by, listener, run
        self.effects = effects or HostEffects(root, run)
        self.journal = Journal(root)
        self._facts: Optional[Facts] = None
        self._seen: Optional[Signature] = None

    def facts(self) -> Facts:
        """Return the facts of the host. They are read before the lock is taken: reading
        a slow host then delays no other run. Called again under the lock, this returns
        the same facts, unless the journal shows that a run has changed the host since;
        then it reads again. The lock does not keep others from changing the host in any
        case.
        """
        seen = signature_of(under(self.root, JOURNAL))
        if self._facts is None or seen != self._seen:
            # The signature from before the reading: a change meanwhile counts as later.
            self._facts = HostReader(self.root, self.run).facts()
            self._seen = seen
        return self._facts

    def still_planned(self, policy: StoredPolicy) -> Collection[str]:
        """Return the steps that ``policy`` still requires, which had no effect."""
        decision = decide(HostReader(self.root, self.run).facts(), policy.policy)
        return frozenset(step.id for step in decision.applicable)

    def apply(
        self,
        steps: Sequence[Step],
        facts: Facts,
        *,
        verb: str = APPLY,
        policy: str = "",
        confirm_by: Optional[int] = None,
        on_begin: Callable[[int], object] = lambda run: None,
        verify: Callable[[], Collection[str]] = frozenset,
        listener: Optional[Listener] = None,
    ) -> RunResult:
        """Do ``steps``, which :func:`.plan.gate` has allowed, and verify them;
        :meth:`recover` was called.

        ``facts`` are those from which the steps were decided; they identify netdevs.
        ``verb``, ``policy`` (its digest) and ``confirm_by`` are as in Run. ``on_begin``
        gets the run's number before the first change, to set a timer: if it raises,
        nothing is done. ``verify`` reads the host again after the last change and
        returns the ids of the steps that are still planned.

        Returns DONE with ``run`` None if there are no steps: no run begins. Raises
        Refused where a run is open or awaits confirmation, or a value is not what the
        plan says; nothing was done then.
        """
        if not steps:
            return RunResult(None, DONE, "there is nothing to do")
        with delayed_signals() as signals:
            writer = JournalWriter(self.journal, listener or self.listener)
            refuse_while_open(writer.ledger)
            acts = atomic_changes_of(self.effects, steps, facts)
            number, at = writer.ledger.next_run, iso(self.effects.now())
            run = Run(number, verb, at, self.by, policy, confirm_by)
            writer.begin(run)
            try:
                on_begin(number)
            except Exception as error:
                sentence = f"{error}; nothing was done"
                writer.end(number, ROLLED_BACK, self.effects.now(), sentence)
                raise
            return _Run(self.effects, writer, run, signals, verify).carry_out(
                steps, acts
            )

    def revert(
        self,
        only: Optional[str] = None,
        *,
        allow_link_down: bool = False,
        listener: Optional[Listener] = None,
    ) -> RunResult:
        """Revert the applied changes: all, or those of the step with the id ``only``;
        :meth:`recover` was called.

        Returns DONE, also if values of others were left (``left``), or PARTLY if a
        change could not be undone and is still applied; ``run`` is None if nothing is
        applied. Raises Refused, with nothing done, where it would take down a link that
        is in use and ``allow_link_down`` is False, for a step that another one depends
        on, and for a single step while a run awaits confirmation; UsageProblem for a
        step without applied changes.
        """
        host = self.effects
        # Before the plan, which is of what the host has then.
        facts = None if allow_link_down else self.facts()
        with delayed_signals():
            writer = JournalWriter(self.journal, listener or self.listener)
            ledger = writer.ledger
            refuse_while_open(ledger, awaiting=only is not None)
            if only is not None and only not in ledger.applied_steps:
                known = ", ".join(ledger.applied_steps)
                raise UsageProblem(
                    "step-not-applied",
                    f"step {only!r} has no changes to revert"
                    + ("" if known else ", and neither has any other step"),
                    f"steps that can be reverted: {known}" if known else "",
                )
            if not ledger.applied:
                return RunResult(None, DONE, "there are no changes to revert")
            run = Run(ledger.next_run, REVERT, iso(host.now()), self.by, only=only)
            undo = Undo(host, ledger, run)
            _refuse_in_use(
                undo,
                facts,
                "refused: the interfaces are in use",
                "and run this again; or allow it with --allow-link-down",
            )
            writer.begin(run)
            return undo.finish(writer)

    def recover(
        self, *, even_in_use: bool = False, unconfirmed: Optional[int] = None
    ) -> Optional[RunResult]:
        """Roll back an interrupted run, or finish it if it is a revert. Else roll back
        a run that awaits confirmation if its deadline has passed, the host was booted
        since, or it is the run ``unconfirmed``.

        ``even_in_use``: also if that interrupts a netdev that somebody has started to
        use since; otherwise Refused is raised, with nothing done. Returns the result,
        None if no run was open. Raises RecoveryIncomplete if a change could not be
        undone.
        """
        with delayed_signals(end_after=True):
            try:
                self.effects.restore_meanwhile()
            except EffectFailed as error:
                # It is tried again before the next change that needs it.
                self.listener.note(f"warning: {error}")
            writer = JournalWriter(self.journal, self.listener)
            run, awaiting = writer.ledger.interrupted, writer.ledger.awaiting
            if run:
                # Before the plan, which is of what the host has then.
                facts = None if even_in_use else self.facts()
                undo = Undo(self.effects, writer.ledger, run)
                reverts = run.verb == REVERT
                reason = f"run {run.number} was interrupted"
                ends = "finished" if reverts else "rolled back"
                _refuse_in_use(
                    undo,
                    facts,
                    f"{reason}, and was not {ends}: the interfaces are in use",
                    "then: ovirt-rdma-host apply; or allow it: ovirt-rdma-host apply "
                    "--allow-link-down",
                )
                doing = "finishing it" if reverts else "rolling it back"
                writer.say(f"{reason}; {doing}")
                reason = "" if reverts else reason
            else:
                reason = self._why_roll_back(awaiting, unconfirmed) if awaiting else ""
                if not awaiting or not reason:
                    return None
                writer.say(f"{reason}; rolling it back")
                undo = Undo(self.effects, writer.ledger, awaiting)
            result = undo.finish(writer, reason)
        if result.outcome == PARTLY:
            failed = [left for left in result.left if left.failed]
            lines = [result.sentence, *(f"{left.step}: {left.why}" for left in failed)]
            fix = "; ".join(left.fix for left in failed if left.fix)
            raise RecoveryIncomplete("recovery-incomplete", "\n".join(lines), fix)
        self.listener.note(result.sentence)
        return result

    def _why_roll_back(self, run: Run, unconfirmed: Optional[int]) -> str:
        """Return why ``run``, which is unconfirmed, must be rolled back now, or ""."""
        limit, boot = run.confirm_by, self.effects.boot_id()
        if limit is not None and self.effects.now() >= limit:
            return f"run {run.number} was not confirmed in time"
        if boot and boot != run.acts[0].boot:
            return f"run {run.number} was not confirmed before the host was booted"
        if any(run.number in (act.undoing_run, act.undone_by) for act in run.acts):
            return f"the rollback of run {run.number} was interrupted"
        if run.number == unconfirmed:
            return f"run {run.number} was not confirmed"
        return ""


PROGRAM = "/usr/bin/ovirt-rdma-host"


class ConfirmationTimer:
    """The timer that rolls back the run with this number on ``host`` unless it is
    confirmed.

    It is a transient systemd timer, which depends neither on the terminal nor on the
    process that set it. A NetworkManager checkpoint cannot be used: while ours is open,
    VDSM's own would fail.
    """

    def __init__(self, number: int, host: Host) -> None:
        self.unit = f"ovirt-rdma-rollback-{number}"
        self._number, self._host = number, host

    def check(self) -> None:
        """Raise Problem where systemd is not running."""
        if not self._host.has_systemd or self._host.run is None:
            raise Problem(
                "systemd-not-running",
                "--confirm-timeout needs systemd, which is not running here",
                "leave out --confirm-timeout",
            )

    def set(self, seconds: int) -> None:
        """Let systemd run ``unit unconfirmed`` in ``seconds``.

        Raises Problem where systemd is not running, or does not accept the timer.
        """
        self.check()
        # A timer that a killed run left has the same name.
        self.cancel()
        try:
            self._host.tool(
                "systemd-run",
                f"--on-active={seconds}s",
                # The default, a minute, is longer than some operators want to wait.
                "--timer-property=AccuracySec=1s",
                f"--unit={self.unit}",
                f"--description=Roll back run {self._number} of ovirt-rdma-host",
                # systemd drops the unit once it ran, also if it failed.
                "--collect",
                # Not sandboxed: finding the process that has the lock needs
                # CAP_SYS_PTRACE. If the lock could not be taken, the journal not be
                # read, or the service was killed, it is started again, without a limit.
                "--property=Restart=on-failure",
                "--property=RestartSec=30",
                "--quiet",
                "--",
                own_program(),
                *("unit", "unconfirmed", str(self._number)),
            )
        except CommandFailed as error:
            raise Problem(
                "timer-not-set",
                f"the timer that would roll this run back cannot be set: {error}",
                "see systemctl status; or leave out --confirm-timeout",
            ) from None

    def cancel(self) -> str:
        """Stop the timer; return a sentence if that failed, else "". A failure does no
        harm: the unit finds that the run was confirmed or has ended.
        """
        timer = f"{self.unit}.timer"
        try:
            if self._host.has_systemd:
                # The service too: it may be waiting for the lock that the caller has.
                self._host.tool("systemctl", "stop", timer, f"{self.unit}.service")
        except NotInstalled:
            pass
        except CommandFailed as error:
            # It has elapsed and systemd has dropped it, or the host was booted since.
            if "not loaded" not in str(error):
                return f"the timer {timer} cannot be stopped: {error}"
        return ""


def own_program() -> str:
    """Return the absolute path of the running ovirt-rdma-host, for the timer to run;
    that of the installed one if this process is another program.
    """
    path = Path(sys.argv[0] if sys.argv else "").resolve()
    if path.name == Path(PROGRAM).name and path.is_file():
        return str(path)
    return PROGRAM


@dataclass(frozen=True)
class ChangeStatus:
    """The content of the journal; ``problem`` says why it cannot be read. ``kept`` has
    a sentence for each value that somebody has changed since, so that revert would
    leave it.
    """

    ledger: Ledger
    kept: tuple[Sentence, ...] = ()
    problem: Optional[JournalProblem] = None

    @property
    def runs(self) -> list[Run]:
        """The runs with changes that are applied, the oldest first."""
        return [run for run in self.ledger.runs if run.applied]

    def follow(self, policy: Optional[str]) -> Optional[bool]:
        """Whether all changes that are applied follow the policy with this digest; None
        if there is neither or no policy.
        """
        if policy is None or not self.runs:
            return None
        return all(run.policy == policy for run in self.runs)

    def document(self, policy: Optional[str]) -> Optional[dict[str, object]]:
        """Return it for ``-o json``, with the digest of the loaded ``policy``."""
        if self.problem:
            return None
        runs, interrupted = self.runs, self.ledger.interrupted
        awaiting = self.ledger.awaiting
        return {
            "held": self.ledger.applied_steps,
            "since": runs[0].at if runs else None,
            "policies": list(dict.fromkeys(run.policy for run in runs)),
            "interrupted": interrupted.number if interrupted else None,
            "awaiting": awaiting.number if awaiting else None,
            "confirm_by": awaiting.confirm_by if awaiting else None,
            "kept": self.kept,
            "at_boot": len(boot_settings(self.ledger)),
            "by_loaded_policy": self.follow(policy),
        }


def change_status(host: HostEffects, journal: Journal) -> ChangeStatus:
    """Return the state of ``journal``, compared with ``host``. Reads only."""
    try:
        ledger = journal.ledger()
    except JournalProblem as problem:
        return ChangeStatus(Ledger(), problem=problem)
    kept: tuple[Sentence, ...] = ()
    # In the middle of a run a value may be neither ours nor somebody else's; the next
    # run recovers.
    if ledger.applied and not ledger.interrupted:
        kept = Undo(host, ledger, Run(ledger.next_run, REVERT, "")).whys
    return ChangeStatus(ledger, kept)
