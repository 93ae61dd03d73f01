# SPDX-License-Identifier: GPL-2.0-or-later
"""Do an administrator's jobs from a program: the names that stay as they are.

    from ovirt_rdma.engine_sdk_tools.automation import connect

    with connect("engine.example.com", "admin@internal", "secret") as engine:
        print(engine.verify("data1").worst)
        engine.convert("data1")

A job that changes something checks first, and then calls ``approve`` with its plan. If
that returns False, nothing is changed and the result is None. Every error is an
``ovirt_rdma.host.errors.Problem``: ``str()`` has every problem, ``fix`` what to do.
docs/engine-api.md has an example of each job.
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import Any, Callable, Optional, Union

from ovirt_rdma.engine_sdk_tools.api.auth import from_sources, state_folder
from ovirt_rdma.engine_sdk_tools.api.request import EngineProblem, Listener
from ovirt_rdma.engine_sdk_tools.api.session import Session
from ovirt_rdma.engine_sdk_tools.conversion import plan as conversions
from ovirt_rdma.engine_sdk_tools.conversion.fleet import pinned_on, running_on
from ovirt_rdma.engine_sdk_tools.conversion.model import (
    CONVERT,
    HEAL,
    RDMA,
    ConversionRequest,
    ConversionState,
    Stage,
    StateFolder,
    check_domains,
    data_center_of,
    moving_offenders,
    only_one,
    refused,
)
from ovirt_rdma.engine_sdk_tools.conversion.run import ConversionRun
from ovirt_rdma.engine_sdk_tools.domains import transport
from ovirt_rdma.engine_sdk_tools.domains.create import (
    DomainMade,
    DomainRequest,
    create_domain,
    plan_domain_create,
)
from ovirt_rdma.engine_sdk_tools.fleet import check, policy_push, preparation
from ovirt_rdma.engine_sdk_tools.hosts.ansible import (
    SSH_VARIABLES,
    Access,
    AnsibleHosts,
    default_key,
)
from ovirt_rdma.engine_sdk_tools.hosts.deploy_hook import block_problem
from ovirt_rdma.engine_sdk_tools.hosts.report import (
    NO_ACCESS,
    DumpFolder,
    HostAccess,
    HostReport,
    reports_of,
)
from ovirt_rdma.engine_sdk_tools.job import (
    END_S,
    DataCenterLock,
    Listeners,
    OtherRun,
    Task,
    end_job,
    is_open,
    task,
)
from ovirt_rdma.engine_sdk_tools.model import (
    Domain,
    Engine,
    Host,
    Matrix,
    NameProblem,
    Refused,
    counted,
    data_center_named,
    domain_named,
    hosts_named,
)
from ovirt_rdma.engine_sdk_tools.model import check as refuse_all
from ovirt_rdma.engine_sdk_tools.networks import attach, create
from ovirt_rdma.engine_sdk_tools.reader import read_engine
from ovirt_rdma.host.errors import Problem, Sentence
from ovirt_rdma.host.policy.load import parse_policy
from ovirt_rdma.host.policy.model import Policy

# Gets the plan of a job; whether to carry it out.
Approve = Callable[[Any], bool]


def always(plan: object) -> bool:
    """Carry out every plan: its checks are good."""
    return True


def connect(
    url: Optional[str] = None,
    username: Optional[str] = None,
    password: Optional[str] = None,
    *,
    ca_file: Optional[str] = None,
    hosts: Optional[HostAccess] = None,
    listener: Optional[Listener] = None,
) -> RdmaEngine:
    """Return the engine; the first request logs in, the end of ``with`` logs out.

    What is not given comes from OVIRT_URL, OVIRT_USERNAME, OVIRT_PASSWORD,
    OVIRT_CAFILE. Without ``hosts``, hosts are asked over SSH with the engine's own key
    if we can read that, else they are unknown. Raises Problem if no engine is named.
    """
    given = {"engine_url": url, "username": username, "password": password}
    session = Session(from_sources(os.environ, {**given, "cafile": ca_file}))
    session.listener = listener or Listener()
    key = default_key()
    if hosts is None and key is not None:
        hosts = AnsibleHosts(Access(key=key))
    states = StateFolder(state_folder(os.environ, os.geteuid()))
    return RdmaEngine(session, hosts, states)


class RdmaEngine:
    """One engine with its hosts; :func:`connect` makes it.

    ``states`` is the folder in which conversions are recorded: the one of the command
    ``ovirt-rdma``, so that either resumes and reverts what the other has started.
    ``ask`` asks hosts for their reports. ``tasks``: work is shown among the engine's
    tasks. The session's listener gets progress, notes, and the warnings of plans.
    """

    def __init__(
        self,
        session: Session,
        hosts: Optional[HostAccess],
        states: StateFolder,
        *,
        ask: Callable[
            [Sequence[Host], HostAccess], Iterator[tuple[Host, HostReport]]
        ] = reports_of,
        tasks: bool = True,
    ) -> None:
        self.session = session
        self._hosts = hosts
        self._states = states
        self._ask, self._tasks = ask, tasks
        # When hosts were last asked for a plan.
        self._asked_at = 0.0

    def __enter__(self) -> RdmaEngine:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Log out. Never raises; may be repeated."""
        self.session.close()

    def domains(self, *names: str) -> list[Domain]:
        """Return the NFS domains, or those with these names."""
        return transport.domains_to_verify(read_engine(self.session), names)

    def verify(self, *names: str, data_center: Optional[str] = None) -> Matrix:
        """Return the proven transport of each domain on each host of its data center.
        ``worst`` is OK only if all are as requested: a host without a report is
        UNKNOWN.
        """
        engine = read_engine(self.session)
        chosen = transport.domains_to_verify(engine, names, data_center)
        centers = {domain.data_center for domain in chosen}
        inside = {c.id for c in engine.clusters if c.data_center in centers}
        hosts = [host for host in engine.hosts if host.cluster in inside]
        return transport.verify(engine, self._asked(hosts), chosen)

    def check_hosts(
        self,
        *names: str,
        policy: Union[str, Policy, None] = None,
        policy_file: Optional[str] = None,
        data_center: Optional[str] = None,
    ) -> Matrix:
        """Return for each host what prevents storage over RDMA; without names, of all.
        ``policy`` (or its text) is what they should have, ``policy_file`` is for fixes;
        without it they are compared with each other. Raises PolicyProblem.
        """
        if isinstance(policy, str):
            policy = parse_policy(policy, "the policy").policy
        engine = read_engine(self.session, hooks=True)
        rows = [
            check.row_of(host, report, policy, check.connections_of(engine, host))
            for host, report in self._asked(hosts_named(engine, names, data_center))
        ]
        return check.check(engine, rows, policy, policy_file)

    def push_policy(
        self,
        text: str,
        *names: str,
        where: str = "the policy",
        data_center: Optional[str] = None,
        approve: Approve = always,
        dry_run: bool = False,
    ) -> Optional[policy_push.PolicyPushResult]:
        """Send the policy ``text`` to hosts, and load it there; without names, to all
        that are up. ``where`` names it in messages. ``dry_run``: only ``approve`` gets
        the plan. Raises PolicyProblem with every mistake before any host is asked.
        """
        policy_push.check_policy(text, where)
        engine = read_engine(self.session)
        hosts = [
            host
            for host in hosts_named(engine, names, data_center)
            if names or host.status == "up"
        ]
        access = self._hosts if dry_run else self._access()
        reports = self._stream(hosts) if access else ()
        plan = policy_push.plan_policy_push(hosts, text, where, reports, engine)
        for diagnostic in plan.warnings:
            self.session.listener.note(f"warning: {diagnostic.at(where)}")
        if not hosts and not dry_run:
            return policy_push.PolicyPushResult({})
        if not approve(plan) or dry_run or access is None:
            return None
        title = f"push a policy to {counted(len(hosts), 'host')}"
        resume = (
            "hosts that were in progress have the old or the new policy, the others "
            "keep theirs; policy diff shows which; repeat it to continue"
        )
        with self._task(title, resume) as work:
            result = policy_push.push_policy(
                access, plan, self.session.listener, work.job
            )
            failed = ", ".join(pushed.host for pushed in result.failed)
            good = f"{plan.digest} is on all of them"
            outcome = f"failed on {failed}" if failed else good
            work.sentence, work.succeeded = f"{title}: {outcome}", not failed
        return result

    def compare_policy(
        self,
        text: str,
        *names: str,
        where: str = "the policy",
        data_center: Optional[str] = None,
    ) -> list[policy_push.PolicyDrift]:
        """Compare the policies of hosts with ``text``; without names, of all."""
        policy = parse_policy(text, where).policy
        engine = read_engine(self.session)
        hosts = hosts_named(engine, names, data_center)
        return [
            policy_push.compare(host, report, text, policy, where)
            for host, report in self._asked(hosts)
        ]

    def create_network(
        self, request: create.NetworkRequest, *, approve: Approve = always
    ) -> Optional[create.NetworkMade]:
        """Create a network for IPoIB, with an MTU that the hosts support."""
        engine = read_engine(
            self.session, networks=True, attachments=True, to_change=True
        )
        hosts = hosts_named(engine, request.hosts, request.data_center)
        plan = create.plan_network_create(engine, self._reports(hosts), request)
        if not self._approved(plan, approve):
            return None
        title = f"create network {plan.name}"
        with self._task(title, changes=bool(plan.calls)) as work:
            return create.create_network(self.session, plan, work.listener)

    def attach_network(
        self,
        request: attach.AttachRequest,
        *,
        batch: int = 1,
        keep_going: bool = False,
        approve: Approve = always,
    ) -> Optional[attach.AttachResult]:
        """Attach a network to NICs of hosts, ``batch`` hosts at a time. After a batch
        in which a host failed, no other one is started, unless ``keep_going``.
        """
        engine = read_engine(
            self.session, networks=True, nics=True, attachments=True, to_change=True
        )
        hosts = hosts_named(engine, request.hosts)
        reports = self._reports(hosts)
        plan = attach.plan_network_attach(engine, reports, request)
        if not self._approved(plan, approve):
            return None
        title = f"attach network {plan.network.name}"
        resume = (
            "hosts that were in progress may have the network or not, the others are "
            "unchanged; repeat it to continue"
        )
        with self._task(title, resume, changes=bool(plan.todo)) as work:
            result = attach.attach_network(
                self.session, plan, work.listener, batch=batch, keep_going=keep_going
            )
            work.sentence, work.succeeded = result.summary, result.exit_code == 0
        return result

    def create_domain(
        self, request: DomainRequest, *, approve: Approve = always
    ) -> Optional[DomainMade]:
        """Create a storage domain and prove its transport on the hosts."""
        engine = read_engine(self.session, to_change=True)
        center = data_center_named(engine, request.data_center)
        up = [host for host in engine.hosts_of(center.id) if host.status == "up"]
        plan = plan_domain_create(engine, self._reports(up), request)
        if not self._approved(plan, approve):
            return None
        # A folder of dumps has no newer report.
        newest = None if isinstance(self._hosts, DumpFolder) else self._hosts
        title = f"create domain {plan.name}"
        with self._task(title, changes=not plan.nothing) as work:
            made = create_domain(self.session, newest, plan, work.listener)
            if made.exit_code != 0:
                work.sentence, work.succeeded = f"{title}: {made.summary}", False
        return made

    def convert(
        self,
        name: str,
        *names: str,
        to: str = RDMA,
        rolling: bool = True,
        data_center: Optional[str] = None,
        approve: Approve = always,
        take_over: bool = False,
        dry_run: bool = False,
        **options: Any,
    ) -> Optional[ConversionState]:
        """Convert domains of one data center to a transport, or resume that.

        ``rolling``: host by host while virtual machines run; else the domains are down
        meanwhile. ``options`` are other fields of ConversionRequest. ``take_over`` ends
        the open task of another machine's run. ``dry_run``: only ``approve`` gets the
        plan. The state's ``stage`` is ``converted``, ``rolled back`` or ``stopped``,
        and ``why`` the reason. Raises Refused, ChecksFailed, OtherRun if another run
        changes this data center, and EngineProblem: then the same call resumes it.
        """
        request = ConversionRequest(to, rolling, **options)
        engine = read_engine(self.session, to_change=True)
        each = dict.fromkeys((name, *names))
        domains = list(
            dict.fromkeys(domain_named(engine, one, data_center) for one in each)
        )
        if not all(domain.data_center for domain in domains):
            check_domains(engine, domains, request)
        center = data_center_of(domains[0])
        with self._locked(engine, center, take_over, dry_run) as (states, lock):
            state = conversions.latest_state(states, domains)
            conversions.refuse_other_runs(states, state)
            if state is not None and state.stage not in Stage.FINISHED:
                other_options = conversions.check_resumable(state, domains, request)
                if other_options:
                    self.session.listener.note(other_options)
                state = state.with_batch(request.batch)
                reports = self._stream(engine.hosts_of(center))
                plan = conversions.plan_resume(state, engine, reports, request.without)
                return self._carried_out(plan, approve, lock)
            earlier = conversions.earlier_conversions(states, domains)
            domains = conversions.with_related(
                engine, states, domains, earlier, request.to
            )
            check_domains(engine, domains, request)
            if lock is not None:
                # Before the checks: the other run may have hosts in maintenance.
                lock.check_free([center, *(domain.id for domain in domains)])
            evacuated = engine.hosts_of(center) if request.rolling else ()
            plan = conversions.plan_convert(
                engine,
                domains,
                self._stream(engine.hosts_of(center)),
                request,
                users={} if request.rolling else running_on(self.session, domains),
                pinned=pinned_on(self.session, evacuated),
                earlier=earlier,
                now=time.time(),
            )
            if not plan.steps and not dry_run:
                self._warn(plan)
                return replace(plan.state, stage=Stage.CONVERTED)
            return self._carried_out(plan, approve, lock)

    def revert(
        self,
        name: str,
        *,
        data_center: Optional[str] = None,
        batch: int = 1,
        approve: Approve = always,
        take_over: bool = False,
        dry_run: bool = False,
    ) -> Optional[ConversionState]:
        """Restore what was there before a domain's first conversion, for all domains
        that were converted with it; the domain may have been removed meanwhile. The
        state's ``stage`` is ``reverted`` or ``stopped``. Raises as :meth:`convert`, and
        Refused without a record of it.
        """
        engine = read_engine(self.session, to_change=True)
        domain = self._domain_or_record(engine, name, data_center)
        center = data_center_of(domain)
        with self._locked(engine, center, take_over, dry_run) as (states, lock):
            state = conversions.latest_state(states, [domain])
            if state is None:
                raise refused(
                    "conversion-not-recorded",
                    f"this machine has no record of a conversion of {domain.name}",
                    "revert on the machine and as the user that ran the conversion; or "
                    f"convert it: ovirt-rdma domain convert {shlex.quote(domain.name)} "
                    "--to tcp --rolling",
                )
            conversions.refuse_other_runs(states, state)
            over = state.stage in (Stage.REVERTED, Stage.ROLLED_BACK)
            if over and not conversions.is_converted(state):
                return state
            state = state.with_batch(batch)
            reports = self._stream(engine.hosts_of(center))
            ids = {one.id for one in state.domains}
            its = [d for d in engine.domains if d.id in ids and d.status == "active"]
            users = {} if state.request.rolling else running_on(self.session, its)
            plan = conversions.plan_revert(state, engine, reports, users)
            return self._carried_out(plan, approve, lock)

    def heal(
        self,
        data_center: str,
        *names: str,
        batch: int = 1,
        approve: Approve = always,
        take_over: bool = False,
        dry_run: bool = False,
    ) -> Optional[ConversionState]:
        """Remount the domains of a data center, or those of ``names``, on the hosts
        where they fell back to TCP; or resume that.

        The state has no hosts if there was nothing to do. Raises as :meth:`convert`,
        and ChecksFailed if no host can be healed.
        """
        engine = read_engine(self.session, to_change=True)
        center = data_center_named(engine, data_center).id
        domains = transport.domains_to_verify(engine, names, data_center)
        hosts = engine.hosts_of(center)
        with self._locked(engine, center, take_over, dry_run) as (states, lock):
            named = {d.id for d in domains if names and transport.can_be_healed(d)}
            begun = (s for s in states if s.kind == HEAL)
            begun = (s for s in begun if named <= {d.id for d in s.domains})
            interrupted = next((s for s in begun if s.stage in Stage.UNDER_WAY), None)
            conversions.refuse_other_runs(states, interrupted)
            reports = self._stream(hosts)
            if interrupted is not None:
                interrupted = interrupted.with_batch(batch)
                plan = conversions.plan_resume(interrupted, engine, reports)
                return self._carried_out(plan, approve, lock)
            pinned = pinned_on(self.session, hosts)
            more: Any = {"pinned": pinned, "batch": batch, "now": time.time()}
            plan = conversions.plan_heal(engine, center, domains, reports, **more)
            if not plan.state.hosts and not dry_run:
                refuse_all(plan.warnings)
                return replace(plan.state, stage=Stage.CONVERTED)
            return self._carried_out(plan, approve, lock)

    def prepare_hosts(
        self,
        data_center: str,
        *names: str,
        request: preparation.PreparationRequest,
        variables: Optional[Mapping[str, Any]] = None,
        approve: Approve = always,
        take_over: bool = False,
        dry_run: bool = False,
    ) -> Optional[preparation.PreparationState]:
        """Install and set up the add-on on hosts of a data center, batch by batch, or
        continue that; without names, on all.

        ``variables`` are for the role over SSH. The state has the result of each host;
        after one that failed, the next batch is not started. Raises as
        :meth:`convert`, and ChecksFailed if hosts have to be reinstalled and the engine
        would not run the role, or they cannot go to maintenance.
        """
        engine = read_engine(self.session)
        center = data_center_named(engine, data_center).id
        inside = {host.id for host in engine.hosts_of(center)}
        hosts = [h for h in hosts_named(engine, names) if h.id in inside]
        held = self._locked(engine, center, take_over, dry_run, prepares=True)
        with held as (states, lock):
            conversions.refuse_other_runs(states, None)
            file = self._preparation_file(center)
            earlier = file.read()
            resumed, present = None, engine.hosts_of(center)
            if earlier is not None and earlier.stage == preparation.PREPARING:
                resumed = preparation.continued(
                    earlier, request, hosts, present, self.session.listener
                )
            state = resumed or self._planned(engine, center, hosts, request, earlier)
            if lock is None:
                self._check_moving(engine, present, state)
                approve((state, {host.id: host.status for host in engine.hosts}))
                return None
            over = all(record.stage in preparation.OVER for record in state.hosts)
            try:
                # It ends the job of a run that was interrupted between hosts.
                lock.check_free([center])
            except OtherRun:
                if not over:
                    raise
            if over:
                return state
            self._check_moving(engine, present, state)
            by_engine = any(one.way == preparation.REINSTALL for one in state.hosts)
            if by_engine and (problem := block_problem()):
                raise problem
            if not approve((state, {})):
                return None
            title = f"prepare hosts of {state.name}"
            if self._tasks:
                state = replace(state, job=lock.claim(state, title, [center]))
            with self._paused(
                lock,
                lambda: preparation.interrupted_lines(
                    (file.last or state).of_present(present)
                ),
                f"{title}: ",
            ) as listener:
                access: Any = self._hosts
                given = {**(variables or {}), **SSH_VARIABLES}
                state = preparation.Preparation(
                    session=self.session,
                    file=file,
                    listener=listener,
                    state=state,
                    check=lock.check,
                    access=access,
                    request=request,
                    variables=given,
                ).run()
            if lock.job is not None:
                text = f"{title}: {preparation.sentence(state)}"
                lock.job.finish(text, succeeded=preparation.exit_code(state) == 0)
            return state

    def being_prepared(self, center: Optional[str]) -> set[str]:
        """Return the ids of the hosts of an interrupted preparation of the data center
        with the id ``center``. What cannot be read is none: prepare_hosts says why.
        """
        state = None
        with suppress(Problem):
            state = self._preparation_file(center or "").read()
        begun = state is not None and state.stage == preparation.PREPARING
        return {record.id for record in state.hosts} if state and begun else set()

    def _preparation_file(self, center: str) -> preparation.PreparationFile:
        return preparation.PreparationFile(
            self._states.path_for(preparation.PREPARATION.kind, center)
        )

    def _planned(
        self,
        engine: Engine,
        center: str,
        hosts: Sequence[Host],
        request: preparation.PreparationRequest,
        earlier: Optional[preparation.PreparationState],
    ) -> preparation.PreparationState:
        looks, proven = None, set()
        if self._hosts is not None:
            asked = self._ask(hosts, self._hosts)
            looks = {
                host.name: preparation.look_at(report, request)
                for host, report in asked
            }
        elif request.by == preparation.SSH:
            self._access()
        elif earlier is not None and earlier.digest == request.digest:
            # Without reports, only the run before knows which hosts are prepared.
            over = (preparation.DONE, preparation.NO_HARDWARE)
            proven = {h.id for h in earlier.hosts if h.stage in over}
        return preparation.plan_preparation(
            engine, center, hosts, looks, request, proven=proven
        )

    def _check_moving(
        self,
        engine: Engine,
        present: Sequence[Host],
        state: preparation.PreparationState,
    ) -> None:
        """Raise ChecksFailed if hosts that ``state`` will reinstall cannot go to
        maintenance, as for a conversion. One that has moved some continues.
        """
        moved = {record.id: record.batch for record in state.to_move}
        up = [host for host in present if host.status == "up"]
        going = [host for host in up if host.id in moved]
        if state.in_progress or not going:
            return
        pinned = pinned_on(self.session, going)
        against: list[Sentence] = []
        for number in sorted(set(moved.values())):
            together = [host for host in going if moved[host.id] == number]
            against += moving_offenders(
                engine.clusters, up, together, pinned, state.batch
            )
        refuse_all(against)
        if len(up) == 1:
            self.session.listener.note(f"warning: {only_one(up[0])}")

    def _domain_or_record(
        self, engine: Engine, name: str, data_center: Optional[str]
    ) -> Domain:
        """Return the named domain; for one that was removed, its stored state: its
        hosts, and domains that were converted with it, can still be reverted.
        """
        try:
            return domain_named(engine, name, data_center)
        except NameProblem:
            for center in engine.data_centers:
                for state in self._states.states(center.id):
                    for one in state.domains if state.kind == CONVERT else ():
                        if name in (one.name, one.id):
                            return Domain(one.id, one.name, "data", "nfs", center.id)
            raise

    @contextmanager
    def _locked(
        self,
        engine: Engine,
        center: str,
        take_over: bool,
        dry_run: bool,
        *,
        prepares: bool = False,
    ) -> Iterator[tuple[list[ConversionState], Optional[DataCenterLock]]]:
        """Hold this machine's lock; yield the states of a data center, with present
        names, and the engine's lock. A dry run has no locks. ``prepares``: it may
        continue another.
        """
        lock = None
        with ExitStack() as held:
            if not dry_run:
                held.enter_context(self._states.only_run(center))
            states = [
                conversions.renamed(state, engine)
                for state in self._states.states(center)
            ]
            if not dry_run:
                jobs = [s.job for s in states if s.stage not in Stage.FINISHED]
                earlier = self._preparation_file(center).read()
                if earlier is not None and earlier.stage == preparation.PREPARING:
                    earlier = earlier.of_present(engine.hosts_of(center))
                    if earlier.in_progress and not prepares:
                        preparation.refuse_others(earlier)
                    # One between hosts changes nothing: its job may be ended.
                    jobs += [earlier.job] if earlier.in_progress else []
                owner = self._states.owner()
                lock = DataCenterLock(self.session, owner, jobs, take_over=take_over)
            yield states, lock

    @contextmanager
    def _paused(
        self, lock: DataCenterLock, lines: Callable[[], Sequence[str]], title: str = ""
    ) -> Iterator[Listener]:
        """Yield the listener of a run with the job of its lock. After an interrupt,
        ``lines`` say how to resume it, and the job stays open, so that no other run
        starts.
        """
        job, listener = lock.job, self.session.listener
        try:
            yield Listeners(listener, job) if job else listener
        except BaseException as error:
            sentences = lines()
            for sentence_ in sentences:
                listener.note(sentence_)
            if job is not None and not isinstance(error, OtherRun):
                patience_s = END_S if isinstance(error, Problem) else 0.0
                text = f"{title}interrupted; {'; '.join(sentences)}"
                job.leave_open(text, patience_s=patience_s)
            raise

    def _carried_out(
        self,
        plan: conversions.ConversionPlan,
        approve: Approve,
        lock: Optional[DataCenterLock],
    ) -> Optional[ConversionState]:
        state = plan.state
        if lock is None:
            approve(plan)
            return None
        access = self._access()
        if state.stage in Stage.UNDER_WAY:
            lock.check_free(conversions.concerned(state))
        if not self._approved(plan, approve):
            return None
        if self._tasks:
            about = conversions.concerned(state)
            state = replace(
                state, job=lock.claim(state, conversions.task_title(state), about)
            )
        file, job = self._states.file_for(state), lock.job
        with self._paused(
            lock, lambda: conversions.interrupted_lines(file.last or state)
        ) as listener:
            fresh = time.monotonic() - self._asked_at <= FRESH_S
            observed = plan.observed if fresh else {}
            state = ConversionRun(
                session=self.session,
                file=file,
                listener=listener,
                state=state,
                check=lock.check,
                access=access,
                observed=observed,
            ).run()
        succeeded = conversions.exit_code(state) == 0
        if state.kind != HEAL and state.stage not in Stage.FINISHED:
            # Only this machine knows about an incomplete conversion: the next one of
            # another machine would take what it left for the baseline.
            if job is not None:
                job.leave_open(conversions.sentence(state))
        elif job is not None:
            job.finish(conversions.sentence(state), succeeded=succeeded)
        elif state.job is not None:
            # An earlier run of this conversion has left it open.
            try:
                if is_open(self.session, state.job):
                    end_job(self.session, state.job, succeeded=succeeded)
            except EngineProblem as problem:
                self.session.listener.note(problem.one_line)
        return state

    def _approved(self, plan: Any, approve: Approve) -> bool:
        self._warn(plan)
        return approve(plan)

    def _warn(self, plan: Any) -> None:
        for warning in plan.warnings:
            self.session.listener.note(f"warning: {warning}")

    def _task(
        self, title: str, resume: str = "repeat it to continue", *, changes: bool = True
    ) -> AbstractContextManager[Task]:
        wanted = changes and self._tasks
        return task(self.session, title, resume=resume, wanted=wanted)

    def _access(self) -> HostAccess:
        if self._hosts is None:
            raise Refused([NO_ACCESS[0]], NO_ACCESS[1])
        return self._hosts

    def _asked(self, hosts: Sequence[Host]) -> Iterator[tuple[Host, HostReport]]:
        if self._hosts is None:
            return ((host, transport.no_report(host)) for host in hosts)
        return self._ask(hosts, self._hosts)

    def _stream(self, hosts: Sequence[Host]) -> Iterator[HostReport]:
        self._asked_at = time.monotonic()
        return (report for _, report in self._ask(hosts, self._access()))

    def _reports(self, hosts: Sequence[Host]) -> dict[str, HostReport]:
        return {host.name: report for host, report in self._asked(hosts)}


# What hosts reported for the plan is good for the first of them so long, with the
# question; a push waits longer for another run on the host.
FRESH_S = 10.0
