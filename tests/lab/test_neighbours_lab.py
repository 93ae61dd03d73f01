# SPDX-License-Identifier: GPL-2.0-or-later
"""The real smpquery, on a simulated fabric: what the ports of hosts are cabled to."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.fakes.fake_adapters import node_info
from support.fakes.fake_root import FakeRoot

from lab import simulated_fabric
from lab.problem import LabProblem
from lab.simulated_fabric import SimulatedFabric
from ovirt_rdma.host.facts.devices import Neighbour
from ovirt_rdma.host.system.commands import CommandFailed

HOSTS = ("hv1", "hv2")
FIRST = 0x2C9030000010
# Two hosts without a switch, as ibsim reads it.
BACK_TO_BACK = f"""\
caguid=0x{FIRST:x}
Hca 1 "hv1"
[1] "hv2"[1]

caguid=0x{FIRST + 16:x}
Hca 1 "hv2"
[1] "hv1"[1]
"""
Read = Callable[[SimulatedFabric, str], tuple[Neighbour, ...]]


@pytest.fixture(scope="module")
def fabric(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimulatedFabric]:
    folder = tmp_path_factory.mktemp("cables")
    with simulated_fabric.running(simulated_fabric.fetched(), folder, HOSTS) as running:
        yield running


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def neighbours(fabric: SimulatedFabric, name: str) -> tuple[Neighbour, ...]:
        """Read facts on ``name``; its files are a fake's, smpquery is real."""
        host = FakeRoot(tmp_path / name)
        host.rdma_device("ibsim0")
        host.rdma_port("ibsim0")
        host.mad_device("ibsim0")

        def smpquery(argv):
            try:
                return fabric.run(name, *argv)
            except LabProblem as problem:
                raise CommandFailed(str(problem), 1) from None

        host.runner.program("smpquery", smpquery)
        facts = host.reader().facts()
        assert facts.problems == ()
        return facts.rdma_devices[0].ports[0].neighbours

    return neighbours


@pytest.mark.parametrize(("host", "port"), [("hv1", "1"), ("hv2", "2")])
def test_a_port_has_its_switch_with_name_and_port(fabric, read, host, port):
    assert read(fabric, host) == (
        Neighbour(
            kind="switch",
            id="0002:c902:0000:00ff",
            name="Switch",
            port=port,
            description=None,
            netdev=None,
        ),
    )


def test_back_to_back_it_is_the_other_host(tmp_path, read):
    guids = {host: FIRST + n * 16 + 1 for n, host in enumerate(HOSTS)}
    package = simulated_fabric.fetched()
    with simulated_fabric.replayed(package, tmp_path, BACK_TO_BACK, guids) as fabric:
        (found,) = read(fabric, "hv1")
    assert (found.kind, found.name, found.port) == ("host", "hv2", "1")
    assert found.id == "0000:2c90:3000:0020"


def test_the_forms_of_the_fake_are_those_of_the_tool(fabric):
    def names(text):
        return re.findall(r"^\w+:\.+", text, re.MULTILINE)

    ask = ("smpquery", "-t", "300", "-C", "ibsim0", "-P", "1", "-D")
    info = fabric.run("hv1", *ask, "nodeinfo", "0,1")
    fake = node_info("Switch", "0x0002c902000000ff", 1, "0,1")
    assert names(info) == names(fake)
    assert info.splitlines()[0] == fake.splitlines()[0]
    text = fabric.run("hv1", *ask, "nodedesc", "0,1")
    assert text == f"Node Description:{'Switch'.rjust(32, '.')}\n"
