# SPDX-License-Identifier: GPL-2.0-or-later
"""What all connections of one vdsmd share."""

from __future__ import annotations

from dataclasses import dataclass, field

from ovirt_rdma.storage.degraded_marks import DegradedMarks
from ovirt_rdma.storage.failure_memory import FailureMemory
from ovirt_rdma.storage.path_locks import PathLocks
from ovirt_rdma.storage.server_readiness import Surroundings

# A second caller for one local path waits this long for the first.
LOCK_TIMEOUT_S = 20.0


@dataclass(frozen=True)
class Shared:
    """One a process; safe for several threads.

    ``not_taken_back`` are local paths of mounts that broke a rule's promise and
    could not be unmounted; ``marks`` are those that run over the wrong transport.
    """

    surroundings: Surroundings
    failures: FailureMemory = field(default_factory=FailureMemory)
    locks: PathLocks = field(default_factory=PathLocks)
    lock_timeout_s: float = LOCK_TIMEOUT_S
    marks: DegradedMarks = field(default_factory=DegradedMarks)
    not_taken_back: set[str] = field(default_factory=set)
