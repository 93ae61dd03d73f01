# SPDX-License-Identifier: GPL-2.0-or-later
"""Decide how each host is prepared, in which order, what comes next, and what counts as
proof; and record that as plain data. Pure.

As for a conversion, the state says what was found and started; engine and hosts say
what is. So a run that was killed at any point is continued by the next.

A batch runs together. A host that fails does not stop the others of its batch, because
they are in maintenance or half installed already and have to be finished; but the next
batch is not started, because it would probably fail too.

The engine reports a host as installed even if the role is missing, or was ended by an
error that it ignores (AnsibleRunnerClient.java:57-77). So only the event of the role's
last task counts. Codes are those of AuditLogType.java, ovirt-engine 4.5.7.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Optional

from ovirt_rdma.engine_sdk_tools.api.request import (
    DENIED,
    UNTRUSTED,
    Call,
    EngineProblem,
    Listener,
    Read,
    Step,
    types,
)
from ovirt_rdma.engine_sdk_tools.api.session import events_since, newest_event
from ovirt_rdma.engine_sdk_tools.conversion.model import RecordFile, Stage, refused
from ovirt_rdma.engine_sdk_tools.conversion.next_step import (
    Kind,
    RunStep,
    enter,
    leave,
    wait_in,
    wait_out,
)
from ovirt_rdma.engine_sdk_tools.conversion.run import HostsRun
from ovirt_rdma.engine_sdk_tools.hosts.ansible import (
    NOT_PREPARED,
    SENTINEL,
    WITHOUT_HARDWARE,
    AnsibleHosts,
    Prepared,
    policy_proven,
    split_fix,
)
from ovirt_rdma.engine_sdk_tools.hosts.report import (
    HostReport,
    digest_without_drop_ins,
    status_part,
    with_own_bugs_caught,
)
from ovirt_rdma.engine_sdk_tools.model import (
    BROKEN,
    BROKEN_OUT_S,
    COMES,
    INSTALLED_NOW,
    Engine,
    Host,
    counted,
    host_is,
    listed,
    status_words,
)
from ovirt_rdma.engine_sdk_tools.reader import read_engine, with_hosts_now
from ovirt_rdma.host.errors import ExitCode, Problem
from ovirt_rdma.host.policy.model import Policy
from ovirt_rdma.host.rules.base import LINK_DOWN, REBOOT
from ovirt_rdma.host.rules.registry import decide
from ovirt_rdma.host.system.json_codec import Envelope

# Ways to prepare a host.
SSH = "ssh"
REINSTALL = "reinstall"
# The host needs nothing.
NOTHING = "nothing"
# With --by.
AUTO = "auto"

# Stages of the whole.
PREPARING = "preparing"
# A host failed: the next batch was not started.
STOPPED = "stopped"
PREPARED = "prepared"

# Stages of a host. ENTERING, INSTALLING and LEAVING are stored before the request; one
# that is LEAVING is installed, or was left to be as before: it has to be activated.
TODO, ENTERING, LEAVING = Stage.TODO, Stage.ENTERING, Stage.LEAVING
DONE, FAILED = Stage.DONE, Stage.FAILED
INSTALLING = "installing"
# By SSH, the role has run; by reinstall, the host is up: its report has to agree.
CHECKING = "checking"
# Nothing was loaded, because the host has no RDMA hardware.
NO_HARDWARE = "no RDMA hardware"
# It was not up, so it was not started.
LEFT_OUT = "left out"

OVER = frozenset({DONE, NO_HARDWARE, FAILED, LEFT_OUT})
IN_PROGRESS = frozenset({ENTERING, INSTALLING, LEAVING, CHECKING})


@dataclass(frozen=True)
class HostRecord:
    """A host.

    - ``found``: its status at the start; with it, a host in maintenance stays there.
    - ``way``: SSH, REINSTALL or NOTHING, because of ``reason``.
    - ``reboot``: a reinstall restarts it.
    - ``batch``: the number of its batch; 0 is the canary's.
    - ``event``: id of the engine's newest event before the last request.
    - ``sentinel``: the name of the role's last task, as reported; the proof.
    - ``problem``, ``fix``: why it failed.
    - ``left``: the number of steps of its plan that need a maintenance.
    """

    id: str
    name: str
    found: Optional[str]
    way: str
    reason: str = ""
    reboot: bool = False
    batch: int = 0
    stage: str = TODO
    event: int = 0
    sentinel: str = ""
    problem: str = ""
    fix: str = ""
    left: int = 0


@dataclass(frozen=True)
class PreparationState:
    """The preparation of the hosts of one data center.

    - ``by``, ``batch``, ``reboot``, ``again``: what the operator asked for.
    - ``digest``: of the policy that the hosts get; None: they keep theirs.
    - ``doing``: the last step that was started, "" when it is done.
    """

    data_center: str
    name: str
    by: str
    hosts: tuple[HostRecord, ...]
    batch: int = 1
    reboot: str = AUTO
    again: bool = False
    digest: Optional[str] = None
    stage: str = PREPARING
    doing: str = ""
    job: Optional[str] = None

    def host(self, name: str) -> HostRecord:
        """Return the host of this name."""
        return next(host for host in self.hosts if host.name == name)

    def with_host(self, name: str, **changes: Any) -> PreparationState:
        """Return the state with some fields of one host changed."""
        hosts = (replace(h, **changes) if h.name == name else h for h in self.hosts)
        return replace(self, hosts=tuple(hosts))

    def of_present(self, present: Sequence[Host]) -> PreparationState:
        """Return the state of those hosts that are ``present``, with their names."""
        names = {host.id: host.name for host in present}
        hosts = (replace(h, name=names[h.id]) for h in self.hosts if h.id in names)
        return replace(self, hosts=tuple(hosts))

    @property
    def in_progress(self) -> bool:
        """Whether a host may be in maintenance because of this run."""
        return any(host.stage in IN_PROGRESS for host in self.hosts)

    @property
    def to_move(self) -> list[HostRecord]:
        """The hosts that the engine will reinstall, which needs maintenance."""
        hosts = self.hosts
        return [one for one in hosts if one.way == REINSTALL and one.stage == TODO]


# Decide how each host is prepared, and in which order.

# With these statuses the engine installs a host without maintenance before
# (UpdateHostValidator.statusSupportedForHostInstallation).
INSTALLABLE = ("maintenance", "non_operational", "install_failed", "installing_os")


@dataclass(frozen=True)
class PreparationRequest:
    """The request of the operator.

    ``by`` is AUTO, SSH or REINSTALL, ``reboot`` ``auto``, ``yes`` or ``no``.
    ``policy`` is what hosts get, with its ``digest``; None: they keep theirs.
    ``again``: also hosts that need nothing. ``canary`` is a host's name. ``apply`` and
    ``mode`` are those variables of the role. ``reinstall``: whether a reinstall would
    run the role, so that what SSH has left can be done by one.
    """

    by: str = AUTO
    batch: int = 1
    reboot: str = AUTO
    canary: Optional[str] = None
    again: bool = False
    policy: Optional[Policy] = None
    digest: Optional[str] = None
    apply: bool = True
    mode: str = "vdsmd"
    reinstall: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "batch", max(1, self.batch))


@dataclass(frozen=True)
class Look:
    """What a host's report says: ``reason`` what it needs, "" if nothing; how many
    steps of its plan are ``disruptive``, or need a ``reboot``. ``known``: it has
    reported.
    """

    known: bool
    reason: str = ""
    disruptive: int = 0
    reboot: int = 0

    @property
    def needs_maintenance(self) -> str:
        """Why it has to be reinstalled."""
        steps = counted(self.disruptive, "step")
        return f"{steps} of its plan take a link down, or need a restart"


def look_at(report: HostReport, request: PreparationRequest) -> Look:
    """Return what ``report`` says, with the policy of ``request``."""
    return with_own_bugs_caught(report, lambda checked: _look_at(checked, request))


def _look_at(report: HostReport, request: PreparationRequest) -> Look:
    if report.status is None or report.facts is None:
        return Look(False, report.problem or "it did not report")
    digest = digest_without_drop_ins(report)
    enabled = status_part(report.status, "enabled").get("mode") or "disabled"
    reasons = []
    if request.mode not in ("none", enabled):
        off = enabled == "disabled"
        other = "not enabled" if off else f"enabled with the mode {enabled}"
        reasons.append(f"the add-on is {other}")
    if request.digest is not None and digest != request.digest:
        reasons.append("its policy is another one" if digest else "no policy is loaded")
    effects: Sequence[str] = ()
    if request.policy is not None and request.apply:
        steps = decide(report.facts, request.policy).applicable
        effects = [step.effect for step in steps]
        if steps:
            reasons.append(f"{len(steps)} steps of its plan are not applied")
    reboot = effects.count(REBOOT)
    return Look(True, "; ".join(reasons), effects.count(LINK_DOWN) + reboot, reboot)


def plan_preparation(
    engine: Engine,
    data_center: str,
    hosts: Sequence[Host],
    looks: Optional[Mapping[str, Look]],
    request: PreparationRequest,
    *,
    proven: Collection[str] = (),
) -> PreparationState:
    """Return the state at the start of the preparation of ``hosts``, which are of one
    data center. ``looks`` are by name; None: hosts cannot be asked. Then ``proven`` are
    the ids of those that an earlier run has prepared with the same policy.
    """
    records = []
    for host in _in_order(hosts, request.canary):
        look = looks[host.name] if looks is not None else None
        if looks is None and host.id in proven and not request.again:
            look = Look(True)
        records.append(_record(host, look, request))
    # The canary's batch is 0.
    mine = [one.name for one in records if one.stage not in (DONE, LEFT_OUT)]
    batches = {name: -(-n // request.batch) for n, name in enumerate(mine)}
    return PreparationState(
        data_center,
        engine.center_name(data_center) or data_center,
        request.by,
        tuple(replace(one, batch=batches.get(one.name, 0)) for one in records),
        request.batch,
        request.reboot,
        request.again,
        request.digest,
    )


def _record(
    host: Host, look: Optional[Look], request: PreparationRequest
) -> HostRecord:
    way, reason = _way(look, request)
    # Somebody moves it to maintenance: it stays there.
    found = host.status if host.status != "preparing_for_maintenance" else "maintenance"
    record = HostRecord(host.id, host.name, found, way, reason)
    if way == NOTHING:
        return replace(record, stage=DONE)
    able = host.status == "up" or host_is(host.status, COMES)
    if way == SSH:
        # SSH works in any status, but a host in trouble is not touched.
        able = able or host.status == "maintenance"
    else:
        able = able or host.status in INSTALLABLE
        record = replace(record, reboot=_restarts(request.reboot, look))
    if not able:
        problem = f"{host.name} is {status_words(host.status)}"
        fix = "bring it up, then run the same command again"
        return replace(record, stage=LEFT_OUT, problem=problem, fix=fix)
    return record


def _way(look: Optional[Look], request: PreparationRequest) -> tuple[str, str]:
    if look is None and request.by == SSH:
        return SSH, ""
    if look is None:
        return REINSTALL, "it was not asked what it needs"
    if look.known and not look.reason and not request.again:
        return NOTHING, "it is prepared"
    if request.by != AUTO:
        return request.by, look.reason
    if look.known and look.disruptive:
        return REINSTALL, look.needs_maintenance
    return SSH, look.reason


def _restarts(wish: str, look: Optional[Look]) -> bool:
    if wish != AUTO:
        return wish == "yes"
    return look is None or not look.known or look.reboot > 0


def after_role(
    state: PreparationState, record: HostRecord, look: Look, *, reinstall: bool = True
) -> PreparationState:
    """Return the state after the report of a host that is prepared: with AUTO, what SSH
    has left for a maintenance is done by a reinstall, if that runs the role.
    """
    by_ssh = record.way == SSH and state.by == AUTO
    if not (by_ssh and look.disruptive and reinstall and record.found == "up"):
        return state.with_host(record.name, stage=DONE, left=look.disruptive)
    return state.with_host(
        record.name,
        way=REINSTALL,
        reason=look.needs_maintenance,
        reboot=_restarts(state.reboot, look),
        stage=TODO,
        sentinel="",
    )


def _in_order(hosts: Sequence[Host], canary: Optional[str]) -> list[Host]:
    """Return the canary first: a host that is up, with few virtual machines; and the
    SPM and the hosts of the hosted engine last, because moving these takes longest.
    """

    def late(host: Host) -> tuple[bool, bool]:
        return host.spm == "spm", host.hosted_engine

    def weight(host: Host) -> tuple[Any, ...]:
        vms = host.vms if canary is None else 0
        return host.name != canary, host.status != "up", late(host), vms

    first = min(hosts, key=weight, default=None)
    rest = sorted((host for host in hosts if host is not first), key=late)
    return [first, *rest] if first is not None else []


# Decide the next step of a preparation from its state and the hosts' statuses.

# ANSIBLE_PLAYBOOK_EXEC_DEFAULT_TIMEOUT is 120 minutes; then the host restarts.
INSTALL_S = 3 * 3600.0
REINSTALLED = ("maintenance", "install_failed", "up", "non_operational", "error")

# The statuses of hosts by id; a host that was removed is missing.
Statuses = Mapping[str, Optional[str]]


def next_step(state: PreparationState, statuses: Statuses) -> RunStep:
    """Return the next step; FINISH if there is none."""
    steps = [_host_step(record, statuses) for record in _current(state)]
    if not steps:
        return RunStep(Kind.FINISH, state.name)
    first = min(steps, key=lambda step: Kind.ORDER.index(step.kind))
    if first.kind in (Kind.RUN, Kind.LOOK):
        # One run of Ansible for all.
        names = tuple(s.subject for s in steps if s.kind == first.kind)
        doing = "running the role on" if first.kind == Kind.RUN else "asking"
        shown = names[0] if len(names) == 1 else f"{len(names)} hosts"
        return replace(first, hosts=names, doing=f"{doing} {shown}")
    return first


def finished(state: PreparationState) -> PreparationState:
    """Return the state with the stage that follows FINISH."""
    open_hosts = any(record.stage not in OVER for record in state.hosts)
    return replace(state, stage=STOPPED if open_hosts else PREPARED, doing="")


def _current(state: PreparationState) -> list[HostRecord]:
    """Return the hosts of the first batch that is not over; of a way that no host has
    proven yet, one only: the canary may have gone the other way, have no RDMA hardware,
    or be left out.
    """
    mine = [record for record in state.hosts if record.way != NOTHING]
    # What is in progress is always finished.
    open_now = [record for record in mine if record.stage in IN_PROGRESS]
    todo = [record for record in mine if record.stage == TODO]
    if not todo:
        return open_now
    number = min(record.batch for record in (*open_now, *todo))
    if any(record.stage == FAILED and record.batch < number for record in mine):
        return open_now
    batch = list(open_now)
    for record in todo:
        same = [r for r in mine if r.way == record.way]
        proven = any(r.stage == DONE for r in same)
        tried = record.way in {r.way for r in batch if r.stage == TODO} or any(
            r.stage in IN_PROGRESS or r.stage == FAILED for r in same
        )
        if record.batch == number and (proven or not tried):
            batch.append(record)
    return batch


def _host_step(record: HostRecord, statuses: Statuses) -> RunStep:
    if record.id not in statuses:
        # One that was not begun says nothing about the next batch.
        stage = LEFT_OUT if record.stage == TODO else FAILED
        return _mark(record, stage=stage, problem="it is no longer in the engine")
    if record.stage == CHECKING:
        return RunStep(Kind.LOOK, record.name)
    if record.way == SSH:
        return RunStep(Kind.RUN, record.name)
    status = statuses[record.id]
    if record.stage == LEAVING:
        return _leaving(record, status)
    return _entering(record, status)


def _entering(record: HostRecord, status: Optional[str]) -> RunStep:
    # ENTERING is stored before we move a host, so this was somebody else, who needs the
    # host: it would be activated at the end.
    moved = status == "maintenance" and record.found != "maintenance"
    if record.stage == TODO and (moved or status == "installing"):
        problem = f"{_is(record, status)}, by somebody else"
        fix = "when it is up again, run the same command again"
        return _mark(record, stage=LEFT_OUT, problem=problem, fix=fix)
    if record.stage == INSTALLING or status == "installing":
        doing = f"waiting for {record.name} to be installed"
        return RunStep(Kind.WAIT_INSTALL, record.name, doing)
    if status in INSTALLABLE:
        return _install(record)
    if status == "up":
        return enter(record, "ovirt-rdma prepares it")
    if host_is(status, COMES):
        inwards = status == "preparing_for_maintenance"
        return wait_in(record) if inwards else wait_out(record)
    return _mark(record, stage=FAILED, problem=_is(record, status))


def _leaving(record: HostRecord, status: Optional[str]) -> RunStep:
    stays = record.found == "maintenance" and status == "maintenance"
    if status == "up" or stays:
        return _mark(record, stage=FAILED if record.problem else CHECKING)
    if status in ("maintenance", "preparing_for_maintenance"):
        return leave(record)
    if host_is(status, COMES, INSTALLED_NOW):
        return wait_out(record)
    then = f"{record.problem}; " if record.problem else ""
    return _mark(record, stage=FAILED, problem=f"{then}{_is(record, status)}")


def _is(record: HostRecord, status: Optional[str]) -> str:
    return f"{record.name} is {status_words(status)} now"


def _mark(record: HostRecord, **changes: object) -> RunStep:
    return RunStep(Kind.MARK, record.name, marks=changes)


def _install(record: HostRecord) -> RunStep:
    """Reinstall a host with the engine's own SSH key, and leave its firewall as it is.
    All defaults that differ between the API's documents and its code are sent.
    """
    doing = f"reinstalling {record.name}"
    words = {
        "ssh": types.Ssh(authentication_method=types.SshAuthenticationMethod.PUBLICKEY),
        "host": types.Host(override_iptables=False),
        "activate": False,
        "reboot": record.reboot,
    }
    call = Call(f"hosts/{record.id}", "install", doing, words, record.name)
    return RunStep(Kind.INSTALL, record.name, doing, call, before=INSTALLING)


def imagined(state: PreparationState, statuses: Statuses) -> Iterator[RunStep]:
    """Yield the steps that would follow if all goes well: the dry run."""
    now = dict(statuses)
    while True:
        step = next_step(state, now)
        if step.kind == Kind.FINISH:
            return
        if step.kind != Kind.MARK:
            yield step
        for name in step.names:
            record = state.host(name)
            status, stage = _AFTER.get(step.kind, (None, ""))
            changes = step.marks or {"stage": stage or step.before or record.stage}
            state = state.with_host(name, **changes)
            now[record.id] = status or now.get(record.id)


# The status and the stage of a host after a step, if the step changes them.
_AFTER = {
    Kind.RUN: (None, CHECKING),
    Kind.ENTER: ("preparing_for_maintenance", ""),
    Kind.WAIT_IN: ("maintenance", ""),
    Kind.INSTALL: ("installing", ""),
    Kind.WAIT_INSTALL: ("maintenance", LEAVING),
    Kind.LEAVE: ("unassigned", ""),
    Kind.WAIT_OUT: ("up", ""),
    Kind.LOOK: (None, DONE),
}


# Judge from the engine's events whether a reinstalled host is prepared.

# VDS_INSTALL, VDS_INSTALL_FAILED
INSTALLED, INSTALL_FAILED = 504, 505
# VDS_ANSIBLE_INSTALL_STARTED
STARTED = 560
# ANSIBLE_RUNNER_EVENT_NOTIFICATION: normal, warning, error, alert
NOTES = (559, 554, 553, 557)
_LOG = "see the log on the engine, in /var/log/ovirt-engine/host-deploy"
# A task's name is what follows PlayAction: ANSIBLE_RUNNER_EVENT_NOTIFICATION in
# AuditLogMessages.properties:437-440, InstallVdsInternalCommand.java:340.
_TASK = re.compile(r"Installing Host \S+\. (.*?)\.?")


@dataclass(frozen=True)
class Installation:
    """What events say: whether it ``started`` and ``ended``, and the role's result."""

    started: bool
    ended: bool
    result: Prepared


