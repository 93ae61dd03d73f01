# SPDX-License-Identifier: GPL-2.0-or-later
"""Plan ``domain create --type fcp``: a domain on one LUN, and why it cannot be made.

LUNs of SRP are Fibre Channel for VDSM (multipath.py, pathListIter), and so for the
engine. Connecting Fibre Channel does nothing on a host (FcpConnection in VDSM's
storageServer.py; FCPStorageHelper in the engine): a host that does not see the LUN
becomes non-operational some minutes after the domain is active. So every host that is
up is asked before. Pure, but for ``read_luns``.

LUNs of iSER are iSCSI (devIsiSCSI in VDSM's iscsi.py:478-503), and no domain is made on
them, although the engine would make one: it stores address, port and IQN of the session
(GetDeviceListVDSCommand.java:191-212, LunHelper.java:50-64), not its transport, and
every host then logs in with the record ``default``, over TCP (IscsiConnection in
storageServer.py:597-600, 696-702). That is a second session to the same LUN, or none if
the target only listens for RDMA; then hosts cannot be activated (InitVdsOnUpCommand,
291-326). ``iscsi_default_ifaces`` is no way out: its trial logout ends sessions
(storageServer.py:705-728).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional

from ovirt_rdma.engine_sdk_tools.api.engine_session import EngineSession
from ovirt_rdma.engine_sdk_tools.api.errors import EngineProblem
from ovirt_rdma.engine_sdk_tools.api.request import Call, Read
from ovirt_rdma.engine_sdk_tools.api.sdk import types
from ovirt_rdma.engine_sdk_tools.domains.create_plan import (
    NEW,
    DomainPlan,
    creating_host,
    data_center_problems,
)
from ovirt_rdma.engine_sdk_tools.domains.export_checks import name_problems
from ovirt_rdma.engine_sdk_tools.model import (
    DataCenter,
    Domain,
    Engine,
    Host,
    StorageConnection,
    status_words,
)
from ovirt_rdma.engine_sdk_tools.names import listed, pick
from ovirt_rdma.engine_sdk_tools.refusals import check
from ovirt_rdma.host.errors import Sentence

FCP = "fcp"
_GIB = 1 << 30
_CHECK = "ovirt-rdma-host block check"


@dataclass(frozen=True)
class Lun:
    """A LUN as a host offers it. ``id`` is its WWID, ``type`` fcp or iscsi, ``size`` in
    bytes. ``status`` is free, used (it has a volume group or partitions) or unusable;
    ``domain`` and ``disk`` are ids of what the engine has on it.
    """

    id: str
    type: Optional[str] = None
    size: int = 0
    status: Optional[str] = None
    domain: Optional[str] = None
    disk: Optional[str] = None
    active_paths: int = 0


def read_luns(
    session: EngineSession, hosts: Sequence[Host], creator: Optional[Host] = None
) -> dict[str, tuple[Lun, ...]]:
    """Return the LUNs that each of ``hosts`` offers, by its id; their status only on
    ``creator``, because VDSM tries pvcreate on each LUN for it. Raises EngineProblem.
    """
    reads = [
        Read(
            f"hosts/{host.id}/storage",
            f"reading the LUNs of {host.name}",
            arguments={"report_status": host == creator},
        )
        for host in hosts
    ]
    luns = {}
    for host, answer in zip(hosts, session.read_all(reads)):
        if isinstance(answer, EngineProblem):  # the host was removed meanwhile
            raise answer
        luns[host.id] = tuple(
            _lun(unit, storage.type)
            for storage in answer
            for unit in storage.logical_units or ()
        )
    return luns


def _lun(unit: Any, kind: Any) -> Lun:
    return Lun(
        unit.id,
        getattr(kind, "value", None),
        unit.size or 0,
        getattr(unit.status, "value", None),
        unit.storage_domain_id,
        unit.disk_id,
        unit.active_paths or 0,
    )


@dataclass(frozen=True)
class LunRequest:
    """The arguments of ``domain create --type fcp``; ``host`` as in DomainRequest."""

    name: str
    lun: str
    data_center: str
    host: Optional[str] = None


@dataclass(frozen=True)
class LunPlan(DomainPlan):
    """The plan for a domain on ``lun``; there is no storage connection."""

    lun: Lun = Lun("")

    @property
    def lines(self) -> tuple[str, ...]:
        """The plan for people."""
        return (
            f"domain {self.name} on LUN {self.lun.id} ({self.lun.size / _GIB:.4g} GiB)",
            "everything on the LUN is lost",
            f"created by {self.host.name}, attached to {self.data_center.name}, used "
            f"by {self.users}",
        )

    @property
    def document(self) -> dict[str, object]:
        """The plan for programs."""
        return {
            "name": self.name,
            "type": FCP,
            "lun": self.lun.id,
            "size": self.lun.size,
            "host": self.host.name,
            "warnings": list(self.warnings),
        }

    @property
    def calls(self) -> tuple[Call, ...]:
        """The requests to the engine, in their order."""
        calls = [] if self.domain else [self.adding("")]
        if not self.attached:
            calls.append(self.attaching(self.domain.id if self.domain else NEW))
        return tuple(calls)

    def adding(self, connection: str) -> Call:
        """Return the call that makes a volume group on the LUN, and the domain."""
        storage = types.HostStorage(
            type=types.StorageType.FCP,
            logical_units=[types.LogicalUnit(id=self.lun.id)],
        )
        domain = types.StorageDomain(
            name=self.name,
            type=types.StorageDomainType.DATA,
            host=types.Host(id=self.host.id),
            storage=storage,
        )
        doing = f"creating the domain {self.name} on {self.host.name}"
        body = {"storage_domain": domain}
        return Call("storagedomains", "add", doing, body, self.name)

    def left_over(self, domain: str) -> str:
        """Return what is left on the storage if the domain cannot be removed."""
        return f"on LUN {self.lun.id} the volume group {domain}"


def plan_lun_domain(
    engine: Engine, luns: Mapping[str, Sequence[Lun]], request: LunRequest
) -> LunPlan:
    """Return the plan for ``request``; ``luns`` are those of each host that is up, by
    the host's id.

    Raises Problem for names that do not exist, and ChecksFailed with every reason
    against the request.
    """
    center = pick("data center", request.data_center, engine.data_centers)
    hosts = engine.hosts_of(center.id)
    refusals = list(name_problems(request.name))
    refusals += data_center_problems(center)
    up = tuple(host for host in hosts if host.status == "up")
    host, problems = creating_host(request.host, hosts, up, center)
    refusals += problems
    if host is None:
        check(refusals)
        raise AssertionError("it is a refusal")
    seen = {
        one.id: next((lun for lun in luns[one.id] if lun.id == request.lun), None)
        for one in up
    }
    lun = seen[host.id]
    domain, problems = _existing(engine, request.name, lun, center)
    refusals += problems
    refusals += _not_offered(request.lun, up, seen)
    if lun is not None and domain is None and not problems:
        refusals += _lun_problems(engine, lun)
    check(refusals)
    if lun is None:
        raise AssertionError("it is a refusal")
    warnings = _warnings(lun, up, hosts)
    row = StorageConnection("", FCP)
    return LunPlan(request.name, center, host, row, FCP, up, domain, "", warnings, lun)


def _existing(
    engine: Engine, name: str, lun: Optional[Lun], center: DataCenter
) -> tuple[Optional[Domain], list[Sentence]]:
    """Return the domain that an earlier run has made, if any, or why ``name`` cannot be
    used.
    """
    domain = next((one for one in engine.domains if one.name == name), None)
    if domain is None:
        return None, []
    if lun is None or lun.domain != domain.id:
        text = f"the domain {name} already exists on other storage; use another name"
        return None, [Sentence("domain-exists", text)]
    if domain.data_center not in (None, center.id):
        text = f"the domain {name} is attached to another data center"
        return None, [Sentence("domain-in-other-data-center", text)]
    return domain, []


def _not_offered(
    name: str, up: Sequence[Host], seen: Mapping[str, Optional[Lun]]
) -> Iterator[Sentence]:
    without = [host.name for host in up if seen[host.id] is None]
    if len(without) == len(up):
        text = f"no host offers the LUN {name}; on a host: {_CHECK}"
        yield Sentence("lun-unknown", text)
    elif without:
        text = (
            f"{listed(without)} would become non-operational, because the LUN {name} "
            f"is not offered there; on these hosts: {_CHECK}"
        )
        yield Sentence("lun-not-on-host", text)


def _lun_problems(engine: Engine, lun: Lun) -> Iterator[Sentence]:
    if lun.domain is not None:
        names = {one.id: one.name for one in engine.domains}
        text = f"the LUN {lun.id} is in use by the domain "
        text += names.get(lun.domain, lun.domain)
        yield Sentence("lun-in-domain", text)
    elif lun.disk is not None:
        text = f"the LUN {lun.id} is in use as the disk {lun.disk}"
        yield Sentence("lun-in-disk", text)
    elif lun.type != FCP:
        text = (
            f"the LUN {lun.id} is of type {lun.type or 'unknown'} for the engine, "
            "which keeps the address of its target, but not that the session is iSER: "
            "each host would log in to it over TCP; LUNs of SRP are fcp"
        )
        yield Sentence("lun-type", text)
    elif lun.status != "free":
        text = (
            f"the LUN {lun.id} is {status_words(lun.status)}: it has a volume group or "
            "partitions that the engine does not know; if they are not needed: wipefs "
            f"--all /dev/mapper/{lun.id} on one host"
        )
        yield Sentence("lun-not-empty", text)


def _warnings(lun: Lun, up: Sequence[Host], hosts: Sequence[Host]) -> tuple[str, ...]:
    found = []
    if lun.active_paths < 2:
        found.append(f"the LUN {lun.id} has {lun.active_paths or 'no'} active path")
    away = [host.name for host in hosts if host not in up]
    if away:
        found.append(f"not checked, because not up: {listed(away)}")
    return tuple(found)
