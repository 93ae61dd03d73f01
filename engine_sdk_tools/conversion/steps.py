# SPDX-License-Identifier: GPL-2.0-or-later
"""Describe the steps of a conversion as data, with their requests to the engine.

Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Optional

from ovirt_rdma.engine_sdk_tools.api.request import Call
from ovirt_rdma.engine_sdk_tools.api.sdk import types
from ovirt_rdma.engine_sdk_tools.conversion.model import (
    ENTERING,
    LEAVING,
    TODO,
    ConversionState,
    DomainRecord,
    HostRecord,
)
from ovirt_rdma.engine_sdk_tools.model import Cluster
from ovirt_rdma.host.policy.drop_ins import NO_FILES, PolicyFiles

# Kinds of steps, in the order in which a batch does them.
MARK = "mark"
FAIL = "fail"
PUSH = "push"
ENTER = "enter"
WAIT_IN = "wait in"
LEAVE = "leave"
WAIT_OUT = "wait out"
LOOK = "look"
# Not of a host. BEGIN_UPGRADE and END_UPGRADE set and clear the flag with which oVirt's
# role cluster_upgrade and we keep off each other.
CALL = "call"
BEGIN_UPGRADE = "begin upgrade"
END_UPGRADE = "end upgrade"
FINISH = "finish"

ORDER = (MARK, FAIL, PUSH, ENTER, WAIT_IN, LEAVE, WAIT_OUT, LOOK)

# An evacuation migrates all virtual machines, some at a time; one without progress is
# cancelled sooner (see Evacuation).
ENTER_S = 4 * 3600.0
# Host activation connects all storage; the engine gives VDSM 180 s per domain. The wait
# for a host that is shown as up is limited by host_step.SETTLE_S.
LEAVE_S = 3600.0
# A deactivation first writes the OVF store, then all hosts unmount the domain.
DOMAIN_S = 1800.0


@dataclass(frozen=True)
class ConversionStep:
    """One step of a conversion.

    - ``subject``: the host, or with ``of_domain`` the domain or the cluster.
    - ``doing``: what the step does ("moving host01 to maintenance").
    - ``before``, ``after``: the stage of the subject that is stored before and after
      the step; "" for no change.
    - ``until``: the statuses that end a wait; ``path`` and ``timeout_s`` belong to it.
    - ``why``: the reason of a failure.
    - ``hosts``: hosts to ask for a report.
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

    @property
    def changes(self) -> bool:
        """Whether it changes something in the engine or on a host."""
        return self.call is not None or self.kind == PUSH


def enter(host: HostRecord) -> ConversionStep:
    """Move a host to maintenance: its virtual machines leave, its mounts end."""
    return ConversionStep(
        ENTER,
        host.name,
        f"moving {host.name} to maintenance",
        Call(
            f"hosts/{host.id}",
            "deactivate",
            f"moving {host.name} to maintenance",
            {"reason": "ovirt-rdma remounts its storage"},
            subject=host.name,
        ),
        before=ENTERING,
        forget=host.name,
    )


def wait_in(host: HostRecord) -> ConversionStep:
    """Wait until a host is in maintenance, or no longer on the way there."""
    return ConversionStep(
        WAIT_IN,
        host.name,
        f"waiting for {host.name} to be in maintenance",
        until=("maintenance", "up", "non_operational", "down"),
        path=f"hosts/{host.id}",
        timeout_s=ENTER_S,
        forget=host.name,
    )


def leave(host: HostRecord) -> ConversionStep:
    """Activate a host: it connects its storage."""
    return ConversionStep(
        LEAVE,
        host.name,
        f"activating {host.name}",
        Call(
            f"hosts/{host.id}", "activate", f"activating {host.name}", subject=host.name
        ),
        before=LEAVING,
        forget=host.name,
    )


def cancel_enter(host: HostRecord) -> ConversionStep:
    """Activate a host that is not in maintenance yet: its mounts are unchanged."""
    return replace(leave(host), before=TODO)


def wait_out(host: HostRecord) -> ConversionStep:
    """Wait until a host is up with its storage connected, or has failed."""
    return ConversionStep(
        WAIT_OUT,
        host.name,
        f"waiting for {host.name} to be up",
        until=("up", "non_operational", "install_failed", "error", "maintenance"),
        path=f"hosts/{host.id}",
        timeout_s=LEAVE_S,
        forget=host.name,
    )


