# SPDX-License-Identifier: GPL-2.0-or-later
"""Decide the next step of a preparation from its state and the hosts' statuses. Pure.

A batch runs together. A host that fails does not stop the others of its batch, because
they are in maintenance or half installed already and have to be finished; but the next
batch is not started, because it would probably fail too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Optional

from ovirt_rdma.engine_sdk_tools.api.request import Call
from ovirt_rdma.engine_sdk_tools.api.sdk import types
from ovirt_rdma.engine_sdk_tools.model import (
    COMES,
    INSTALLED_NOW,
    host_is,
    status_words,
)
from ovirt_rdma.engine_sdk_tools.preparation.model import (
    CHECKING,
    DONE,
    ENTERING,
    FAILED,
    IN_PROGRESS,
    INSTALLING,
    LEAVING,
    LEFT_OUT,
    NOTHING,
    OVER,
    PREPARED,
    REINSTALL,
    SSH,
    STOPPED,
    TODO,
    HostRecord,
    PreparationState,
)
from ovirt_rdma.engine_sdk_tools.preparation.plan import INSTALLABLE

# Kinds of steps, in the order in which a batch does them.
MARK = "mark"
RUN = "run the role"
ENTER = "enter"
WAIT_IN = "wait in"
INSTALL = "install"
WAIT_INSTALL = "wait install"
LEAVE = "leave"
WAIT_OUT = "wait out"
LOOK = "look"
FINISH = "finish"
_ORDER = (MARK, RUN, ENTER, INSTALL, WAIT_IN, WAIT_INSTALL, LEAVE, WAIT_OUT, LOOK)

# ANSIBLE_PLAYBOOK_EXEC_DEFAULT_TIMEOUT is 120 minutes; then the host restarts.
INSTALL_S = 3 * 3600.0
ENTER_S = 4 * 3600.0
LEAVE_S = 3600.0
REINSTALLED = ("maintenance", "install_failed", "up", "non_operational", "error")


@dataclass(frozen=True)
class PreparationStep:
    """One step. ``hosts`` are the hosts that it is about, by name.

    - ``before``: the stage that is stored before the request.
    - ``until``: the statuses that end a wait.
    - ``marks``: changes of the record, for MARK.
    """

    kind: str
    hosts: tuple[str, ...]
    doing: str = ""
    call: Optional[Call] = None
    before: str = ""
    until: tuple[str, ...] = ()
    timeout_s: float = 0.0
    marks: Optional[Mapping[str, object]] = None

    @property
    def host(self) -> str:
        """The only host of a step of one host."""
        return self.hosts[0]


Statuses = Mapping[str, Optional[str]]
"""The statuses of hosts by id; a host that was removed is missing."""


def next_step(state: PreparationState, statuses: Statuses) -> PreparationStep:
    """Return the next step; FINISH if there is none."""
    current = _current(state)
    if not current:
        return PreparationStep(FINISH, ())
    steps = [_host_step(record, statuses) for record in current]
    first = min(steps, key=lambda step: _ORDER.index(step.kind))
    if first.kind in (RUN, LOOK):
        # One run of Ansible for all.
        names = tuple(s.host for s in steps if s.kind == first.kind)
        doing = "running the role on" if first.kind == RUN else "asking"
        return replace(first, hosts=names, doing=f"{doing} {_shown(names)}")
    return first


def finished(state: PreparationState) -> PreparationState:
    """Return the state with the stage that follows FINISH."""
    open_hosts = any(record.stage not in OVER for record in state.hosts)
    return replace(state, stage=STOPPED if open_hosts else PREPARED, doing="")


def _current(state: PreparationState) -> list[HostRecord]:
    """Return the hosts of the first batch that is not over."""
    mine = [record for record in state.hosts if record.way != NOTHING]
    # What is in progress is always finished.
    open_now = [record for record in mine if record.stage in IN_PROGRESS]
    todo = [record for record in mine if record.stage == TODO]
    if not todo:
        return open_now
    number = min(record.batch for record in (*open_now, *todo))
    if any(record.stage == FAILED and record.batch < number for record in mine):
        return open_now
    batch = [r for r in (*open_now, *todo) if r.batch == number or r.stage != TODO]
    return _tried_first(mine, batch)


def _tried_first(mine: list[HostRecord], batch: list[HostRecord]) -> list[HostRecord]:
    """Return ``batch`` with one host only of a way that no host has proven yet: the
    canary may have gone the other way, have no RDMA hardware, or be left out.
    """
    for way in (SSH, REINSTALL):
        same = [record for record in mine if record.way == way]
        if any(record.stage == DONE for record in same):
            continue
        begun = any(r.stage in IN_PROGRESS or r.stage == FAILED for r in same)
        waiting = [r for r in batch if r.way == way and r.stage == TODO]
        later = {record.id for record in waiting[0 if begun else 1 :]}
        batch = [record for record in batch if record.id not in later]
    return batch


def _host_step(record: HostRecord, statuses: Statuses) -> PreparationStep:
    if record.id not in statuses:
        return _mark(record, stage=FAILED, problem="it is no longer in the engine")
    if record.stage == CHECKING:
        return PreparationStep(LOOK, (record.name,))
    if record.way == SSH:
        return PreparationStep(RUN, (record.name,))
    status = statuses[record.id]
    if record.stage == LEAVING:
        return _leaving(record, status)
    return _entering(record, status)


def _entering(record: HostRecord, status: Optional[str]) -> PreparationStep:
    # ENTERING is stored before we move a host, so this was somebody else, who needs the
    # host: it would be activated at the end.
    moved = status == "maintenance" and record.found != "maintenance"
    if record.stage == TODO and (moved or status == "installing"):
        problem = f"{_is(record, status)}, by somebody else"
        fix = "when it is up again, run the same command again"
        return _mark(record, stage=LEFT_OUT, problem=problem, fix=fix)
    if record.stage == INSTALLING or status == "installing":
        return _wait(record, WAIT_INSTALL)
    if status in INSTALLABLE:
        return _install(record)
    if status == "up":
        return _enter(record)
    if host_is(status, COMES):
        inwards = status == "preparing_for_maintenance"
        return _wait(record, WAIT_IN if inwards else WAIT_OUT)
    return _mark(record, stage=FAILED, problem=_is(record, status))


def _leaving(record: HostRecord, status: Optional[str]) -> PreparationStep:
    failed = bool(record.problem)
    if status == "up":
        if failed:
            return _mark(record, stage=FAILED)
        return _mark(record, stage=CHECKING)
    if record.found == "maintenance" and status == "maintenance":
        return _mark(record, stage=FAILED if failed else CHECKING)
    if status in ("maintenance", "preparing_for_maintenance"):
        return _leave(record)
    if host_is(status, COMES, INSTALLED_NOW):
        return _wait(record, WAIT_OUT)
    then = f"{record.problem}; " if failed else ""
    return _mark(record, stage=FAILED, problem=f"{then}{_is(record, status)}")


def _is(record: HostRecord, status: Optional[str]) -> str:
    return f"{record.name} is {status_words(status)} now"


def _mark(record: HostRecord, **changes: object) -> PreparationStep:
    return PreparationStep(MARK, (record.name,), marks=changes)


def _enter(record: HostRecord) -> PreparationStep:
    doing = f"moving {record.name} to maintenance"
    reason = {"reason": "ovirt-rdma prepares it"}
    return _call(record, ENTER, "deactivate", doing, ENTERING, **reason)


def _install(record: HostRecord) -> PreparationStep:
    """Reinstall a host with the engine's own SSH key.

    All defaults that differ between the API's documents and its code are sent. The
    firewall is left as it is.
    """
    return _call(
        record,
        INSTALL,
        "install",
        f"reinstalling {record.name}",
        INSTALLING,
        ssh=types.Ssh(authentication_method=types.SshAuthenticationMethod.PUBLICKEY),
        host=types.Host(override_iptables=False),
        activate=False,
        reboot=record.reboot,
    )


def _leave(record: HostRecord) -> PreparationStep:
    return _call(record, LEAVE, "activate", f"activating {record.name}", LEAVING)


def _call(
    record: HostRecord, kind: str, method: str, doing: str, before: str, **words: object
) -> PreparationStep:
    call = Call(f"hosts/{record.id}", method, doing, words, subject=record.name)
    return PreparationStep(kind, (record.name,), doing, call, before)


_WAITS = {
    WAIT_IN: ("in maintenance", ("maintenance", "up", "non_operational", "down")),
    WAIT_INSTALL: ("installed", REINSTALLED),
    WAIT_OUT: (
        "up",
        ("up", "non_operational", "install_failed", "error", "maintenance"),
    ),
}
_LIMITS = {WAIT_IN: ENTER_S, WAIT_INSTALL: INSTALL_S, WAIT_OUT: LEAVE_S}


def _wait(record: HostRecord, kind: str) -> PreparationStep:
    goal, until = _WAITS[kind]
    doing = f"waiting for {record.name} to be {goal}"
    names = (record.name,)
    return PreparationStep(kind, names, doing, until=until, timeout_s=_LIMITS[kind])


def _shown(names: tuple[str, ...]) -> str:
    return names[0] if len(names) == 1 else f"{len(names)} hosts"


def imagined(state: PreparationState, statuses: Statuses) -> Iterator[PreparationStep]:
    """Yield the steps that would follow if all goes well: the dry run."""
    now = dict(statuses)
    while True:
        step = next_step(state, now)
        if step.kind == FINISH:
            return
        if step.kind != MARK:
            yield step
        for name in step.hosts:
            record = state.host(name)
            state = state.with_host(name, **_succeeded(record, step))
            now[record.id] = _AFTER.get(step.kind, now.get(record.id))


_AFTER = {
    ENTER: "preparing_for_maintenance",
    WAIT_IN: "maintenance",
    INSTALL: "installing",
    WAIT_INSTALL: "maintenance",
    LEAVE: "unassigned",
    WAIT_OUT: "up",
}


def _succeeded(record: HostRecord, step: PreparationStep) -> dict[str, object]:
    if step.marks is not None:
        return dict(step.marks)
    after = {RUN: CHECKING, WAIT_INSTALL: LEAVING, LOOK: DONE}
    stage = after.get(step.kind, step.before or record.stage)
    return {"stage": stage}
