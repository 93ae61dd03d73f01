# SPDX-License-Identifier: GPL-2.0-or-later
"""Describe the steps of a run on hosts as data, with their requests to the engine; and
decide the next step of any conversion, rolling or offline, simulate all steps, and
change the stage with a step, after a failure and at the end. Pure.

Rolling, each host or batch gets its policy, goes to maintenance, is activated and
proven; the SPM is last. The engine's row is changed last on the way forward and first
on the way back, so that hosts without the add-on never get options that they are not
ready for. If the row decides (``by_row``), it is changed first in both directions.

Offline: policies, domains to maintenance, unmount verified on every host, mount
options, domains active, every host proven. VDSM would silently reuse a mount that a
host has kept, with the old transport (MountConnection.connect), so such a host goes
through maintenance first.

The dry run applies the same decisions to a simulated engine without failures.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Callable, Optional

from ovirt_rdma.engine_sdk_tools.api.request import Call, types
from ovirt_rdma.engine_sdk_tools.conversion.fleet import (
    UP,
    Observation,
    Snapshot,
    digest_of_others,
    unlike,
    wanted_transports,
)
from ovirt_rdma.engine_sdk_tools.conversion.model import (
    BACK,
    FORWARD,
    HEAL,
    ConversionState,
    DomainRecord,
    HostRecord,
    Stage,
    upgrade_running,
)
from ovirt_rdma.engine_sdk_tools.hosts.report import digest_of
from ovirt_rdma.engine_sdk_tools.model import (
    BROKEN,
    COMES,
    LACKS,
    Cluster,
    Named,
    host_is,
    status_words,
)
from ovirt_rdma.host.policy.load import NO_FILES, PolicyFiles

_MAINTENANCE, _ACTIVE = "maintenance", "active"

# The steps of a run on hosts, a conversion or a preparation.

# What ends a wait for a host on its way in, and on its way out.
IN = ("maintenance", "up", "non_operational", "down")
OUT = ("up", "non_operational", "install_failed", "error", "maintenance")


class Kind:
    """The kinds of steps, in the order in which a batch does them."""

    MARK = "mark"
    FAIL = "fail"
    PUSH = "push"
    ENTER = "enter"
    WAIT_IN = "wait in"
    LEAVE = "leave"
    WAIT_OUT = "wait out"
    LOOK = "look"
    # Of a preparation.
    RUN = "run the role"
    INSTALL = "install"
    WAIT_INSTALL = "wait install"
    # Not of a host. BEGIN_UPGRADE and END_UPGRADE set and clear the flag with which
    # oVirt's role cluster_upgrade and we keep off each other; each run ends with the
    # latter.
    CALL = "call"
    BEGIN_UPGRADE = "begin upgrade"
    END_UPGRADE = "end upgrade"
    FINISH = "finish"

    ORDER = (
        *(MARK, FAIL, PUSH, RUN, ENTER, INSTALL, WAIT_IN, WAIT_INSTALL),
        *(LEAVE, WAIT_OUT, LOOK),
    )


@dataclass(frozen=True)
class RunStep:
    """One step of a run.

    - ``subject``: the host, or with ``of_domain`` the domain or the cluster.
    - ``doing``: what the step does ("moving host01 to maintenance").
    - ``before``: the stage of the subject that is stored before the step; "" for no
      change. ``marks``: the changes of its record that are the step.
    - ``until``: the statuses that end a wait, and the first that a request aims at.
      ``path`` belongs to a wait. ``options``: mount options that are set.
    - ``why``: the reason of a failure.
    - ``hosts``: those of a step on several, as all that are asked together.
    """

    kind: str
    subject: str
    doing: str = ""
    call: Optional[Call] = None
    policy: PolicyFiles = NO_FILES
    before: str = ""
    until: tuple[str, ...] = ()
    path: str = ""
    why: str = ""
    hosts: tuple[str, ...] = ()
    of_domain: bool = False
    options: Optional[str] = None
    marks: Mapping[str, object] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """The hosts that it is about."""
        return self.hosts or (self.subject,)

    @property
    def changes(self) -> bool:
        """Whether it changes something in the engine or on a host."""
        return self.call is not None or self.kind == Kind.PUSH


def _of_host(kind: str, host: Named, doing: str, **more: Any) -> RunStep:
    until = IN if kind in (Kind.ENTER, Kind.WAIT_IN) else OUT
    return RunStep(kind, host.name, doing, until=until, **more)


def enter(host: Named, why: str = "ovirt-rdma remounts its storage") -> RunStep:
    """Move a host to maintenance: its virtual machines leave, its mounts end."""
    doing, words = f"moving {host.name} to maintenance", {"reason": why}
    call = Call(f"hosts/{host.id}", "deactivate", doing, words, subject=host.name)
    return _of_host(Kind.ENTER, host, doing, call=call, before=Stage.ENTERING)


def wait_in(host: Named) -> RunStep:
    """Wait until a host is in maintenance, or no longer on the way there."""
    doing = f"waiting for {host.name} to be in maintenance"
    return _of_host(Kind.WAIT_IN, host, doing, path=f"hosts/{host.id}")


def leave(host: Named) -> RunStep:
    """Activate a host: it connects its storage."""
    doing = f"activating {host.name}"
    call = Call(f"hosts/{host.id}", "activate", doing, subject=host.name)
    return _of_host(Kind.LEAVE, host, doing, call=call, before=Stage.LEAVING)


def wait_out(host: Named) -> RunStep:
    """Wait until a host is up with its storage connected, or has failed."""
    doing = f"waiting for {host.name} to be up"
    return _of_host(Kind.WAIT_OUT, host, doing, path=f"hosts/{host.id}")


def look(*hosts: HostRecord) -> RunStep:
    """Get the reports of hosts."""
    names = tuple(host.name for host in hosts)
    shown = names[0] if len(names) == 1 else f"{len(names)} hosts"
    return RunStep(Kind.LOOK, names[0], f"asking {shown}", hosts=names)


def push(host: HostRecord, policy: PolicyFiles) -> RunStep:
    """Push a policy to a host and load it there; no files remove its policy."""
    removing = policy == NO_FILES
    action = "removing the policy from" if removing else "pushing the policy to"
    doing = f"{action} {host.name}"
    return RunStep(Kind.PUSH, host.name, doing, policy=policy)


def mark(record: Named, stage: str, why: str = "") -> RunStep:
    """Store the stage of a host or a domain."""
    marks: dict[str, object] = {"stage": stage}
    if isinstance(record, DomainRecord):
        return RunStep(Kind.MARK, record.name, marks=marks, of_domain=True)
    marks["why"] = why
    if stage in (Stage.DONE, Stage.UNMOUNTED):
        marks["ours"] = False
    return RunStep(Kind.MARK, record.name, marks=marks)


def fail(record: Named, why: str) -> RunStep:
    """Fail because of the present state of a host, of a domain, or of the whole."""
    of_domain = isinstance(record, DomainRecord)
    return RunStep(Kind.FAIL, record.name, why=why, of_domain=of_domain)


def set_row(domain: DomainRecord, options: str, *, force: bool) -> RunStep:
    """Change only the mount options of a domain's row.

    The request never names a host: with force, that sets the domain to maintenance.
    Address and path are also sent for an IPv6 address, which the engine's merge would
    truncate.
    """
    row: dict[str, Any] = {"mount_options": options}
    if ":" in (domain.address or ""):
        row.update(address=domain.address, path=domain.path)
    doing = f"setting the mount options of {domain.name} to {options!r}"
    if not options:
        doing = f"clearing the mount options of {domain.name}"
    words: dict[str, Any] = {"connection": types.StorageConnection(**row)}
    if force:
        words["force"] = True
    path = f"storageconnections/{domain.connection}"
    call = Call(path, "update", doing, words, subject=domain.name)
    return RunStep(Kind.CALL, domain.name, doing, call, of_domain=True, options=options)


def upgrades_to_end(clusters: Iterable[Cluster], data_center: str) -> list[Call]:
    """Return the requests that clear our flags of the clusters of a data center. The
    engine would clear those of others too.
    """
    return [
        _upgrade_call(cluster, types.ClusterUpgradeAction.FINISH)
        for cluster in clusters
        if cluster.data_center == data_center and cluster.is_ours
    ]


def _upgrade_call(cluster: Cluster, action: types.ClusterUpgradeAction) -> Call:
    doing = f"ending the mark of cluster {cluster.name}"
    if action == types.ClusterUpgradeAction.START:
        doing = f"marking cluster {cluster.name} as being upgraded"
    words = {"upgrade_action": action, "correlation_id": cluster.our_upgrade}
    return Call(f"clusters/{cluster.id}", "upgrade", doing, words, cluster.name)


def _of_attached(
    state: ConversionState,
    domain: DomainRecord,
    doing: str,
    *until: str,
    method: str = "",
    before: str = "",
) -> RunStep:
    """Return a step of a domain: the request ``method``, or else a wait ``until`` it
    has one of these statuses.
    """
    # Only this path shows its status.
    path = f"datacenters/{state.data_center}/storagedomains/{domain.id}"
    return RunStep(
        Kind.CALL if method else Kind.WAIT_IN,
        domain.name,
        doing,
        Call(path, method, doing, subject=domain.name) if method else None,
        before=before,
        until=until,
        path=path,
        of_domain=True,
    )


def deactivate(state: ConversionState, domain: DomainRecord) -> RunStep:
    """Move a domain to maintenance: all hosts unmount it."""
    doing, stage = f"moving {domain.name} to maintenance", Stage.ENTERING
    return _of_attached(
        state, domain, doing, _MAINTENANCE, method="deactivate", before=stage
    )


def activate(state: ConversionState, domain: DomainRecord) -> RunStep:
    """Activate a domain: all hosts mount it."""
    doing, stage = f"activating {domain.name}", Stage.LEAVING
    return _of_attached(state, domain, doing, _ACTIVE, method="activate", before=stage)


def wait_domain(state: ConversionState, domain: DomainRecord, *until: str) -> RunStep:
    """Wait until a domain has one of these statuses, the first of which is wanted."""
    doing = f"waiting for {domain.name} to be {status_words(until[0])}"
    return _of_attached(state, domain, doing, *until)


# Change the stage.


def failed(now: Snapshot, step: RunStep, why: str) -> ConversionState:
    """Return the state after ``step``, of a host or domain, has failed: a conversion is
    rolled back, rolling on the hosts in progress, offline on all. A failure on the way
    back is recorded, and the other hosts continue; offline, the domains are activated.
    """
    state, subject = now.state, step.subject
    host = None if step.of_domain else state.host(subject)
    if state.stage == Stage.CONVERTING:
        state = replace(state, stage=Stage.UNDOING, why=why, doing="")
        if not state.request.rolling:
            return all_back(state)
        names = [
            h.name
            for h in state.hosts
            if h.stage in Stage.IN_PLAY or (h.touched and h.stage not in Stage.OVER)
        ]
        state = state.with_hosts(names, goal=BACK, stage=Stage.TODO)
        return state.with_host(subject, why=why) if host else state
    reasons = state.why
    if host is not None:
        # Others may move a host that is up to maintenance later. The engine may still
        # do what was asked of it.
        ours = host.ours and (now.status(host) != UP or step.kind == Kind.ENTER)
        state = state.with_host(subject, stage=Stage.FAILED, why=why, ours=ours)
    elif not state.request.rolling:
        last = _ACTIVE in step.until[:1]
        stage = Stage.LEFT if last else Stage.FAILED
        state = state.with_domain(subject, stage=stage)
    if why not in reasons:
        reasons = f"{reasons.rstrip('.')}; {why}" if reasons else why
    # No host can continue without the domain.
    ends = host is None and state.request.rolling
    stage = Stage.STOPPED if ends else state.stage
    return replace(state, why=reasons, doing="", stage=stage)


def marked(state: ConversionState, step: RunStep) -> ConversionState:
    """Return the state after ``step`` has marked its host or domain."""
    change = state.with_domain if step.of_domain else state.with_host
    return change(step.subject, **step.marks)


def begun(state: ConversionState, step: RunStep) -> ConversionState:
    """Return the state to store before ``step`` is done."""
    state = replace(state, doing=step.doing)
    changes: dict[str, Any] = {"stage": step.before} if step.before else {}
    if step.of_domain:
        opens = step.call is not None and _ACTIVE in step.until[:1]
        if opens and (state.stage == Stage.CONVERTING or _stops(state)):
            changes["touched"] = True
        back = step.options is not None and state.stage == Stage.UNDOING
        if back and state.request.rolling:
            changes["touched"] = True
        return state.with_domain(step.subject, **changes)
    if step.kind in (Kind.PUSH, Kind.ENTER, Kind.LEAVE):
        changes["touched"] = True
    if step.kind == Kind.ENTER:
        changes["ours"] = True
    return state.with_host(step.subject, **changes)


def finished(state: ConversionState) -> ConversionState:
    """Return the state when nothing remains to be done."""
    state = replace(state, doing="")
    if state.stage == Stage.CONVERTING:
        return replace(state, stage=Stage.CONVERTED)
    if _stops(state) or any(h.stage == Stage.FAILED for h in state.hosts):
        return replace(state, stage=Stage.STOPPED)
    if state.stage == Stage.REVERTING:
        return replace(state, stage=Stage.REVERTED)
    over = not state.request.rolling or not _keeps_some(state)
    return replace(state, stage=Stage.ROLLED_BACK if over else Stage.STOPPED)


def _stops(state: ConversionState) -> bool:
    """Whether an offline conversion cannot continue for a domain on its way back."""
    return any(d.stage in (Stage.FAILED, Stage.LEFT) for d in state.domains)


def _keeps_some(state: ConversionState) -> bool:
    """Whether hosts stay converted."""
    return any(h.goal == FORWARD and h.touched for h in state.hosts)


def all_back(state: ConversionState) -> ConversionState:
    """Return the state of an offline conversion on its way back. A domain that was
    active again may be mounted with the new options, and is deactivated once more.
    """
    stage = Stage.TODO if any(d.touched for d in state.domains) else Stage.LEAVING
    names = [h.name for h in state.hosts]
    state = state.with_hosts(names, goal=BACK, stage=Stage.TODO, why="", left_out=False)
    return replace(state, domains=tuple(replace(d, stage=stage) for d in state.domains))


# Decide the next step of one host.

# Why there is nothing to do for a host.
REMOVED = "it is no longer in the engine"
ELSEWHERE = "it is in another data center now"


def host_step(  # noqa: PLR0911 - one row per status
    now: Snapshot, host: HostRecord, done: str = Stage.DONE
) -> RunStep:
    """Return the next step of a host, from its status and its own report. ``done`` is
    its last stage; with UNMOUNTED nothing is mounted on it then. Offline, it is not
    remounted.
    """
    left = _left(now, host)
    if left is not None:
        return left
    status, back = now.status(host), host.goal == BACK
    if host.stage == Stage.TODO:
        if not back and host_is(status, LACKS, BROKEN):
            # It can be neither moved nor asked, so nothing is changed.
            return fail(host, _is(host, status))
        # Later it has its policy: it got that before its maintenance.
        policy = policy_step(now, host)
        if policy is not None:
            return policy
    if status == "up" or (status == "non_operational" and done == Stage.UNMOUNTED):
        return _mounts_step(now, host, done)
    if status == "preparing_for_maintenance":
        # On the way back, an evacuation that does not end is cancelled: the host is
        # activated, and its mounts are unchanged.
        if back and host.ours and host.stage == Stage.TODO:
            return replace(leave(host), before=Stage.TODO)
        if host.stage == Stage.LEAVING:
            return leave(host)
        return wait_in(host)
    if status == _MAINTENANCE:
        if host.stage in Stage.IN_PLAY or host.ours:
            return leave(host)
        stays = Stage.LEFT if done == Stage.DONE else done
        return mark(host, stays, "somebody else moved it to maintenance")
    if status == "non_operational" and back and host.stage != Stage.LEAVING:
        # Only maintenance unmounts what it has mounted with the new transport.
        return enter(host)
    coming = status is None or host_is(status, COMES)
    started = host.stage not in (Stage.TODO, Stage.ENTERING)
    if coming or (started and status == "non_responsive"):
        return wait_out(host)
    return fail(host, _is(host, status))


def _left(now: Snapshot, host: HostRecord) -> Optional[RunStep]:
    """Return the next step of a host that has left the data center; None if it has not.
    Its storage is another then, but a policy that was pushed is still there.
    """
    present = now.host(host)
    if present is None:
        return mark(host, Stage.DONE, REMOVED)
    here = now.engine.center_of(present) == now.state.data_center
    if here or (host.ours and present.status == _MAINTENANCE):
        return None
    policy = policy_step(now, host) if host.goal == BACK else None
    return policy or mark(host, Stage.DONE, ELSEWHERE)


def _mounts_step(now: Snapshot, host: HostRecord, done: str) -> RunStep:
    """Return the next step of a host that is up."""
    remounted = host.stage == Stage.LEAVING
    if now.state.kind == HEAL and host.goal == BACK:
        # It is not worse than before.
        return mark(host, done)
    if remounted and host.name not in now.arrived:
        return wait_out(host)
    observed = now.observations.get(host.name)
    if observed is None or observed.problem:
        return _ask(host, observed)
    wrong = unlike(now, host, observed)
    if done == Stage.UNMOUNTED:
        wrong = tuple(f"{export} is still mounted" for export in observed.transports)
    if not wrong:
        wanted = wanted_transports(now.state, host) if done == Stage.DONE else {}
        unseen = [
            e for e, one in wanted.items() if one and e not in observed.transports
        ]
        why = f"{', '.join(unseen)} is not mounted now" if unseen else ""
        return mark(host, done, why if host.goal == FORWARD else "")
    if remounted or (not now.state.request.rolling and done == Stage.DONE):
        return fail(host, f"on {host.name} {'; '.join(wrong)}")
    return enter(host)


def _ask(host: HostRecord, observed: Optional[Observation]) -> RunStep:
    if observed is None:
        return look(host)
    return fail(host, f"{host.name} cannot be asked: {observed.problem}")


def _is(host: HostRecord, status: Optional[str]) -> str:
    sentence = f"{host.name} is {status_words(status)}"
    if status == "non_operational":
        sentence += ": it could not connect all of its storage (see vdsm.log there), "
        sentence += "or the engine restarted before it requested that"
    return sentence


def policy_step(now: Snapshot, host: HostRecord) -> Optional[RunStep]:
    """Return the next step for the host to get its policy; None if it has it."""
    if not host.push:
        return None
    observed = now.observations.get(host.name)
    if observed is None or observed.problem:
        return _ask(host, observed)
    policy = observed.policy.having(host.contents)
    # An empty policy need not be loaded.
    loaded = observed.digest or digest_of(NO_FILES)
    as_it_should = not host.files or loaded == digest_of(policy)
    if policy == observed.policy and as_it_should:
        return None
    theirs = _somebody_elses(host, observed, loaded)
    if theirs:
        return fail(host, f"{theirs}; it is left unchanged")
    return push(host, policy)


def _somebody_elses(host: HostRecord, observed: Observation, loaded: str) -> str:
    """Return what somebody else has changed in the policy of a host so that it cannot
    be replaced; "" for nothing. ``loaded`` is the digest of the loaded policy.
    """
    present = observed.policy.contents
    names = [f.name for f in host.files if present.get(f.name) not in f.known]
    if names:
        files = ", ".join(names)
        return f"{files} on {host.name} was changed since the conversion started"
    edited = host.others not in ("", digest_of_others(observed.policy, host.files))
    if edited and loaded != digest_of(observed.policy):
        # A push would load it.
        return (
            f"the policy on {host.name} was edited and is not loaded (ovirt-rdma-host "
            "policy load)"
        )
    return ""


def _only_policy(now: Snapshot, host: HostRecord, stage: str, why: str = "") -> RunStep:
    """Return the next step of a host that only gets its policy, and its mark."""
    return _left(now, host) or policy_step(now, host) or mark(host, stage, why)


def _first(now: Snapshot, steps: Sequence[RunStep]) -> Optional[RunStep]:
    """Return the step to do first; hosts that have to be asked are asked at once."""
    first = min(steps, key=lambda step: Kind.ORDER.index(step.kind), default=None)
    if first is not None and first.kind == Kind.LOOK:
        return look(*(now.state.host(s.subject) for s in steps if s.kind == Kind.LOOK))
    return first


# Decide the next step of a conversion, its way back, or a heal.


def next_step(now: Snapshot) -> RunStep:
    """Return the step to do now; FINISH if there is none."""
    phases = _rolling if now.state.request.rolling else _offline
    found = (decide(now) for decide in (_removed, *phases(now.state)))
    step = next(filter(None, found), RunStep(Kind.FINISH, now.state.title))
    return _upgrade_step(now, step) or step


_Phase = Callable[[Snapshot], Optional[RunStep]]


def _rolling(state: ConversionState) -> Sequence[_Phase]:
    if state.kind == HEAL:
        return [_hosts]
    forward = state.stage == Stage.CONVERTING
    rows_first = state.request.by_row or (state.undoes and not _keeps_some(state))
    first = [_rows] if rows_first else []
    return [*first, _hosts, *([_new_hosts, _rows] if forward else [])]


def _offline(state: ConversionState) -> Sequence[_Phase]:
    if _stops(state):
        return [_open]
    # On the way back, because after a refused deactivation nothing has changed.
    first = [_close, _policies] if state.undoes else [_policies, _close]
    return [*first, _unmounted, _rows, _open, _proven]


def _removed(now: Snapshot) -> Optional[RunStep]:
    """A conversion ends if a domain was removed; on the way back, there is nothing to
    do for it.
    """
    for domain in now.state.domains:
        here = now.domain(domain) and now.row(domain)
        if here or domain.stage == Stage.GONE:
            continue
        if now.state.undoes:
            return mark(domain, Stage.GONE)
        return fail(domain, f"{domain.name} or its connection was removed")
    return None


def _rows(now: Snapshot) -> Optional[RunStep]:
    """Set the mount options in the engine."""
    for domain in now.state.domains:
        row = now.row(domain)
        options = domain.options if now.state.undoes else domain.wanted
        if row is not None and row.mount_options != options:
            force = now.status(domain) != _MAINTENANCE
            return set_row(domain, options, force=force)
    return None


# Rolling: host by host.


def _hosts(now: Snapshot) -> Optional[RunStep]:
    current = _current_hosts(now)
    if not any(host.stage in Stage.IN_PLAY for host in current):
        broken = _broken(now)
        if broken is not None:
            return broken
    if not current:
        return _away(now)
    step = _first(now, [host_step(now, host) for host in current])
    if step is None or step.kind != Kind.LOOK:
        return step
    asked = [now.state.host(name) for name in step.hosts]
    if all(host.stage in Stage.IN_PLAY for host in asked):
        # Each start of Ansible takes a second: the next ones are asked with them.
        asked += [h for h in _startable(now)[: now.state.request.batch] if h.push]
    return look(*asked)


def _current_hosts(now: Snapshot) -> list[HostRecord]:
    """Return the hosts of the batch: those in progress, and others that may start."""
    mine = [h for h in now.state.hosts if h.goal == now.state.goal]
    current = [h for h in mine if h.stage in Stage.IN_PLAY]
    # A revert stops at a host that did not come up after its maintenance: the next
    # would probably fail too. A host that is up but cannot be asked or proven does not
    # affect the others.
    stops = now.state.stage == Stage.REVERTING and any(
        h.stage == Stage.FAILED and now.status(h) != UP for h in mine
    )
    # A batch stays together: no host starts while others are being activated.
    if stops or any(h.stage == Stage.LEAVING for h in current):
        return current
    waiting = _startable(now)
    if current:
        waiting = [h for h in waiting if not now.is_spm(h)]
    return current + waiting[: max(now.state.request.batch - len(current), 0)]


def _startable(now: Snapshot) -> list[HostRecord]:
    """Return the hosts that wait for their turn; that of the SPM is the last."""
    waiting = [
        h
        for h in now.state.hosts
        if h.goal == now.state.goal
        and h.stage not in (*Stage.OVER, *Stage.IN_PLAY)
        and now.takes_part(h)
    ]
    if now.state.undoes:
        # A host that is not up does not delay the revert of the others.
        waiting = [h for h in waiting if now.status(h) == UP] or waiting
    return [h for h in waiting if not now.is_spm(h)] or waiting[:1]


def _broken(now: Snapshot) -> Optional[RunStep]:
    """Start no other host if a converted one is in trouble now."""
    for host in now.state.hosts if now.state.stage == Stage.CONVERTING else ():
        status = now.status(host)
        converted = host.stage == Stage.DONE and host.touched
        if converted and host_is(status, LACKS, BROKEN):
            why = f"{host.name} was converted and up, but is {status_words(status)} now"
            why += "; the other hosts are not started"
            return fail(now.state.domains[0], why)
    return None


def _away(now: Snapshot) -> Optional[RunStep]:
    """Change only the policy of hosts that were in maintenance or down at the start."""
    for host in now.state.hosts:
        waits = host.goal == now.state.goal and host.stage not in Stage.OVER
        if waits and not now.takes_part(host):
            why = f"it was {status_words(host.found)}, and stays so"
            return _only_policy(now, host, Stage.LEFT, why)
    return None


def _new_hosts(now: Snapshot) -> Optional[RunStep]:
    known = {host.id for host in now.state.hosts}
    hosts = now.engine.hosts_of(now.state.data_center)
    new = [host.name for host in hosts if host.id not in known]
    if not new:
        return None
    return fail(
        now.state.domains[0],
        f"added to the data center since the conversion started, and not checked: "
        f"{', '.join(new)}; the engine's mount options are unchanged",
    )


# Offline: all at once, while the domains are in maintenance.


def _policies(now: Snapshot) -> Optional[RunStep]:
    waiting = [host for host in now.state.hosts if host.stage == Stage.TODO]
    return _first(now, [_only_policy(now, h, Stage.PREPARED) for h in waiting])


def _close(now: Snapshot) -> Optional[RunStep]:
    """Move the domains to maintenance, the master last."""
    for domain in sorted(now.state.domains, key=lambda d: d.master):
        status = now.status(domain)
        begins = domain.stage in (Stage.TODO, Stage.ENTERING) and _was_active(domain)
        if not begins or status == _MAINTENANCE:
            continue
        if status in (_ACTIVE, "inactive", "unknown"):
            return deactivate(now.state, domain)
        return wait_domain(now.state, domain, _MAINTENANCE, _ACTIVE)
    return None


def _unmounted(now: Snapshot) -> Optional[RunStep]:
    """Verify that no host has kept a mount."""
    before = (Stage.TODO, Stage.ENTERING, Stage.GONE)
    if any(domain.stage not in before for domain in now.state.domains):
        return None
    return _first(
        now,
        [
            host_step(now, host, Stage.UNMOUNTED)
            if now.takes_part(host)
            else mark(host, Stage.UNMOUNTED)
            for host in now.state.hosts
            if host.stage not in (Stage.UNMOUNTED, *Stage.OVER)
        ],
    )


def _open(now: Snapshot) -> Optional[RunStep]:
    """Activate the domains, the master first."""
    for domain in sorted(now.state.domains, key=lambda d: not d.master):
        status = now.status(domain)
        if domain.stage in (Stage.DONE, Stage.GONE, Stage.LEFT):
            continue
        over = status == _ACTIVE or not _was_active(domain)
        if domain.stage == Stage.FAILED and (over or status in ("inactive", "unknown")):
            continue
        if over:
            return mark(domain, Stage.DONE)
        if status == _MAINTENANCE:
            step = activate(now.state, domain)
            return replace(step, before="") if domain.stage == Stage.FAILED else step
        if status in ("inactive", "unknown") and domain.stage == Stage.LEAVING:
            return fail(domain, f"{domain.name} is {status}, not active")
        return wait_domain(now.state, domain, _ACTIVE, "inactive", _MAINTENANCE)
    return None


def _proven(now: Snapshot) -> Optional[RunStep]:
    mounts = any(map(_was_active, now.state.domains))
    return _first(
        now,
        [
            host_step(now, host)
            if mounts and now.takes_part(host)
            else mark(host, Stage.LEFT, "it did not mount the domain")
            for host in now.state.hosts
            if host.stage not in Stage.OVER
        ],
    )


def _was_active(domain: DomainRecord) -> bool:
    return domain.found == _ACTIVE


def _upgrade_step(now: Snapshot, step: RunStep) -> Optional[RunStep]:
    """Return what to do before ``step`` so that no other program moves hosts of the
    same cluster to maintenance meanwhile. On the way back, one that does stops nothing.
    """
    if step.kind != Kind.ENTER:
        return None
    host = now.host(now.state.host(step.subject))
    for cluster in now.engine.clusters:
        if host is None or cluster.id != host.cluster or cluster.is_ours:
            continue
        if cluster.name in now.unmarked:
            continue
        if not cluster.upgrade_in_progress:
            call = _upgrade_call(cluster, types.ClusterUpgradeAction.START)
            kind, name = Kind.BEGIN_UPGRADE, cluster.name
            return RunStep(kind, name, call.doing, call, of_domain=True)
        if not now.state.undoes:
            return fail(now.state.domains[0], upgrade_running(cluster))
    return None


# Simulate all steps.

# No host and no domain needs more steps, forward and back.
_MOST_STEPS = 40


def imagined(now: Snapshot) -> Iterator[RunStep]:
    """Yield the steps, in order, if all are successful, without marks. There are no
    waits after a step whose result is immediate in the simulation.
    """
    for _ in range(_MOST_STEPS * (len(now.state.hosts) + len(now.state.domains))):
        step = next_step(now)
        if step.kind == Kind.FINISH or now.state.stage not in Stage.UNDER_WAY:
            for call in upgrades_to_end(now.engine.clusters, now.state.data_center):
                yield RunStep(Kind.END_UPGRADE, str(call.subject), call.doing, call)
            return
        if step.kind == Kind.FAIL:
            now = replace(now, state=failed(now, step, step.why))
        elif step.kind == Kind.MARK:
            now = replace(now, state=marked(now.state, step))
        else:
            now = replace(now, state=begun(now.state, step))
            yield step
            now = _after(now, step)


def _after(now: Snapshot, step: RunStep) -> Snapshot:
    """Return the snapshot after a successful ``step``; so is every wait."""
    name, kind = step.subject, step.kind
    if kind == Kind.LOOK:
        for asked in step.hosts:
            now = now.seen(asked, _expected(now, asked))
        return now
    if kind == Kind.PUSH:
        old, digest = _expected(now, name), digest_of(step.policy)
        new = replace(old, policy=step.policy, digest=digest, problem="")
        return now.seen(name, new)
    if kind == Kind.BEGIN_UPGRADE:
        cluster = next(c for c in now.engine.clusters if c.name == name)
        changes = {"upgrade_correlation_id": cluster.our_upgrade}
        return now.changed("clusters", cluster.id, upgrade_in_progress=True, **changes)
    if step.of_domain:
        domain = next(d for d in now.state.domains if d.name == name)
        if step.options is not None:
            row = domain.connection
            return now.changed("connections", row, mount_options=step.options)
        status = step.until[0]
        now = now.changed("domains", domain.id, status=status)
        for host in now.state.hosts:
            mounted = status == _ACTIVE and host.found == UP
            now = _with_mounts(now, host, mounted=mounted)
        return now
    host = now.state.host(name)
    now = now.changed("hosts", host.id, status=step.until[0])
    # Without that stage, it is cancelled before the host was in maintenance.
    if kind in (Kind.ENTER, Kind.WAIT_OUT) or step.before == Stage.LEAVING:
        now = _with_mounts(now, host, mounted=kind != Kind.ENTER)
    arrived = {*now.arrived} - {name}
    return replace(now, arrived=arrived | ({name} if kind == Kind.WAIT_OUT else set()))


def _with_mounts(now: Snapshot, host: HostRecord, *, mounted: bool) -> Snapshot:
    wanted = wanted_transports(now.state, host) if mounted else {}
    transports = {export: word for export, word in wanted.items() if word}
    old = _expected(now, host.name)
    return now.seen(host.name, replace(old, transports=transports))


def _expected(now: Snapshot, name: str) -> Observation:
    """Return the observation of a host, or the one to expect so far."""
    known = now.observations.get(name)
    if known is not None:
        return known
    host = now.state.host(name)
    pushed = host.goal == BACK and host.touched
    files = {file.name: file.wanted if pushed else file.found for file in host.files}
    policy = NO_FILES.having(files)
    return Observation(policy, digest_of(policy))
