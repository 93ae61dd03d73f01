# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import pytest
from support.fakes.fake_root import FakeRoot, Pci
from support.golden.golden_traps import CARD_FOLDER, Mount, busy_host

from ovirt_rdma.host.collect.rdma import read_adapters
from ovirt_rdma.host.collect.tools import virtual_functions
from ovirt_rdma.host.facts.devices import (
    Adapter,
    PciIdentity,
    PciLink,
    VfPort,
    VirtualFunction,
    mlx4_function,
)
from ovirt_rdma.host.system.tree import FileTree

pytestmark = pytest.mark.hypervisor

CX3 = Pci("0000:04:00.0", "0x15b3", "0x1003", "mlx4_core")
CX6 = Pci("0000:3b:00.0", "0x15b3", "0x101d", "mlx5_core")


def adapters(host: FakeRoot):
    problems: list[str] = []
    devices = host.reader().rdma_devices()
    return read_adapters(FileTree(host.path), devices, problems), problems


def only(host: FakeRoot) -> Adapter:
    (adapter,), problems = adapters(host)
    assert not problems
    return adapter


def test_an_adapter_with_its_driver(host):
    host.adapter(CX6, "0x020000", max_vfs=8)
    assert only(host) == Adapter(
        pci=PciIdentity("0000:3b:00.0", "0x15b3", "0x101d", "0x00"),
        driver="mlx5_core",
        vfs=0,
        max_vfs=8,
    )


def test_an_adapter_that_no_driver_took(host):
    """ConnectX-2 on EL9."""
    host.adapter(Pci("0000:04:00.0", "0x15b3", "0x673c", "", "0xb0"), "0x0c0600")
    adapter = only(host)
    assert (adapter.driver, adapter.max_vfs) == (None, None)
    assert adapter.pci.revision == "0xb0"


@pytest.mark.parametrize(
    ("vendor", "device", "class_code", "listed"),
    [
        ("0x15b3", "0x1003", "0x028000", True),  # ConnectX-3
        ("0x15b3", "0x101b", "0x020700", True),  # ConnectX-6, InfiniBand
        ("0x15b3", "0xc2d5", "0x080100", False),  # BlueField's DMA controller
        ("0x15b3", "0x1976", "0x060400", False),  # BlueField's bridge
        ("0x8086", "0x24f0", "0x020800", True),  # Omni-Path
        ("0x1077", "0x7322", "0x0c0600", True),  # qib
        ("0x8086", "0x1592", "0x020000", True),  # E810
        ("0x8086", "0x1572", "0x020000", False),  # X710
        ("0x14e4", "0x1750", "0x020000", True),  # BCM57508
        ("0x14e4", "0x165f", "0x020000", False),  # BCM5720
        ("0x1425", "0x6407", "0x020000", True),  # T62100, the function of the driver
        ("0x1425", "0x6607", "0x010000", False),  # its storage function
        ("0x1af4", "0x1041", "0x020000", False),
        ("0x1234", "0x1111", "0x030000", False),
    ],
)
def test_which_functions_are_listed(host, vendor, device, class_code, listed):
    host.adapter(Pci("0000:04:00.0", vendor, device, "some"), class_code)
    assert [a.pci.device for a in adapters(host)[0]] == ([device] if listed else [])


def test_any_function_with_an_rdma_device_is_listed(host):
    e810 = Pci("0000:18:00.0", "0x8086", "0x1592", "ice")
    host.adapter(e810, "0x020000")
    host.rdma_device("rocep24s0", pci=e810)
    assert only(host).driver == "ice"


def test_what_a_nic_offers_to_its_rdma_module(host):
    e810 = Pci("0000:18:00.0", "0x8086", "0x1592", "ice")
    host.adapter(e810, "0x020000")
    assert only(host).auxiliary == ()
    host.write(f"{e810.folder}/ice.roce.0/uevent", "")
    host.write(f"{e810.folder}/ice.sf.1/uevent", "")
    assert only(host).auxiliary == ("ice.roce.0",)