def installation(host: str, events: Iterable[Any]) -> Installation:
    """Return what ``events``, of the SDK and about one host, the oldest first, say."""
    started = ended = False
    said: dict[str, str] = {}
    for event in events:
        text = " ".join(str(event.description or "").split())
        if event.code == STARTED:
            # A reinstallation by somebody else, or after a lost answer, counts alone.
            started, ended, said = True, False, {}
        elif event.code in (INSTALLED, INSTALL_FAILED):
            ended = True
            if event.code == INSTALL_FAILED:
                said["failure"] = text
        elif event.code in NOTES:
            said.update(_said(text))
    sentinel, no_hardware = said.get("sentinel", ""), "no hardware" in said
    problem, fix = "", ""
    if "failure" in said:
        problem = f"the engine could not install it: {said['failure']}"
    elif "refusal" in said:
        problem, fix = split_fix(said["refusal"].rstrip("."))
    elif not ended:
        problem = (
            "its installation began, and the engine has not reported the end: it was "
            "probably restarted meanwhile"
        )
        fix = "run the same command again"
    elif not sentinel and not no_hardware:
        problem = (
            f"the engine reports it as installed, but without the event '{SENTINEL}': "
            "the role has not run to its end"
        )
        fix = "on the engine: ovirt-rdma deploy-hook status"
    result = Prepared(host, sentinel, no_hardware=no_hardware)
    if problem:
        result = Prepared(host, problem=problem, fix=fix or _LOG)
    return Installation(started, ended, result)


