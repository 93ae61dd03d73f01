# SPDX-License-Identifier: GPL-2.0-or-later
"""Describe the steps of a run on hosts, a conversion or a preparation, as data, with
their requests to the engine. All but the waiting is pure.

Waiting for a host on its way to maintenance, or out of it, is here too. Evacuation and
activation are judged with the engine's events, because the host's status does not show
if they have failed or are really complete.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Callable, Optional, Union

from ovirt_rdma.engine_sdk_tools.api.request import Call, Listener, Read, types
from ovirt_rdma.engine_sdk_tools.api.session import (
    DETECTED,
    Session,
    events_since,
    newest_event,
    reasons,
)
from ovirt_rdma.engine_sdk_tools.conversion.model import (
    ConversionState,
    DomainRecord,
    HostRecord,
    Stage,
)
from ovirt_rdma.engine_sdk_tools.model import (
    BROKEN,
    BROKEN_IN_S,
    BROKEN_OUT_S,
    Cluster,
    Named,
    host_is,
    status_words,
)
from ovirt_rdma.host.policy.load import NO_FILES, PolicyFiles

# An evacuation migrates all virtual machines, some at a time; one without progress is
# given up sooner.
ENTER_S = 4 * 3600.0
# Host activation connects all storage; the engine gives VDSM 180 s per domain. The wait
# for a host that is shown as up is limited by SETTLE_S.
LEAVE_S = 3600.0
# The interval of notes that a wait continues; they also show that the run is alive.
STILL_S = 300.0
# What ends a wait for a host on its way in, and on its way out.
IN = ("maintenance", "up", "non_operational", "down")
OUT = ("up", "non_operational", "install_failed", "error", "maintenance")

# An evacuation without progress is cancelled after this time: the engine retries it
# every 300 s (HostPreparingForMaintenanceIdleTime), so five times.
STUCK_S = 1500.0
# A transfer of a disk image also keeps a host from maintenance, without a virtual
# machine on it (VirtMonitoringStrategy.java:69-75); only engine.log shows it.
IN_USE_S = 7200.0
# GENERIC_ERROR_MESSAGE: the event of a refused deactivation, also for the engine's own
# retries (MaintenanceNumberOfVdssCommand.java:447-458).
NOT_TO_MAINTENANCE = 14001
# The status up is shown before the storage is connected, which takes up to 180 s per
# domain (vdsTimeout); after this time the wait ends even without the engine's event.
SETTLE_S = 1800.0


# Of the SDK's object and its status: why the wait has failed, "" for done, None for not
# yet.
Test = Callable[[Any, Optional[str]], Optional[str]]


def wait_until(
    session: Session,
    listener: Listener,
    read: Read,
    timeout_s: float,
    test: Test,
    *,
    host: str = "",
    entering: bool = False,
) -> str:
    """Wait until ``test`` of the object and its status is not None; return that. A
    ``host`` with this name is not waited for if it is broken for too long.
    """
    began = noted = well = session.clock()
    limit_s = BROKEN_IN_S if entering else BROKEN_OUT_S

    def arrived(resource: Any) -> Optional[str]:
        nonlocal noted, well
        now = session.clock()
        status = resource.status.value if resource.status else None
        if not host or not host_is(status, BROKEN):
            well = now
        elif now - well >= limit_s:
            shown = status_words(status)
            return f"{host} has been {shown} for {limit_s / 60:.0f} minutes"
        if now - noted >= STILL_S:
            noted = now
            minutes = f"{(now - began) / 60:.0f} minutes"
            listener.note(f"still {read.doing}, for {minutes}")
        return test(resource, status)

    return str(session.wait_until(read, arrived, read.doing, timeout_s))


def wait_until_in(
    session: Session, listener: Listener, name: str, read: Read, after: int
) -> str:
    """Wait until the host with this name is in maintenance, or no longer on the way
    there; return why it is not evacuated, "" if it is. ``after`` is the id of the
    newest event before the request.

    An evacuation makes progress while a virtual machine migrates or their number falls.
    A failed migration does not end it, because the engine retries by itself.
    """
    after = after or newest_event(session)
    before: Optional[int] = None
    since = session.clock()

    def test(host: Any, status: Optional[str]) -> Optional[str]:
        nonlocal before, since
        if status != "preparing_for_maintenance":
            return "" if status in IN else None
        left = (host.summary.total or 0) if host.summary else 0
        migrating = (host.summary.migrating or 0) if host.summary else 0
        now = session.clock()
        if left != before or migrating:
            before, since = left, now
        if now - since < (STUCK_S if left else IN_USE_S):
            return None
        minutes = f"{(now - since) / 60:.0f} minutes"
        if not left:
            return (
                f"{name} is not evacuated: no virtual machine is left on it, but the "
                f"engine has kept it in use for {minutes}: an image transfer (upload, "
                "download, backup) may be running"
            )
        events = events_since(session, after)
        # A refused deactivation does not name its host.
        texts = reasons(events, read.path.rpartition("/")[2]) or [
            str(event.description)
            for event in events
            if event.code == NOT_TO_MAINTENANCE and event.description
        ]
        reason = f"says: {texts[-1]}" if texts else "gives no reason"
        machines = f"{left} virtual machine{'s' * (left != 1)}"
        return (
            f"{name} is not evacuated: {machines} stayed on it for {minutes}; the "
            f"engine {reason}"
        )

    return wait_until(session, listener, read, ENTER_S, test, host=name, entering=True)


def wait_until_out(
    session: Session,
    listener: Listener,
    name: str,
    read: Read,
    after: Optional[int],
) -> str:
    """Wait until the host with this name is up with its storage connected, or has
    failed; return why it is not waited for, "" if it has arrived. ``after`` is the id
    of the newest event before its activation, None if we did not activate it.
    """
    up_since: Optional[float] = None

    def test(_: Any, status: Optional[str]) -> Optional[str]:
        nonlocal up_since
        if status == "up" and after is not None:
            events = events_since(session, after, read.path.rpartition("/")[2])
            up_since = session.clock() if up_since is None else up_since
            late = session.clock() - up_since >= SETTLE_S
            if not late and all(event.code != DETECTED for event in events):
                return None
        return "" if status in OUT else None

    return wait_until(session, listener, read, LEAVE_S, test, host=name)


# A deactivation first writes the OVF store, then all hosts unmount the domain.
DOMAIN_S = 1800.0


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
    # oVirt's role cluster_upgrade and we keep off each other.
    CALL = "call"
    BEGIN_UPGRADE = "begin upgrade"
    END_UPGRADE = "end upgrade"
    FINISH = "finish"

    ORDER = (MARK, FAIL, PUSH, ENTER, WAIT_IN, LEAVE, WAIT_OUT, LOOK)


@dataclass(frozen=True)
class RunStep:
    """One step of a run.

    - ``subject``: the host, or with ``of_domain`` the domain or the cluster.
    - ``doing``: what the step does ("moving host01 to maintenance").
    - ``before``, ``after``: the stage of the subject that is stored before and after
      the step; "" for no change.
    - ``until``: the statuses that end a wait, and the first that a request aims at;
      ``path`` and ``timeout_s`` belong to a wait. ``options``: mount options that are
      set.
    - ``why``: the reason of a failure.
    - ``hosts``: those of a step on several, as all that are asked together.
    - ``marks``: changes of the record of a host that is prepared.
    - ``forget``: whose observations are outdated then: the host's name, or ``all``.
    """

    kind: str
    subject: str
    doing: str = ""
    call: Optional[Call] = None
    policy: PolicyFiles = NO_FILES
    before: str = ""
    after: str = ""
    until: tuple[str, ...] = ()
    path: str = ""
    timeout_s: float = 0.0
    why: str = ""
    hosts: tuple[str, ...] = ()
    forget: str = ""
    of_domain: bool = False
    options: Optional[str] = None
    marks: Optional[Mapping[str, object]] = None

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
    return RunStep(kind, host.name, doing, until=until, forget=host.name, **more)


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


def mark(record: Union[HostRecord, DomainRecord], stage: str, why: str = "") -> RunStep:
    """Store the stage of a host or a domain."""
    of_domain = isinstance(record, DomainRecord)
    return RunStep(Kind.MARK, record.name, after=stage, why=why, of_domain=of_domain)


def fail(record: Union[HostRecord, DomainRecord], why: str) -> RunStep:
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


def upgrade(cluster: Cluster, *, begins: bool) -> RunStep:
    """Set the flag of a cluster, as oVirt's role cluster_upgrade does, or clear it."""
    call = upgrade_call(cluster, begins=begins)
    kind = Kind.BEGIN_UPGRADE if begins else Kind.END_UPGRADE
    return RunStep(kind, cluster.name, call.doing, call, of_domain=True)


