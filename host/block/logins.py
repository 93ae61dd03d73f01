# SPDX-License-Identifier: GPL-2.0-or-later
"""Decide which logins are missing and by which port, why SRP's failed, and what is
wrong with sessions and LUNs. Pure.
"""

from __future__ import annotations

import errno
import fnmatch
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Optional, Union

from ovirt_rdma.host.block.read import BlockFacts
from ovirt_rdma.host.collect.storage import Session
from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.facts.devices import Netdev, RdmaDevice
from ovirt_rdma.host.facts.infiniband import TIMEOUTS, partition_of
from ovirt_rdma.host.facts.model import Route
from ovirt_rdma.host.policy.block import IserTarget, SrpTarget, Timeout
from ovirt_rdma.host.policy.texts import OFF

Target = Union[SrpTarget, IserTarget]


@dataclass(frozen=True)
class Login:
    """A login to ``target`` that the policy wants, and its result.

    ``device`` and ``port`` are the local port of an SRP login; None if no port can log
    in, and for iSER. ``session`` is there already, or ``made`` by this login.
    ``problem`` says why it is not there; ``notes`` are about its timeouts.
    """

    target: Target
    device: Optional[str] = None
    port: Optional[int] = None
    session: Optional[Session] = None
    made: bool = False
    problem: Optional[Sentence] = None
    notes: tuple[Sentence, ...] = ()

    @property
    def local(self) -> str:
        """The port's name below /sys/class/infiniband_srp (ib_srp.c, srp_add_port)."""
        return f"srp-{self.device}-{self.port}"

    @property
    def title(self) -> str:
        """The login in sentences: ``srp 'array1' by mlx4_0/1``."""
        by = f" by {self.device}/{self.port}" if self.device else ""
        return f"{self.target.title}{by}"

    def failed(self, id: str, why: str) -> Login:
        """Return it with a problem."""
        return replace(self, problem=Sentence(id, why))


def iser_logins(
    targets: Iterable[IserTarget], sessions: Iterable[Session]
) -> list[Login]:
    """Return the login to each of ``targets``, with its session."""
    present = {(one.iqn, one.portal, one.interface): one for one in sessions}
    return [
        Login(one, session=present.get((one.iqn, one.portal, one.interface)))
        for one in targets
    ]


def srp_logins(
    targets: Sequence[SrpTarget],
    devices: Sequence[RdmaDevice],
    netdevs: Sequence[Netdev],
    routes: Sequence[Route],
    sessions: Sequence[Session],
) -> list[Login]:
    """Return each login that ``targets`` want; one with a problem for a target that no
    port leads to.

    ``routes`` are those to the addresses of the targets.
    """
    by_address = {route.destination: route for route in routes}
    found: list[Login] = []
    for target in targets:
        if target.dest:
            ports = _by_route(target, devices, netdevs, by_address)
        else:
            ports = _on_fabric(target, devices)
        if isinstance(ports, Sentence):
            found.append(Login(target, problem=ports))
        else:
            found += (Login(target, device, port) for device, port in ports)
    return _with_sessions(found, sessions)


def _with_sessions(logins: list[Login], sessions: Sequence[Session]) -> list[Login]:
    """Return SRP ``logins``, each with its session. Where several logins fit and there
    are fewer sessions, none has one: the kernel knows which login is missing.
    """
    given, left = [], list(sessions)
    known = [one for one in sessions if one.initiator_ext]
    others = [one for one in logins if not sessions_by(one, known)]
    for login in logins:
        own = sessions_by(login, sessions if login in others else known)
        rivals = {initiator_of(one.target) for one in others if sessions_by(one, own)}
        own = [one for one in own if one in left and len(own) >= len(rivals)]
        given.append(replace(login, session=own[0] if own else None))
        left = [one for one in left if one not in own[:1]]
    return given


def sessions_by(login: Login, sessions: Iterable[Session]) -> list[Session]:
    """Return the sessions that an SRP login can have made.

    The kernel tells logins of one port apart by the two identifiers, and by
    initiator_ext, which it does not show (srp_conn_unique, ib_srp.c).
    """
    return [
        one
        for one in sessions
        if isinstance(login.target, SrpTarget)
        and (one.device, one.port) == (login.device, login.port)
        and one.id_ext == login.target.id_ext
        and one.ioc_guid == login.target.ioc_guid
        and (None in (one.dgid, login.target.dgid) or one.dgid == login.target.dgid)
        and one.initiator_ext in (None, initiator_of(login.target))
    ]