def _said(text: str) -> dict[str, str]:
    match = _TASK.fullmatch(text)
    task = match[1] if match else ""
    if policy_proven(task) is not None:
        return {"sentinel": task}
    if task.startswith(NOT_PREPARED):
        return {"refusal": task[len(NOT_PREPARED) :].strip()}
    return {"no hardware": task} if task.startswith(WITHOUT_HARDWARE) else {}


def other_policy(sentinel: str, digest: Optional[str]) -> str:
    """Return a sentence if ``sentinel`` names another ``digest``; None is any."""
    named = policy_proven(sentinel)
    if digest in (None, named):
        return ""
    has = f"the policy {named}" if named else "no known policy"
    return f"it has {has}, not {digest}"


# Say how a preparation has ended, or where it was interrupted.

_GOOD = (DONE, NO_HARDWARE)


def sentence(state: PreparationState) -> str:
    """Return the result as one sentence, without a full stop."""
    good = sum(record.stage in _GOOD for record in state.hosts)
    bad = [record.name for record in state.hosts if record.stage == FAILED]
    text = f"{good} of {counted(len(state.hosts), 'host')} prepared"
    if bad:
        text += f"; failed: {listed(bad)}"
    waiting = [record for record in state.hosts if record.stage not in OVER]
    if waiting:
        text += f"; {counted(len(waiting), 'host')} not started because of that"
    return text