def look(*hosts: HostRecord) -> ConversionStep:
    """Get the reports of hosts."""
    names = tuple(host.name for host in hosts)
    shown = names[0] if len(names) == 1 else f"{len(names)} hosts"
    return ConversionStep(LOOK, names[0], f"asking {shown}", hosts=names)


def push(host: HostRecord, policy: PolicyFiles) -> ConversionStep:
    """Push a policy to a host and load it there; no files remove its policy."""
    removing = policy == NO_FILES
    action = "removing the policy from" if removing else "pushing the policy to"
    doing = f"{action} {host.name}"
    return ConversionStep(PUSH, host.name, doing, policy=policy, forget=host.name)


def mark(host: HostRecord, stage: str, why: str = "") -> ConversionStep:
    """Store the stage of a host."""
    return ConversionStep(MARK, host.name, after=stage, why=why)


def fail(host: HostRecord, why: str) -> ConversionStep:
    """Fail because of the present state of a host."""
    return ConversionStep(FAIL, host.name, why=why)


def mark_domain(domain: DomainRecord, stage: str) -> ConversionStep:
    """Store the stage of a domain."""
    return ConversionStep(MARK, domain.name, after=stage, of_domain=True)


def fail_domain(domain: DomainRecord, why: str) -> ConversionStep:
    """Fail because of the present state of a domain, or of the whole."""
    return ConversionStep(FAIL, domain.name, why=why, of_domain=True)


def set_row(domain: DomainRecord, options: str, *, force: bool) -> ConversionStep:
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
    return ConversionStep(
        CALL,
        domain.name,
        doing,
        Call(
            f"storageconnections/{domain.connection}",
            "update",
            doing,
            {
                "connection": types.StorageConnection(**row),
                **({"force": True} if force else {}),
            },
            subject=domain.name,
        ),
        of_domain=True,
    )


def begin_upgrade(cluster: Cluster) -> ConversionStep:
    """Set the flag of a cluster, as oVirt's role cluster_upgrade does."""
    return _upgrade(cluster, BEGIN_UPGRADE)


def end_upgrade(cluster: Cluster) -> ConversionStep:
    """Clear the flag of a cluster."""
    return _upgrade(cluster, END_UPGRADE)


def _upgrade(cluster: Cluster, kind: str) -> ConversionStep:
    call = upgrade_call(cluster, begins=kind == BEGIN_UPGRADE)
    return ConversionStep(kind, cluster.name, call.doing, call, of_domain=True)


def upgrade_call(cluster: Cluster, *, begins: bool) -> Call:
    """Return the request that sets or clears the flag of a cluster. The engine clears
    it whoever has set it.
    """
    actions = types.ClusterUpgradeAction
    doing = f"ending the mark of cluster {cluster.name}"
    if begins:
        doing = f"marking cluster {cluster.name} as being upgraded"
    return Call(
        f"clusters/{cluster.id}",
        "upgrade",
        doing,
        {
            "upgrade_action": actions.START if begins else actions.FINISH,
            "correlation_id": cluster.our_upgrade,
        },
        subject=cluster.name,
    )


def deactivate(state: ConversionState, domain: DomainRecord) -> ConversionStep:
    """Move a domain to maintenance: all hosts unmount it."""
    doing = f"moving {domain.name} to maintenance"
    return _of_attached(state, domain, "deactivate", doing, ENTERING)


def activate(state: ConversionState, domain: DomainRecord) -> ConversionStep:
    """Activate a domain: all hosts mount it."""
    doing = f"activating {domain.name}"
    return _of_attached(state, domain, "activate", doing, LEAVING)


def _of_attached(
    state: ConversionState, domain: DomainRecord, method: str, doing: str, before: str
) -> ConversionStep:
    call = Call(_attached(state, domain), method, doing, subject=domain.name)
    return ConversionStep(
        CALL, domain.name, doing, call, before=before, forget="all", of_domain=True
    )


def wait_domain(
    state: ConversionState, domain: DomainRecord, wanted: str, *others: str
) -> ConversionStep:
    """Wait until a domain has the status ``wanted`` or one of ``others``."""
    return ConversionStep(
        WAIT_IN,
        domain.name,
        f"waiting for {domain.name} to be {'in ' * (wanted == 'maintenance')}{wanted}",
        until=(wanted, *others),
        path=_attached(state, domain),
        timeout_s=DOMAIN_S,
        forget="all",
        of_domain=True,
    )


def _attached(state: ConversionState, domain: DomainRecord) -> str:
    # Only this path shows its status.
    return f"datacenters/{state.data_center}/storagedomains/{domain.id}"
