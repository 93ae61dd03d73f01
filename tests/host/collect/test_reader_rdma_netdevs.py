# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import shutil

import pytest
from support.fakes.fake_hosts import connectx5_roce, mapped_gid, soft_roce, without_rdma
from support.fakes.fake_root import Pci

from ovirt_rdma.host.collect import netdevs
from ovirt_rdma.host.collect.netdevs import concerned, read_netdevs, with_rdma_details
from ovirt_rdma.host.collect.tools import Tools, links
from ovirt_rdma.host.facts.devices import (
    ARPHRD_INFINIBAND,
    Bond,
    Buffer,
    Dcb,
    Ipoib,
    Offload,
    PriorityOf,
)
from ovirt_rdma.host.system.commands import CommandFailed, CommandTimeout, NotInstalled
from ovirt_rdma.host.system.tree import FileTree

pytestmark = pytest.mark.hypervisor

HCA = Pci("0000:04:00.0", "0x15b3", "0x1003", "mlx4_core")
GUIDS = ("0002:c903:00fb:1231", "0002:c903:00fb:1232")


def read(host, problems=None):
    """All netdevs by name, with RDMA's details."""
    problems = [] if problems is None else problems
    reader = host.reader()
    found = with_rdma_details(
        FileTree(host.path),
        Tools(host.runner, str(host.path)),
        reader.netdevs(problems),
        reader.rdma_devices(problems),
        problems,
    )
    return {netdev.name: netdev for netdev in found}


def port_of(netdev):
    return netdev.rdma_device, netdev.rdma_port


@pytest.fixture
def two_ports(host):
    """An HCA with ib0 and ib1."""
    host.rdma_device("mlx4_0", pci=HCA)
    for port, guid in enumerate(GUIDS, 1):
        host.rdma_port("mlx4_0", port)
        host.gid("mlx4_0", port, 0, f"fe80:0000:0000:0000:{guid}")
        host.ipoib(f"ib{port - 1}", port, HCA, guid)
    return host


# Ports


def test_each_port_of_an_hca_has_its_netdev(two_ports, problems):
    netdevs = read(two_ports, problems)
    assert port_of(netdevs["ib0"]) == ("mlx4_0", 1)
    assert port_of(netdevs["ib1"]) == ("mlx4_0", 2)
    assert port_of(netdevs["lo"]) == (None, None)
    assert netdevs["ib0"].carrier is True
    assert problems == []


def test_ports_of_both_link_layers_on_one_function(host):
    host.rdma_device("mlx4_0", pci=HCA)
    host.rdma_port("mlx4_0", 1)
    host.rdma_port("mlx4_0", 2, link_layer="Ethernet")
    host.ipoib("ib0", 1, HCA)
    host.netdev("enp4s0d1", pci=HCA)
    host.write("/sys/class/net/enp4s0d1/dev_port", "1")
    netdevs = read(host)
    assert port_of(netdevs["ib0"]) == ("mlx4_0", 1)
    assert port_of(netdevs["enp4s0d1"]) == ("mlx4_0", 2)


def test_with_one_port_the_number_of_the_netdev_says_nothing(host):
    host.rdma_device("mlx5_1", pci=HCA)
    host.rdma_port("mlx5_1", 1, link_layer="Ethernet")
    host.netdev("ens1f1", pci=HCA)
    host.write("/sys/class/net/ens1f1/dev_port", "1")
    assert port_of(read(host)["ens1f1"]) == ("mlx5_1", 1)


@pytest.mark.parametrize("text", ["", "-1", "²", "999", "9" * 5000, "a"])
def test_an_odd_dev_port_is_the_first_port(two_ports, text):
    two_ports.write("/sys/class/net/ib0/dev_port", text)
    # 1000 is a port that the device has not; then the GUID tells.
    assert port_of(read(two_ports)["ib0"]) == ("mlx4_0", 1)