def initiator_of(target: Target) -> str:
    """Return the initiator_ext with which the kernel logs in to ``target``."""
    return getattr(target, "initiator_ext", None) or "0" * 16


def sessions_of(
    target: Target, logins: Iterable[Login], sessions: Iterable[Session]
) -> list[Session]:
    """Return the sessions of ``target``. ``logins`` are those to all targets of the
    policy: what one of them has is no other's.
    """
    logins = list(logins)
    found = [one.session for one in logins if one.target == target and one.session]
    # A port that is down, or that the route has left, has no login now.
    if isinstance(target, SrpTarget):
        given = [one.session for one in logins]
        found += (
            one
            for one in sessions
            if one not in given
            and one.device is not None
            and one.port is not None
            and _named(target, one.device, one.port)
            and sessions_by(Login(target, one.device, one.port), [one])
        )
    return found


def findings(logins: Iterable[Login], facts: BlockFacts) -> list[Sentence]:
    """Return which ``logins`` of the policy are missing or have other timeouts, and
    what is wrong with the sessions that are there, and with their LUNs.
    """
    found = []
    for login in logins:
        if login.problem is not None:
            found.append(login.problem.about(login.title))
        elif login.session is None:
            kind = "srp" if isinstance(login.target, SrpTarget) else "iser"
            text = f"{login.title} is not logged in; ovirt-rdma-host block login"
            found.append(Sentence(f"{kind}-not-logged-in", text))
        else:
            found += [
                Sentence(
                    "srp-timeout-differs",
                    f"{login.title}: {name} is {present}, the policy says {value}; "
                    "ovirt-rdma-host block login sets it",
                )
                for name, present in zip(TIMEOUTS, login.session.timeouts)
                if (value := getattr(login.target, name, None)) not in (None, present)
            ]
    for session in facts.sessions:
        if not session.is_up:
            text = f"the session {session.title} is {session.state}"
            found.append(Sentence(f"{session.protocol}-session-not-running", text))
        for lun in session.luns:
            if lun.not_offered:
                what = f"VDSM does not offer {lun.device} ({lun.wwid})"
                text = f"{what}, because {lun.not_offered}"
                found.append(Sentence("lun-not-offered", text))
    return found


def differences(before: BlockFacts, after: BlockFacts) -> list[Sentence]:
    """Return how the LUNs have changed."""
    old, new = (
        {lun.device: lun for session in facts.sessions for lun in session.luns}
        for facts in (before, after)
    )
    found = []
    for name in sorted(old.keys() | new.keys()):
        if name not in old:
            text = f"{name} is new: {new[name].shown_size}"
            found.append(Sentence("lun-new", text))
        elif name not in new:
            found.append(Sentence("lun-gone", f"{name} is gone"))
        elif old[name].size != new[name].size:
            text = f"{name} had {old[name].shown_size}, and has {new[name].shown_size}"
            found.append(Sentence("lun-resized", text))
    return found


def address_of(target: SrpTarget) -> str:
    """Return the IP address in ``dest``."""
    return (target.dest or "").rpartition(":")[0].strip("[]")


def _named(target: SrpTarget, device: str, port: int) -> bool:
    return (
        target.device is None or fnmatch.fnmatchcase(device, target.device)
    ) and target.port in {None, port}


