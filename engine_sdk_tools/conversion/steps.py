# SPDX-License-Identifier: GPL-2.0-or-later
"""One step of a conversion, as data, and the calls that steps are made of. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Optional

from ovirtsdk4 import types

from ovirt_rdma.engine_sdk_tools.api.request import Call
from ovirt_rdma.engine_sdk_tools.conversion.model import (
    ENTERING,
    LEAVING,
    TODO,
    ConversionState,
    DomainRecord,
    HostRecord,
)

# Kinds, in the order in which a batch does them: all of one kind, then the next.
MARK = "mark"
FAIL = "fail"
PUSH = "push"
ENTER = "enter"
WAIT_IN = "wait in"
LEAVE = "leave"
WAIT_OUT = "wait out"
LOOK = "look"
# Of the whole, not of a host.
CALL = "call"
FINISH = "finish"

ORDER = (MARK, FAIL, PUSH, ENTER, WAIT_IN, LEAVE, WAIT_OUT, LOOK)

# Evacuating a host moves all its virtual machines, some at a time; one that does not
# go on is called off sooner (see Evacuation).
ENTER_S = 4 * 3600.0
# Host activation connects all storage; the engine gives VDSM 180 s a domain. One that
# is shown as up is waited for no longer than host_waits.SETTLE_S.
LEAVE_S = 3600.0
# A deactivation first writes the OVF store, then all hosts let go of it.
DOMAIN_S = 1800.0


@dataclass(frozen=True)
class Step:
    """``subject`` is the host that it is about, or with ``of_domain`` the domain;
    ``doing`` what goes on in words ("moving host01 to maintenance").

    ``before`` is the subject's stage, written before the act, ``after`` that after it;
    "" for no change. ``until`` are the statuses that end a wait, ``why`` the reason of
    a failure, ``hosts`` those whose reports are asked for, ``forget`` says that what
    hosts told no longer holds: of the subject, or ``all``.
    """

    kind: str
    subject: str
    doing: str = ""
    call: Optional[Call] = None
    policy: Optional[str] = None
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
        """Whether it changes something, of the engine or of a host."""
        return self.call is not None or self.kind == PUSH


def enter(host: HostRecord) -> Step:
    """Move a host to maintenance: its virtual machines go, its mounts end."""
    return Step(
        ENTER,
        host.name,
        f"moving {host.name} to maintenance",
        Call(
            f"hosts/{host.id}",
            "deactivate",
            f"moving {host.name} to maintenance",
            {"reason": "ovirt-rdma mounts its storage anew"},
            about=host.name,
        ),
        before=ENTERING,
        forget=host.name,
    )


def wait_in(host: HostRecord) -> Step:
    """Wait until a host is in maintenance, or is not going there any more."""
    return Step(
        WAIT_IN,
        host.name,
        f"waiting for {host.name} to be in maintenance",
        until=("maintenance", "up", "non_operational", "down"),
        path=f"hosts/{host.id}",
        timeout_s=ENTER_S,
        forget=host.name,
    )


def leave(host: HostRecord) -> Step:
    """Activate a host: it connects its storage."""
    return Step(
        LEAVE,
        host.name,
        f"activating {host.name}",
        Call(
            f"hosts/{host.id}", "activate", f"activating {host.name}", about=host.name
        ),
        before=LEAVING,
        forget=host.name,
    )


def call_off(host: HostRecord) -> Step:
    """Activate a host that is not in maintenance yet: its mounts stay as they are."""
    return replace(leave(host), before=TODO)


def wait_out(host: HostRecord) -> Step:
    """Wait until a host is up with its storage connected, or will not be."""
    return Step(
        WAIT_OUT,
        host.name,
        f"waiting for {host.name} to be up",
        until=("up", "non_operational", "install_failed", "error", "maintenance"),
        path=f"hosts/{host.id}",
        timeout_s=LEAVE_S,
        forget=host.name,
    )


def look(*hosts: HostRecord) -> Step:
    """Ask hosts what they say now."""
    names = tuple(host.name for host in hosts)
    shown = names[0] if len(names) == 1 else f"{len(names)} hosts"
    return Step(LOOK, names[0], f"asking {shown}", hosts=names)


def push(host: HostRecord, policy: Optional[str]) -> Step:
    """Put a policy on a host and load it there."""
    what = "taking the policy away from" if policy is None else "pushing the policy to"
    doing = f"{what} {host.name}"
    return Step(PUSH, host.name, doing, policy=policy, forget=host.name)


def mark(host: HostRecord, stage: str, why: str = "") -> Step:
    """Note that a host has come to a stage."""
    return Step(MARK, host.name, after=stage, why=why)


def fail(host: HostRecord, why: str) -> Step:
    """What is true of a host now cannot be gone on from."""
    return Step(FAIL, host.name, why=why)


def mark_domain(domain: DomainRecord, stage: str) -> Step:
    """Note that a domain has come to a stage."""
    return Step(MARK, domain.name, after=stage, of_domain=True)


def fail_domain(domain: DomainRecord, why: str) -> Step:
    """What is true of a domain, or of the whole, cannot be gone on from."""
    return Step(FAIL, domain.name, why=why, of_domain=True)


def set_row(domain: DomainRecord, options: str, *, force: bool) -> Step:
    """Change the mount options of a domain's row, and nothing else of it.

    Never with a host: with force that sets the domain to maintenance. Address and path
    are sent too where the address is IPv6, which the engine's merge would cut.
    """
    row: dict[str, Any] = {"mount_options": options}
    if ":" in (domain.address or ""):
        row.update(address=domain.address, path=domain.path)
    doing = f"setting the mount options of {domain.name} to {options!r}"
    if not options:
        doing = f"clearing the mount options of {domain.name}"
    return Step(
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
            about=domain.name,
        ),
        of_domain=True,
    )


def deactivate(state: ConversionState, domain: DomainRecord) -> Step:
    """Move a domain to maintenance: all hosts unmount it."""
    doing = f"moving {domain.name} to maintenance"
    return _of_attached(state, domain, "deactivate", doing, ENTERING)


def activate(state: ConversionState, domain: DomainRecord) -> Step:
    """Activate a domain: all hosts mount it."""
    doing = f"activating {domain.name}"
    return _of_attached(state, domain, "activate", doing, LEAVING)


def _of_attached(
    state: ConversionState, domain: DomainRecord, method: str, doing: str, before: str
) -> Step:
    call = Call(_attached(state, domain), method, doing, about=domain.name)
    return Step(
        CALL, domain.name, doing, call, before=before, forget="all", of_domain=True
    )


def wait_domain(
    state: ConversionState, domain: DomainRecord, wanted: str, *others: str
) -> Step:
    """Wait until a domain has the status ``wanted`` or one of ``others``."""
    return Step(
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
    # Its status is told there only.
    return f"datacenters/{state.data_center}/storagedomains/{domain.id}"
