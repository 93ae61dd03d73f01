# SPDX-License-Identifier: GPL-2.0-or-later
"""What all connections of one vdsmd share."""

from __future__ import annotations

from dataclasses import dataclass, field

from ovirt_rdma.storage.degraded_marks import DegradedMarks
from ovirt_rdma.storage.failure_memory import FailureMemory
from ovirt_rdma.storage.path_locks import PathLocks
from ovirt_rdma.storage.server_readiness import Surroundings

# A second call for one local path waits this long for the first, which may take so
# long: mount.nfs begins its last try after two minutes at most (nfs(5), retry=), a try
# on a server that hangs is two calls of 40 s (VDSM's timeo=100,retrans=3; measured),
# and VDSM's access check gives up after 60 s (irs/process_pool_timeout). The engine
# itself waits for 180 s (vdsTimeout).
WAIT_FOR_OTHER_S = 300.0


@dataclass(frozen=True)
class Shared:
    """One a process; safe for several threads.

    ``not_taken_back`` are local paths of mounts that broke a rule's promise and
    could not be unmounted; ``marks`` are those that run over the wrong transport.
    """

    surroundings: Surroundings
    failures: FailureMemory = field(default_factory=FailureMemory)
    locks: PathLocks = field(default_factory=PathLocks)
    wait_for_other_s: float = WAIT_FOR_OTHER_S
    marks: DegradedMarks = field(default_factory=DegradedMarks)
    not_taken_back: set[str] = field(default_factory=set)
