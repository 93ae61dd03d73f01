# SPDX-License-Identifier: GPL-2.0-or-later
"""Write partitions.conf, and start opensm at ports of this host: as runs of the
journal, with a proof by the fabric itself. If the proof fails, the run is rolled back.

- Of partitions.conf, the subnet manager is asked if opensm of this host is it: every
  partition with IPoIB that the port is in has its broadcast group (opensm shows no
  others), and the P_Key table of every port that the policy names is as it says.
- Of opensm, the processes, the ports and the subnet manager are asked: ours runs at
  each port, the port is ACTIVE, opensm is master or on standby as planned, and no other
  one is master too. A revert of the step is the way back.
"""

from __future__ import annotations

import posixpath
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Callable, Optional

from ovirt_rdma.host.changes.journal import DONE, RunResult
from ovirt_rdma.host.changes.kinds.kind import EffectFailed
from ovirt_rdma.host.changes.run import HostRun
from ovirt_rdma.host.collect.rdma import RDMA_CLASS, read_rdma_devices
from ovirt_rdma.host.errors import Problem, Refused, Sentence
from ovirt_rdma.host.fabric.decisions import (
    ENABLED,
    STEP,
    ManagerFacts,
    ManagerPlan,
    PlannedPort,
    decide,
    definitions_of,
    ports_of,
    rules_of,
    step_of,
    unit_change,
    unlike,
)
from ovirt_rdma.host.fabric.partitions_conf import Definition, PartitionsProblem, parse
from ovirt_rdma.host.fabric.subnet import (
    MASTER,
    STANDBY,
    FabricReader,
    LocalPort,
    Subnet,
    partitions_file,
    running_opensm,
)
from ovirt_rdma.host.facts.devices import RdmaPort
from ovirt_rdma.host.facts.model import SUBNET_MANAGERS, Facts
from ovirt_rdma.host.paths import OPENSM, OPENSM_SETTINGS_FILE
from ovirt_rdma.host.policy.fabric import FabricPolicy
from ovirt_rdma.host.rules.base import OPENSM_FILE, Change, Step
from ovirt_rdma.host.system.tree import FileTree

# A sweep of a small fabric takes less than a second, one of 1000 ports several.
SWEEP_TIMEOUT_S = 30.0
# One with a higher priority takes over within seconds. One on standby does if the
# master has not answered 4 questions, one each 10 s (osm_base.h, POLLING_RETRY_NUMBER):
# 63 s were measured with opensm 3.3.23.
START_TIMEOUT_S = 90.0
_POLL_S = 0.5
_FOLDER, _NAME = OPENSM_SETTINGS_FILE.rsplit("/", 1)
_SETTINGS = re.compile(_NAME.format("(0x[0-9a-f]{16})"))
# What opensm does with a group that has members; a restart of opensm ends it.
_GROUP_STAYS = "broadcast-group-differs"
_NOT_RUNNING = Sentence(
    "opensm-not-running",
    "opensm is not running on this host, so nothing could be proven; it reads the file "
    "when it starts",
)


@dataclass(frozen=True)
class Proof:
    """``unlike``: which ports and groups are not as they should be. ``asked``: whether
    the fabric could be; ``notes`` say why not.
    """

    asked: bool = False
    unlike: tuple[Sentence, ...] = ()
    notes: tuple[Sentence, ...] = ()

    @property
    def wrong(self) -> tuple[Sentence, ...]:
        """What is unlike, and not what opensm leaves until it is started again."""
        return tuple(one for one in self.unlike if one.id != _GROUP_STAYS)

    @property
    def proven(self) -> Optional[bool]:
        """Whether all is as planned; None if that is unknown."""
        return not self.wrong if self.asked else None


