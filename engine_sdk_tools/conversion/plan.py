# SPDX-License-Identifier: GPL-2.0-or-later
"""Plan a conversion, its resumption and its revert, and a heal; judge the runs that
this machine has recorded; and say in sentences how a run has ended. Pure.

The transport of a mount never changes, so each host concerned goes through maintenance,
the SPM last. Policies and storage connections are unchanged. It is a rolling conversion
that changes nothing else: :mod:`.conversion.run` carries it out.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Optional

from ovirt_rdma.engine_sdk_tools.conversion import model
from ovirt_rdma.engine_sdk_tools.conversion.fleet import (
    MOUNTED,
    UNPROVEN,
    Observation,
    ReportedHost,
    Snapshot,
    as_at_first,
    domain_record,
    left_out,
    observe,
    of_each,
    ordered,
    unlike,
    with_earlier,
    with_files_of,
)
from ovirt_rdma.engine_sdk_tools.conversion.model import (
    BACK,
    CONVERT,
    FORWARD,
    HEAL,
    RDMA,
    TCP,
    ConversionRequest,
    ConversionState,
    DomainRecord,
    HostRecord,
    Stage,
    Transports,
    moving_offenders,
    only_one,
    refused,
)
from ovirt_rdma.engine_sdk_tools.conversion.next_step import (
    RunStep,
    all_back,
    imagined,
    policy_step,
)
from ovirt_rdma.engine_sdk_tools.domains.transport import (
    can_be_healed,
    requested_transport,
    verifiable,
)
from ovirt_rdma.engine_sdk_tools.hosts.report import HostReport
from ovirt_rdma.engine_sdk_tools.model import (
    Domain,
    Engine,
    Host,
    check,
    listed,
    merged,
    status_words,
)
from ovirt_rdma.host.errors import ExitCode, Problem, Sentence
from ovirt_rdma.host.policy.model import PREFER_RDMA

# In any order; may be a stream, so it is iterated once.
Reports = Iterable[HostReport]


@dataclass(frozen=True)
class ConversionPlan:
    """``state`` at the start; the ``steps`` that change something, in order;
    ``warnings``; and ``observed``, the hosts as they were asked, by name.
    """

    state: ConversionState
    steps: tuple[RunStep, ...]
    warnings: tuple[str, ...] = ()
    observed: Mapping[str, Observation] = field(default_factory=dict)


def plan_convert(
    engine: Engine,
    domains: Sequence[Domain],
    reports: Reports,
    request: ConversionRequest,
    *,
    users: Optional[Mapping[str, Sequence[str]]] = None,
    pinned: Optional[Mapping[str, Sequence[str]]] = None,
    earlier: Sequence[ConversionState] = (),
    now: float = 0.0,
) -> ConversionPlan:
    """Check a conversion of ``domains``, of one data center, and plan it. ``reports``
    has all its hosts. ``users`` are the virtual machines running on a domain, by its
    name, ``pinned`` those that must not leave a host, by its id; ``earlier``
    conversions have the baseline. Raises Refused and ChecksFailed with all objections.
    """
    model.check_domains(engine, domains, request)
    center = str(domains[0].data_center)
    hosts = ordered(engine.hosts_of(center))
    offenders: list[Sentence] = []
    records = []
    for domain in domains:
        try:
            record = domain_record(domain, request.to)
        except Problem as problem:
            offenders.append(Sentence(problem.id, f"{domain.name}: {problem}"))
            continue
        records.append(record)
        using = (users or {}).get(domain.name, ())
        offenders += model.domain_offenders(
            engine, domain, request, record.wanted, using
        )
    check(offenders)
    fleet = of_each(hosts, reports, lambda seen: seen.started(records, request))
    offenders += model.fleet_offenders(hosts, request, engine.clusters, pinned)
    check([*offenders, *(why for one in fleet.values() for why in one.objections)])
    observed = {name: one.observed for name, one in fleet.items()}
    state = ConversionState(
        kind=CONVERT,
        data_center=center,
        request=request,
        domains=tuple(records),
        hosts=tuple(one.record for one in fleet.values() if one.record),
        begun_at=now,
    )
    state = with_earlier(state, earlier, observed)
    snapshot = Snapshot(state, engine, observed)
    if _is_so(snapshot):
        return ConversionPlan(state, ())
    warnings = tuple(model.warnings(hosts, request))
    return ConversionPlan(state, steps_of(snapshot), warnings, observed)


def plan_resume(
    state: ConversionState,
    engine: Engine,
    reports: Reports,
    without: Sequence[str] = (),
) -> ConversionPlan:
    """Plan the rest of a conversion that was interrupted or has stopped: hosts not
    started are checked again, new ones included, and those in ``without`` left
    unchanged, as those left out before that are still not up. Raises ChecksFailed, also
    if one in ``without`` was begun and is neither done nor failed.
    """
    state = renamed(state, engine)
    if without and state.stage not in (Stage.CONVERTING, Stage.STOPPED):
        raise model.refused(
            "host-left-out-of-revert",
            f"{state.title} is being rolled back or reverted, and no host can be left "
            "out of that",
            "omit --without",
        )
    hosts = ordered(engine.hosts_of(state.data_center))
    if state.kind == CONVERT and state.stage in (Stage.CONVERTING, Stage.STOPPED):
        state, observed = _with_hosts_now(state, engine, hosts, reports, without)
    else:
        observed = observe(hosts, reports, state.domains)
    state = resumed(state)
    steps = steps_of(Snapshot(state, engine, observed))
    return ConversionPlan(state, steps, observed=observed)


def _with_hosts_now(
    state: ConversionState,
    engine: Engine,
    hosts: Sequence[Host],
    reports: Reports,
    without: Sequence[str],
) -> tuple[ConversionState, dict[str, Observation]]:
    """Return the state with the present hosts, and their observations."""
    out = {record.id for record in state.hosts if record.left_out}
    still_away = [h.name for h in hosts if h.status != "up" and h.id in out]
    request = replace(state.request, without=(*without, *still_away))
    begun = {
        host.id: host
        for host in state.hosts
        if not (host.left_out and not host.touched)
        and (state.stage == Stage.CONVERTING or _is_changed(host))
    }
    # A domain that was removed meanwhile is not checked.
    its = {d.id: d for d in engine.domains if d.data_center == state.data_center}
    here = [domain for domain in state.domains if domain.id in its]
    fleet = of_each(
        hosts, reports, lambda seen: seen.started(state.domains, request, here)
    )
    new = [fleet[host.name] for host in hosts if host.id not in begun]
    offenders = list(
        model.without_offenders(hosts, replace(request, without=tuple(without)))
    )
    offenders += [
        Sentence(
            "host-begun-left-out",
            f"{h.name} may have its new policy already, or be in maintenance for this "
            f"conversion: omit --without {h.name}; if it fails then, it goes back, and "
            "can be left out",
        )
        for h in state.hosts
        if h.name in without and h.touched and h.stage not in Stage.OVER
    ]
    if request.rolling:
        offenders += model.upgrade_offenders(engine.clusters, hosts)
        for domain in (its[record.id] for record in here):
            # An unknown status is usual while the SPM moves.
            if domain.status not in MOUNTED:
                offenders += model.domain_offenders(engine, domain, request, "", ())
    check([*offenders, *(why for one in new for why in one.objections)])
    observed = {name: one.observed for name, one in fleet.items()}
    before = {host.id: host for host in (*state.former, *state.hosts)}
    added = (one.record for one in new if one.record)
    known = {**{h.id: _as_before(h, before, observed) for h in added}, **begun}
    records = [known.pop(host.id) for host in hosts]
    records += known.values()
    requested = [_as_requested(record, request.without) for record in records]
    present = {record.id for record in records}
    former = tuple(host for host in state.former if host.id not in present)
    return replace(state, hosts=tuple(requested), former=former), observed


def _as_before(
    host: HostRecord,
    before: Mapping[str, HostRecord],
    observed: Mapping[str, Observation],
) -> HostRecord:
    """Return the new record of ``host`` with the baseline in the one before, if any."""
    old = before.get(host.id)
    if old is None:
        return host
    first, converted = old.first_transports, old.converted
    host = with_files_of(host, old, observed.get(host.name))
    return replace(host, first_transports=first, converted=converted)


def _as_requested(host: HostRecord, without: Sequence[str]) -> HostRecord:
    """Return the record of a host that is left out now, or no longer."""
    if host.name in without and host.stage != Stage.DONE:
        return left_out(host)
    if host.left_out and host.name not in without:
        return replace(host, left_out=False, stage=Stage.TODO, why="")
    return host


def _is_changed(host: HostRecord) -> bool:
    """Whether something of the conversion remains on it."""
    back = host.goal == BACK and host.stage in (Stage.DONE, Stage.LEFT)
    return host.touched and not back


def plan_revert(
    state: ConversionState,
    engine: Engine,
    reports: Reports,
    users: Optional[Mapping[str, Sequence[str]]] = None,
) -> ConversionPlan:
    """Plan the revert to the baseline of ``state``; ``users`` as in plan_convert.
    Raises ChecksFailed if a domain in use would go down, and none is yet.
    """
    state = renamed(state, engine)
    stages = {domain.stage for domain in state.domains}
    is_down = state.stage in Stage.UNDER_WAY or stages & {Stage.ENTERING, Stage.LEFT}
    users = {} if users is None or is_down else users
    here = ordered(engine.hosts_of(state.data_center))
    observations = observe(here, reports, state.domains)
    known = {host.id for host in state.hosts}
    new = [h.name for h in here if h.id not in known]
    up = {host.id for host in engine.hosts if host.status == "up"}
    new += [h.name for h in state.hosts if h.left_out and not h.touched and h.id in up]
    warnings: list[str] = []
    if state.request.rolling:
        warnings += model.upgrade_offenders(engine.clusters, here)
    if new:
        warnings.append(
            Sentence(
                "hosts-not-converted",
                f"not converted, because up only since: {', '.join(new)}; mounts there "
                "stay until the host is activated again, and its policy is unchanged",
            )
        )
    state = reverting(_with_those_converted_since(state, observations))
    steps = steps_of(Snapshot(state, engine, observations))
    going = [s.subject for s in steps if s.of_domain and s.before == Stage.ENTERING]
    using = [(name, users[name]) for name in going if users.get(name)]
    check([model.in_use(*one, "or move their disks") for one in using])
    return ConversionPlan(state, steps, tuple(warnings), observations)


def _with_those_converted_since(
    state: ConversionState, observations: Mapping[str, Observation]
) -> ConversionState:
    """Return the state with hosts marked as touched that are converted but not by it:
    a run on another machine took over and continued.
    """
    exports = {domain.id: str(domain.export) for domain in state.domains}
    to = state.request.to
    since = []
    for host in state.hosts:
        observed = observations.get(host.name, Observation())
        present = observed.policy.contents
        ruled = any(present.get(f.name) == f.wanted != f.found for f in host.files)
        moved = any(
            then not in (None, to) and observed.transports.get(exports[id]) == to
            for id, then in host.transports
        )
        if ruled or moved:
            since.append(host.name)
    return state.with_hosts(since, touched=True)


def steps_of(now: Snapshot) -> tuple[RunStep, ...]:
    """Return the steps that change something, if all of them are successful."""
    return tuple(step for step in imagined(now) if step.changes)


def _is_so(now: Snapshot) -> bool:
    """Whether mount options, policies and all mounts are already as requested."""
    if any(d.options != d.wanted for d in now.state.domains):
        return False
    for host in now.state.hosts:
        observed = now.observations.get(host.name, Observation())
        if policy_step(now, host) is not None:
            return False
        wrong = observed.problem or unlike(now, host, observed)
        if host.found == "up" and wrong:
            return False
    return True


# Plan the remount of domains that are mounted over TCP but should use RDMA.


def plan_heal(
    engine: Engine,
    data_center: str,
    domains: Sequence[Domain],
    reports: Iterable[HostReport],
    *,
    pinned: Optional[Mapping[str, Sequence[str]]] = None,
    batch: int = 1,
    now: float = 0.0,
) -> ConversionPlan:
    """Plan which hosts go through maintenance for ``domains``; ``pinned`` as in
    plan_convert. No steps if nothing is degraded or a remount would not help, which
    ``warnings`` say; the state's ``why`` has what stays degraded or unknown. Raises
    ChecksFailed if hosts cannot go to maintenance.
    """
    mounted = [d for d in domains if verifiable(d)]
    # No row is changed, so one that is invalid for RDMA is none of ours.
    records = tuple(
        replace(record, wanted=record.options)
        for record in (domain_record(d, TCP) for d in mounted)
    )
    up = [h for h in ordered(engine.hosts_of(data_center)) if h.status == "up"]
    request = ConversionRequest(RDMA, rolling=True, batch=batch)
    judged = of_each(up, reports, lambda seen: _judged(seen, mounted, records, request))
    warnings = merged(why for _, _, against in judged.values() for why in against)
    left_degraded = "; ".join(warnings)
    wanted = {name: transports for name, (_, transports, _) in judged.items()}
    going = [h for h in up if wanted[h.name]]
    batch = request.batch
    check(list(moving_offenders(engine.clusters, up, going, pinned or {}, batch)))
    if going and len(up) == 1:
        warnings.append(only_one(up[0]))
    hosts = [
        HostRecord(h.id, h.name, h.status, transports=wanted[h.name]) for h in going
    ]
    state = ConversionState(
        kind=HEAL,
        data_center=data_center,
        request=request,
        domains=tuple(r for d, r in zip(mounted, records) if can_be_healed(d)),
        hosts=tuple(hosts),
        why=left_degraded,
        begun_at=now,
    )
    observed = {name: one for name, (one, _, _) in judged.items()}
    steps = steps_of(Snapshot(state, engine, observed))
    return ConversionPlan(state, steps, tuple(warnings))


def _judged(
    seen: ReportedHost,
    domains: Sequence[Domain],
    records: Sequence[DomainRecord],
    request: ConversionRequest,
) -> tuple[Observation, Transports, list[Sentence]]:
    """Return the observation of a host, the transports that its mounts should have,
    none if it does not have to go through maintenance, and warnings.
    """
    name, observed = seen.host.name, seen.observed(records)
    if seen.problem:
        sentence = f"{name}: its mounts are unknown: {seen.problem}"
        return observed, (), [Sentence("host-mounts-unknown", sentence)]
    asked = (
        requested_transport(d.connection, seen.force) if d.connection else None
        for d in domains
    )
    concerned = [
        (domain, record)
        for domain, record, one in zip(domains, records, asked)
        if one and one.transport == RDMA
    ]
    degraded = [
        domain
        for domain, record in concerned
        if observed.transports.get(str(record.export)) not in (None, RDMA, UNPROVEN)
    ]
    against = [_not_healed(name, d) for d in degraded if not can_be_healed(d)]
    if len(against) == len(degraded):
        return observed, (), against
    ours = [record for domain, record in concerned if can_be_healed(domain)]
    # Why a remount would not get RDMA, each reason once.
    objections = dict.fromkeys(seen.remount_objections(ours, request))
    skipped = [
        Sentence(one.id, f"{name}: not remounted: {one.partition(': ')[2]}")
        for one in objections
    ]
    wanted = () if skipped else tuple((record.id, RDMA) for record in ours)
    return observed, wanted, [*against, *skipped]


def _not_healed(host: str, domain: Domain) -> Sentence:
    """Return why the degraded mount of ``domain`` on ``host`` is not remounted."""
    if domain.hosted_engine:
        return Sentence(
            "domain-of-hosted-engine",
            f"{host}: {domain.name} is the hosted engine's domain, which maintenance "
            "alone does not unmount: put the host into maintenance, reboot it and "
            "activate it",
        )
    nfs = domain.storage_type == "nfs"
    why = status_words(domain.status) if nfs else f"of type {domain.storage_type}"
    return Sentence(
        "domain-not-healed",
        f"{host}: {domain.name} has fallen back to TCP and is not remounted: it is "
        f"{why}, and heal remounts only NFS domains that are active",
    )


# Change the state to revert or to resume it.


def reverting(state: ConversionState) -> ConversionState:
    """Return the state for a revert, or its resumption, of the hosts changed."""
    if state.stage == Stage.REVERTING:
        return state
    state = replace(as_at_first(state), stage=Stage.REVERTING, why="", doing="")
    if not state.request.rolling:
        return all_back(state)
    names = [h.name for h in state.hosts if _is_changed(h)]
    others = [h.name for h in state.hosts if h.name not in names]
    state = state.with_hosts(others, goal=BACK, stage=Stage.DONE)
    return state.with_hosts(names, goal=BACK, stage=Stage.TODO, why="", left_out=False)


def renamed(state: ConversionState, engine: Engine) -> ConversionState:
    """Return the state with the present names of hosts and domains."""
    present: tuple[Any, ...] = (*engine.hosts, *engine.domains)
    names = {one.id: one.name for one in present}
    # Records are addressed by name, and a new host may have that of a removed one.
    taken = {host.name: f"{host.name} (removed)" for host in engine.hosts}

    def now(records: Iterable[Any], taken: Mapping[str, str]) -> tuple[Any, ...]:
        return tuple(
            replace(r, name=names.get(r.id) or taken.get(r.name, r.name))
            for r in records
        )

    hosts, former = now(state.hosts, taken), now(state.former, taken)
    return replace(state, hosts=hosts, former=former, domains=now(state.domains, {}))


def resumed(state: ConversionState) -> ConversionState:
    """Return the state of a stopped conversion that is resumed with the rest."""
    if state.stage != Stage.STOPPED:
        return state
    again = [h.name for h in state.hosts if h.goal == BACK or h.stage == Stage.FAILED]
    state = state.with_hosts(again, goal=FORWARD, stage=Stage.TODO, why="")
    domains = tuple(replace(domain, stage=Stage.TODO) for domain in state.domains)
    return replace(state, domains=domains, stage=Stage.CONVERTING, why="")


# Judge earlier and other runs of this machine: a conversion that is incomplete is
# resumed, or keeps others off; one that is complete has the baseline of its domains,
# which a later conversion keeps.


def latest_state(
    states: Sequence[ConversionState], domains: Sequence[Domain]
) -> Optional[ConversionState]:
    """Return the latest state of a conversion of any of ``domains``."""
    ids = {domain.id for domain in domains}
    candidates = [
        state
        for state in states
        if state.kind == CONVERT and ids & {d.id for d in state.domains}
    ]
    return max(candidates, key=lambda state: state.begun_at, default=None)


def is_converted(state: ConversionState) -> bool:
    """Whether its domains are converted, by this conversion or by an earlier one."""
    if state.stage == Stage.ROLLED_BACK:
        return state.is_again
    return state.stage == Stage.CONVERTED


def earlier_conversions(
    states: Sequence[ConversionState], domains: Sequence[Domain]
) -> list[ConversionState]:
    """Return the conversions of ``domains`` that still apply, the latest first."""
    latest = [latest_state(states, [domain]) for domain in domains]
    candidates = {
        state.begun_at: state
        for state in latest
        if state is not None and is_converted(state)
    }
    return [candidates[begun_at] for begun_at in sorted(candidates, reverse=True)]


def with_related(
    engine: Engine,
    states: Sequence[ConversionState],
    domains: Sequence[Domain],
    earlier: Sequence[ConversionState],
    to: str,
) -> list[Domain]:
    """Return ``domains``, with others that were converted to ``to`` together with them:
    they share one baseline. Raises Refused if such others would go to another
    transport.
    """
    center = domains[0].data_center
    requested = {domain.id: domain for domain in domains}
    related: dict[str, Domain] = {}
    for state in earlier:
        ids = {record.id for record in state.domains}
        its = {
            domain.id: domain
            for domain in engine.domains
            if domain.id in ids
            and domain.data_center == center
            and latest_state(states, [domain]) is state
        }
        others = [domain.name for id, domain in its.items() if id not in requested]
        if state.request.to != to and others:
            raise refused(
                "converted-together",
                f"{state.title} were converted together, so the state before is "
                "recorded for all of them together",
                f"name {' and '.join(others)} too; or revert all of them: "
                f"{revert_command_of(state)}",
            )
        related.update(its)
    return list({**related, **requested}.values())


def check_resumable(
    state: ConversionState, domains: Sequence[Domain], request: ConversionRequest
) -> str:
    """Return a note if ``state`` was begun with other options than ``request``, "" if
    not. Raises Refused if ``request`` for ``domains`` does not resume it.
    """
    names = " ".join(domain.name for domain in state.domains)
    if state.stage == Stage.REVERTING:
        raise refused(
            "revert-incomplete",
            f"a revert of {names} is not complete",
            f"complete it first: {command_of(state)}",
        )
    other = {d.id for d in domains} - {d.id for d in state.domains}
    if state.request.to != request.to or other:
        raise refused(
            "conversion-incomplete",
            f"a conversion of {names} to {state.request.to} is not complete",
            f"complete it first: {command_of(state)}; or revert it: "
            f"{revert_command_of(state)}",
        )
    options = ("rolling", "by_row", "policy_transport")
    if all(getattr(state.request, o) == getattr(request, o) for o in options):
        return ""
    return f"resumed with the options of its first run: {command_of(state)}"


def refuse_other_runs(
    states: Sequence[ConversionState], own: Optional[ConversionState]
) -> None:
    """Raise Refused if another run is incomplete: its hosts may be in maintenance."""
    for state in states:
        same = own is not None and (
            (state.kind, state.domains[0].id) == (own.kind, own.domains[0].id)
        )
        if same or state.stage not in Stage.UNDER_WAY:
            continue
        command = command_of(state)
        raise refused(
            "other-run-incomplete",
            f"an earlier '{command}' was interrupted and is not complete",
            f"complete it first: {command}",
        )


def command_of(state: ConversionState) -> str:
    """Return the command that resumes ``state``."""
    names = " ".join(shlex.quote(domain.name) for domain in state.domains)
    if state.kind == HEAL:
        return f"ovirt-rdma domain heal {names}"
    if state.stage == Stage.REVERTING:
        return revert_command_of(state)
    request = state.request
    command = f"ovirt-rdma domain convert {names} --to {request.to}"
    rule = request.policy_transport
    options = [
        ("--rolling", request.rolling),
        ("--engine-options", request.by_row),
        (f"--policy-rule {rule}", rule == PREFER_RDMA),
    ]
    return " ".join([command, *(word for word, so in options if so)])


def revert_command_of(state: ConversionState) -> str:
    """Return the command that reverts ``state``."""
    return f"ovirt-rdma domain revert {shlex.quote(state.domains[0].name)}"


# Say in sentences how a conversion or a heal has ended, or where it was interrupted:
# for people, programs and the engine's events.


def task_title(state: ConversionState) -> str:
    """Return what a run does, for the engine's tasks."""
    # Up to here the portal cuts nothing off, with names of the usual length.
    names = listed([domain.name for domain in state.domains], 2)
    if state.kind == HEAL:
        return f"heal {names}"
    return (
        f"revert {names}"
        if state.undoes
        else f"convert to {state.request.to.upper()}: {names}"
    )


