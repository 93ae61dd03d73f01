# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import shutil

import pytest
from support.fakes.fake_hosts import (
    connectx3_ib,
    connectx5_roce,
    soft_roce,
    without_rdma,
)
from support.fakes.fake_root import FakeRoot, Pci

from ovirt_rdma.host.collect.rdma import (
    parse_port_mtus,
    rates_mbps,
    read_rdma_devices,
)
from ovirt_rdma.host.collect.tools import Tools
from ovirt_rdma.host.facts.devices import Gid, PciIdentity, PKey
from ovirt_rdma.host.facts.model import UNKNOWN
from ovirt_rdma.host.system.commands import CommandFailed
from ovirt_rdma.host.system.tree import FileTree

pytestmark = pytest.mark.hypervisor

PORT = "/sys/class/infiniband/mlx4_0/ports/1"


@pytest.fixture
def hca(tmp_path):
    """A ConnectX-3 whose first port is on a fabric with two partitions."""
    host = connectx3_ib(tmp_path)
    host.rdma_identity("mlx4_0", "1", "MT4099", "MT_1090120019")
    host.fabric_port(
        "mlx4_0",
        1,
        lid=5,
        sm_lid=1,
        pkeys=("0xffff", "0x8000", "0x8001", "0x0002"),  # 0x8000 is no partition
    )
    host.fabric_port("mlx4_0", 2, lid=0, sm_lid=0, pkeys=("0xffff",))
    host.ib_mtus("mlx4_0", 1, 4096, 2048)
    host.ib_mtus("mlx4_0", 2, 4096, 0)
    return host


def detailed(host: FakeRoot, run="its own"):
    problems: list[str] = []
    tools = Tools(host.runner if run == "its own" else run, str(host.path))
    devices = read_rdma_devices(FileTree(host.path), problems, tools=tools)
    return devices, problems


def only_port(host: FakeRoot):
    (device,), problems = detailed(host)
    return device.ports[0], problems


def test_an_infiniband_hca(hca):
    (device,), problems = detailed(hca)
    assert (device.hw_rev, device.hca_type) == ("1", "MT4099")
    up, down = device.ports
    assert (up.lid, up.sm_lid, up.guid) == (5, 1, "0002:c903:00fb:1231")
    assert (up.max_mtu, up.active_mtu) == (4096, 2048)
    # In the order of the table, without empty entries.
    assert up.pkeys == (PKey(0, "0xffff"), PKey(2, "0x8001"), PKey(3, "0x0002"))
    assert (down.lid, down.sm_lid, down.active_mtu) == (0, 0, None)
    assert up.default_gid_type is None
    assert not problems


def test_a_roce_port_has_no_guid_and_may_have_a_default_gid_type(tmp_path):
    host = connectx5_roce(tmp_path)
    assert only_port(host)[0].default_gid_type is None
    host.default_gid_type("mlx5_bond_0", 1, "RoCE v2")
    port, problems = only_port(host)
    assert (port.guid, port.default_gid_type) == (None, "RoCE v2")
    assert not problems


def test_the_type_of_service_of_connections(tmp_path):
    host = connectx5_roce(tmp_path)
    assert only_port(host)[0].default_tos is None  # no configfs
    config = tmp_path / "sys/kernel/config/rdma_cm"
    config.mkdir(parents=True)
    assert only_port(host)[0].default_tos == 0  # nobody has set it
    host.default_gid_type("mlx5_bond_0", 1, "RoCE v2")
    assert only_port(host) == (only_port(host)[0], [])
    assert only_port(host)[0].default_tos is None  # a kernel without it
    (config / "mlx5_bond_0/ports/1/default_roce_tos").write_text("106\n")
    assert only_port(host)[0].default_tos == 106


def test_nothing_is_made_in_configfs(tmp_path):
    host = connectx5_roce(tmp_path)
    (tmp_path / "sys/kernel/config/rdma_cm").mkdir(parents=True)
    only_port(host)
    assert not list((tmp_path / "sys/kernel/config/rdma_cm").iterdir())


