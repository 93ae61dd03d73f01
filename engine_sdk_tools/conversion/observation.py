# SPDX-License-Identifier: GPL-2.0-or-later
"""Read-only snapshot of engine and hosts, used to plan the next step.

What a conversion looks at: the engine as it is now, and what hosts told last. Pure.

A host's report is condensed to its policy and the transports of the exports concerned.

Which virtual machines are in the way: what the engine can be asked beforehand.

Leases, inserted CDs, image transfers and tasks it tells only by refusing the
deactivation; that ends the conversion with its words, and nothing is changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional, Protocol

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
from ovirt_rdma.engine_sdk_tools.domains.transport import Mounts, export_at
from ovirt_rdma.engine_sdk_tools.hosts.report import HostReport, judged
from ovirt_rdma.engine_sdk_tools.model import Domain, Engine, Host, StorageConnection
from ovirt_rdma.host.export import Export
from ovirt_rdma.storage.proof import prove

# Mounted, and the kernel's signals do not agree.
UNPROVEN = "unproven"
_PROVEN = (RDMA, TCP)
UP = "up"


@dataclass(frozen=True)
class Sight:
    """What one host told. ``transports`` are those of mounted exports, by export;
    ``problem`` says why there is nothing.
    """

    policy: Optional[str] = None
    digest: Optional[str] = None
    transports: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""


@dataclass(frozen=True)
class View:
    """``sights`` has the hosts whose word is still good, by name. ``arrived`` has the
    hosts that are up after we activated them: whether the engine has reported that they
    connected their storage, which comes after the status up. ``refused`` says of hosts
    why they could not mount a domain that was activated, as the engine's events tell.
    """

    engine: Engine
    sights: Mapping[str, Sight] = field(default_factory=dict)
    arrived: Mapping[str, bool] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)

    def is_up(self, record: HostRecord) -> bool:
        """Whether the host takes part: up at the start, or since."""
        found = self.host(record)
        return record.found == UP or (found is not None and found.status == UP)

    def host(self, record: HostRecord) -> Optional[Host]:
        """The host as the engine has it now; None where it is gone."""
        return next((h for h in self.engine.hosts if h.id == record.id), None)

    def domain(self, state: ConversionState, record: DomainRecord) -> Optional[Domain]:
        """The domain as its data center has it now; None where it is gone."""
        for found in self.engine.domains:
            if found.id == record.id and found.data_center == state.data_center:
                return found
        return None

    def row(self, record: DomainRecord) -> Optional[StorageConnection]:
        """The domain's row as it is now."""
        rows = self.engine.connections
        return next((row for row in rows if row.id == record.connection), None)


def sight_of(report: HostReport, exports: Iterable[Export]) -> Sight:
    """Condense a report to what concerns ``exports``."""
    wanted = tuple(exports)
    return judged(report, lambda its: _sight(its, wanted))


def _sight(report: HostReport, exports: Sequence[Export]) -> Sight:
    if report.facts is None:
        return Sight(problem=report.problem or "it gave no facts")
    transports = {}
    mounts = Mounts(report.facts.nfs_mounts)
    for export in exports:
        mount = mounts.vdsms(export)
        if mount is not None:
            proof = prove(mount, report.facts.cm_ids)
            transports[str(export)] = proof.transport or UNPROVEN
    return Sight(report.policy_text, report.policy_digest, transports)


def wanted_transports(
    state: ConversionState, host: HostRecord
) -> tuple[tuple[str, Optional[str]], ...]:
    """Return for each domain's export the transport that ``host`` should come to; None
    where that is not known, and nothing has to be proven.
    """
    exports = (str(export_at(d.address, d.path)) for d in state.domains)
    if state.kind == HEAL:
        return tuple(zip(exports, host.transports))
    if host.goal == BACK:
        before = [_before(state, host, n) for n in range(len(state.domains))]
        return tuple(zip(exports, before))
    return tuple((export, state.to) for export in exports)


def _before(state: ConversionState, host: HostRecord, number: int) -> Optional[str]:
    """Return what a domain's mount on ``host`` was over before. A host that had none,
    and came up since, goes with the others, where they agree.
    """
    if state.domains[number].stage == GONE:
        return None
    mine = host.transports[number] if host.transports else None
    alone = (host,) if mine or not host.touched else state.hosts
    found = {h.transports[number] for h in alone if h.transports} - {None}
    only = found.pop() if len(found) == 1 else None
    return only if only in _PROVEN else None


def unlike(state: ConversionState, host: HostRecord, sight: Sight) -> tuple[str, ...]:
    """Say which mounts of ``host`` are not as they should be; none: it is proven."""
    wrong = []
    for export, wanted in wanted_transports(state, host):
        found = sight.transports.get(export)
        if wanted is None or found == wanted:
            continue
        if found is None:
            wrong.append(f"{export} is not mounted")
        elif found == UNPROVEN:
            wrong.append(f"{export} is mounted, but the kernel's signals do not agree")
        else:
            wrong.append(f"{export} is mounted over {found.upper()}")
    return tuple(wrong)


class ReadsMany(Protocol):
    """What asking needs of a session."""

    def read_all(self, reads: Sequence[Read]) -> list[Any]:
        """See Session."""


def running_on(session: ReadsMany, domains: Sequence[Domain]) -> dict[str, list[str]]:
    """Return the names of running virtual machines with a disk on each domain."""
    reads = [
        Read(
            f"storagedomains/{domain.id}/vms",
            f"reading the virtual machines of {domain.name}",
        )
        for domain in domains
    ]
    found = {}
    for domain, vms in zip(domains, session.read_all(reads)):
        running = [] if isinstance(vms, Exception) else list(vms or ())
        found[domain.name] = [vm.name for vm in running if _runs(vm)]
    return found


def pinned_on(session: ReadsMany, hosts: Sequence[Host]) -> dict[str, list[str]]:
    """Return the names of running virtual machines that may not leave their host, by
    the host's id. Passthrough devices pin a machine too, and the engine shows it so.
    """
    if not any(host.vms for host in hosts):
        return {}
    # A search that the engine does not understand gives an empty list, not an error.
    words = {"search": "status!=down"}
    read = Read("vms", "reading the running virtual machines", words=words)
    ids = {host.id for host in hosts}
    found: dict[str, list[str]] = {}
    for vm in session.read_all([read])[0]:
        policy = vm.placement_policy
        affinity = policy.affinity.value if policy and policy.affinity else None
        if affinity == "pinned" and vm.host is not None and vm.host.id in ids:
            found.setdefault(vm.host.id, []).append(vm.name)
    return found


def _runs(vm: Any) -> bool:
    # A word that the SDK does not know is no "down".
    return vm.status is None or vm.status.value != "down"
