# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import pytest
from support.fakes.fake_root import FakeRoot, Pci

from ovirt_rdma.host.collect.rdma import read_adapters
from ovirt_rdma.host.facts.devices import Adapter, PciIdentity
from ovirt_rdma.host.system.tree import FileTree

pytestmark = pytest.mark.hypervisor

CX3 = Pci("0000:04:00.0", "0x15b3", "0x1003", "mlx4_core")
CX6 = Pci("0000:3b:00.0", "0x15b3", "0x101d", "mlx5_core")


@pytest.fixture
def host(tmp_path):
    return FakeRoot(tmp_path)


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