def test_iwarp_has_no_p_key_table_and_soft_roce_no_identity(tmp_path):
    host = soft_roce(tmp_path)
    (device,), problems = detailed(host)
    assert (device.hw_rev, device.hca_type) == (None, None)
    assert device.ports[0].pkeys == ()
    assert device.ports[0].lid is None
    assert not problems


def test_without_rdma_devices_nothing_is_asked(tmp_path):
    host = without_rdma(tmp_path)
    host.runner.answer("ibv_devinfo", CommandFailed("No IB devices found", 255))
    assert detailed(host) == ((), [])
    assert not host.runner.ran


# Rates


@pytest.mark.parametrize(
    ("text", "signalling", "payload"),
    [
        ("10 Gb/sec (4X SDR)", 10000, 8000),
        ("2.5 Gb/sec (1X)", 2500, 2000),  # Linux before 3.x names no SDR
        ("20 Gb/sec (4X DDR)", 20000, 16000),
        ("40 Gb/sec (4X QDR)", 40000, 32000),
        ("40 Gb/sec (4X FDR10)", 40000, 40000),
        ("56 Gb/sec (4X FDR)", 56000, 54545),
        ("14 Gb/sec (1X FDR)", 14000, 13636),
        ("100 Gb/sec (4X EDR)", 100000, 100000),
        ("200 Gb/sec (4X HDR)", 200000, 200000),
        ("100 Gb/sec (2X HDR)", 100000, 100000),
        ("400 Gb/sec (4X NDR)", 400000, 400000),
        ("800 Gb/sec (4X XDR)", 800000, 800000),
        ("800 Gb/sec (4X YDR)", 800000, None),
        ("100 Gb/sec", 100000, None),
        ("fast", None, None),
    ],
)
def test_the_rate_of_a_port(text, signalling, payload):
    assert rates_mbps(text, "InfiniBand") == (signalling, payload)
    # Ethernet's is its payload rate: mlx4 shows 40GBase as QDR.
    assert rates_mbps(text, "Ethernet") == (signalling, signalling)


def test_both_rates_are_in_the_facts_but_for_soft_roce(tmp_path, hca):
    port, _ = only_port(hca)
    assert (port.rate_mbps, port.data_rate_mbps) == (40000, 40000)
    assert only_port(soft_roce(tmp_path / "soft"))[0].data_rate_mbps is None


# ibv_devinfo


def test_a_host_without_ibv_devinfo(hca):
    hca.runner.answers = {}
    port, problems = only_port(hca)
    assert (port.max_mtu, port.active_mtu) == (None, None)
    assert not problems
    (device,), problems = detailed(hca, run=None)
    assert device.ports[0].max_mtu is None
    assert not problems


def test_a_device_that_cannot_be_opened_costs_only_its_own_mtus(hca):
    """ibv_devinfo gives one exit status for all devices."""
    hca.rdma_device("mlx5_9")
    hca.rdma_port("mlx5_9")
    failure = CommandFailed("Failed to open device", 1)
    hca.runner.answer("ibv_devinfo", failure)
    hca.runner.answer("ibv_devinfo -d mlx4_0", hca.devinfo_of("mlx4_0"))
    hca.runner.answer("ibv_devinfo -d mlx5_9", failure)
    devices, problems = detailed(hca)
    assert [d.ports[0].active_mtu for d in devices] == [2048, None]
    assert problems == ["ibv_devinfo -d mlx5_9 failed: Failed to open device"]


def test_a_failure_with_one_device_is_its_own(hca):
    hca.runner.answer("ibv_devinfo", CommandFailed("Failed to open device", 255))
    (device,), problems = detailed(hca)  # it is asked nothing else
    assert device.ports[0].active_mtu is None
    assert problems == ["ibv_devinfo failed: Failed to open device"]