def test_vfs_know_their_physical_function(host):
    host.adapter(CX6, max_vfs=8)
    host.virtual_functions(CX6, 2, "0x101e", driver="vfio-pci")
    (pf, *vfs), problems = adapters(host)
    assert (pf.vfs, pf.max_vfs, pf.physical_function) == (2, 8, None)
    assert [(vf.pci.address, vf.driver) for vf in vfs] == [
        ("0000:3b:00.1", "vfio-pci"),
        ("0000:3b:00.2", "vfio-pci"),
    ]
    assert {vf.physical_function for vf in vfs} == {CX6.address}
    assert {(vf.vfs, vf.max_vfs) for vf in vfs} == {(None, None)}
    assert not problems


def test_mlx4_tells_the_type_and_ib_mtu_of_each_port(host):
    host.adapter(CX3, "0x028000")
    host.mlx4_port(CX3, 1, "ib", mtu=2048)
    host.mlx4_port(CX3, 2, "auto (eth)", mtu=4096)
    adapter = only(host)
    assert adapter.port_types == ("ib", "auto (eth)")
    # The kernel logs a warning when an Ethernet port's is read.
    assert adapter.port_mtus == (2048, 0)


def test_only_vendor_and_class_are_read_of_what_is_no_adapter(host):
    other = Pci("0000:00:1f.2", "0x8086", "0xa102", "ahci")
    host.adapter(other, "0x010601")
    for name in ("device", "revision"):
        host.unreadable(f"{other.folder}/{name}")
    assert adapters(host) == ((), [])


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("sriov_totalvfs", "some", "sriov_totalvfs reads 'some', not a number"),
        ("revision", "", "revision is empty"),
        ("mlx4_port1_mtu", "-1", "mlx4_port1_mtu reads '-1', not a number"),
    ],
)
def test_odd_text_is_a_sentence_and_the_adapter_is_there(host, name, text, sentence):
    host.adapter(CX3, "0x028000", max_vfs=4)
    host.mlx4_port(CX3, 1, "ib")
    host.write(f"{CX3.folder}/{name}", text)
    (adapter,), problems = adapters(host)
    assert problems == [f"/sys/bus/pci/devices/{CX3.address}/{sentence}"]
    assert adapter.driver == "mlx4_core"


def test_a_function_that_cannot_be_told_is_a_sentence(host):
    host.adapter(CX3, "0x028000")
    host.adapter(CX6, "0x020000")
    host.unreadable(f"{CX3.folder}/vendor")
    found, problems = adapters(host)
    assert [adapter.pci.address for adapter in found] == [CX6.address]
    (sentence,) = problems
    assert sentence.startswith(f"/sys/bus/pci/devices/{CX3.address}/vendor cannot be")


def test_a_function_that_goes_away_is_left_out(host):
    host.adapter(CX6, "0x020000")
    link = host.path / "sys/bus/pci/devices/0000:04:00.0"
    link.symlink_to("../../../devices/nowhere")
    found, problems = adapters(host)
    assert [adapter.pci.address for adapter in found] == [CX6.address]
    assert problems == ["/sys/bus/pci/devices/0000:04:00.0 disappeared during the read"]


# The PCIe link


@pytest.fixture
def busy(tmp_path):
    return busy_host(tmp_path, Mount())


def linked(busy):
    (found,) = busy.reader().facts().adapters
    return found


def test_link_and_slot(busy):
    assert linked(busy).pci_link == PciLink(8.0, 16, 16.0, 16, 8.0, 16)


@pytest.mark.parametrize(
    "speed", ["Unknown", "Unknown speed", "fast", "-8.0 GT/s PCIe"]
)
def test_a_link_that_the_kernel_does_not_know(busy, speed):
    busy.write(f"{CARD_FOLDER}/current_link_speed", speed)
    busy.write(f"{CARD_FOLDER}/current_link_width", "0")
    link = linked(busy).pci_link
    assert (link.speed_gts, link.width, link.most_width) == (None, None, 16)
    # A virtual function has none.
    busy.link(f"{CARD_FOLDER}/physfn", "/sys/devices/pci0000:3a/0000:3a:00.0")
    assert linked(busy).pci_link is None


# Virtual functions, and the host's id, of which their GUIDs are made

CX5 = Pci("0000:5e:00.0", "0x15b3", "0x1017", "mlx5_core")
ZERO = "0000:0000:0000:0000"
PORT, NODE = "0e11:2233:4455:6601", "0e11:2233:4455:6600"


