# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import pytest
from support.fakes.fake_hosts import (
    connectx3_ib,
    connectx5_roce,
    soft_roce,
    without_rdma,
)
from support.fakes.fake_root import FakeRoot, Pci

from ovirt_rdma.host.facts.devices import Gid, PciIdentity
from ovirt_rdma.host.facts.model import UNKNOWN

pytestmark = pytest.mark.hypervisor

PORT = "/sys/class/infiniband/rxe0/ports/1"


@pytest.fixture
def rxe(tmp_path):
    return soft_roce(tmp_path)


def only_port(host: FakeRoot):
    problems: list[str] = []
    (device,) = host.reader().rdma_devices(problems)
    (port,) = device.ports
    return port, problems


def test_infiniband_hca_with_two_ports(tmp_path):
    problems: list[str] = []
    (device,) = connectx3_ib(tmp_path).reader().rdma_devices(problems)
    assert (device.name, device.node_type, device.driver) == (
        "mlx4_0",
        "CA",
        "mlx4_core",
    )
    assert device.firmware == "2.42.5000"
    assert device.pci == PciIdentity("0000:04:00.0", "0x15b3", "0x1003", "0x00")
    up, down = device.ports
    assert (up.number, up.state, up.physical_state) == (1, "ACTIVE", "LinkUp")
    assert (up.link_layer, up.rate_mbps) == ("InfiniBand", 40000)
    assert (down.number, down.state, down.physical_state) == (2, "DOWN", "Polling")
    # 127 entries are empty and have unreadable attributes.
    assert up.gids == (
        Gid(0, "fe80:0000:0000:0000:0002:c903:00fb:1231", "IB/RoCE v1", None),
    )
    assert not problems


def test_roce_lag_shows_the_gids_of_every_upper_netdev(tmp_path):
    port, problems = only_port(connectx5_roce(tmp_path))
    assert [gid.netdev for gid in port.gids[::2]] == [
        "bond0",
        "bond0.100",
        "storage",
        "storage",
        "storage",
    ]
    assert [gid.index for gid in port.gids] == list(range(10))
    assert port.gids[7] == Gid(
        7, "0000:0000:0000:0000:0000:ffff:0a00:0002", "RoCE v2", "storage"
    )
    assert not problems


def test_soft_roce_has_no_bus_device(rxe):
    (device,) = rxe.reader().rdma_devices()
    assert (device.driver, device.pci, device.firmware) == ("rdma_rxe", None, None)
    assert device.ports[0].rate_mbps == 2500
    assert {gid.type for gid in device.ports[0].gids} == {"RoCE v2"}


def test_a_host_without_rdma_modules_has_no_devices_and_no_problem(tmp_path):
    problems: list[str] = []
    assert without_rdma(tmp_path).reader().rdma_devices(problems) == ()
    assert not problems


def test_the_driver_of_an_adapter_on_another_bus(host):
    # A sub-function hangs below its PCI function.
    address, child = "0000:65:00.0", "mlx5_core.sf.2"
    pci = Pci(address, "0x15b3", "0xa2dc", "mlx5_core.sf", child=child)
    host.rdma_device("mlx5_2", node_type="4: RNIC", pci=pci)
    (device,) = host.reader().rdma_devices()
    assert device.node_type == "RNIC"
    assert device.driver == "mlx5_core.sf"
    assert device.pci is not None
    assert (device.pci.address, device.pci.device) == (address, "0xa2dc")


@pytest.mark.parametrize(
    "text, state",
    [
        ("4: ACTIVE", "ACTIVE"),
        ("4:ACTIVE", "ACTIVE"),
        ("ACTIVE", "ACTIVE"),
        ("5: ACTIVE_DEFER", "ACTIVE_DEFER"),
        ("1: DOWN", "DOWN"),
    ],
)
def test_port_states(rxe, text, state):
    rxe.write(f"{PORT}/state", text)
    port, problems = only_port(rxe)
    assert port.state == state
    assert not problems


@pytest.mark.parametrize("text", ["4", "4: ", ": : :", b"\xff\xfe", "4: ACTIVE: x"])
def test_an_odd_port_state_is_unknown(rxe, text):
    rxe.write(f"{PORT}/state", text)
    port, problems = only_port(rxe)
    assert port.state == UNKNOWN
    (problem,) = problems
    assert problem.startswith(f"{PORT}/state reads ")
    assert problem.isascii()


@pytest.mark.parametrize("name", ["state", "phys_state", "link_layer"])
def test_an_empty_or_unreadable_text_is_unknown(rxe, name):
    rxe.write(f"{PORT}/{name}", "")
    port, problems = only_port(rxe)
    assert UNKNOWN in (port.state, port.physical_state, port.link_layer)
    assert problems == [f"{PORT}/{name} is empty"]

    rxe.unreadable(f"{PORT}/{name}")
    port, problems = only_port(rxe)
    assert UNKNOWN in (port.state, port.physical_state, port.link_layer)
    assert problems == [f"{PORT}/{name} cannot be read: Is a directory"]


def test_a_port_without_a_rate(rxe):
    rxe.unreadable(f"{PORT}/rate")
    port, problems = only_port(rxe)
    assert port.rate_mbps is None
    assert not problems


def test_an_odd_rate_is_named(rxe):
    rxe.write(f"{PORT}/rate", "fast")
    port, problems = only_port(rxe)
    assert port.rate_mbps is None
    assert problems == [f"{PORT}/rate reads 'fast', not a rate in Gb/sec"]


def test_a_gid_whose_attributes_cannot_be_read(rxe):
    rxe.unreadable(f"{PORT}/gid_attrs/types/1")
    rxe.unreadable(f"{PORT}/gid_attrs/ndevs/1")
    rxe.unreadable(f"{PORT}/gids/2")
    port, problems = only_port(rxe)
    assert [(g.index, g.type, g.netdev) for g in port.gids] == [
        (0, "RoCE v2", "eth0"),
        (1, None, None),
    ]
    assert not problems
