# SPDX-License-Identifier: GPL-2.0-or-later
"""Start opensm at ports of this host as a run of the journal, and prove the result.

The proof asks the processes, the ports and the subnet manager: our opensm runs at each
port, the port is ACTIVE, opensm is master or on standby as planned, and no other one is
master too. If not, the run is rolled back. A revert of the step is the way back.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Callable, Optional

from ovirt_rdma.host.changes.journal import Journal
from ovirt_rdma.host.changes.kinds.base import EffectFailed
from ovirt_rdma.host.changes.kinds.host import HostEffects
from ovirt_rdma.host.changes.kinds.model import (
    DONE,
    Listener,
    Refused,
    RunRequest,
    RunResult,
)
from ovirt_rdma.host.changes.revert import revert
from ovirt_rdma.host.changes.run import apply_steps
from ovirt_rdma.host.collect.rdma import RDMA_CLASS, read_rdma_devices
from ovirt_rdma.host.collect.units import SUBNET_MANAGERS
from ovirt_rdma.host.errors import Problem, Sentence
from ovirt_rdma.host.fabric.grammar import PartitionsProblem, parse
from ovirt_rdma.host.facts.devices import RdmaPort
from ovirt_rdma.host.facts.model import Facts
from ovirt_rdma.host.opensm.manager import (
    STEP,
    ManagerFacts,
    ManagerPlan,
    PlannedPort,
    decide,
    ports_of,
    rule_of,
)
from ovirt_rdma.host.opensm.partitions import definitions_of
from ovirt_rdma.host.opensm.processes import partitions_file, running_opensm
from ovirt_rdma.host.opensm.read import FabricReader, LocalPort, Subnet
from ovirt_rdma.host.opensm.replies import MASTER, STANDBY
from ovirt_rdma.host.opensm.review import several_masters
from ovirt_rdma.host.paths import OPENSM, OPENSM_SETTINGS_FILE, OPENSM_UNIT
from ovirt_rdma.host.policy.fabric import FabricPolicy
from ovirt_rdma.host.policy.store import StoredPolicy
from ovirt_rdma.host.rules.base import UNIT, Change, Step
from ovirt_rdma.host.services.opensm_partitions import Proof
from ovirt_rdma.host.system.commands import Runner
from ovirt_rdma.host.system.tree import FileTree

# One with a higher priority takes over within seconds. One on standby does if the
# master has not answered 4 questions, one each 10 s (osm_base.h, POLLING_RETRY_NUMBER):
# 63 s were measured with opensm 3.3.23.
PROOF_TIMEOUT_S = 90.0
_POLL_S = 0.5
_FOLDER, _NAME = OPENSM_SETTINGS_FILE.rsplit("/", 1)
_SETTINGS = re.compile(_NAME.format("(0x[0-9a-f]{16})"))


@dataclass
class ManagerRun:
    """One run on the host below ``root``, which holds the lock.

    ``run`` runs tools. ``sleep`` and ``clock`` are for the wait for opensm.
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

    def plan(self, policy: FabricPolicy, facts: Facts) -> ManagerPlan:
        """Return what has to be done so that opensm runs as ``policy`` says. Raises
        Refused if nothing may be done.
        """
        plan = decide(policy, self._facts(policy, facts))
        if not plan.refusals:
            return plan
        first, *more = plan.refusals
        if not more:
            raise Refused(first.id, str(first), first.fix)
        raise Refused(
            "subnet-manager-refused",
            "opensm is not started:",
            "; ".join(dict.fromkeys(one.fix for one in plan.refusals)),
            reasons=[Sentence(one.id, str(one)) for one in plan.refusals],
        )

    def _facts(self, policy: FabricPolicy, facts: Facts) -> ManagerFacts:
        reader = FabricReader(self.tree, self.run)
        fabric = reader.facts(facts)
        local = [one.port for one in fabric.subnets]
        rules = rule_of(policy, fabric)
        ports = ports_of(rules[0], local)[0] if len(rules) == 1 else ()
        behind = {}
        if len(ports) > 1:
            behind = {port.guid: reader.reachable(port) for port in ports}
        settings = self._settings()
        folder, _, name = OPENSM.rpartition("/")
        path = partitions_file(self.tree)
        return ManagerFacts(
            fabric,
            installed=name in self.tree.names(folder),
            partitions=path,
            no_tools=reader.missing_tools(),
            partitions_wrong=self._partitions_wrong(policy, path),
            others=tuple(u for u in facts.software.units if u.name in SUBNET_MANAGERS),
            settings=settings,
            units={
                guid: self._unit_state(guid)
                for guid in dict.fromkeys([*settings, *(port.guid for port in local)])
            },
            reachable=behind,
        )

    def _settings(self) -> dict[str, str]:
        found = {}
        for name in self.tree.names(_FOLDER):
            match = _SETTINGS.fullmatch(name)
            data = self.tree.data(f"{_FOLDER}/{name}") if match else None
            if match and data is not None:
                found[match[1]] = data.decode("utf-8", "surrogateescape")
        return found

    def _unit_state(self, guid: str) -> Optional[str]:
        unit = Change(UNIT, OPENSM_UNIT.format(guid), None, "enabled", "enabled")
        reading = self.effects.read(unit)
        if reading.problem:
            raise Refused("value-unreadable", reading.problem)
        return reading.value

    def _partitions_wrong(self, policy: FabricPolicy, path: str) -> Optional[Problem]:
        problems: list[str] = []
        present = path.rpartition("/")[2] in self.tree.names(path.rpartition("/")[0])
        data = self.tree.data(path, problems) if present else None
        if present and data is None:
            fix = "move it away, or correct it"
            return Problem("partitions-unreadable", problems[0], fix)
        wanted = definitions_of(policy)
        try:
            definitions = () if data is None else parse(data, path)
        except PartitionsProblem as problem:
            wrong = f"{path} is invalid: {problem.reasons[0]}"
            fix = "ovirt-rdma-host fabric partitions validate"
            return Problem("partitions-invalid", wrong, fix)
        if wanted and tuple(definitions) != tuple(wanted):
            fix = "ovirt-rdma-host fabric partitions apply"
            return Problem(
                "partitions-differ", f"{path} is not as the policy says", fix
            )
        return None

    def apply(
        self,
        step: Step,
        ports: Sequence[PlannedPort],
        policy: StoredPolicy,
        facts: Facts,
        by: str,
    ) -> tuple[RunResult, Proof]:
        """Carry out ``step``, and prove that opensm is at ``ports`` then. Raises as
        apply_steps().
        """
        proofs: list[Proof] = []

        def verify() -> frozenset[str]:
            self.listener.doing(STEP, "waiting for opensm")
            proof = self.prove(ports, PROOF_TIMEOUT_S)
            proofs.append(proof)
            if not proof.proven:
                raise EffectFailed(
                    "subnet-manager-not-as-planned",
                    f"opensm was started, and {'; '.join(proof.unlike)}",
                )
            return frozenset()

        request = RunRequest(by=by, policy=policy.digest, facts=facts, verify=verify)
        result = apply_steps(self.effects, self.journal, [step], request, self.listener)
        return result, proofs[-1] if proofs else Proof(None)

    def prove(self, ports: Sequence[PlannedPort], timeout_s: float = 0) -> Proof:
        """Ask until opensm is at ``ports`` as planned, or ``timeout_s`` seconds have
        passed.
        """
        end = self.clock() + timeout_s
        while True:
            proof = self._asked(ports)
            if proof.proven or self.clock() >= end:
                return proof
            self.sleep(_POLL_S)

    def _asked(self, ports: Sequence[PlannedPort]) -> Proof:
        reader = FabricReader(self.tree, self.run)
        notes: list[Sentence] = []
        running = {one.guid for one in running_opensm(self.tree) if one.is_ours}
        found: list[Sentence] = []
        for planned in ports:
            place, title = planned.port, planned.port.title
            port = self._now(place)
            if place.guid not in running:
                found.append(
                    Sentence("opensm-not-running", f"opensm is not running at {title}")
                )
            elif port is None or not port.is_active:
                is_now = "gone" if port is None else port.state
                found.append(
                    Sentence("port-not-active", f"{title} is {is_now}, not ACTIVE")
                )
            else:
                subnet = reader.subnet(replace(place, port=port))
                notes += subnet.problems
                own = reader.manager_at(place, port.lid or 0)
                state = None if own is None else own.state
                found += _unlike(planned, state, subnet)
        return Proof(not found, tuple(found), tuple(dict.fromkeys(notes)))

    def _now(self, place: LocalPort) -> Optional[RdmaPort]:
        """Return the port at ``place`` with its present state and LID."""
        for device in read_rdma_devices(self.tree, []):
            for port in device.ports:
                if (device.name, port.number) == (place.device, place.number):
                    folder = f"{RDMA_CLASS}/{device.name}/ports/{port.number}"
                    lid = self.tree.text(f"{folder}/lid") or "0"
                    return replace(place.port, state=port.state, lid=int(lid, 16))
        return None

    def disable(self, facts: Facts, by: str) -> RunResult:
        """Undo what enabling has done. Raises as revert(); DONE with ``run`` None if
        there is nothing to undo.
        """
        applied = {one.act.step for one in self.journal.ledger().applied}
        if STEP not in applied:
            return RunResult(None, DONE, "there is no opensm of ovirt-rdma")
        return revert(
            self.effects, self.journal, facts, self.listener, only=STEP, by=by
        )


def _unlike(
    planned: PlannedPort, state: Optional[str], subnet: Subnet
) -> Iterator[Sentence]:
    """Yield how the subnet manager at ``planned``, in ``state``, is not as planned."""
    title, guid, master = planned.port.title, planned.port.guid, subnet.master
    if master is None:
        yield Sentence("subnet-manager-silent", f"no subnet manager answers at {title}")
        return
    two = several_masters(subnet)
    if two is not None:
        yield two
    if planned.state == MASTER and master.guid != guid:
        yield Sentence("not-master", f"the master at {title} is {master.guid}")
    elif planned.state == STANDBY and master.guid == guid:
        yield Sentence("not-standby", f"opensm has become the master at {title}")
    elif state != planned.state:
        yield Sentence(
            "manager-state-differs",
            f"opensm at {title} is {state or 'silent'}, not {planned.state}",
        )
