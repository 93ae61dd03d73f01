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
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Callable, Optional

from ovirt_rdma.engine_sdk_tools.api.engine_session import EngineSession
from ovirt_rdma.engine_sdk_tools.api.progress import Listener, NoProgress
from ovirt_rdma.engine_sdk_tools.api.session import Session
from ovirt_rdma.engine_sdk_tools.api.settings import Flags, from_sources, state_folder
from ovirt_rdma.engine_sdk_tools.conversion.lock import (
    DataCenterLock,
    OtherRun,
    check_resumable,
    concerned,
    earlier_conversions,
    is_converted,
    latest_state,
    refuse_other_runs,
    with_related,
)
from ovirt_rdma.engine_sdk_tools.conversion.model import (
    CONVERTED,
    FINISHED,
    RDMA,
    REVERTED,
    ROLLED_BACK,
    UNDER_WAY,
    ConversionState,
)
from ovirt_rdma.engine_sdk_tools.conversion.observation import pinned_on, running_on
from ovirt_rdma.engine_sdk_tools.conversion.plan import (
    ConversionPlan,
    plan_convert,
    plan_resume,
    plan_revert,
)
from ovirt_rdma.engine_sdk_tools.conversion.preflight import (
    ConversionRequest,
    check_domains,
    data_center_of,
)
from ovirt_rdma.engine_sdk_tools.conversion.run import carry_out
from ovirt_rdma.engine_sdk_tools.conversion.state_file import StateFolder
from ovirt_rdma.engine_sdk_tools.conversion.transitions import renamed
from ovirt_rdma.engine_sdk_tools.domains.create import DomainMade, create_domain
from ovirt_rdma.engine_sdk_tools.domains.create_plan import (
    DomainRequest,
    plan_domain_create,
)
from ovirt_rdma.engine_sdk_tools.domains.list import (
    DomainRow,
    domain_rows,
    domains_to_verify,
)
from ovirt_rdma.engine_sdk_tools.domains.transport import (
    matrix_of,
    no_report,
)
from ovirt_rdma.engine_sdk_tools.domains.transport import row_of as transports_on
from ovirt_rdma.engine_sdk_tools.fleet import check
from ovirt_rdma.engine_sdk_tools.fleet.policy_push import (
    PolicyPushResult,
    plan_policy_push,
    push_policy,
)
from ovirt_rdma.engine_sdk_tools.hosts.ansible import AnsibleHosts
from ovirt_rdma.engine_sdk_tools.hosts.inventory import Access, default_key
from ovirt_rdma.engine_sdk_tools.hosts.report import HostAccess, HostReport, reports_of
from ovirt_rdma.engine_sdk_tools.job import EngineJob, Listeners
from ovirt_rdma.engine_sdk_tools.matrix import Matrix
from ovirt_rdma.engine_sdk_tools.model import Domain, Engine, Host
from ovirt_rdma.engine_sdk_tools.names import (
    data_center_named,
    domain_named,
    hosts_named,
)
from ovirt_rdma.engine_sdk_tools.networks.create import NetworkMade, create_network
from ovirt_rdma.engine_sdk_tools.networks.create_plan import (
    NetworkRequest,
    plan_network_create,
)
from ovirt_rdma.engine_sdk_tools.preparation.state_file import refuse_preparation
from ovirt_rdma.engine_sdk_tools.reader import read_engine
from ovirt_rdma.engine_sdk_tools.refusals import Refused
from ovirt_rdma.host.errors import Problem, Sentence
from ovirt_rdma.host.policy.load import parse_policy

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

    What is not given comes from the environment (OVIRT_URL, OVIRT_USERNAME,
    OVIRT_PASSWORD, OVIRT_CAFILE). ``hosts`` is how hosts are asked; without it, over
    SSH with the engine's own key if we can read that, else they are unknown.
    ``listener`` gets the progress and notes. Raises Problem if no engine is named.
    """
    flags = Flags(engine_url=url, username=username, password=password, ca_file=ca_file)
    session = Session(from_sources(flags, os.environ))
    session.listener = listener or NoProgress()
    key = default_key()
    if hosts is None and key is not None:
        hosts = AnsibleHosts(Access(key=key))
    states = StateFolder(Path(state_folder(os.environ, os.geteuid())))
    return RdmaEngine(session, hosts, states, close=session.close)


@dataclass
class _Task:
    """``failed`` are the hosts on which it has failed, "" for none."""

    job: EngineJob
    listener: Listener
    failed: str = ""


class RdmaEngine:
    """One engine with its hosts; :func:`connect` makes it.

    ``states`` is the folder in which conversions are recorded: the one of the command
    ``ovirt-rdma``, so that either resumes and reverts what the other has started.
    """

    def __init__(
        self,
        session: EngineSession,
        hosts: Optional[HostAccess],
        states: StateFolder,
        close: Callable[[], None] = lambda: None,
    ) -> None:
        self.session = session
        self._hosts = hosts
        self._states = states
        self._close = close

    def __enter__(self) -> RdmaEngine:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()

    def close(self) -> None:
        """Log out. Never raises; may be repeated."""
        self._close()

    def domains(self, *names: str) -> tuple[DomainRow, ...]:
        """Return the NFS domains, or those with these names, with the transport that is
        requested and in use (``asked``, ``in_use``: hosts by transport).
        """
        engine = read_engine(self.session)
        chosen = domains_to_verify(engine, names)
        return domain_rows(engine, chosen, self._asked(engine.hosts))

    def verify(self, *names: str) -> Matrix:
        """Return the proven transport of each domain on each host. ``worst`` is OK only
        if all are as requested: a host without a report is UNKNOWN.
        """
        engine = read_engine(self.session)
        chosen = domains_to_verify(engine, names)
        rows = [
            (host, transports_on(engine, host, report, chosen))
            for host, report in self._asked(engine.hosts)
        ]
        return matrix_of(engine, rows, chosen)

    def check_hosts(self, *names: str, policy: Optional[str] = None) -> Matrix:
        """Return for each host what prevents storage over RDMA; without names, of all.

        ``policy`` is the text of the policy that they should have; without it they are
        compared with each other. Raises PolicyProblem.
        """
        text = None if policy is None else parse_policy(policy, "the policy").policy
        engine = read_engine(self.session, hooks=True)
        wanted = check.Wanted(text, {})
        rows = [
            check.row_of(host, report, wanted, check.connections_of(engine, host))
            for host, report in self._asked(hosts_named(engine, names))
        ]
        return check.check(engine, rows, wanted)

    def push_policy(
        self, text: str, *names: str, approve: Approve = always
    ) -> Optional[PolicyPushResult]:
        """Send the policy ``text`` to hosts, and load it there; without names, to all
        that are up. Raises PolicyProblem with every mistake before any host is asked.
        """
        engine = read_engine(self.session)
        hosts = [
            host for host in hosts_named(engine, names) if names or host.status == "up"
        ]
        access = self._access()
        plan = plan_policy_push(
            hosts, text, "the policy", self._stream(hosts) or (), engine
        )
        if not approve(plan):
            return None
        with self._task(f"push a policy to {len(hosts)} hosts") as task:
            result = push_policy(access, plan, self.session.listener, task.job)
            task.failed = ", ".join(pushed.host for pushed in result.failed)
        return result

    def create_network(
        self, request: NetworkRequest, *, approve: Approve = always
    ) -> Optional[NetworkMade]:
        """Create a network for IPoIB, with an MTU that the hosts support."""
        engine = read_engine(self.session, networks=True, attachments=True)
        center = data_center_named(engine, request.data_center)
        reports = self._reports(engine.hosts_of(center.id))
        plan = plan_network_create(engine, reports, request)
        if not approve(plan):
            return None
        with self._task(f"create network {plan.name}") as task:
            return create_network(self.session, plan, task.listener)

    def create_domain(
        self, request: DomainRequest, *, approve: Approve = always
    ) -> Optional[DomainMade]:
        """Create a storage domain and prove its transport on the hosts."""
        engine = read_engine(self.session)
        center = data_center_named(engine, request.data_center)
        up = [host for host in engine.hosts_of(center.id) if host.status == "up"]
        plan = plan_domain_create(engine, self._reports(up), request)
        if not approve(plan):
            return None
        with self._task(f"create domain {plan.name}") as task:
            return create_domain(self.session, self._hosts, plan, task.listener)

    def convert(
        self,
        name: str,
        *names: str,
        to: str = RDMA,
        rolling: bool = True,
        approve: Approve = always,
        take_over: bool = False,
        **options: Any,
    ) -> Optional[ConversionState]:
        """Convert domains of one data center to a transport, or resume that.

        ``rolling``: host by host while virtual machines run; else the domains are down
        meanwhile. ``options`` are other fields of ConversionRequest. ``take_over`` ends
        the open task of another machine's run. The state's ``stage`` is ``converted``,
        ``rolled back`` or ``stopped``, and ``why`` the reason. Raises Refused,
        ChecksFailed, OtherRun if another run changes this data center, and
        EngineProblem: then the same call resumes it.
        """
        request = ConversionRequest(to, rolling, **options)
        engine = read_engine(self.session)
        domains = [domain_named(engine, name) for name in dict.fromkeys((name, *names))]
        if not all(domain.data_center for domain in domains):
            check_domains(engine, domains, request)
        center = data_center_of(domains[0])
        with self._states.only_run(center):
            states, lock = self._recorded(engine, center, take_over)
            state = latest_state(states, domains)
            refuse_other_runs(states, state)
            if state is not None and state.stage not in FINISHED:
                check_resumable(state, domains, request)
                state = replace(state, batch=request.batch)
                reports = self._stream(engine.hosts_of(center))
                plan = plan_resume(state, engine, reports, request.without)
                return self._carried_out(plan, lock, approve)
            earlier = earlier_conversions(states, domains)
            domains = with_related(engine, states, domains, earlier, to)
            check_domains(engine, domains, request)
            lock.check_free([center, *(domain.id for domain in domains)])
            plan = self._planned(engine, domains, request, earlier)
            if not plan.steps:
                return replace(plan.state, stage=CONVERTED)
            return self._carried_out(plan, lock, approve)

    def revert(
        self, name: str, *, approve: Approve = always, take_over: bool = False
    ) -> Optional[ConversionState]:
        """Restore what was there before a domain's first conversion, for all domains
        that were converted with it. The state's ``stage`` is ``reverted`` or
        ``stopped``. Raises as :meth:`convert`, and Refused without a record of it.
        """
        engine = read_engine(self.session)
        domain = domain_named(engine, name)
        center = data_center_of(domain)
        with self._states.only_run(center):
            states, lock = self._recorded(engine, center, take_over)
            state = latest_state(states, [domain])
            if state is None:
                why = f"no conversion of {domain.name} is recorded on this machine"
                raise Refused(
                    [Sentence("conversion-not-recorded", why)],
                    "revert on the machine and as the user that ran the conversion",
                )
            refuse_other_runs(states, state)
            if state.stage in (REVERTED, ROLLED_BACK) and not is_converted(state):
                return state
            reports = None if state.blind else self._stream(engine.hosts_of(center))
            plan = plan_revert(state, engine, reports)
            return self._carried_out(plan, lock, approve)

    def _recorded(
        self, engine: Engine, center: str, take_over: bool
    ) -> tuple[list[ConversionState], DataCenterLock]:
        states = [renamed(state, engine) for state in self._states.states(center)]
        refuse_preparation(self._states, center)
        owner = self._states.owner()
        lock = DataCenterLock(self.session, owner, states, take_over=take_over)
        return states, lock

    def _planned(
        self,
        engine: Engine,
        domains: Sequence[Domain],
        request: ConversionRequest,
        earlier: Sequence[ConversionState],
    ) -> ConversionPlan:
        hosts = engine.hosts_of(str(domains[0].data_center))
        return plan_convert(
            engine,
            domains,
            self._stream(hosts),
            request,
            users={} if request.rolling else running_on(self.session, domains),
            pinned=pinned_on(self.session, hosts if request.rolling else ()),
            earlier=earlier,
            now=time.time(),
        )

    def _carried_out(
        self, plan: ConversionPlan, lock: DataCenterLock, approve: Approve
    ) -> Optional[ConversionState]:
        state = plan.state
        if state.stage in UNDER_WAY:
            lock.check_free(concerned(state))
        if not approve(plan):
            return None
        access = None if state.blind else self._access()
        state = replace(state, job=lock.take(state))
        job, listener = lock.job, self.session.listener
        if job is not None:
            listener = Listeners(listener, job)
        keeper = self._states.file_for(state)
        try:
            state = carry_out(self.session, access, state, keeper, listener, lock=lock)
        except BaseException as error:
            # The task stays open, so that no other run starts meanwhile.
            if job is not None and not isinstance(error, OtherRun):
                job.leave_open("interrupted; the same call resumes it")
            raise
        if job is not None:
            sentence = f"{job.description}: {state.stage}"
            sentence += f": {state.why}" if state.why else ""
            if state.stage in FINISHED:
                good = state.stage in (CONVERTED, REVERTED)
                job.finish(sentence, succeeded=good)
            else:
                job.leave_open(sentence)
        return state

    @contextmanager
    def _task(self, title: str) -> Iterator[_Task]:
        """Show a job among the engine's tasks while it is done."""
        job = EngineJob(self.session, f"ovirt-rdma: {title}")
        task = _Task(job, Listeners(self.session.listener, job))
        try:
            yield task
        except BaseException as error:
            why = error.one_line if isinstance(error, Problem) else "interrupted"
            job.finish(f"{title}: {why}", succeeded=False)
            raise
        result = f"failed on {task.failed}" if task.failed else "done"
        job.finish(f"{title}: {result}", succeeded=not task.failed)

    def _access(self) -> HostAccess:
        if self._hosts is None:
            raise Refused(
                [Sentence("hosts-no-access", "there is no access to the hosts")],
                "give connect() a hosts=, for example AnsibleHosts(Access(key=FILE))",
            )
        return self._hosts

    def _asked(self, hosts: Sequence[Host]) -> Iterator[tuple[Host, HostReport]]:
        if self._hosts is None:
            return ((host, no_report(host)) for host in hosts)
        return reports_of(hosts, self._hosts)

    def _stream(self, hosts: Sequence[Host]) -> Optional[Iterator[HostReport]]:
        if self._hosts is None:
            return None
        return (report for _, report in reports_of(hosts, self._hosts))

    def _reports(self, hosts: Sequence[Host]) -> dict[str, HostReport]:
        return {host.name: report for host, report in self._asked(hosts)}
