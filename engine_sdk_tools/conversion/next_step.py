# SPDX-License-Identifier: GPL-2.0-or-later
"""Decide the next step of any conversion, rolling or offline, simulate all steps, and
change the stage: after a failure, to revert or resume, and at the end. Pure.

Each host or batch gets its policy, goes to maintenance, is activated and proven; the
SPM is last. The engine's row is changed last on the way forward and first on the way
back, so that hosts without the add-on never get options that they are not ready for. If
the row decides (``by_row``), it is changed first in both directions.

The order: policies, domains to maintenance, unmount verified on every host, mount
options, domains active, every host proven. VDSM would silently reuse a mount that a
host has kept, with the old transport (MountConnection.connect), so such a host goes
through maintenance first.

The dry run applies the same decisions to a simulated engine in which every step is
successful, so it shows the steps of a run without failures.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Optional, TypeVar

from ovirt_rdma.engine_sdk_tools.conversion.fleet import (
    UP,
    Observation,
    Snapshot,
    as_at_first,
    wanted_transports,
)
from ovirt_rdma.engine_sdk_tools.conversion.model import (
    BACK,
    CONVERT,
    FORWARD,
    OFFLINE,
    ROLLING,
    ConversionState,
    DomainRecord,
    HostRecord,
    Stage,
    upgrade_running,
)
from ovirt_rdma.engine_sdk_tools.conversion.steps import (
    REMOVED,
    Kind,
    RunStep,
    activate,
    away_step,
    deactivate,
    enter,
    fail,
    host_step,
    leave,
    look,
    mark,
    mounts_step,
    policy_step,
    set_row,
    upgrade,
    wait_domain,
    wait_in,
    wait_out,
)
from ovirt_rdma.engine_sdk_tools.hosts.report import digest_of
from ovirt_rdma.engine_sdk_tools.model import (
    BROKEN,
    LACKS,
    Engine,
    host_is,
    status_words,
)
from ovirt_rdma.host.policy.load import NO_FILES


def failed(state: ConversionState, step: RunStep, why: str) -> ConversionState:
    """Return the state after ``step``, of a host or domain, has failed.

    A conversion is rolled back: rolling on the hosts in progress, offline on all. An
    unchanged host stays so. A failure on the way back is recorded, and the other hosts
    continue.
    """
    subject = step.subject
    host = None if step.of_domain else state.host(subject)
    if state.stage == Stage.CONVERTING:
        state = replace(state, stage=Stage.UNDOING, why=why, doing="")
        if state.mode == OFFLINE:
            return _all_back(state)
        names = [
            h.name
            for h in state.hosts
            if h.stage in Stage.IN_PLAY or (h.touched and h.stage not in Stage.OVER)
        ]
        state = state.with_hosts(names, goal=BACK, stage=Stage.TODO)
        return state.with_host(subject, why=why) if host else state
    reasons = state.why
    if host is not None:
        state = state.with_host(subject, stage=Stage.FAILED, why=why)
    if why not in reasons:
        reasons = f"{reasons.rstrip('.')}; {why}" if reasons else why
    if host is None:
        # No host can continue without the domain.
        return replace(state, why=reasons, doing="", stage=Stage.STOPPED)
    return replace(state, why=reasons, doing="")


def reverting(state: ConversionState) -> ConversionState:
    """Return the state at the start of a revert, or when one is resumed.

    Unchanged hosts do not take part.
    """
    if state.stage == Stage.REVERTING:
        return state
    state = replace(as_at_first(state), stage=Stage.REVERTING, why="", doing="")
    if state.mode == OFFLINE:
        return _all_back(state)
    back = (Stage.DONE, Stage.LEFT)
    names = [
        h.name
        for h in state.hosts
        if h.touched and not (h.goal == BACK and h.stage in back)
    ]
    others = [h.name for h in state.hosts if h.name not in names]
    state = state.with_hosts(others, goal=BACK, stage=Stage.DONE)
    return state.with_hosts(names, goal=BACK, stage=Stage.TODO, why="", left_out=False)


def renamed(state: ConversionState, engine: Engine) -> ConversionState:
    """Return the state with the present names of hosts and domains."""
    names = {host.id: host.name for host in engine.hosts}
    names.update((domain.id, domain.name) for domain in engine.domains)

    def now(records: Iterable[_Named]) -> tuple[_Named, ...]:
        return tuple(replace(r, name=names.get(r.id, r.name)) for r in records)

    return replace(
        state,
        hosts=now(state.hosts),
        former=now(state.former),
        domains=now(state.domains),
    )


_Named = TypeVar("_Named", HostRecord, DomainRecord)


def resumed(state: ConversionState) -> ConversionState:
    """Return the state of a stopped conversion that is resumed with the rest."""
    if state.stage != Stage.STOPPED:
        return state
    again = [h.name for h in state.hosts if h.goal == BACK or h.stage == Stage.FAILED]
    state = state.with_hosts(again, goal=FORWARD, stage=Stage.TODO, why="")
    domains = tuple(replace(domain, stage=Stage.TODO) for domain in state.domains)
    return replace(state, domains=domains, stage=Stage.CONVERTING, why="")


def finished(state: ConversionState) -> ConversionState:
    """Return the state when nothing remains to be done."""
    state = replace(state, doing="")
    if state.stage == Stage.CONVERTING:
        return replace(state, stage=Stage.CONVERTED)
    if any(h.stage == Stage.FAILED for h in state.hosts):
        return replace(state, stage=Stage.STOPPED)
    if state.stage == Stage.REVERTING:
        return replace(state, stage=Stage.REVERTED)
    some = any(h.goal == FORWARD and h.touched for h in state.hosts)
    over = state.mode == OFFLINE or not some
    return replace(state, stage=Stage.ROLLED_BACK if over else Stage.STOPPED)


def _all_back(state: ConversionState) -> ConversionState:
    """Return the state of an offline conversion on its way back.

    If a domain was active again, it may be mounted with the new options and has to be
    deactivated once more; otherwise it only has to be activated.
    """
    stage = Stage.TODO if any(d.touched for d in state.domains) else Stage.LEAVING
    names = [h.name for h in state.hosts]
    state = state.with_hosts(names, goal=BACK, stage=Stage.TODO, why="", left_out=False)
    return replace(state, domains=tuple(replace(d, stage=stage) for d in state.domains))


# Decide the next step of a rolling conversion, its revert, or a heal.


def rolling_step(state: ConversionState, snapshot: Snapshot) -> RunStep:
    """Return the next step; FINISH if there is none."""
    forward = state.stage == Stage.CONVERTING
    rows_first = state.by_row or state.stage == Stage.REVERTING
    steps = [_hosts]
    if state.kind == CONVERT:
        first = [_rolling_rows] if rows_first else []
        steps = [*first, _hosts, *([_new_hosts, _rolling_rows] if forward else [])]
    for decide in [_gone, *steps]:
        step = decide(state, snapshot)
        if step is not None:
            return step
    return RunStep(Kind.FINISH, state.title)


def _gone(state: ConversionState, snapshot: Snapshot) -> Optional[RunStep]:
    """On the way back, mark a removed domain: there is nothing to do for it."""
    for domain in state.domains if state.undoes else ():
        if domain.stage != Stage.GONE and snapshot.row(domain) is None:
            return mark(domain, Stage.GONE)
    return None


def _rolling_rows(state: ConversionState, snapshot: Snapshot) -> Optional[RunStep]:
    for domain in state.domains:
        row = snapshot.row(domain)
        if row is None and domain.stage == Stage.GONE:
            continue
        if row is None:
            why = f"the storage connection of {domain.name} was removed"
            return fail(domain, why)
        options = domain.options if state.undoes else domain.wanted
        if row.mount_options != options:
            return set_row(domain, options, force=True)
    return None


def _hosts(state: ConversionState, snapshot: Snapshot) -> Optional[RunStep]:
    current = _current_hosts(state, snapshot)
    if not any(host.stage in Stage.IN_PLAY for host in current):
        broken = _broken(state, snapshot)
        if broken is not None:
            return broken
    if not current:
        return _away(state, snapshot)
    steps = [host_step(state, host, snapshot) for host in current]
    first = min(steps, key=lambda step: Kind.ORDER.index(step.kind))
    if first.kind != Kind.LOOK:
        return first
    asked = [state.host(step.subject) for step in steps if step.kind == Kind.LOOK]
    if all(host.stage in Stage.IN_PLAY for host in asked):
        # Each start of Ansible takes a second: the next ones are asked with them.
        asked += [h for h in _startable(state, snapshot)[: state.batch] if h.push]
    return look(*asked)


def _current_hosts(state: ConversionState, snapshot: Snapshot) -> list[HostRecord]:
    """Return the hosts of the batch: those in progress, and others that may start."""
    mine = [h for h in state.hosts if h.goal == state.goal]
    current = [h for h in mine if h.stage in Stage.IN_PLAY]
    # A revert stops at a host that did not come up after its maintenance: the next
    # would probably fail too. A host that is up but cannot be asked or proven does not
    # affect the others.
    stops = state.stage == Stage.REVERTING and any(
        h.stage == Stage.FAILED and not _is_up_now(h, snapshot) for h in mine
    )
    # A batch stays together: no host starts while others are being activated.
    if stops or any(h.stage == Stage.LEAVING for h in current):
        return current
    waiting = _startable(state, snapshot)
    if current:
        waiting = [h for h in waiting if not _is_spm(h, snapshot)]
    return current + waiting[: max(state.batch - len(current), 0)]


def _startable(state: ConversionState, snapshot: Snapshot) -> list[HostRecord]:
    """Return the hosts that wait for their turn; if there are others, without the SPM,
    whose turn is the last.
    """
    waiting = [
        h
        for h in state.hosts
        if h.goal == state.goal
        and h.stage not in (*Stage.OVER, *Stage.IN_PLAY)
        and snapshot.is_up(h)
    ]
    if state.undoes:
        # A host that is not up does not delay the revert of the others.
        waiting = [h for h in waiting if _is_up_now(h, snapshot)] or waiting
    return [h for h in waiting if not _is_spm(h, snapshot)] or waiting[:1]


def _broken(state: ConversionState, snapshot: Snapshot) -> Optional[RunStep]:
    """Start no other host if a converted one is in trouble now."""
    for host in state.hosts if state.stage == Stage.CONVERTING else ():
        present = snapshot.host(host)
        converted = host.stage == Stage.DONE and host.touched
        if converted and present and host_is(present.status, LACKS, BROKEN):
            return fail(
                state.domains[0],
                f"{host.name} was converted and up, but is "
                f"{status_words(present.status)} now; the other hosts are not started",
            )
    return None


def _away(state: ConversionState, snapshot: Snapshot) -> Optional[RunStep]:
    """Change only the policy of hosts that were in maintenance or down at the start."""
    for host in state.hosts:
        waits = host.goal == state.goal and host.stage not in Stage.OVER
        if waits and not snapshot.is_up(host):
            return away_step(host, snapshot)
    return None


def _new_hosts(state: ConversionState, snapshot: Snapshot) -> Optional[RunStep]:
    known = {host.id for host in state.hosts}
    hosts = snapshot.engine.hosts_of(state.data_center)
    new = [host.name for host in hosts if host.id not in known]
    if not new:
        return None
    return fail(
        state.domains[0],
        f"added to the data center since the conversion started, and not checked: "
        f"{', '.join(new)}; the engine's mount options are unchanged",
    )


def _is_up_now(host: HostRecord, snapshot: Snapshot) -> bool:
    present = snapshot.host(host)
    return present is not None and present.status == UP


def _is_spm(host: HostRecord, snapshot: Snapshot) -> bool:
    present = snapshot.host(host)
    return present is not None and present.spm == "spm"


# Decide the next step of an offline conversion, or of its way back.

_MAINTENANCE = "maintenance"
_ACTIVE = "active"


def offline_step(state: ConversionState, snapshot: Snapshot) -> RunStep:
    """Return the next step; FINISH if there is none."""
    for domain in state.domains:
        here = (
            snapshot.domain(state, domain) is not None
            and snapshot.row(domain) is not None
        )
        if here or domain.stage == Stage.GONE:
            continue
        if state.undoes:
            return mark(domain, Stage.GONE)
        return fail(domain, f"{domain.name} or its connection was removed")
    first = (_policies, _close)
    if state.undoes:
        # First, because after a refused deactivation nothing has changed.
        first = (_close, _policies)
    for decide in (*first, _unmounted, _offline_rows, _open, _proven):
        step = decide(state, snapshot)
        if step is not None:
            return step
    return RunStep(Kind.FINISH, state.title)


def _policies(state: ConversionState, snapshot: Snapshot) -> Optional[RunStep]:
    steps = []
    for host in state.hosts:
        if host.stage != Stage.TODO:
            continue
        observed = snapshot.observations.get(host.name)
        step = policy_step(host, observed) or mark(host, Stage.PREPARED)
        steps.append(step if snapshot.host(host) else mark(host, Stage.DONE, REMOVED))
    return _first(state, steps)


def _close(state: ConversionState, snapshot: Snapshot) -> Optional[RunStep]:
    """Move the domains to maintenance, the master last."""
    for domain in sorted(state.domains, key=lambda d: d.master):
        if domain.stage not in (Stage.TODO, Stage.ENTERING) or not _was_active(domain):
            continue
        status = _status(state, snapshot, domain)
        if status == _MAINTENANCE:
            continue
        if status in (_ACTIVE, "inactive", "unknown"):
            return deactivate(state, domain)
        return wait_domain(state, domain, _MAINTENANCE, _ACTIVE)
    return None


def _unmounted(state: ConversionState, snapshot: Snapshot) -> Optional[RunStep]:
    """Verify that no host has kept a mount."""
    if any(
        d.stage not in (Stage.TODO, Stage.ENTERING, Stage.GONE) for d in state.domains
    ):
        return None
    steps = []
    for host in state.hosts:
        if host.stage in (Stage.UNMOUNTED, *Stage.OVER):
            continue
        present = snapshot.host(host)
        if not snapshot.is_up(host) or present is None:
            steps.append(mark(host, Stage.UNMOUNTED))
        else:
            steps.append(_unmount(state, host, present.status, snapshot))
    return _first(state, steps)


def _unmount(  # noqa: PLR0911 - one row per status
    state: ConversionState, host: HostRecord, status: Optional[str], snapshot: Snapshot
) -> RunStep:
    observed = snapshot.observations.get(host.name)
    if status == _MAINTENANCE:
        return leave(host) if host.ours else mark(host, Stage.UNMOUNTED)
    if status == "preparing_for_maintenance":
        return wait_in(host)
    if status not in ("up", "non_operational"):
        return wait_out(host)
    if observed is None:
        return look(host)
    if observed.problem:
        return fail(host, f"{host.name} cannot be asked: {observed.problem}")
    exports = (export for export, _ in wanted_transports(state, host))
    kept = [export for export in exports if export in observed.transports]
    if not kept:
        return mark(host, Stage.UNMOUNTED)
    if host.stage == Stage.LEAVING:
        return fail(host, f"{host.name} does not unmount {', '.join(kept)}")
    return enter(host)


def _offline_rows(state: ConversionState, snapshot: Snapshot) -> Optional[RunStep]:
    for domain in state.domains:
        row = snapshot.row(domain)
        options = domain.options if state.undoes else domain.wanted
        if row is not None and row.mount_options != options:
            status = _status(state, snapshot, domain)
            return set_row(domain, options, force=status != _MAINTENANCE)
    return None


def _open(state: ConversionState, snapshot: Snapshot) -> Optional[RunStep]:
    """Activate the domains, the master first."""
    for domain in sorted(state.domains, key=lambda d: not d.master):
        if domain.stage in (Stage.DONE, Stage.GONE):
            continue
        if not _was_active(domain):
            return mark(domain, Stage.DONE)
        status = _status(state, snapshot, domain)
        if status == _ACTIVE:
            return mark(domain, Stage.DONE)
        if status == _MAINTENANCE:
            return activate(state, domain)
        if status in ("inactive", "unknown") and domain.stage == Stage.LEAVING:
            return fail(domain, f"{domain.name} is {status}, not active")
        return wait_domain(state, domain, _ACTIVE, "inactive", _MAINTENANCE)
    return None


def _proven(state: ConversionState, snapshot: Snapshot) -> Optional[RunStep]:
    hosts = [host for host in state.hosts if host.stage not in Stage.OVER]
    return _first(state, [_prove(state, host, snapshot) for host in hosts])


def _prove(  # noqa: PLR0911 - one row per status
    state: ConversionState, host: HostRecord, snapshot: Snapshot
) -> RunStep:
    present = snapshot.host(host)
    if present is None:
        return mark(host, Stage.DONE, REMOVED)
    if not snapshot.is_up(host) or not any(map(_was_active, state.domains)):
        return mark(host, Stage.LEFT, "it did not mount the domain")
    status, again = present.status, host.stage == Stage.LEAVING
    if status == "up":
        if again and host.name not in snapshot.arrived:
            return wait_out(host)
        wrong = mounts_step(state, host, snapshot)
        return mark(host, Stage.DONE) if wrong is None else wrong
    if status == "non_operational" and host.goal == BACK and not again:
        return leave(host)
    if status == "non_operational":
        return fail(
            host,
            f"{host.name} became non-operational: it could not connect all of its "
            "storage; see vdsm.log there",
        )
    if status == _MAINTENANCE:
        if again or host.ours:
            return leave(host)
        return mark(host, Stage.LEFT, "somebody else moved it to maintenance")
    return wait_out(host)


def _first(state: ConversionState, steps: Sequence[RunStep]) -> Optional[RunStep]:
    """Return the step to do first; hosts that have to be asked are asked at once."""
    first = min(steps, key=lambda step: Kind.ORDER.index(step.kind), default=None)
    if first is not None and first.kind == Kind.LOOK:
        return look(*(state.host(s.subject) for s in steps if s.kind == Kind.LOOK))
    return first


def _was_active(domain: DomainRecord) -> bool:
    return domain.found == _ACTIVE


def _status(
    state: ConversionState, snapshot: Snapshot, domain: DomainRecord
) -> Optional[str]:
    present = snapshot.domain(state, domain)
    return present.status if present else None


# Decide the next step of any conversion, and simulate all steps.

# No host and no domain needs more steps, forward and back.
_MOST_STEPS = 40


def next_step(state: ConversionState, snapshot: Snapshot) -> RunStep:
    """Return the step to do now."""
    decide = rolling_step if state.mode == ROLLING else offline_step
    step = decide(state, snapshot)
    return _upgrade_step(state, snapshot, step) or step


def _upgrade_step(
    state: ConversionState, snapshot: Snapshot, step: RunStep
) -> Optional[RunStep]:
    """Return what to do before ``step`` so that no other program moves hosts of the
    same cluster to maintenance meanwhile. On the way back, one that does stops nothing.
    """
    clusters = [
        cluster
        for cluster in snapshot.engine.clusters
        if cluster.data_center == state.data_center
        and cluster.name not in snapshot.unmarked
    ]
    if step.kind == Kind.FINISH:
        # A run that stops clears them afterwards: the host that stops it may look sound
        # in the next reading, and the run would continue.
        if finished(state).stage == Stage.STOPPED:
            return None
        return next((upgrade(c, begins=False) for c in clusters if c.is_ours), None)
    if step.kind != Kind.ENTER:
        return None
    host = snapshot.host(state.host(step.subject))
    for cluster in clusters:
        if host is None or cluster.id != host.cluster or cluster.is_ours:
            continue
        if not cluster.upgrade_in_progress:
            return upgrade(cluster, begins=True)
        if not state.undoes:
            return fail(state.domains[0], upgrade_running(cluster))
    return None


def marked(state: ConversionState, step: RunStep) -> ConversionState:
    """Return the state after ``step`` has marked its host or domain."""
    if step.of_domain:
        return state.with_domain(step.subject, stage=step.after)
    changes: dict[str, Any] = {"stage": step.after, "why": step.why}
    if step.after in (Stage.DONE, Stage.UNMOUNTED):
        changes["ours"] = False
    return state.with_host(step.subject, **changes)


def begun(state: ConversionState, step: RunStep) -> ConversionState:
    """Return the state to store before ``step`` is done."""
    state = replace(state, doing=step.doing)
    stage = {"stage": step.before} if step.before else {}
    if step.of_domain:
        opens = step.before == Stage.LEAVING and state.stage == Stage.CONVERTING
        touched = {"touched": True} if opens else {}
        return state.with_domain(step.subject, **stage, **touched)
    changes = (
        {"touched": True} if step.kind in (Kind.PUSH, Kind.ENTER, Kind.LEAVE) else {}
    )
    ours = {"ours": True} if step.kind == Kind.ENTER else {}
    return state.with_host(step.subject, **stage, **changes, **ours)


def imagined(state: ConversionState, snapshot: Snapshot) -> Iterator[RunStep]:
    """Yield the steps, in order, if all are successful, without marks. There are no
    waits after a step whose result is immediate in the simulation.
    """
    for _ in range(_MOST_STEPS * (len(state.hosts) + len(state.domains))):
        if state.stage not in Stage.UNDER_WAY:
            return
        step = next_step(state, snapshot)
        if step.kind == Kind.FINISH:
            return
        if step.kind == Kind.FAIL:
            state = failed(state, step, step.why)
            continue
        if step.kind == Kind.MARK:
            state = marked(state, step)
            continue
        state = begun(state, step)
        yield step
        snapshot = _after(state, snapshot, step)


def _after(state: ConversionState, snapshot: Snapshot, step: RunStep) -> Snapshot:
    name, kind = step.subject, step.kind
    if kind == Kind.LOOK:
        for asked in step.hosts:
            snapshot = snapshot.seen(asked, _observed(state, snapshot, asked))
    elif kind == Kind.PUSH:
        old, digest = _observed(state, snapshot, name), digest_of(step.policy)
        new = replace(old, policy=step.policy, digest=digest, problem="")
        snapshot = snapshot.seen(name, new)
    elif kind == Kind.ENTER:
        snapshot = _unmounted_on(state, snapshot, name).with_host(name, "maintenance")
    elif kind == Kind.LEAVE:
        snapshot = replace(snapshot, arrived=set(snapshot.arrived) - {name})
        # Else it is cancelled before the host was in maintenance.
        if step.before == Stage.LEAVING:
            snapshot = _mounted(state, snapshot, name)
        snapshot = snapshot.with_host(name, "up")
    elif kind in (Kind.BEGIN_UPGRADE, Kind.END_UPGRADE):
        begins = kind == Kind.BEGIN_UPGRADE
        clusters = tuple(
            replace(
                cluster,
                upgrade_in_progress=begins,
                upgrade_correlation_id=cluster.our_upgrade,
            )
            if cluster.name == name
            else cluster
            for cluster in snapshot.engine.clusters
        )
        snapshot = replace(snapshot, engine=replace(snapshot.engine, clusters=clusters))
    elif step.call is not None and step.call.method == "update":
        options = step.call.arguments["connection"].mount_options
        ids = {d.connection for d in state.domains if d.name == name}
        rows = tuple(
            replace(row, mount_options=options) if row.id in ids else row
            for row in snapshot.engine.connections
        )
        snapshot = replace(snapshot, engine=replace(snapshot.engine, connections=rows))
    elif step.of_domain:
        # Every wait is successful.
        opens = step.call is not None and step.call.method == "activate"
        status = step.until[0] if step.until else "active" if opens else "maintenance"
        snapshot = _domain(state, snapshot, name, status)
    else:
        if kind == Kind.WAIT_OUT:
            snapshot = _mounted(state, snapshot, name)
            snapshot = replace(snapshot, arrived={*snapshot.arrived, name})
        snapshot = snapshot.with_host(name, step.until[0])
    return snapshot


def _domain(
    state: ConversionState, snapshot: Snapshot, name: str, status: str
) -> Snapshot:
    ids = {d.id for d in state.domains if d.name == name}
    domains = tuple(
        replace(d, status=status)
        if d.id in ids and d.data_center == state.data_center
        else d
        for d in snapshot.engine.domains
    )
    snapshot = replace(snapshot, engine=replace(snapshot.engine, domains=domains))
    for host in state.hosts:
        mounts = status == "active" and host.found == "up"
        now = _mounted if mounts else _unmounted_on
        snapshot = now(state, snapshot, host.name)
    return snapshot


def _mounted(state: ConversionState, snapshot: Snapshot, name: str) -> Snapshot:
    wanted = wanted_transports(state, state.host(name))
    transports = {export: transport for export, transport in wanted if transport}
    old = _observed(state, snapshot, name)
    return snapshot.seen(name, replace(old, transports=transports))


def _unmounted_on(state: ConversionState, snapshot: Snapshot, name: str) -> Snapshot:
    old = _observed(state, snapshot, name)
    return snapshot.seen(name, replace(old, transports={}))


def _observed(state: ConversionState, snapshot: Snapshot, name: str) -> Observation:
    """Return the observation of a host, or the one to expect so far."""
    known = snapshot.observations.get(name)
    if known is not None:
        return known
    host = state.host(name)
    pushed = host.goal == BACK and host.touched
    files = {file.name: file.wanted if pushed else file.found for file in host.files}
    policy = NO_FILES.having(files)
    return Observation(policy, digest_of(policy))