def exit_code(state: PreparationState) -> ExitCode:
    """Return DONE if all hosts are prepared, SOME if some are, FAILED if none is."""
    good = sum(record.stage in _GOOD for record in state.hosts)
    if good == len(state.hosts):
        return ExitCode.DONE
    return ExitCode.SOME if good else ExitCode.FAILED


def command_of(state: PreparationState) -> str:
    """Return the command that continues the run."""
    names = " ".join(shlex.quote(record.name) for record in state.hosts)
    more = "" if state.by == AUTO else f" --by {state.by}"
    more += "" if state.batch == 1 else f" --batch {state.batch}"
    more += " --again" if state.again else ""
    more += "" if state.reboot == AUTO else f" --reboot {state.reboot}"
    return f"ovirt-rdma hosts prepare {names}{more}"


def interrupted_lines(state: PreparationState) -> list[str]:
    """Return what is known of a run that did not end, and how to continue."""
    lines = [f"the preparation was interrupted: {sentence(state)}"]
    if state.doing:
        lines.append(f"the last step was: {state.doing}")
    begun = [record for record in state.hosts if record.stage in IN_PROGRESS]
    moved = [record.name for record in begun if record.way == REINSTALL]
    if moved:
        lines.append(f"{listed(moved)} may be in maintenance")
    lines.append(f"continue with '{command_of(state)}'")
    return lines


