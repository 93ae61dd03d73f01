# SPDX-License-Identifier: GPL-2.0-or-later
"""Provide a snapshot of engine and hosts, used to plan the next step.

It has the engine as it is now and, of each host's last report, the policy and the
transports of the exports concerned. Virtual machines that prevent a conversion are read
from the engine beforehand. Leases, inserted CDs, image transfers and tasks cannot be
read: the engine refuses the deactivation because of them, which ends the conversion
with the engine's reason and without a change.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

from ovirt_rdma.engine_sdk_tools.api.engine_session import EngineSession
from ovirt_rdma.engine_sdk_tools.api.request import Read
from ovirt_rdma.engine_sdk_tools.conversion.model import (
    BACK,
    GONE,
    HEAL,
    RDMA,
    TCP,
    ConversionState,
    DomainRecord,
    HostRecord,
)
from ovirt_rdma.engine_sdk_tools.domains.transport import export_at
from ovirt_rdma.engine_sdk_tools.model import Domain, Engine, Host, StorageConnection
from ovirt_rdma.host.policy.drop_ins import NO_FILES, PolicyFiles

# Mounted, but the evidence for the transport does not agree.
UNPROVEN = "unproven"
_PROVEN = (RDMA, TCP)
UP = "up"


@dataclass(frozen=True)
class Observation:
    """One host's condensed report. ``transports`` are those of mounted exports, by
    export; ``problem`` says why there is no report.
    """

    policy: PolicyFiles = NO_FILES
    digest: Optional[str] = None
    transports: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""


@dataclass(frozen=True)
class Snapshot:
    """Engine and hosts at one time.

    - ``observations``: hosts with a report that is still valid, by name.
    - ``arrived``: hosts that are up after we activated them: true if the engine has
      reported that they connected their storage, which happens after the status up.
    - ``refused``: hosts that could not mount an activated domain, with the reason from
      the engine's events.
    - ``unmarked``: names of clusters whose upgrade flag cannot be set or cleared.
    """

    engine: Engine
    observations: Mapping[str, Observation] = field(default_factory=dict)
    arrived: Mapping[str, bool] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    unmarked: Collection[str] = ()

    def is_up(self, record: HostRecord) -> bool:
        """Whether the host takes part: it was up at the start, or is up now."""
        host = self.host(record)
        return record.found == UP or (host is not None and host.status == UP)

    def host(self, record: HostRecord) -> Optional[Host]:
        """Return the host as it is in the engine now; None if it was removed."""
        return next((h for h in self.engine.hosts if h.id == record.id), None)

    def domain(self, state: ConversionState, record: DomainRecord) -> Optional[Domain]:
        """Return the domain as it is in its data center now; None if it was removed."""
        for domain in self.engine.domains:
            if domain.id == record.id and domain.data_center == state.data_center:
                return domain
        return None

    def row(self, record: DomainRecord) -> Optional[StorageConnection]:
        """Return the domain's storage connection as it is now."""
        rows = self.engine.connections
        return next((row for row in rows if row.id == record.connection), None)


def wanted_transports(
    state: ConversionState, host: HostRecord
) -> tuple[tuple[str, Optional[str]], ...]:
    """Return each domain's export with the transport that ``host`` should use; None if
    that is unknown, and nothing has to be proven.
    """
    exports = (str(export_at(d.address, d.path)) for d in state.domains)
    if state.kind == HEAL:
        return tuple(zip(exports, host.transports))
    if host.goal == BACK:
        before = [_before(state, host, n) for n in range(len(state.domains))]
        return tuple(zip(exports, before))
    return tuple((export, state.to) for export in exports)


def _before(state: ConversionState, host: HostRecord, number: int) -> Optional[str]:
    """Return the transport of a domain's mount on ``host`` before the conversion. For a
    host without that mount that came up since, use that of the others if they agree.
    """
    if state.domains[number].stage == GONE:
        return None
    known = host.transports[number] if host.transports else None
    hosts = (host,) if known or not host.touched else state.hosts
    transports = {h.transports[number] for h in hosts if h.transports} - {None}
    only = transports.pop() if len(transports) == 1 else None
    return only if only in _PROVEN else None


def unlike(
    state: ConversionState, host: HostRecord, observed: Observation
) -> tuple[str, ...]:
    """Return a sentence per mount of ``host`` that is not as it should be; none if the
    host is proven.
    """
    wrong = []
    for export, wanted in wanted_transports(state, host):
        transport = observed.transports.get(export)
        if wanted is None or transport == wanted:
            continue
        if transport is None:
            wrong.append(f"{export} is not mounted")
        elif transport == UNPROVEN:
            wrong.append(f"{export} is mounted, but its transport is unproven")
        else:
            wrong.append(f"{export} is mounted over {transport.upper()}")
    return tuple(wrong)


def running_on(
    session: EngineSession, domains: Sequence[Domain]
) -> dict[str, list[str]]:
    """Return the names of running virtual machines with a disk on each domain."""
    reads = [
        Read(
            f"storagedomains/{domain.id}/vms",
            f"reading the virtual machines of {domain.name}",
        )
        for domain in domains
    ]
    running = {}
    for domain, answer in zip(domains, session.read_all(reads)):
        vms = [] if isinstance(answer, Exception) else list(answer or ())
        running[domain.name] = [vm.name for vm in vms if _runs(vm)]
    return running


def pinned_on(session: EngineSession, hosts: Sequence[Host]) -> dict[str, list[str]]:
    """Return the names of running virtual machines that must not leave their host, by
    the host's id. The engine also shows machines with passthrough devices as pinned.
    """
    if not any(host.vms for host in hosts):
        return {}
    # The engine answers an invalid search with an empty list, not with an error.
    search = {"search": "status!=down"}
    read = Read("vms", "reading the running virtual machines", arguments=search)
    ids = {host.id for host in hosts}
    pinned: dict[str, list[str]] = {}
    for vm in session.read_all([read])[0]:
        policy = vm.placement_policy
        affinity = policy.affinity.value if policy and policy.affinity else None
        if affinity == "pinned" and vm.host is not None and vm.host.id in ids:
            pinned.setdefault(vm.host.id, []).append(vm.name)
    return pinned


def _runs(vm: Any) -> bool:
    # A status that the SDK does not know is not "down".
    return vm.status is None or vm.status.value != "down"