def test_a_netdev_without_bus_device_is_known_by_its_port_guid(host):
    host.rdma_device("ibp0", pci=HCA)
    for port, guid in enumerate(GUIDS, 1):
        host.rdma_port("ibp0", port)
        host.gid("ibp0", port, 0, f"fe80:0000:0000:0000:{guid}")
    host.ipoib("ib7", 1, None, GUIDS[1])
    host.ipoib("ib8", 1, None, "0002:c903:0000:0000")
    # VFs without a GUID are not taken for one another.
    host.rdma_device("ibp1", pci=HCA)
    host.rdma_port("ibp1", 1)
    host.gid("ibp1", 1, 0, "fe80" + 7 * ":0000")
    host.ipoib("ib9", 1, None, "0000:0000:0000:0000")
    netdevs = read(host)
    assert port_of(netdevs["ib9"]) == (None, None)
    assert port_of(netdevs["ib7"]) == ("ibp0", 2)
    assert port_of(netdevs["ib8"]) == (None, None)
    assert netdevs["ib8"].offloads == ()
    assert netdevs["ib8"].ipoib is not None


def test_both_members_of_an_mlx5_bond_are_of_the_one_device(tmp_path):
    host = connectx5_roce(tmp_path)
    netdevs = read(host)
    assert port_of(netdevs["ens1f0np0"]) == ("mlx5_bond_0", 1)
    assert port_of(netdevs["ens1f1np1"]) == ("mlx5_bond_0", 1)
    for above in ("bond0", "bond0.100", "storage"):
        assert port_of(netdevs[above]) == (None, None)
        assert netdevs[above].offloads


def test_another_adapter_in_the_bond_is_not_of_that_device(host):
    for slot, name in (("3b", "ens1"), ("5e", "ens2")):
        pci = Pci(f"0000:{slot}:00.0", "0x15b3", "0x1017", "mlx5_core")
        host.netdev(name, pci=pci)
        if name == "ens1":
            host.rdma_device("mlx5_0", pci=pci)
            host.rdma_port("mlx5_0", link_layer="Ethernet")
    host.bond("bond0", ("ens1", "ens2"), active="ens1")
    netdevs = read(host)
    assert port_of(netdevs["ens1"]) == ("mlx5_0", 1)
    assert port_of(netdevs["ens2"]) == (None, None)


def test_representors_are_not_the_ports_netdev(host):
    pci = Pci("0000:3b:00.0", "0x15b3", "0x101d", "mlx5_core")
    host.rdma_device("mlx5_0", pci=pci)
    host.rdma_port("mlx5_0", link_layer="Ethernet")
    names = {"ens1f0": "p0", "ens1f0_0": "pf0vf0", "eth9": "c1pf0sf88"}
    for name, port_name in names.items():
        host.netdev(name, pci=pci)
        host.write(f"/sys/class/net/{name}/phys_port_name", port_name)
    netdevs = read(host)
    assert port_of(netdevs["ens1f0"]) == ("mlx5_0", 1)
    assert port_of(netdevs["ens1f0_0"]) == port_of(netdevs["eth9"]) == (None, None)


def test_soft_roce_names_its_netdev(tmp_path):
    assert port_of(read(soft_roce(tmp_path))["eth0"]) == ("rxe0", 1)


@pytest.mark.parametrize(
    ("node_type", "gid"),
    [
        ("4: RNIC", "5254:0012:3456:0000:0000:0000:0000:0000"),  # the MAC address
        ("1: CA", mapped_gid("10.0.0.2")),  # and the netdev that owns it
    ],
)
def test_a_device_without_bus_device_is_known_by_its_gids(host, node_type, gid):
    host.netdev("eth0", address="52:54:00:12:34:56")
    host.netdev("br0", kind="bridge", lowers=("eth0",), address="52:54:00:12:34:56")
    host.rdma_device("siw0", node_type=node_type)
    host.rdma_port("siw0", link_layer="Ethernet")
    host.gid("siw0", 1, 0, gid, netdev=None if "RNIC" in node_type else "eth0")
    netdevs = read(host)
    assert port_of(netdevs["eth0"]) == ("siw0", 1)
    assert port_of(netdevs["br0"]) == (None, None)


# IPoIB


def test_what_is_ipoibs_own_of_base_and_children(two_ports):
    two_ports.pkey_child("ib0", "0x8001")
    two_ports.pkey_child("ib1", "0x8002", "stor", by_ip_link=True, mode="connected")
    netdevs = read(two_ports)
    assert netdevs["ib0"].ipoib == Ipoib("datagram", "0xffff")
    assert netdevs["ib0.8001"].ipoib == Ipoib("datagram", "0x8001", "ib0")
    assert netdevs["stor"].ipoib == Ipoib("connected", "0x8002", "ib1", sysfs=False)
    assert port_of(netdevs["ib0.8001"]) == ("mlx4_0", 1)
    assert port_of(netdevs["stor"]) == ("mlx4_0", 2)
    assert netdevs["lo"].ipoib is None
    assert {"ib0.8001", "stor"} <= concerned(tuple(netdevs.values()))