def concerned(state: ConversionState) -> list[str]:
    """Return the ids of what a run changes; all domains there have the same hosts."""
    return [state.data_center, *(domain.id for domain in state.domains)]


def exit_code(state: ConversionState) -> ExitCode:
    """Return the exit code; REFUSED if the engine refused the first change, and
    CHECKS_FAILED if a heal left mounts that are degraded or unknown.
    """
    if state.stage in (Stage.CONVERTED, Stage.REVERTED):
        some_left = state.kind == HEAL and state.why
        return ExitCode.CHECKS_FAILED if some_left else ExitCode.DONE
    if state.stage == Stage.ROLLED_BACK:
        changed = any(h.touched for h in state.hosts)
        changed = changed or any(d.touched for d in state.domains)
        return ExitCode.ROLLED_BACK if changed else ExitCode.REFUSED
    done = any(h.stage == Stage.DONE for h in state.hosts)
    return ExitCode.SOME if done else ExitCode.FAILED


def sentence(state: ConversionState) -> str:
    """Return the result in one sentence; also the text of the engine's event."""
    several = len(state.domains) > 1
    what = "Heal of" if state.kind == HEAL else "Domains" if several else "Domain"
    title, verb = f"{what} {state.title}", "are" if several else "is"
    if state.stage == Stage.CONVERTED:
        if state.kind == HEAL:
            left = f"; left as they are: {state.why}" if state.why else ""
            return f"{title}: the mounts are over RDMA again{left}"
        proven = "" if _proven(state) else ", but not proven on every host"
        without = hosts_left_out(state)
        if without:
            proven += f", without {', '.join(without)}"
        return f"{title} {verb} converted to {state.request.to.upper()}{proven}"
    if state.stage == Stage.REVERTED:
        return f"{title} {verb} mounted as before"
    why = f": {state.why.rstrip('.')}" if state.why else ""
    if state.stage == Stage.STOPPED:
        why += "".join(f"; {line}" for line in _not_back(state))
    if state.stage == Stage.ROLLED_BACK and state.kind == HEAL:
        return f"{title} failed and was rolled back{why}"
    if state.stage == Stage.ROLLED_BACK:
        return f"{title} {verb} as before{why}"
    return f"{title} stopped and is incomplete{why}"


def hosts_left_out(state: ConversionState) -> list[str]:
    """Return the names of the hosts that were left out."""
    return [host.name for host in state.hosts if host.left_out]


def _proven(state: ConversionState) -> bool:
    return all(
        h.stage == Stage.DONE and not h.why
        for h in state.hosts
        if h.found == "up" and not h.left_out
    )


def interrupted_lines(state: ConversionState) -> list[str]:
    """Return sentences about an interrupted run: where it is, and how to resume it."""
    how = f"the run is paused; resume it with '{command_of(state)}'"
    if state.kind != HEAL and state.stage != Stage.REVERTING:
        how += f", or revert it with '{revert_command_of(state)}'"
    return [*_not_back(state), how]


def _not_back(state: ConversionState) -> list[str]:
    """Return sentences about the hosts and domains that may be in maintenance."""
    lines = []
    hosts = [host.name for host in state.hosts if host.ours]
    down = [d.name for d in state.domains if d.stage in (Stage.ENTERING, Stage.LEFT)]
    for names in filter(None, (hosts, down)):
        verb = "is" if len(names) == 1 else "are"
        shown = ", ".join(names)
        lines.append(
            f"{shown} {verb} in maintenance for this run, or on the way there or back"
        )
    return lines