def _on_fabric(
    target: SrpTarget, devices: Iterable[RdmaDevice]
) -> Union[list[tuple[str, int]], Sentence]:
    """Return the ACTIVE InfiniBand ports in the subnet of the target."""
    prefix = (target.dgid or "")[:16]
    ports = [(one.name, port) for one in devices for port in one.ports]
    ports = [(name, port) for name, port in ports if _named(target, name, port.number)]
    infiniband = [(name, p) for name, p in ports if p.is_infiniband]
    if not infiniband:
        also = "; for a RoCE or iWARP port, write dest" if ports else ""
        text = f"no InfiniBand port of this host is named{also}"
        return Sentence("srp-no-infiniband-port", text)
    active = [(name, p) for name, p in infiniband if p.is_active]
    if not active:
        shown = ", ".join(f"{name}/{p.number} is {p.state}" for name, p in infiniband)
        return Sentence("srp-port-not-active", f"no port is ACTIVE: {shown}")
    near = [
        (name, p)
        for name, p in active
        if not p.gids or p.gids[0].gid.replace(":", "")[:16] == prefix
    ]
    if not near:
        text = f"no ACTIVE port is in the subnet {prefix} of its dgid"
        return Sentence("srp-other-subnet", text)
    # The kernel finds the partition as full or limited member (ib_find_pkey in
    # srp_init_ib_qp, ib_srp.c), and decides where the table is unknown.
    wanted = partition_of(target.pkey or "")
    members = [
        (name, p.number)
        for name, p in near
        if not p.pkeys or wanted in [partition_of(one.value) for one in p.pkeys]
    ]
    if not members:
        shown = ", ".join(f"{name}/{p.number}" for name, p in near)
        text = f"the P_Key table of {shown} does not have the partition {target.pkey}"
        return Sentence("srp-not-in-partition", text)
    return members


def _by_route(
    target: SrpTarget,
    devices: Iterable[RdmaDevice],
    netdevs: Iterable[Netdev],
    routes: dict[str, Route],
) -> Union[list[tuple[str, int]], Sentence]:
    """Return the port by which the kernel reaches the address: ib_srp logs in only by
    that one (rdma_resolve_addr in srp_new_rdma_cm_id, ib_srp.c).
    """
    address = address_of(target)
    route = routes.get(address)
    if route is None:
        return Sentence("srp-route-unknown", f"the route to {address} is unknown")
    if route.netdev is None:
        return Sentence("srp-no-route", f"{address} is not reachable: {route.problem}")
    ports = [
        (one.name, port.number)
        for one in devices
        for port in one.ports
        if any(gid.netdev == route.netdev for gid in port.gids)
    ]
    ports = ports or [
        (netdev.rdma_device, netdev.rdma_port)
        for netdev in netdevs
        if netdev.name == route.netdev and netdev.rdma_device and netdev.rdma_port
    ]
    if not ports:
        return Sentence(
            "srp-route-without-rdma",
            f"the route to {address} leads through {route.netdev}, which has no RDMA "
            "device",
        )
    named = [port for port in ports if _named(target, *port)]
    if not named:
        shown = ", ".join(f"{device}/{port}" for device, port in ports)
        return Sentence(
            "srp-route-through-other-port",
            f"the route to {address} leads through {shown}, which device and port of "
            "the target do not name",
        )
    return named[:1]


def login_text(target: SrpTarget) -> str:
    """Return what is written to add_target (srp_parse_options, ib_srp.c)."""
    words = [f"id_ext={target.id_ext}", f"ioc_guid={target.ioc_guid}"]
    if target.dest:
        words.append(f"dest={target.dest}")
    else:
        words.append(f"dgid={target.dgid}")
        words.append(f"pkey={(target.pkey or '').removeprefix('0x')}")
        words.append(f"service_id={target.service_id}")
    if target.initiator_ext:
        words.append(f"initiator_ext={target.initiator_ext}")
    words += (f"{name}={value}" for name, value in target.options)
    return ",".join(words)


def timeout_writes(
    now: Sequence[Timeout], target: SrpTarget
) -> list[tuple[str, Union[int, str]]]:
    """Return the writes, in order, that give a session the timeouts of ``target``.

    ``now`` are the present ones, in the order of TIMEOUTS; one that the target leaves
    out stays. The kernel compares each write with the other two values, so several need
    values in between.
    """
    desired = [
        present if value is None else value
        for present, value in zip(now, (getattr(target, key) for key in TIMEOUTS))
    ]
    changed = [n for n in range(len(TIMEOUTS)) if desired[n] != now[n]]
    steps: list[tuple[int, Timeout]] = [(n, desired[n]) for n in changed]
    if len(steps) > 1:
        # First without the two limits, which reconnecting alone allows.
        between: list[tuple[int, Timeout]] = [(2, 10), (1, OFF), (0, OFF)]
        steps = between + list(enumerate(desired))
    return [(TIMEOUTS[n], OFF if value is None else value) for n, value in steps]