@pytest.mark.parametrize("file", ["mode", "pkey"])
def test_an_empty_file_of_ipoib_is_said_and_unknown(two_ports, file, problems):
    two_ports.write(f"/sys/class/net/ib0/{file}", "")
    netdevs = read(two_ports, problems)
    assert getattr(netdevs["ib0"].ipoib, file) is None
    assert problems == [f"/sys/class/net/ib0/{file} is empty"]
    assert netdevs["ib1"].ipoib == Ipoib("datagram", "0xffff")


def test_an_ipoib_netdev_that_goes_away_is_one_sentence(two_ports, problems):

    class Gone(FileTree):
        def text(self, path, problems=None):
            if path.startswith("/sys/class/net/ib0/"):
                shutil.rmtree((self.root / "sys/class/net/ib0").resolve(), True)
            return super().text(path, problems)

    found = {n.name: n for n in read_netdevs(Gone(two_ports.path), {}, problems)}
    assert problems == ["/sys/class/net/ib0 disappeared during the read"]
    assert found["ib1"].ipoib is not None and "ib0" not in found


def test_a_child_whose_ip_link_is_unknown_is_complete_for_the_rest(two_ports, problems):
    two_ports.pkey_child("ib0", "0x8001", by_ip_link=True)
    failure = CommandFailed("RTNETLINK answers: Operation not permitted", 2)
    two_ports.runner.answer("ip -j -d addr show", failure)
    netdevs = read(two_ports, problems)
    assert netdevs["ib0.8001"].ipoib == Ipoib(sysfs=False)
    assert port_of(netdevs["ib0.8001"]) == ("mlx4_0", 1)  # by its GUID
    assert netdevs["ib0"].ipoib is not None
    assert len(problems) == 1
    assert "Operation not permitted" in problems[0]


@pytest.mark.parametrize(("state", "carrier"), [("0", False), ("", None), ("x", None)])
def test_carrier(two_ports, state, carrier, problems):
    two_ports.write("/sys/class/net/ib0/carrier", state)
    assert read(two_ports, problems)["ib0"].carrier is carrier
    assert problems == []


# Offloads


def offload(netdev, name):
    return next((one for one in netdev.offloads if one.name == name), None)


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        ("on", Offload("tx-tcp-segmentation", True)),
        ("off", Offload("tx-tcp-segmentation", False)),
        ("off [fixed]", Offload("tx-tcp-segmentation", False, fixed=True)),
        ("off [requested on]", Offload("tx-tcp-segmentation", False, requested=True)),
        ("on [requested off]", Offload("tx-tcp-segmentation", True, requested=False)),
        ("perhaps", None),
        ("on [broken]", None),
    ],
)
def test_an_offload(two_ports, shown, expected):
    two_ports.offloads("ib0", {"tx-tcp-segmentation": shown})
    netdevs = read(two_ports)
    assert offload(netdevs["ib0"], "tx-tcp-segmentation") == expected
    assert offload(netdevs["ib1"], "tx-tcp-segmentation").on


def test_offloads_are_those_of_rules(two_ports):
    names = [one.name for one in read(two_ports)["ib0"].offloads]
    assert names == ["tx-tcp-segmentation", "tx-tcp6-segmentation"]


def test_what_connected_mode_takes_away(host):
    host.rdma_device("mlx4_0", pci=HCA)
    host.rdma_port("mlx4_0")
    host.ipoib("ib0", 1, HCA, mode="connected")
    tso = offload(read(host)["ib0"], "tx-tcp-segmentation")
    assert (tso.on, tso.fixed, tso.requested) == (False, False, True)


def test_ethtool_is_asked_once_for_all_netdevs_and_never_without_rdma(tmp_path):
    host = without_rdma(tmp_path)
    read(host)
    assert [argv for argv in host.runner.ran if argv[0] == "ethtool"] == []
    host = connectx5_roce(tmp_path / "roce")
    for number in range(20):
        host.netdev(f"vnet{number}")
    read(host)
    asked = [argv[1:] for argv in host.runner.ran if argv[0] == "ethtool"]
    assert asked == [("-k", "*"), ("-a", "ens1f0np0"), ("-a", "ens1f1np1")]


