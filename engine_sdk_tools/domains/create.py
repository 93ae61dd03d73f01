# SPDX-License-Identifier: GPL-2.0-or-later
"""Create a storage domain, and undo it where a part fails.

Taking back a domain that was just made: maintenance, detached, removed, and its
connection with it; in the order in which the engine allows it.

``domain create``, carried out: connection, domain, attachment, until it is active;
its transport proven on hosts that tell; all taken back where a part fails.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Callable, Optional, Protocol

from ovirt_rdma.engine_sdk_tools.api.errors import (
    BROKEN,
    MISSING,
    EngineProblem,
    LostAnswer,
)
from ovirt_rdma.engine_sdk_tools.api.progress import Listener
from ovirt_rdma.engine_sdk_tools.api.request import Call, Read
from ovirt_rdma.engine_sdk_tools.api.session import Session
from ovirt_rdma.engine_sdk_tools.domains.create_plan import DomainPlan
from ovirt_rdma.engine_sdk_tools.domains.mounted import (
    Mounted,
    MountEvents,
    ProvenHost,
    hosts_mounted,
    not_verified,
)
from ovirt_rdma.engine_sdk_tools.hosts.report import HostDoor
from ovirt_rdma.engine_sdk_tools.model import Domain, Host, status_words
from ovirt_rdma.engine_sdk_tools.reader import connection_of
from ovirt_rdma.engine_sdk_tools.undo import Undone, after_lost
from ovirt_rdma.host.errors import Problem

MAINTENANCE_S = 600.0
_DOWN = ("maintenance", "unattached")


class Made(Protocol):
    """What a run made."""

    connection: str
    domain: str
    attached: bool
    fell: tuple[Host, ...]


class _Stopped(Exception):
    """What follows cannot be done."""


def undo_domain(
    session: Session, plan: DomainPlan, made: Made, listener: Listener
) -> Undone:
    """Take back what was made; never raises for what cannot be: that is told."""
    return _Undo(session, plan, made, listener).run()


class _Undo:
    def __init__(
        self, session: Session, plan: DomainPlan, made: Made, listener: Listener
    ) -> None:
        self._session, self._plan = session, plan
        self._made, self._listener = made, listener
        self._done: list[str] = []
        self._left: list[str] = []
        self._by_hand: list[str] = []

    def run(self) -> Undone:
        plan, made = self._plan, self._made
        name, center = plan.name, plan.data_center.name
        todo: list[tuple[Callable[[], None], str]] = []
        if made.attached:
            domain = plan.domain.id if plan.domain else made.domain
            by_hand = f"put {name} into maintenance and detach it from {center}"
            todo.append((partial(self._detach, domain, by_hand), by_hand))
        if made.domain:
            by_hand = (
                f"remove the domain {name}, and on the server the folder {made.domain} "
                f"below {plan.row.path}"
            )
            todo.append((partial(self._remove, made.domain, by_hand), by_hand))
        if made.connection:
            # Removing the domain has removed it too, as a rule.
            call = Call(
                f"storageconnections/{made.connection}",
                "remove",
                f"removing the connection to {plan.row.export} again",
                {},
                name,
            )
            by_hand = f"remove the storage connection {made.connection}"
            todo.append((partial(self._act, call, by_hand), by_hand))
        for number, (act, _) in enumerate(todo, 1):
            try:
                act()
            except _Stopped:
                # What was to follow is left too.
                self._by_hand += [by_hand for _, by_hand in todo[number:]]
                break
        for host in made.fell:
            doing = f"activating {host.name} again"
            call = Call(f"hosts/{host.id}", "activate", doing, {}, host.name)
            try:
                self._act(call, f"activate {host.name}")
            except _Stopped:
                continue
        return Undone(tuple(self._done), tuple(self._left), tuple(self._by_hand))

    def _detach(self, domain: str, by_hand: str) -> None:
        path = f"datacenters/{self._plan.data_center.id}/storagedomains/{domain}"
        name = self._plan.name
        read = Read(path, f"reading {name}", "get")
        try:
            found = self._session.read(read)
        except EngineProblem as error:
            if error.kind == MISSING:
                return
            self._stop(error, by_hand)
        if _word(found) not in _DOWN:
            doing = f"putting {name} into maintenance again"
            self._act(Call(path, "deactivate", doing, {}, name), by_hand)
            try:
                self._session.wait_until(read, _is_down, doing, MAINTENANCE_S)
            except EngineProblem as error:
                self._stop(error, by_hand)
        doing = f"detaching {name} again"
        self._act(Call(path, "remove", doing, {}, name), by_hand)

    def _remove(self, domain: str, by_hand: str) -> None:
        plan = self._plan
        # With its folder on the export, which is ours alone: it cannot be an import.
        words = {"host": plan.host.name, "format": True}
        doing = f"removing the domain {plan.name} again"
        call = Call(f"storagedomains/{domain}", "remove", doing, words, plan.name)
        self._act(call, by_hand)

    def _act(self, call: Call, by_hand: str) -> None:
        self._listener.begin(call.doing, call.about)
        try:
            self._session.perform(call)
        except EngineProblem as error:
            self._listener.end(call.doing, call.about, str(error))
            if error.kind != MISSING:
                self._stop(error, by_hand)
            return
        self._listener.end(call.doing, call.about)
        self._done.append(call.doing)

    def _stop(self, error: EngineProblem, by_hand: str) -> None:
        self._left.append(f"not taken back: {error}")
        self._by_hand.append(by_hand)
        raise _Stopped from error


def _word(found: Any) -> str:
    return str(getattr(found.status, "value", ""))


def _is_down(found: Any) -> Optional[bool]:
    return True if _word(found) in _DOWN else None


# The attachment mounts on every host; VDSM gives a mount up to 3 minutes or so.
ACTIVE_S = 900.0
# Where the answer to the attachment was lost, the engine may be between attaching and
# activating: then it shows maintenance too, for a moment.
SETTLED_S = 60.0
_ACTIVE = "active"
# What the activation that belongs to the attachment leaves where it fails; the engine
# does not try again (AttachStorageDomainToPoolCommand.java:221).
_NOT_ACTIVATED = ("maintenance", "inactive")

_LOOK_THERE = "'ovirt-rdma-host nfs check' on the host says what is missing"


@dataclass(frozen=True)
class DomainMade:
    """``made`` is False where there was nothing to do. ``hosts`` are all that were up,
    with what is known of each.
    """

    id: str
    transport: str
    made: bool
    hosts: tuple[ProvenHost, ...] = ()

    @property
    def not_verified(self) -> tuple[str, ...]:
        """The hosts of which nobody knows whether they have mounted it."""
        return not_verified(self.hosts)

    @property
    def exit_code(self) -> int:
        """5 where the domain is active, and a host has it over another transport or
        not at all.
        """
        wrong = [
            host
            for host in self.hosts
            if host.transport not in (None, self.transport) or host.mounted is False
        ]
        return 5 if wrong else 0


@dataclass
class Traces:
    """What this run has made so far, by id; ``fell`` are hosts that it took down."""

    connection: str = ""
    domain: str = ""
    attached: bool = False
    fell: tuple[Host, ...] = ()


def create_domain(
    session: Session, door: Optional[HostDoor], plan: DomainPlan, listener: Listener
) -> DomainMade:
    """Do what ``plan`` says; prove the transport where ``door`` leads to hosts.

    Raises Problem where a part failed, after what was made is gone again; its message
    says what is not.
    """
    listener.plan((plan.name,), len(plan.calls) + 2)
    run = _Run(session, plan, listener)
    if plan.nothing:
        there = run.look(door)
        return DomainMade(run.domain, plan.transport, False, there.hosts)
    events = MountEvents(session, plan.name, plan.row.export)
    try:
        run.make()
        run.activate()
        there = run.look(door, events)
        run.traces.fell = there.fell
        if there.failed:
            raise EngineProblem(
                "domain-not-created", "; ".join(there.failed), BROKEN, fix=_LOOK_THERE
            )
    except Problem as error:
        told = _with_events(events, error)
        undone = undo_domain(session, plan, run.traces, listener)
        raise undone.told(told) from error
    if events.problem:
        listener.note(f"no event can tell of hosts that failed: {events.problem}")
    return DomainMade(run.domain, plan.transport, True, there.hosts)


class _Run:
    """The parts of it, each told to the listener; ``domain`` is its id, once known."""

    def __init__(self, session: Session, plan: DomainPlan, listener: Listener) -> None:
        self._session, self._plan, self._listener = session, plan, listener
        self.traces = Traces()
        self.domain = plan.domain.id if plan.domain else ""

    def make(self) -> None:
        """Make the connection and the domain, as far as they are not there."""
        plan = self._plan
        if self.domain:
            return
        row = plan.row.id
        if not row:
            row = self._made(plan.connecting(), lambda: _row_like(self._session, plan))
            self.traces.connection = row
        self.domain = self._made(
            plan.adding(row), lambda: _domain_named(self._session, plan.name)
        )
        self.traces.domain = self.domain

    def activate(self) -> None:
        """Attach it, unless it is, and wait until it is active.

        Raises EngineProblem where the engine has given up on its activation.
        """
        answered = not self._plan.attached and self._attached()
        plan = self._plan
        doing = f"activating {plan.name}"
        self._listener.begin(doing, plan.name)
        path = f"datacenters/{plan.data_center.id}/storagedomains/{self.domain}"
        final = _Final(self._session.clock, 0.0 if answered else SETTLED_S)
        read = Read(path, f"reading {plan.name}", "get")
        status = self._session.wait_until(read, final, doing, ACTIVE_S)
        if status != _ACTIVE:
            shown = status_words(status)
            sentence = f"{plan.name} is attached, but not activated: it is {shown}"
            self._listener.end(doing, plan.name, sentence)
            raise EngineProblem("domain-not-active", sentence, BROKEN)
        self._listener.end(doing, plan.name)

    def look(
        self, door: Optional[HostDoor], events: Optional[MountEvents] = None
    ) -> Mounted:
        """Look whether the hosts have it; ``events`` as for hosts_mounted."""
        plan = self._plan
        doing = f"proving {plan.name} on its hosts"
        found = Domain(
            self.domain,
            plan.name,
            "data",
            "nfs",
            plan.data_center.id,
            _ACTIVE,
            connection=plan.row,
        )
        self._listener.begin(doing, plan.name)
        there = hosts_mounted(self._session, door, plan.hosts, found, events)
        self._listener.end(doing, plan.name, "; ".join(there.failed))
        return there

    def _made(self, call: Call, look: Callable[[], str]) -> str:
        """Make something; return its id, which ``look`` finds where the answer to it
        was lost.
        """
        self._listener.begin(call.doing, call.about)
        try:
            made = str(self._session.perform(call).id)
        except LostAnswer as lost:
            made = after_lost(lost, look)
        self._listener.end(call.doing, call.about)
        return made

    def _attached(self) -> bool:
        """Attach; return whether the engine has answered: then it has tried to
        activate too.
        """
        call = self._plan.attaching(self.domain)
        self._listener.begin(call.doing, call.about)
        # From here on it may be attached, whatever the answer.
        self.traces.attached = True
        answered = True
        try:
            self._session.perform(call)
        except LostAnswer as error:
            # If it is not, waiting for it to be active tells.
            self._listener.note(str(error))
            answered = False
        self._listener.end(call.doing, call.about)
        return answered


class _Final:
    """Tells a domain's status once it does not change by itself any more: active, or
    not active and seen so for ``settled_s``.
    """

    def __init__(self, clock: Callable[[], float], settled_s: float) -> None:
        self._clock, self._settled_s = clock, settled_s
        self._since: Optional[float] = None

    def __call__(self, found: Any) -> Optional[str]:
        status = str(getattr(found.status, "value", ""))
        if status not in _NOT_ACTIVATED:
            self._since = None
            return status if status == _ACTIVE else None
        now = self._clock()
        if self._since is None:
            self._since = now
        return status if now - self._since >= self._settled_s else None


def _row_like(session: Session, plan: DomainPlan) -> str:
    """Return the id of the row that was made although the answer was lost."""
    read = Read("storageconnections", "reading the storage connections")
    for one in session.read(read):
        row = connection_of(one)
        if row is not None and row == replace(plan.row, id=row.id):
            return row.id
    return ""


def _domain_named(session: Session, name: str) -> str:
    for one in session.read(Read("storagedomains", "reading the storage domains")):
        if one.name == name:
            return str(one.id)
    return ""


def _with_events(events: MountEvents, error: Problem) -> Problem:
    """Return ``error`` with what the engine and the hosts said of it in the events."""
    said = events.said()
    if not said:
        return error
    lines = "\n".join(said)
    return Problem(error.id, f"{error}\n{lines}", error.fix)
