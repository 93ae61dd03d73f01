# SPDX-License-Identifier: GPL-2.0-or-later
"""Make the matrix of ``hosts check``: readiness of hosts for storage over RDMA. Pure.

The engine's view and the host's own report are in separate cells: a host may be up and
not ready, or ready and down.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Optional

from ovirt_rdma.engine_sdk_tools.fleet.cells import (
    enabled_cell,
    not_reported,
    package_cell,
    ports_cell,
    rules_cell,
    running_cell,
    servers_cell,
    status_cell,
)
from ovirt_rdma.engine_sdk_tools.fleet.guids import (
    Guids,
    guids_of,
    shared_guids,
    with_shared_guids,
)
from ovirt_rdma.engine_sdk_tools.hosts.health import health_cell
from ovirt_rdma.engine_sdk_tools.hosts.hooks import hooks_cell
from ovirt_rdma.engine_sdk_tools.hosts.policy import (
    digest_without_drop_ins,
    policy_of,
    status_part,
)
from ovirt_rdma.engine_sdk_tools.hosts.report import HostReport, with_own_bugs_caught
from ovirt_rdma.engine_sdk_tools.matrix import FAIL, OK, WARN, Axis, Cell, Matrix
from ovirt_rdma.engine_sdk_tools.model import Engine, Host, StorageConnection
from ovirt_rdma.host.decision.registry import decide
from ovirt_rdma.host.policy.model import Policy, digest
from ovirt_rdma.host.rules.base import Step

KIND = "hosts"
STATUS = "status"
COLUMNS = (
    STATUS,
    "hooks",
    "package",
    "enabled",
    "running",
    "policy",
    "rules",
    "rdma ports",
    "nfs servers",
    "health",
)
_POLICY, _PORTS = COLUMNS.index("policy"), COLUMNS.index("rdma ports")
# Characters of a digest to show, without "sha256:": enough to distinguish policies.
_SHOWN = 8


@dataclass(frozen=True)
class HostRow:
    """A host's cells, the digest of its policy, whether it reported a status, and its
    InfiniBand GUIDs.

    ``steps`` is its plan, None without its facts.
    """

    host: Host
    cells: tuple[Cell, ...]
    digest: Optional[str] = None
    reported: bool = False
    guids: Guids = field(default_factory=dict)
    steps: Optional[tuple[Step, ...]] = None


def row_of(
    host: Host,
    report: HostReport,
    policy: Optional[Policy],
    connections: Sequence[StorageConnection] = (),
) -> HostRow:
    """Return a host's row, from the engine's data and its own report.

    ``policy`` is the one that it should have, if any. ``connections`` are those of its
    data center's domains. :func:`check`, which has all hosts, fills the policy cell,
    and adds GUIDs that are not unique to that of ports.
    """
    return with_own_bugs_caught(
        report, lambda report: _row_of(host, report, policy, connections)
    )


def _row_of(
    host: Host,
    report: HostReport,
    policy: Optional[Policy],
    connections: Sequence[StorageConnection],
) -> HostRow:
    policy = policy_of(report).policy if policy is None else policy
    # The empty policy still finds faults.
    decision = decide(report.facts, policy or Policy()) if report.facts else None
    status = report.status
    told = status is not None
    loaded = status_part(status, "policy")
    return HostRow(
        host,
        (
            status_cell(host),
            hooks_cell(host),
            package_cell(report),
            enabled_cell(report),
            running_cell(host, report),
            _broken(loaded.get("problem"), loaded.get("fix"))
            if loaded.get("problem")
            else not_reported(report),
            rules_cell(report, decision),
            ports_cell(report),
            servers_cell(report, connections),
            health_cell(report),
        ),
        digest_without_drop_ins(report) if loaded.get("loaded") else None,
        told and not loaded.get("problem"),
        {} if report.facts is None else guids_of(host.name, report.facts),
        decision.steps if decision else None,
    )


def connections_of(engine: Engine, host: Host) -> tuple[StorageConnection, ...]:
    """Return the connections of the domains of a host's data center."""
    center = next(
        (c.data_center for c in engine.clusters if c.id == host.cluster), None
    )
    return tuple(
        domain.connection
        for domain in engine.domains
        if domain.connection and center and domain.data_center == center
    )


def check(
    engine: Engine,
    rows: Sequence[HostRow],
    policy: Optional[Policy],
    policy_file: Optional[str] = None,
) -> Matrix:
    """Return the matrix of the rows of :func:`row_of`.

    A host with another policy than ``policy`` FAILs. Without one, hosts FAIL whose
    policy differs from that of most hosts, or all if there is no majority. The ports of
    hosts FAIL that have an InfiniBand GUID in common. ``policy_file`` has the policy.
    """
    reference = _reference(rows, policy)
    shared = shared_guids(row.guids for row in rows)
    cells = []
    for row in rows:
        own = list(row.cells)
        if row.reported:
            own[_POLICY] = _policy_cell(row, reference, policy_file)
        own[_PORTS] = with_shared_guids(own[_PORTS], row.host.name, shared)
        cells.append(tuple(own))
    return Matrix(
        KIND,
        tuple(Axis(row.host.name, row.host.id, row.host.address) for row in rows),
        tuple(Axis(name) for name in COLUMNS),
        tuple(cells),
        engine.problems,
    )


@dataclass(frozen=True)
class _Reference:
    """The digest that hosts should have (None: no policy), and ``whose`` it is; "" if
    there is no reference because the hosts differ. ``example`` is a host that has it.
    """

    digest: Optional[str]
    whose: str
    example: str = ""


def _reference(rows: Sequence[HostRow], policy: Optional[Policy]) -> _Reference:
    if policy is not None:
        return _Reference(digest(policy), "this machine's")
    counted = Counter(row.digest for row in rows if row.reported).most_common(2)
    if len(counted) == 2 and counted[0][1] == counted[1][1]:
        return _Reference(None, "")
    most = counted[0][0] if counted else None
    having = (row.host.name for row in rows if row.reported and row.digest == most)
    return _Reference(most, "that of most hosts", next(having, ""))


def _policy_cell(row: HostRow, reference: _Reference, file: Optional[str]) -> Cell:
    text = row.digest.partition(":")[2][:_SHOWN] if row.digest else "none"
    if reference.whose and row.digest == reference.digest:
        if row.digest is None:
            return Cell(WARN, text, "no policy is loaded, as on the other hosts")
        return Cell(OK, text, f"its policy is {reference.whose}")
    has = f"its policy is {row.digest}" if row.digest else "no policy is loaded"
    other = f"not {reference.whose}" if reference.whose else "and the hosts differ"
    fix = "say with --policy which policy they should have"
    if reference.example:
        fix = f"push the policy.yaml of {reference.example} to it, with policy push"
    if reference.whose and file is not None:
        named, host = shlex.quote(file), shlex.quote(row.host.name)
        fix = f"ovirt-rdma policy push {named} --hosts {host}"
    return Cell(FAIL, text, f"{has}, {other}", fix)


def _broken(problem: object, fix: object) -> Cell:
    return Cell(FAIL, "broken", str(problem), str(fix or ""))