class OpensmRun:
    """A run about opensm on ``host``; the caller holds the lock."""

    def __init__(self, host: HostRun) -> None:
        self.host = host
        self.tree = FileTree(host.root)

    def apply(
        self,
        step: Optional[Step],
        prove: Callable[[], Proof],
        policy: str,
        *,
        timeout_s: float,
        if_none: str,
    ) -> tuple[RunResult, Proof]:
        """Carry out ``step``, and ``prove`` it within ``timeout_s`` seconds, or roll
        back. Without a step only prove; ``if_none`` is the result then. ``policy`` is
        the policy's digest. Raises as HostRun.apply().
        """
        if step is None:
            return RunResult(None, DONE, if_none), prove()
        doing = step.id
        proofs = [Proof()]

        def verify() -> frozenset[str]:
            self.host.listener.doing(doing, "waiting for opensm")
            end = time.monotonic() + timeout_s
            proofs.append(prove())
            while proofs[-1].proven is False and time.monotonic() < end:
                time.sleep(_POLL_S)
                proofs.append(prove())
            if proofs[-1].proven is False:
                text = f"the fabric is not as planned: {'; '.join(proofs[-1].wrong)}"
                raise EffectFailed("fabric-not-as-planned", text)
            return frozenset()

        facts = self.host.facts()
        result = self.host.apply([step], facts, policy=policy, verify=verify)
        return result, proofs[-1]

    def partitions_step(
        self, definitions: Sequence[Definition]
    ) -> tuple[str, Optional[Step]]:
        """Return the file, and the step that writes ``definitions`` to it, if any.

        Raises Refused if a running opensm reads another file, or the file is
        unreadable.
        """
        path = partitions_file(self.tree)
        for process in running_opensm(self.tree):
            if process.partitions not in (None, path):
                raise Refused(
                    "opensm-reads-another-file",
                    f"opensm (process {process.pid}) reads {process.partitions}, not "
                    f"{path}",
                    "start it without -P, and remove partition_config_file from "
                    "opensm.conf",
                )
        before = self._value(Change(OPENSM_FILE, path, None, ""))
        return path, step_of(path, before, definitions)

    def _value(self, change: Change) -> Optional[str]:
        reading = self.host.effects.read(change)
        if reading.problem:
            raise Refused("value-unreadable", reading.problem)
        return reading.value

    def partitions_proof(
        self, definitions: Sequence[Definition], facts: Facts
    ) -> Proof:
        """Ask the subnet manager if it is as ``definitions`` say."""
        if not running_opensm(self.tree):
            return Proof(notes=(_NOT_RUNNING,))
        reader = FabricReader(self.tree, self.host.run)
        found: list[Sentence] = []
        notes: list[Sentence] = []
        asked = False
        known = reader.facts(facts)
        members = [member for one in definitions for member in one.members]
        named = [member.port for member in members if member.is_guid]
        for subnet in known.subnets:
            port, master = subnet.port, subnet.master
            notes += subnet.problems
            if master is None:
                continue
            if master.guid not in known.guids:
                text = (
                    f"the subnet manager behind {port.title} is at {master.guid}, "
                    "which is no port of this host: it does not read this file"
                )
                notes.append(Sentence("subnet-manager-elsewhere", text))
                continue
            tables = reader.tables(port, dict.fromkeys([port.guid, *named]))
            notes += reader.problems
            notes += [
                Sentence("guid-absent", f"{guid} is not in the fabric now")
                for guid, table in tables.items()
                if table is None
            ]
            asked = asked or subnet.groups is not None or bool(tables)
            found += unlike(
                definitions, subnet.groups, tables, {master.guid}, port.guid
            )
        unique = (tuple(dict.fromkeys(one)) for one in (found, notes))
        return Proof(asked, *unique)

    def manager_plan(self, policy: FabricPolicy, facts: Facts) -> ManagerPlan:
        """Return what makes opensm run as ``policy`` says. Raises Refused."""
        plan = decide(policy, self._manager_facts(policy, facts))
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

    def _manager_facts(self, policy: FabricPolicy, facts: Facts) -> ManagerFacts:
        reader = FabricReader(self.tree, self.host.run)
        fabric = reader.facts(facts)
        local = [one.port for one in fabric.subnets]
        rules = rules_of(policy, fabric)
        ports = ports_of(rules[0], local)[0] if len(rules) == 1 else []
        settings = {}
        for name in self.tree.names(_FOLDER):
            match = _SETTINGS.fullmatch(name)
            data = self.tree.data(f"{_FOLDER}/{name}") if match else None
            if match and data is not None:
                settings[match[1]] = data.decode("utf-8", "surrogateescape")
        guids = dict.fromkeys([*settings, *(port.guid for port in local)])
        path = partitions_file(self.tree)
        several = ports if len(ports) > 1 else []
        return ManagerFacts(
            fabric,
            installed=self._exists(OPENSM),
            partitions=path,
            no_tools=reader.missing_tools(),
            partitions_wrong=self._partitions_wrong(policy, path),
            others=tuple(u for u in facts.software.units if u.name in SUBNET_MANAGERS),
            settings=settings,
            units={
                guid: self._value(unit_change(guid, None, ENABLED)) for guid in guids
            },
            reachable={port.guid: reader.reachable(port) for port in several},
        )

    def _exists(self, path: str) -> bool:
        folder, name = posixpath.split(path)
        return name in self.tree.names(folder)

    def _partitions_wrong(self, policy: FabricPolicy, path: str) -> Optional[Problem]:
        definitions: tuple[Definition, ...] = ()
        if self._exists(path):
            problems: list[str] = []
            data = self.tree.data(path, problems)
            if data is None:
                fix = "move it away, or correct it"
                return Problem("partitions-unreadable", problems[0], fix)
            try:
                definitions = parse(data, path)
            except PartitionsProblem as problem:
                wrong = f"{path} is invalid: {problem.reasons[0]}"
                fix = "ovirt-rdma-host fabric partitions validate"
                return Problem("partitions-invalid", wrong, fix)
        desired = definitions_of(policy)
        if desired and definitions != desired:
            wrong = f"{path} is not as the policy says"
            fix = "ovirt-rdma-host fabric partitions apply"
            return Problem("partitions-differ", wrong, fix)
        return None

    def manager_proof(self, ports: Sequence[PlannedPort]) -> Proof:
        """Ask if opensm is at ``ports`` as planned."""
        reader = FabricReader(self.tree, self.host.run)
        running = {one.guid for one in running_opensm(self.tree) if one.is_ours}
        found: list[Sentence] = []
        notes: list[Sentence] = []
        for planned in ports:
            place, title = planned.port, planned.port.title
            port = self._present(place)
            if place.guid not in running:
                text = f"opensm is not running at {title}"
                found.append(Sentence("opensm-not-running", text))
            elif port is None or not port.is_active:
                state = "gone" if port is None else port.state
                text = f"{title} is {state}, not ACTIVE"
                found.append(Sentence("port-not-active", text))
            else:
                subnet = reader.subnet(replace(place, port=port))
                notes += subnet.problems
                own = reader.manager_at(place, port.lid or 0)
                found += _unlike(planned, own.state if own else "silent", subnet)
        return Proof(True, tuple(found), tuple(notes))

    def _present(self, place: LocalPort) -> Optional[RdmaPort]:
        """Return the port at ``place`` with its present state and LID."""
        for device in read_rdma_devices(self.tree, []):
            for port in device.ports:
                if (device.name, port.number) == (place.device, place.number):
                    folder = f"{RDMA_CLASS}/{device.name}/ports/{port.number}"
                    lid = self.tree.text(f"{folder}/lid") or "0"
                    return replace(place.port, state=port.state, lid=int(lid, 16))
        return None

    def disable(self) -> RunResult:
        """Undo what starting opensm has done. Raises as revert(); DONE with ``run``
        None if there is nothing to undo.
        """
        if STEP not in self.host.journal.ledger().applied_steps:
            return RunResult(None, DONE, "there is no opensm of ovirt-rdma")
        return self.host.revert(STEP)


def _unlike(planned: PlannedPort, state: str, subnet: Subnet) -> Iterator[Sentence]:
    """Yield how the subnet manager at ``planned``, in ``state``, is not as planned."""
    title, guid, master = planned.port.title, planned.port.guid, subnet.master
    if master is None:
        yield Sentence("subnet-manager-silent", f"no subnet manager answers at {title}")
        return
    if subnet.several_masters:
        yield subnet.several_masters
    if planned.state == MASTER and master.guid != guid:
        yield Sentence("not-master", f"the master at {title} is {master.guid}")
    elif planned.state == STANDBY and master.guid == guid:
        yield Sentence("not-standby", f"opensm has become the master at {title}")
    elif state != planned.state:
        text = f"opensm at {title} is {state}, not {planned.state}"
        yield Sentence("manager-state-differs", text)