@pytest.mark.parametrize(
    "failure",
    [
        NotInstalled("No such file or directory"),
        CommandTimeout("no answer within 5 s"),
        CommandFailed("netlink error: Operation not permitted", 1),
    ],
)
def test_without_ethtool_offloads_are_unknown_and_that_is_said(
    two_ports, failure, problems
):
    two_ports.runner.answer("ethtool -k *", failure)
    netdevs = read(two_ports, problems)
    assert netdevs["ib0"].offloads == ()
    assert problems == [f"ethtool -k * failed: {failure}"]


@pytest.mark.parametrize("name", ["-k", "ib0.8001", "a,b", "Features", "é", "x]:[y"])
def test_netdevs_with_odd_names(host, name, problems):
    host.rdma_device("mlx4_0", pci=HCA)
    host.rdma_port("mlx4_0")
    host.ipoib(name, 1, HCA)
    netdev = read(host, problems)[name]
    assert port_of(netdev) == ("mlx4_0", 1)
    tso = "tx-tcp-segmentation"
    assert offload(netdev, tso) == Offload(tso, True)
    assert problems == []


# ethtool 6.1 on Linux 6.1
REAL_FEATURES = """\
Features for ib0:
rx-checksumming: on
tx-checksumming: on
\ttx-checksum-ipv4: on
\ttx-checksum-ip-generic: off [fixed]
scatter-gather: on
\ttx-scatter-gather: on [fixed]
tcp-segmentation-offload: off
\ttx-tcp-segmentation: off [requested on]
\ttx-tcp-ecn-segmentation: off [fixed]
generic-receive-offload: on
large-receive-offload: off [fixed]

Features for bond0:
rx-checksumming: off [fixed]
"""


def test_a_real_answer_of_ethtool():
    found = netdevs.features(REAL_FEATURES)
    assert list(found) == ["ib0", "bond0"]
    assert found["ib0"] == (Offload("tx-tcp-segmentation", False, requested=True),)
    assert found["bond0"] == ()


# Bonds


def test_a_bond_of_two_ipoib_netdevs(two_ports):
    two_ports.bond("bond0", ("ib0", "ib1"), active="ib1")
    netdev = read(two_ports)["bond0"]
    assert netdev.bond == Bond("active-backup", "ib1", "active")
    two_ports.bond("bond1", ("ib0",), active="", fail_over_mac="")
    assert read(two_ports)["bond1"].bond == Bond("active-backup")
    assert netdev.offloads
    # It has its members' type and address, and is neither IPoIB nor of their port.
    assert netdev.type == ARPHRD_INFINIBAND
    assert (netdev.ipoib, port_of(netdev)) == (None, (None, None))


def test_a_bond_without_rdma_is_left_alone(two_ports):
    two_ports.netdev("eth0")
    two_ports.bond("bond1", ("eth0",), mode="802.3ad 4")
    netdev = read(two_ports)["bond1"]
    assert (netdev.bond, netdev.offloads) == (None, ())


def test_a_bond_whose_mode_cannot_be_read(two_ports, problems):
    two_ports.bond("bond0", ("ib0", "ib1"))
    two_ports.unreadable("/sys/class/net/bond0/bonding/mode")
    assert read(two_ports, problems)["bond0"].bond is None
    assert len(problems) == 1
    assert "/sys/class/net/bond0/bonding/mode" in problems[0]


# DCB


@pytest.fixture
def roce(host):
    """A ConnectX-5 port, ens1, and rdma device mlx5_0."""
    pci = Pci("0000:3b:00.0", "0x15b3", "0x1017", "mlx5_core")
    host.rdma_device("mlx5_0", pci=pci)
    host.rdma_port("mlx5_0", link_layer="Ethernet")
    host.netdev("ens1", pci=pci)
    return host


def test_dcb_of_a_roce_port(roce, problems):
    roce.dcb("ens1", pfc=(3, 4), dscp=((26, 3),))
    roce.pause("ens1", rx=True, tx=False)
    roce.ecn("ens1", rp=(3, 5), np=(3,))
    dcb = read(roce, problems)["ens1"].dcb
    assert dcb == Dcb(
        pfc_priorities=(3, 4),
        ecn_priorities=(3,),
        trust="dscp",
        pause_rx=True,
        pause_tx=False,
        dscp_priorities=(PriorityOf(26, 3),),
        buffers=(Buffer(262016, tuple(range(8))), *[Buffer(0)] * 7),
    )
    assert problems == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{}", "'buffer_size'"),
        (
            '{"prio_buffer":[0],"buffer_size":["1Kb"]}',
            "invalid literal for int() with base 10: '1Kb'",
        ),
    ],
)
def test_odd_buffers_are_said(roce, text, reason, problems):
    roce.dcb("ens1")
    roce.runner.answer("dcb -j buffer show dev ens1", text)
    assert read(roce, problems)["ens1"].dcb.buffers is None
    said = "dcb -j buffer show dev ens1 printed unexpected text: "
    assert problems == [f"{said}{reason}"]