def upgrade_call(cluster: Cluster, *, begins: bool) -> Call:
    """Return the request that sets or clears the flag of a cluster. The engine clears
    it whoever has set it.
    """
    actions = types.ClusterUpgradeAction
    doing = f"ending the mark of cluster {cluster.name}"
    if begins:
        doing = f"marking cluster {cluster.name} as being upgraded"
    words = {
        "upgrade_action": actions.START if begins else actions.FINISH,
        "correlation_id": cluster.our_upgrade,
    }
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
        timeout_s=DOMAIN_S,
        forget="all",
        of_domain=True,
    )


def deactivate(state: ConversionState, domain: DomainRecord) -> RunStep:
    """Move a domain to maintenance: all hosts unmount it."""
    doing, stage = f"moving {domain.name} to maintenance", Stage.ENTERING
    return _of_attached(
        state, domain, doing, "maintenance", method="deactivate", before=stage
    )


def activate(state: ConversionState, domain: DomainRecord) -> RunStep:
    """Activate a domain: all hosts mount it."""
    doing, stage = f"activating {domain.name}", Stage.LEAVING
    return _of_attached(state, domain, doing, "active", method="activate", before=stage)


def wait_domain(
    state: ConversionState, domain: DomainRecord, wanted: str, *others: str
) -> RunStep:
    """Wait until a domain has the status ``wanted`` or one of ``others``."""
    shown = "in maintenance" if wanted == "maintenance" else wanted
    doing = f"waiting for {domain.name} to be {shown}"
    return _of_attached(state, domain, doing, wanted, *others)