# With other ones, a command is another.
_OPTIONS = ("by", "batch", "reboot", "again")


def continued(
    state: PreparationState,
    request: PreparationRequest,
    hosts: Sequence[Host],
    present: Sequence[Host],
    listener: Listener,
) -> Optional[PreparationState]:
    """Return the state of a run that was interrupted, to be continued; None if
    ``request`` is another one, for other ``hosts`` or with other options. Raises
    Refused if it is, and a host of that run, of those ``present`` in the data center,
    is in progress.
    """
    now = state.of_present(present)
    ids = {record.id for record in now.hosts}
    if (
        not ids
        or ids != {host.id for host in hosts}
        or any(getattr(request, o) != getattr(state, o) for o in _OPTIONS)
        or request.canary in {record.name for record in now.hosts[1:]}
    ):
        if now.in_progress:
            refuse_others(now)
        return None
    listener.note(f"continues the interrupted '{command_of(now)}'")
    if state.digest != request.digest:
        listener.note(
            "the policy was changed meanwhile; hosts that are prepared already have "
            "the earlier one"
        )
    # Names are unique: another host may have that of one that was removed.
    names = {record.name for record in now.hosts}
    gone = (r for r in state.hosts if r.id not in ids and r.name not in names)
    return replace(now, hosts=(*now.hosts, *gone), digest=request.digest)