def test_omni_path_shows_verbs_less_than_it_has(tmp_path):
    host = FakeRoot(tmp_path)
    hfi = Pci("0000:5e:00.0", "0x8086", "0x24f0", "hfi1", "0x11")
    host.rdma_device("hfi1_0", pci=hfi)
    host.rdma_port("hfi1_0", rate="100 Gb/sec (4X EDR)")
    host.ib_mtus("hfi1_0", 1, 4096, 4096)
    port, _ = only_port(host)
    assert (port.max_mtu, port.active_mtu) == (None, None)
    host.ib_mtus("hfi1_0", 1, 4096, 2048)
    assert only_port(host)[0].active_mtu == 2048


def test_lines_of_other_versions_are_passed_over():
    text = (
        "hca_id: mlx4_2\n        fw_ver:        2.40.7000\n\n"
        "        Device ports:\n                port:   1\n"
        "                        max_mtu:                4096 (5)\n"
        "                        active_mtu:             10240 (7)\n"
        "                port:   2\n                        max_mtu:  2048 (4)\n"
        "                        max_mtu_of_nobody:  2048 (4)\n"
    )
    assert parse_port_mtus(text) == {
        ("mlx4_2", 1): {"max": 4096, "active": 10240},
        ("mlx4_2", 2): {"max": 2048},
    }


# What is odd


@pytest.mark.parametrize(
    ("path", "text", "sentence"),
    [
        ("lid", "five", f"{PORT}/lid reads 'five', not a number"),
        ("sm_lid", "-0x1", f"{PORT}/sm_lid reads '-0x1', not a number"),
        ("lid", "", f"{PORT}/lid is empty"),
        ("pkeys/1", "0x80011", f"{PORT}/pkeys/1 reads '0x80011', not a P_Key"),
    ],
)
def test_odd_text_is_a_sentence_and_the_rest_is_there(hca, path, text, sentence):
    hca.rdma_identity("mlx4_0", hca_type="")  # valid for some drivers
    before, _ = only_port(hca)
    hca.write(f"{PORT}/{path}", text)
    port, problems = only_port(hca)
    assert problems == [sentence]
    assert [p for p in port.pkeys if p.index != 1] == list(before.pkeys)
    assert port.guid == before.guid


def test_attributes_that_cannot_be_read_are_sentences(hca):
    for name in ("hw_rev", "ports/1/lid", "ports/1/pkeys/2"):
        hca.unreadable(f"/sys/class/infiniband/mlx4_0/{name}")
    (device,), problems = detailed(hca)
    assert device.hw_rev is None
    assert device.hca_type == "MT4099"
    assert [pkey.value for pkey in device.ports[0].pkeys] == ["0xffff", "0x0002"]
    assert [problem.split(" cannot be read")[0] for problem in problems] == [
        "/sys/class/infiniband/mlx4_0/hw_rev",
        f"{PORT}/lid",
        f"{PORT}/pkeys/2",
    ]


def test_an_empty_type_is_none_and_nothing_to_tell(hca):
    hca.rdma_identity("mlx4_0", hca_type="")
    (device,), problems = detailed(hca)
    assert device.hca_type is None
    assert not problems


@pytest.mark.parametrize("prefix", ["0000", "fe80"])  # the latter for a fresh VF
def test_a_port_without_a_guid(hca, prefix):
    hca.gid("mlx4_0", 1, 0, ":".join([prefix, *["0000"] * 7]))
    assert only_port(hca)[0].guid is None


def test_a_device_that_goes_away_is_left_out(hca):
    hca.rdma_device("mlx5_9")

    def remove(argv):
        for place in ("sys/class/infiniband/mlx4_0", "sys/devices/pci0000:00"):
            path = hca.path / place
            path.unlink() if path.is_symlink() else shutil.rmtree(path)
        return ""

    found, problems = detailed(hca, remove)
    assert [device.name for device in found] == ["mlx5_9"]
    assert problems == ["/sys/class/infiniband/mlx4_0 disappeared during the read"]


# Devices, ports and GIDs, as a mount reads them

RXE_PORT = "/sys/class/infiniband/rxe0/ports/1"


@pytest.fixture
def rxe(tmp_path):
    return soft_roce(tmp_path)


