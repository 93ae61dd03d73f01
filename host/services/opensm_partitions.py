# SPDX-License-Identifier: GPL-2.0-or-later
"""Write opensm's partitions.conf as a run of the journal, and prove the result.

The proof asks the subnet manager, if opensm of this host is it: every partition with
IPoIB that the port is in has its broadcast group (opensm shows no others), and the
P_Key table of every port that the policy names is as the policy says. If not, the run
is rolled back.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Callable, Optional

from ovirt_rdma.host.changes.journal import Journal
from ovirt_rdma.host.changes.kinds.base import EffectFailed
from ovirt_rdma.host.changes.kinds.host import HostEffects
from ovirt_rdma.host.changes.kinds.model import (
    Listener,
    Refused,
    RunRequest,
    RunResult,
)
from ovirt_rdma.host.changes.kinds.registry import kind_of
from ovirt_rdma.host.changes.run import apply_steps
from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.fabric.model import Definition
from ovirt_rdma.host.facts.model import Facts
from ovirt_rdma.host.opensm.partitions import (
    named_guids,
    reads_another,
    step_of,
    unlike,
)
from ovirt_rdma.host.opensm.processes import partitions_file, running_opensm
from ovirt_rdma.host.opensm.read import FabricReader
from ovirt_rdma.host.policy.store import StoredPolicy
from ovirt_rdma.host.rules.base import OPENSM_FILE, Change, Step
from ovirt_rdma.host.system.commands import Runner
from ovirt_rdma.host.system.tree import FileTree

# A sweep of a small fabric takes less than a second, one of 1000 ports several.
PROOF_TIMEOUT_S = 30.0
_POLL_S = 0.5
# What opensm does with a group that has members; a restart of opensm ends it.
_KEPT = "broadcast-group-differs"


@dataclass(frozen=True)
class Proof:
    """Which ports and groups are as they should be, and ``unlike``: which are not.

    ``proven`` is None if the fabric could not be asked; ``notes`` say why.
    """

    proven: Optional[bool]
    unlike: tuple[Sentence, ...] = ()
    notes: tuple[Sentence, ...] = ()


@dataclass
class PartitionsRun:
    """One run on the host below ``root``, which holds the lock.

    ``run`` runs tools. ``sleep`` and ``clock`` are for the wait for opensm's sweep.
    """

    root: str
    run: Optional[Runner]
    effects: HostEffects
    journal: Journal
    listener: Listener
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    tree: FileTree = field(init=False)

    def __post_init__(self) -> None:
        self.tree = FileTree(self.root)

    def step(self, definitions: Sequence[Definition]) -> tuple[str, Optional[Step]]:
        """Return the file, and the step that writes ``definitions`` to it, if any.

        Raises Refused if a running opensm reads another file, or the file is
        unreadable.
        """
        path = partitions_file(self.tree)
        other = reads_another(running_opensm(self.tree), path)
        if other is not None:
            raise Refused(
                "opensm-reads-another-file",
                f"opensm (process {other.pid}) reads {other.partitions}, not {path}",
                "start it without -P, and remove partition_config_file from "
                "opensm.conf",
            )
        change = Change(OPENSM_FILE, path, None, "")
        reading = self.effects.read(change)
        if reading.problem:
            raise Refused("value-unreadable", reading.problem)
        return path, step_of(path, reading.value, definitions)

    def apply(
        self,
        step: Step,
        definitions: Sequence[Definition],
        policy: StoredPolicy,
        facts: Facts,
        by: str,
    ) -> tuple[RunResult, Proof]:
        """Carry out ``step``, and prove it. Raises as apply_steps()."""
        kind = kind_of(step.changes[0])
        proofs: list[Proof] = []

        def verify() -> frozenset[str]:
            self.listener.doing(step.id, "waiting for opensm's sweep")
            proof = self.prove(definitions, facts, PROOF_TIMEOUT_S)
            proofs.append(proof)
            if proof.proven is False:
                raise EffectFailed(
                    "partitions-not-effective",
                    f"opensm has read {kind.describe()}, and "
                    f"{'; '.join(s for s in proof.unlike if s.id != _KEPT)}",
                )
            return frozenset()

        request = RunRequest(by=by, policy=policy.digest, facts=facts, verify=verify)
        result = apply_steps(self.effects, self.journal, [step], request, self.listener)
        return result, proofs[-1] if proofs else Proof(None)

    def prove(
        self, definitions: Sequence[Definition], facts: Facts, timeout_s: float = 0
    ) -> Proof:
        """Ask the subnet manager, until it is as ``definitions`` say, or ``timeout_s``
        seconds have passed.
        """
        end = self.clock() + timeout_s
        while True:
            proof = self._asked(definitions, facts)
            if proof.proven is not False or self.clock() >= end:
                return proof
            self.sleep(_POLL_S)

    def _asked(self, definitions: Sequence[Definition], facts: Facts) -> Proof:
        if not running_opensm(self.tree):
            return Proof(None, notes=(_NOT_RUNNING,))
        reader = FabricReader(self.tree, self.run)
        found: list[Sentence] = []
        notes: list[Sentence] = []
        asked = False
        known = reader.facts(facts)
        for subnet in known.subnets:
            notes += subnet.problems
            if subnet.master is None:
                continue
            if subnet.master.guid not in known.guids:
                notes.append(
                    Sentence(
                        "subnet-manager-elsewhere",
                        f"the subnet manager behind {subnet.port.title} is at "
                        f"{subnet.master.guid}, which is no port of this host: it does "
                        "not read this file",
                    )
                )
                continue
            guids = dict.fromkeys([subnet.port.guid, *named_guids(definitions)])
            tables = reader.tables(subnet.port, guids)
            notes += reader.problems
            notes += _absent(guid for guid, table in tables.items() if table is None)
            asked = asked or subnet.groups is not None or bool(tables)
            managers = {subnet.master.guid}
            at = subnet.port.guid
            found += unlike(definitions, subnet.groups, tables, managers, at)
        wrong = any(sentence.id != _KEPT for sentence in found)
        proven = not wrong if asked else None
        return Proof(proven, tuple(dict.fromkeys(found)), tuple(dict.fromkeys(notes)))


_NOT_RUNNING = Sentence(
    "opensm-not-running",
    "opensm is not running on this host, so nothing could be proven; it reads the file "
    "when it starts",
)


def _absent(guids: Iterator[str]) -> Iterator[Sentence]:
    for guid in guids:
        yield Sentence("guid-absent", f"{guid} is not in the fabric now")