def refuse_others(state: PreparationState) -> None:
    """Raise Refused: the preparation ``state`` was interrupted, and goes first."""
    command = command_of(state)
    raise refused(
        "preparation-incomplete",
        f"an earlier '{command}' was interrupted and is not complete; hosts may be in "
        "maintenance because of it",
        f"complete it first: {command}",
    )


# Carry it out: read, decide, store, do one step, store.

PREPARATION = Envelope("prepare", digested="state")


class PreparationFile(RecordFile[PreparationState]):
    """The state of the preparation of one data center's hosts."""

    record = PreparationState
    envelope = PREPARATION
    id = "preparation-state-invalid"
    fix = (
        "it records which hosts were moved to maintenance: activate those by hand, "
        "move the file away, and run the command again"
    )

    def read(self) -> Optional[PreparationState]:
        """Return the stored state, as RecordFile.read; a run that was interrupted after
        its last step has ended.
        """
        state = super().read()
        return state if state is None or _current(state) else finished(state)


# How long the engine may take from the answer to the start of the installation, and
# from the host's last status to the event of the end.
START_S = 60.0


@dataclass
class Preparation(HostsRun):
    """Does all remaining steps of a PreparationState. ``variables`` are for the role
    over SSH, ``request`` has the policy. A host that fails is activated if it was up,
    and the next batch is not started.
    """

    state: PreparationState
    access: Optional[AnsibleHosts]
    request: PreparationRequest
    variables: Mapping[str, Any]

    def run(self) -> PreparationState:
        """Return the state at the end. Raises EngineProblem and StateFileProblem."""
        self.save(replace(self.state, stage=PREPARING))
        self.engine = read_engine(self.session)
        names = tuple(one.name for one in self.state.hosts if one.way != NOTHING)
        total = sum(1 for _ in imagined(self.state, self._statuses()))
        self.listener.plan(names, total)
        while True:
            step = next_step(self.state, self._statuses())
            if step.kind == Kind.FINISH:
                self.save(finished(self.state))
                return self.state
            if step.kind == Kind.MARK:
                self.save(self.state.with_host(step.subject, **step.marks))
                continue
            why = self.repeated_in_vain(step) or self.tried(step)
            if why:
                self._failed(step.subject, why)
            self.save(replace(self.state, doing=""))
            self.engine = with_hosts_now(self.session, self.engine)

    def _statuses(self) -> dict[str, Optional[str]]:
        return {host.id: host.status for host in self.engine.hosts}

    def _hosts(self, step: RunStep) -> dict[str, Host]:
        """Return the hosts of ``step`` by the name that the state has; the engine may
        have another one by now.
        """
        now = {host.id: host for host in self.engine.hosts}
        ids = {name: self.state.host(name).id for name in step.names}
        return {name: now[id] for name, id in ids.items() if id in now}

    def begin(self, step: RunStep) -> None:
        """Store that ``step`` is started, with the newest event before a request."""
        if step.call is not None or step.kind == Kind.RUN:
            self.check()
        if step.call is not None:
            # Whatever it was at the start: it is up, so it is up at the end.
            found = {"found": "up"} if step.kind == Kind.ENTER else {}
            event = newest_event(self.session)
            self.state = self.state.with_host(
                step.subject, stage=step.before, event=event, **found
            )
        self.save(replace(self.state, doing=step.doing))

    def refused(self, step: RunStep, problem: EngineProblem) -> str:
        """Return why ``step`` failed; "" if something has moved: it is tried again."""
        before = next_step(self.state, self._statuses())
        self.engine = with_hosts_now(self.session, self.engine)
        after = next_step(self.state, self._statuses())
        same = (before.kind, before.names) == (after.kind, after.names)
        return problem.one_line if same else ""

    def ends_run(self, step: RunStep, problem: EngineProblem) -> bool:
        """Whether the engine denies access."""
        return problem.kind in (DENIED, UNTRUSTED)

    def act(self, step: RunStep, now: Step) -> str:
        """Do ``step``; return why it failed, or "". A step on several hosts fails for
        each of them.
        """
        if step.call is not None:
            self.session.perform(step.call, before=self.check)
            return ""
        record = self.state.host(step.subject)
        if step.kind == Kind.WAIT_IN:
            return self.wait_in(step, record.event)
        if step.kind == Kind.WAIT_OUT:
            after = record.event if record.stage == LEAVING else None
            return self.wait_out(step, after)
        if step.kind == Kind.RUN:
            self._run_role(step)
        elif step.kind == Kind.LOOK:
            self._look(step)
        else:
            self._installed(record, step)
        problems = [self.state.host(name).problem for name in step.names]
        now.problem = "; ".join(filter(None, problems))
        return ""

    def _run_role(self, step: RunStep) -> None:
        hosts = self._hosts(step)
        results: Mapping[str, Prepared] = {}
        why = "there is no access to it over SSH"
        try:
            if self.access is not None:
                why = "it did not answer"
                results = self.access.prepare([*hosts.values()], self.variables)
        except Problem as problem:
            why = problem.one_line
        for name in step.names:
            host = hosts.get(name)
            result = results.get(host.name) if host else None
            self._judge(name, result or Prepared(name, problem=why))

    def _judge(self, name: str, result: Prepared) -> None:
        """Store what the role has done: the sentinel decides."""
        for warning in result.warnings:
            self.listener.note(f"{name}: {warning}")
        over_ssh = self.state.host(name).way == SSH
        stage, sentinel = CHECKING if over_ssh else LEAVING, result.sentinel
        problem = result.problem
        if not problem and result.no_hardware and not sentinel:
            sentinel = NO_HARDWARE
            stage = NO_HARDWARE if over_ssh else LEAVING
        elif not problem:
            problem = other_policy(sentinel, self.state.digest)
        if problem:
            self._failed(name, problem, result.fix)
        else:
            self.state = self.state.with_host(name, stage=stage, sentinel=sentinel)

    def _look(self, step: RunStep) -> None:
        """Compare the hosts' own reports with what their proof says."""
        hosts = self._hosts(step)
        reports: Mapping[str, HostReport] = {}
        if self.access is not None:
            try:
                reports = self.access.reports([*hosts.values()])
            except Problem as problem:
                self.listener.note(problem.one_line)
        for name in step.names:
            record, host = self.state.host(name), hosts.get(name)
            report = reports.get(host.name) if host else None
            if record.sentinel == NO_HARDWARE:
                self.state = self.state.with_host(name, stage=NO_HARDWARE)
            elif report is None or report.status is None:
                # The role has proven it; a report is a second opinion.
                self.state = self.state.with_host(name, stage=DONE)
            else:
                self._compare(record, report)

    def _compare(self, record: HostRecord, report: HostReport) -> None:
        wanted, digest = self.state.digest, digest_without_drop_ins(report)
        if wanted is not None and digest != wanted:
            has = digest or "no policy"
            why = f"the role has ended, but the host reports {has}, not {wanted}"
            self._failed(record.name, why)
            return
        look = look_at(report, self.request)
        self.state = after_role(
            self.state, record, look, reinstall=self.request.reinstall
        )

    def _installed(self, record: HostRecord, step: RunStep) -> None:
        since: Optional[float] = None

        def found() -> Installation:
            events = events_since(self.session, record.event, record.id)
            return installation(record.name, events)

        def ended(host: Any) -> Optional[str]:
            nonlocal since
            status = host.status.value if host.status else None
            if status not in REINSTALLED and not host_is(status, BROKEN):
                since = None
                return None
            since = self.session.clock() if since is None else since
            patience_s = START_S if status in REINSTALLED else BROKEN_OUT_S
            waited = self.session.clock() - since >= patience_s
            return status if found().ended or waited else None

        read = Read(f"hosts/{record.id}", step.doing, "get")
        self.session.wait_until(read, ended, step.doing, INSTALL_S)
        install = found()
        if install.started or install.ended:
            self._judge(record.name, install.result)
        else:
            # The request was lost, or the engine restarted before it began.
            self.state = self.state.with_host(record.name, stage=ENTERING)

    def _failed(self, name: str, why: str, fix: str = "") -> None:
        """Store that a host has failed; it is activated if we moved it."""
        record = self.state.host(name)
        moved = record.stage in (ENTERING, INSTALLING)
        sentence = why.rstrip(".")
        self.listener.note(f"{name}: {sentence}")
        self.state = self.state.with_host(
            name,
            stage=LEAVING if moved and record.way != SSH else FAILED,
            problem=f"{record.problem}; {sentence}" if record.problem else sentence,
            fix=fix or record.fix,
        )
