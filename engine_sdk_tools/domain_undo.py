# SPDX-License-Identifier: GPL-2.0-or-later
"""Taking back a domain that was just made: maintenance, detached, removed, and its
connection with it; in the order in which the engine allows it.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Callable, Optional, Protocol

from ovirt_rdma.engine_sdk_tools.call import Call, Read
from ovirt_rdma.engine_sdk_tools.domain_create import DomainPlan
from ovirt_rdma.engine_sdk_tools.engine_errors import (
    MISSING,
    EngineProblem,
)
from ovirt_rdma.engine_sdk_tools.engine_facts import Host
from ovirt_rdma.engine_sdk_tools.progress import Listener
from ovirt_rdma.engine_sdk_tools.session import Session
from ovirt_rdma.engine_sdk_tools.undo import Undone

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