def vfs_of(host: FakeRoot):
    facts = host.reader().facts()
    (found,) = (a.virtual_functions for a in facts.adapters if a.virtual_functions)
    return found, facts.problems


def connectx_5(host: FakeRoot) -> list[Pci]:
    host.adapter(CX5, "0x020700", max_vfs=8)
    host.rdma_device("mlx5_0", pci=CX5)
    host.ipoib("ib0", pci=CX5, guid="ec0d:9a03:007d:7d1a")
    return host.virtual_functions(CX5, 3, "0x1018", "", "0x020700")


def test_mlx5_by_netlink(host):
    vfs = connectx_5(host)
    host.link(f"{vfs[0].folder}/driver", "/sys/bus/drivers/vfio-pci")
    host.rdma_device("mlx5_1", pci=vfs[1])
    host.ipoib("ib1", pci=vfs[1], guid=PORT)
    host.ip_vfs("ib0", [(NODE, PORT, "enable"), (ZERO, ZERO, "auto")])
    (first, second, third), problems = vfs_of(host)
    assert (first.number, first.address) == (0, "0000:5e:00.1")
    assert first.in_virtual_machine and not second.in_virtual_machine
    assert (first.node_guid, first.link_state) == (NODE, "enable")
    assert first.ports == (VfPort(1, PORT),)
    assert second.netdev == "ib1"
    assert second.ports == (VfPort(1, ZERO),)
    # One that ip does not list, as if it had just been made.
    assert (third.node_guid, third.link_state, third.ports) == (None, None, ())
    assert not [problem for problem in problems if "link show" in problem]


def test_a_failure_of_ip_leaves_the_vfs(host):
    connectx_5(host)
    host.runner.answer("ip -j link show dev ib0", "nonsense")
    vfs, problems = vfs_of(host)
    assert [vf.node_guid for vf in vfs] == [None] * 3
    assert [problem for problem in problems if "ip -j link show dev ib0" in problem]


def test_mlx4_by_the_folder_iov(host):
    host.adapter(CX3, "0x028000", max_vfs=8)
    host.rdma_device("mlx4_0", pci=CX3)
    host.ipoib("ib0", pci=CX3, guid="0002:c903:00fb:1231")
    host.virtual_functions(CX3, 3, "0x1004", "mlx4_core", "0x028000")
    host.mlx4_vf(CX3, "mlx4_0", 0, "e11223344556601", ("0", "3"))
    host.mlx4_vf(CX3, "mlx4_0", 1, "ffffffffffffffff")
    host.mlx4_vf(CX3, "mlx4_0", 2, "yes")
    (first, second, third), problems = vfs_of(host)
    assert first.ports == (VfPort(1, PORT, (0, 3)),)
    assert second.ports == (VfPort(1, ZERO),)
    assert third.ports == ()
    assert [problem for problem in problems if "reads 'yes', not a GUID" in problem]


@pytest.mark.parametrize(
    ("number", "name"),
    [(0, "0000:04:00.1"), (6, "0000:04:00.7"), (7, "0000:04:01.0")],
)
def test_names_of_mlx4s_functions(number, name):
    assert mlx4_function("0000:04:00.0", number) == name


def test_odd_output_of_ip():
    rows = [{"ifname": "ib0", "vfinfo_list": [7, {"vf": "1"}, {"vf": 2}]}]
    assert virtual_functions(rows) == {2: VirtualFunction(2, "")}
    assert virtual_functions([{"vfinfo_list": None}, {}]) == {}
    odd = {"vf": 0, "node guid": "00:11", "port guid": 3, "link_state": 1}
    assert virtual_functions([{"vfinfo_list": [odd]}]) == {0: VirtualFunction(0, "")}


def test_the_hosts_id_is_that_of_vdsm(host):
    assert host.reader().facts().host_uuid is None
    host.write("/sys/class/dmi/id/product_uuid", "4C4C4544-0042-3010-8052-B4C04F4E3032")
    assert host.reader().facts().host_uuid == "4c4c4544-0042-3010-8052-b4c04f4e3032"
    host.write("/etc/vdsm/vdsm.id", "3C2EE5A2-1b1e-4c35-b2a5-6a56fd8f8f14\n\n")
    assert host.reader().facts().host_uuid == "3c2ee5a2-1b1e-4c35-b2a5-6a56fd8f8f14"
