# SPDX-License-Identifier: GPL-2.0-or-later
"""VFs, what their PF has set for them, and the host's id."""

from __future__ import annotations

import pytest
from support.fakes.fake_root import FakeRoot, Pci

from ovirt_rdma.host.collect.tools import virtual_functions
from ovirt_rdma.host.facts.devices import VfPort, VirtualFunction, mlx4_function

pytestmark = pytest.mark.hypervisor

CX3 = Pci("0000:04:00.0", "0x15b3", "0x1003", "mlx4_core")
CX5 = Pci("0000:5e:00.0", "0x15b3", "0x1017", "mlx5_core")
ZERO = "0000:0000:0000:0000"
PORT, NODE = "0e11:2233:4455:6601", "0e11:2233:4455:6600"


@pytest.fixture
def host(tmp_path):
    return FakeRoot(tmp_path)


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