# Reasons in SRP_LOGIN_REJ (include/scsi/srp.h), and what the Linux target means by them
# (srpt_cm_req_recv in ib_srpt.c).
_SRP_REASONS = {
    0x00010000: "the target cannot make a connection now",
    0x00010001: "the target has no resources for it, or its port is not enabled",
    0x00010002: "the request is too long; set max_it_iu_size in options",
    0x00010003: "the target has no port with this id_ext and ioc_guid",
    0x00010004: "the target does not know this form of buffer descriptors",
    0x00010005: "the target accepts one channel only; set ch_count: 1 in options",
    0x00010006: "the target allows this host no (further) login: its access list has "
    "no entry for this port, or its limit is reached",
}
# Reasons in a REJ of the connection manager: InfiniBand specification, volume 1,
# table 109; enum ib_cm_rej_reason of include/rdma/ib_cm.h.
_CM_REASONS = {
    1: "the target has no queue pair left",
    3: "the target has no resources left",
    4: "the target did not answer in time",
    8: "nothing listens there for SRP: service_id, or the port in dest, is wrong, or "
    "the target is not enabled",
    28: "the target refused it without a reason",
}
_REJECTED = re.compile(r"REJECTED, reason (0x[0-9a-f]{8})")
_REJ = re.compile(r"REJ reason (0x[0-9a-f]+)")
_UNANSWERED = "Sending CM REQ failed"
_NO_PATH = "Path record query failed"
_TOO_LARGE = "requested max_it_iu_len too large"
_SCSI_HOST = re.compile(r"scsi (host[0-9]+): ")


# The errors of add_target (add_target_store in ib_srp.c and what it calls), but the
# refusals.
_ERRORS = {
    errno.EHOSTUNREACH: Sentence("srp-target-silent", "the target does not answer"),
    errno.ENXIO: Sentence("srp-target-silent", "no RDMA path to its address was found"),
    errno.ETIMEDOUT: Sentence(
        "srp-target-silent", "the subnet manager or the target did not answer in time"
    ),
    errno.ENOENT: Sentence(
        "srp-not-in-partition", "the local port has left the partition of the target"
    ),
    errno.EINVAL: Sentence(
        "srp-login-invalid", "the kernel does not accept the values; its log says which"
    ),
}


def failure(number: int, target: SrpTarget, log: Iterable[str]) -> Sentence:
    """Return why a login failed with the error ``number``.

    ``log`` are the lines of the kernel's log since it began. ib_srp reports every
    refusal as ECONNRESET; the reason is in the log only.
    """
    lines = list(log)
    if number == errno.ECONNRESET:
        return Sentence("srp-login-refused", _refusal(target, lines))
    if any(_NO_PATH in line for line in lines):
        text = "the subnet manager knows no path to its dgid in this partition"
        return Sentence("srp-no-path", text)
    other = Sentence("srp-login-failed", f"the kernel reports: {os.strerror(number)}")
    return _ERRORS.get(number, other)


def _refusal(target: SrpTarget, lines: list[str]) -> str:
    # `scsi host4: ib_srp: Connection 0/2 to 10.99.0.1 failed` names the SCSI host.
    gid = target.dgid or ""
    colons = ":".join(gid[n : n + 4] for n in range(0, 32, 4))
    to = address_of(target) if target.dest else colons
    own = {
        match[1]
        for line in lines
        if f" to {to} failed" in line and (match := _SCSI_HOST.search(line))
    }
    for line in reversed(lines):
        match = _SCSI_HOST.search(line)
        if own and (match is None or match[1] not in own):
            continue
        srp, manager = _REJECTED.search(line), _REJ.search(line)
        if srp:
            code = int(srp[1], 16)
            return f"{_SRP_REASONS.get(code, 'unknown reason')} (SRP reason {srp[1]})"
        if _TOO_LARGE in line:
            return _SRP_REASONS[0x00010002]
        if _UNANSWERED in line:
            return "the target did not answer"
        if manager:
            code = int(manager[1], 16)
            text = _CM_REASONS.get(code, "unknown reason")
            return f"{text} (REJ reason {code})"
    return "the target refused it; the kernel's log has no reason"