def test_who_answers_arp(roce):
    assert read(roce)["ens1"].arp_ignore is None
    roce.write("/proc/sys/net/ipv4/conf/all/arp_ignore", "0")
    assert read(roce)["ens1"].arp_ignore is None
    roce.write("/proc/sys/net/ipv4/conf/ens1/arp_ignore", "2")
    assert read(roce)["ens1"].arp_ignore == 2


def test_the_egress_map_of_a_vlan():
    rows = [
        {
            "ifname": "ens1.100",
            "linkinfo": {
                "info_kind": "vlan",
                "info_data": {"id": 100, "egress_qos": [{"from": 0, "to": 3}]},
            },
        },
        {"ifname": "ens1.9", "linkinfo": {"info_kind": "vlan", "info_data": {"id": 9}}},
        {"ifname": "ens1.8", "linkinfo": {"info_kind": "vlan", "info_data": 7}},
        {"ifname": "br0", "linkinfo": {"info_kind": "bridge"}},
    ]
    maps = [link.egress for link in links(rows).values()]
    assert maps == [(PriorityOf(0, 3),), (), None, None]


@pytest.mark.parametrize(
    "failure",
    [
        CommandFailed("Attribute read: Operation not supported", 1),
        CommandFailed("Attribute not found: No such file or directory", 1),
        CommandFailed("Attribute not found: Success", 1),
        NotInstalled("No such file or directory"),
    ],
)
def test_without_the_program_or_dcb_of_the_driver_nothing_is_said(
    roce, failure, problems
):
    for what in ("pfc", "app", "buffer"):
        roce.runner.answer(f"dcb -j {what} show dev ens1", failure)
    assert read(roce, problems)["ens1"].dcb is None
    assert problems == []


@pytest.mark.parametrize(
    "text",
    [
        *("[]", "{", "", '{"prio_pfc": 8}', '{"prio_pfc": ["on"]}', "[" * 9999),
        '{"prio_pfc": ["off"]}',  # unknown, and not on
    ],
)
def test_an_odd_answer_of_dcb_is_said(roce, text, problems):
    roce.dcb("ens1")
    roce.runner.answer("dcb -j pfc show dev ens1", text)
    dcb = read(roce, problems)["ens1"].dcb
    assert dcb.pfc_priorities is None
    (sentence,) = problems
    assert sentence.startswith("dcb -j pfc show dev ens1 printed unexpected text: ")


def test_a_failure_of_dcb_is_said(roce, problems):
    roce.dcb("ens1")
    failure = CommandFailed("Attribute read: Operation not permitted", 1)
    roce.runner.answer("dcb -j pfc show dev ens1", failure)
    dcb = read(roce, problems)["ens1"].dcb
    assert dcb.pfc_priorities is None
    assert problems == [
        "dcb -j pfc show dev ens1 failed: Attribute read: Operation not permitted"
    ]


def test_mlx5_trusts_pcp_until_a_dscp_has_a_priority(roce):
    roce.dcb("ens1")
    dcb = read(roce)["ens1"].dcb
    assert (dcb.trust, dcb.pfc_priorities) == ("pcp", ())


def test_vfs_are_not_asked_for_dcb(roce):
    (vf,) = roce.virtual_functions(
        Pci("0000:3b:00.0", "0x15b3", "0x1017", "mlx5_core"), 1, "0x1018"
    )
    roce.rdma_device("mlx5_1", pci=vf)
    roce.rdma_port("mlx5_1", link_layer="Ethernet")
    roce.netdev("ens1v0", pci=vf)
    roce.dcb("ens1")  # a question about ens1v0 would fail the test
    netdev = read(roce)["ens1v0"]
    assert (port_of(netdev), netdev.dcb) == (("mlx5_1", 1), None)
    assert netdev.offloads
