# SPDX-License-Identifier: GPL-2.0-or-later
"""The real opensm on a replayed fabric, with partitions rendered from the policy.

The fabric is a recorded one: 96 hosts, 6 switches, 144 links.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from support.command_line import run
from support.host.recorded_fabric import TABLE, RecordedFabric

from lab import simulated_fabric
from lab.problem import LabProblem
from lab.simulated_fabric import SimulatedFabric
from ovirt_rdma.host.fabric.decisions import unlike
from ovirt_rdma.host.fabric.partitions_conf import guid_text, parse
from ovirt_rdma.host.fabric.subnet import (
    FabricReader,
    LocalPort,
    broadcast_groups,
    fabric_guids,
)
from ovirt_rdma.host.facts.devices import RdmaPort
from ovirt_rdma.host.system.commands import CommandFailed
from ovirt_rdma.host.system.tree import FileTree

RECORDED = RecordedFabric(TABLE.read_text())
# The first three switches' hosts are hypervisors; those of the last are others.
CLUSTERS = ("ec0d9a0300ec8240", "ec0d9a0300ec8480", "ec0d9a0300f548e0")
HEAD = "version: 1\nfabric:\n  defaults: {mtu: 4096, rate: 100}\n  hosts:\n"


@pytest.fixture(scope="module")
def fabric(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimulatedFabric]:
    folder = tmp_path_factory.mktemp("fabric")
    # In ibsim a port's GUID is that of its node plus its number.
    used = [RECORDED.manager, *RECORDED.storage, *(_first(one) for one in CLUSTERS)]
    guids = {f"H-{guid}": int(guid, 16) + 1 for guid in used}
    package, text = simulated_fabric.fetched(), RECORDED.text()
    with simulated_fabric.replayed(package, folder, text, guids) as running:
        yield running


def _first(switch: str) -> str:
    return RECORDED.hosts[switch][0]


def _policy(guids: dict[str, str]) -> str:
    """Return the policy: storage for all hypervisors, limited for those of the third
    cluster, and a VLAN for each of the first two. ``guids`` are port GUIDs by node.
    """
    lines = [HEAD]
    names: dict[str, list[str]] = {}
    groups = {**{c: RECORDED.hosts[c] for c in CLUSTERS}, "nas": RECORDED.storage}
    for switch, nodes in groups.items():
        for n, node in enumerate(nodes):
            name = f"{switch[-4:]}-{n}"
            names.setdefault(switch, []).append(name)
            grouped = ":".join(guids[node][2 + i : 6 + i] for i in range(0, 16, 4))
            lines.append(f"    {name}: ['{grouped}']\n")
    one, two, three = (names[cluster] for cluster in CLUSTERS)
    storage = [*names["nas"], *one, *two, *(f"{name}=limited" for name in three)]
    lines.append("  partitions:\n")
    lines.append(f"    storage: {{pkey: 0x8001, members: [{', '.join(storage)}]}}\n")
    lines.append(f"    vlan100: {{vlan: 100, members: [{', '.join(one)}]}}\n")
    lines.append(f"    vlan101: {{vlan: 101, members: [{', '.join(two)}]}}\n")
    return "".join(lines)


def _ports(text: str) -> dict[str, str]:
    """Return the port GUIDs of a topology by node; its description has its GUID."""
    found = re.findall(r'^Ca.*# "(\S+).*\n\[1\]\(([0-9a-f]+)\)', text, re.MULTILINE)
    return {node: guid_text(int(guid, 16)) for node, guid in found}


def test_the_recorded_topology_is_read_as_it_is():
    ports = _ports(RECORDED.text())
    assert ports == {n: f"0x{n}" for n in RECORDED.hcas}
    assert len(ports) == 96
    assert fabric_guids(RECORDED.text()) == set(ports.values())


class Asked:
    """Runs the tools of our reader at one HCA of the fabric."""

    def __init__(self, fabric: SimulatedFabric, node: str) -> None:
        self.fabric, self.host = fabric, f"H-{node}"
        self.guid = guid_text(fabric.guids[self.host])
        port = RdmaPort(1, "ACTIVE", "LinkUp", "InfiniBand")
        self.port = LocalPort("ibsim0", 1, self.guid, port)
        self.reader = FabricReader(FileTree("/"), self.tool)

    def tool(self, argv: Sequence[str]) -> str:
        try:
            return self.fabric.run(self.host, *argv)
        except LabProblem as problem:
            raise CommandFailed(str(problem), 1) from None

    def groups(self) -> set[int]:
        text = self.tool(("saquery", "-C", "ibsim0", "-P", "1", "-g"))
        return {group.pkey for group in broadcast_groups(text)}


def test_opensm_gives_a_replayed_fabric_the_partitions_of_the_policy(
    fabric: SimulatedFabric, capsys, tmp_path: Path
):
    replayed = fabric.run(f"H-{RECORDED.manager}", "ibnetdiscover")
    guids = _ports(replayed)
    assert guids.keys() == set(RECORDED.hcas)
    assert replayed.count("4xDDR") == 2  # one slow link, seen from both ends
    policy, file = tmp_path / "policy.yaml", tmp_path / "partitions.conf"
    policy.write_text(_policy(guids))
    render = ("fabric", "partitions", "render", "--policy", str(policy))
    file.write_text(run(capsys, *render).out)
    valid = run(capsys, "fabric", "partitions", "validate", str(file))
    assert (valid.code, valid.out) == (0, f"{file} is valid: 4 partitions.\n")
    definitions = parse(file.read_bytes(), "partitions.conf")
    with fabric.manager(f"H-{RECORDED.manager}", file):
        seen = {
            node: Asked(fabric, node).groups()
            for node in (*RECORDED.storage, *map(_first, CLUSTERS))
        }
        nas, spare, one, two, three = seen.values()
        assert nas == spare == three == {0x7FFF, 0x0001}
        assert (one, two) == ({0x7FFF, 1, 0x64}, {0x7FFF, 1, 0x65})
        asked = Asked(fabric, _first(CLUSTERS[0]))
        shown = asked.reader.subnet(asked.port)
        manager = guids[RECORDED.manager]
        assert shown.master is not None and shown.master.guid == manager
        tables = asked.reader.tables(asked.port, guids.values())
        assert tables.keys() == set(guids.values())
        managers = {manager}
        assert unlike(definitions, shown.groups, tables, managers, asked.guid) == ()
        assert tables[guids[_first(CLUSTERS[2])]] == {0xFFFF, 0x0001}
        assert tables[guids[RECORDED.hosts["ec0d9a0300f548c0"][0]]] == {0xFFFF}
        # What the policy does not say is found.
        fewer = [one for one in definitions if one.pkey != 0x64]
        wrong = unlike(fewer, shown.groups, tables, managers, asked.guid)
        assert {one.id for one in wrong} == {"port-is-member"}
        assert len(wrong) == len(RECORDED.hosts[CLUSTERS[0]])
