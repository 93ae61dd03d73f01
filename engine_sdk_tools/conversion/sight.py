# SPDX-License-Identifier: GPL-2.0-or-later
"""What a conversion looks at: the engine as it is now, and what hosts told last. Pure.

A host's report is condensed to its policy and the transports of the exports concerned.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Optional

from ovirt_rdma.engine_sdk_tools.asked_transport import Mounts, export_at
from ovirt_rdma.engine_sdk_tools.conversion.state import (
    BACK,
    GONE,
    HEAL,
    RDMA,
    TCP,
    ConversionState,
    DomainRecord,
    HostRecord,
)
from ovirt_rdma.engine_sdk_tools.engine_facts import (
    Domain,
    Engine,
    Host,
    StorageConnection,
)
from ovirt_rdma.engine_sdk_tools.host_report import HostReport, judged
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