def light_port(host: FakeRoot):
    """The only port, as a mount reads it."""
    problems: list[str] = []
    (device,) = host.reader().rdma_devices(problems)
    (port,) = device.ports
    return port, problems


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("4: ACTIVE", "ACTIVE"),
        ("4:ACTIVE", "ACTIVE"),
        ("ACTIVE", "ACTIVE"),
        ("5: ACTIVE_DEFER", "ACTIVE_DEFER"),
        ("1: DOWN", "DOWN"),
        ("4", UNKNOWN),
        ("4: ", UNKNOWN),
        (": : :", UNKNOWN),
        (b"\xff\xfe", UNKNOWN),
        ("4: ACTIVE: x", UNKNOWN),
    ],
)
def test_port_states(rxe, text, state):
    rxe.write(f"{RXE_PORT}/state", text)
    port, problems = light_port(rxe)
    assert port.state == state
    assert len(problems) == (state == UNKNOWN)
    for problem in problems:
        assert problem.startswith(f"{RXE_PORT}/state reads ")
        assert problem.isascii()


def test_a_port_without_a_rate_and_an_odd_one(rxe):
    rxe.write(f"{RXE_PORT}/rate", "fast")
    port, problems = light_port(rxe)
    assert port.rate_mbps is None
    assert problems == [f"{RXE_PORT}/rate reads 'fast', not a rate in Gb/sec"]
    rxe.unreadable(f"{RXE_PORT}/rate")
    port, problems = light_port(rxe)
    assert (port.rate_mbps, problems) == (None, [])


def test_infiniband_hca_with_two_ports(hca, problems):
    (device,) = hca.reader().rdma_devices(problems)
    # What a mount asks for is light.
    assert device.ports[0].pkeys == ()
    assert not hca.runner.ran
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
    port, problems = light_port(connectx5_roce(tmp_path))
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


def test_a_host_without_rdma_modules_has_no_devices_and_no_problem(tmp_path, problems):
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


@pytest.mark.parametrize("name", ["state", "phys_state", "link_layer"])
def test_an_empty_or_unreadable_text_is_unknown(rxe, name):
    rxe.write(f"{RXE_PORT}/{name}", "")
    port, problems = light_port(rxe)
    assert UNKNOWN in (port.state, port.physical_state, port.link_layer)
    assert problems == [f"{RXE_PORT}/{name} is empty"]

    rxe.unreadable(f"{RXE_PORT}/{name}")
    port, problems = light_port(rxe)
    assert UNKNOWN in (port.state, port.physical_state, port.link_layer)
    assert problems == [f"{RXE_PORT}/{name} cannot be read: Is a directory"]


@pytest.mark.parametrize("text", ["fe80::1", "nonsense", b"\xff", "FE80:" * 8])
def test_an_odd_gid_is_left_out(rxe, text):
    rxe.write(f"{RXE_PORT}/gids/1", text)
    port, problems = light_port(rxe)
    assert [gid.index for gid in port.gids] == [0, 2]
    (problem,) = problems
    assert problem.startswith(f"{RXE_PORT}/gids/1 reads ")


def test_a_gid_whose_attributes_cannot_be_read(rxe):
    rxe.unreadable(f"{RXE_PORT}/gid_attrs/types/1")
    rxe.unreadable(f"{RXE_PORT}/gid_attrs/ndevs/1")
    rxe.unreadable(f"{RXE_PORT}/gids/2")
    port, problems = light_port(rxe)
    assert [(g.index, g.type, g.netdev) for g in port.gids] == [
        (0, "RoCE v2", "eth0"),
        (1, None, None),
    ]
    assert not problems


def test_a_folder_that_is_no_port_is_none(rxe):
    rxe.write("/sys/class/infiniband/rxe0/ports/one/state", "4: ACTIVE")
    _, problems = light_port(rxe)
    assert problems == []


def test_a_device_that_went_away_hides_no_other(rxe, problems):
    rxe.rdma_device("rxe1")
    gone = (rxe.path / "sys/class/infiniband/rxe1").resolve()
    shutil.rmtree(gone)
    (device,) = rxe.reader().rdma_devices(problems)
    assert device.name == "rxe0"
    assert problems == ["/sys/class/infiniband/rxe1 disappeared during the read"]
