# SPDX-License-Identifier: GPL-2.0-or-later
"""Valid and broken text about netdevs, of ethtool, dcb, nmcli, ip, VDSM and sysfs: it
is read exactly and never raises.

``make fuzz`` runs many more examples.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fakes.fake_root import FakeRoot, Pci
from support.mutation import mutated

from ovirt_rdma.host.collect import netdevs
from ovirt_rdma.host.collect.collector import HostReader
from ovirt_rdma.host.collect.netdevs import (
    read_network_manager,
    read_ovirt_networks,
    with_rdma_details,
)
from ovirt_rdma.host.collect.tools import Tools
from ovirt_rdma.host.facts.devices import TSO_FEATURES, Offload
from ovirt_rdma.host.facts.model import Facts
from ovirt_rdma.host.system.tree import FileTree

UUID = "3d0ea609-461d-4ce3-a03d-1a3d8348c4b7"
FEATURES = [
    "Features for ib0:\nrx-checksumming: on\ntx-checksumming: off\n"
    "\ttx-checksum-ipv4: off [requested on]\nscatter-gather: on\n"
    "\ttx-scatter-gather: on [fixed]\n\ttx-tcp-segmentation: off [fixed]\n"
    "generic-receive-offload: on\n\nFeatures for bond0:\nrx-checksumming: off [fixed]\n"
]
PAUSE = ["Pause parameters for ens1:\nAutonegotiate:\toff\nRX:\t\ton\nTX:\t\toff\n\n"]
PFC = ['{"pfc_cap":8,"macsec_bypass":false,"delay":0,"prio_pfc":[false,true,true]}']
APP = ['{"dscp_prio":[[26,3," "],[46,5," "]],"default_prio":[0]}', "{}"]
GENERAL = ["running\n"]
DEVICES = ["ib0:connected\nlo:connected (externally)\nbr0:unmanaged\n"]
CONNECTIONS = [
    f"{UUID}:infiniband:ib0:/etc/NetworkManager/system-connections/ib\\:0.nmconnection"
    ":ib\\:0 \\\\odd\n20e9c599-2b96-484c-b8ec-eebca81577ba:loopback:lo::lo\n"
]
PROFILES = [
    f"connection.id:ib:0 \\odd\nconnection.uuid:{UUID}\nconnection.interface-name:ib0\n"
    "connection.timestamp:1795288622\ninfiniband.mtu:2044\ninfiniband.p-key:default\n"
    "802-3-ethernet.wake-on-lan-password:00:11:22:33:44:55\n\nconnection.id:lo\n"
    "connection.uuid:20e9c599-2b96-484c-b8ec-eebca81577ba\nconnection.zone:\n"
]
LINKS = [
    '[{},{"ifname":"stor","link":"ib0","linkinfo":{"info_kind":"ipoib","info_data":'
    '{"key":"0x8001","mode":"connected","umcast":"0001"}}}]'
]
NETWORKS = [
    '{"nic": "ib0", "bridged": false, "mtu": 2044, "defaultRoute": false, "vlan": 7}',
    '{"bonding": "bond0", "bridged": true, "switch": "legacy", "ipaddr": "10.0.0.2"}',
]
PIECES = st.sampled_from(
    ["\n", "\n\n", ":", "\\", "\\:", "[", "]", "{", "}", '"', ",", "null", "true",
     "1e999", "9" * 5000, "[" * 3000, "Features for ", " [fixed]", "on", "off",
     "\u2028", "\x85", "\udcff", "\x00", "connection.uuid:", "connection.id:"]
) | st.text(max_size=4)  # fmt: skip


@given(mutated(FEATURES, PIECES))
def test_odd_features_hide_no_other_netdev(text):
    tso = "tx-tcp-segmentation"
    found = netdevs.features(f"{text}\nFeatures for ib9:\n\t{tso}: on\n")
    assert found["ib9"][0] == Offload(tso, True)
    for name, offloads in found.items():
        assert name in text or name == "ib9"
        assert {one.name for one in offloads} <= set(TSO_FEATURES)


@given(mutated(PAUSE, PIECES), mutated(PFC, PIECES), mutated(APP, PIECES))
def test_odd_dcb_is_a_value_or_a_value_error(pause, pfc, app):
    assert set(netdevs.pause_frames(pause)) <= {True, False, None}
    for read, text in (
        (netdevs.pfc_priorities, pfc),
        (netdevs.dscp_priorities, app),
    ):
        try:
            read(text)
        except ValueError as odd:
            assert str(odd)


@given(st.lists(st.text(), min_size=1, max_size=4))
def test_nmclis_escapes_come_back_exactly(values):
    line = ":".join(v.replace("\\", "\\\\").replace(":", "\\:") for v in values)
    assert netdevs.fields(line) == tuple(values)


@given(mutated(PROFILES, PIECES))
def test_no_odd_profile_gives_a_password_or_hides_the_next(text):
    good = "connection.uuid:this\ninfiniband.mtu:4092\n"
    found = netdevs.profiles(f"{text}\n\n{good}")
    assert [(p.name, p.value) for p in found["this"]] == [
        ("connection.uuid", "this"),
        ("infiniband.mtu", "4092"),
    ]
    for properties in found.values():
        assert all(one.value and "password" not in one.name for one in properties)


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    """One for all examples, because its creation takes most of an example's time."""
    made = FakeRoot(tmp_path_factory.mktemp("host"))
    hca = Pci("0000:04:00.0", "0x15b3", "0x1003", "mlx4_core")
    made.rdma_device("mlx4_0", pci=hca)
    made.rdma_port("mlx4_0")
    made.ipoib("ib0", pci=hca)
    made.ipoib("ib1", pci=hca)
    made.pkey_child("ib0", "0x8001")
    made.bond("bond0", ("ib0", "ib1"), active="ib0")
    made.ovirt_network("good", nic="ib0", mtu=2044)
    return made


@given(st.lists(mutated(NETWORKS, PIECES), min_size=1, max_size=3))
def test_an_odd_network_is_a_network_or_a_sentence(host, texts):
    problems: list[str] = []
    for number, text in enumerate(texts):
        host.vdsm_network_file(f"odd{number}", text)
    try:
        found = read_ovirt_networks(FileTree(host.path), problems)
    finally:
        for number in range(len(texts)):
            folder = host.path / "var/lib/vdsm/staging/netconf/nets"
            (folder / f"odd{number}").unlink()
    assert found[0].name == "good"
    assert len(found) + len(problems) == len(texts) + 1
    assert all("\n" not in sentence for sentence in problems)


SYS_TEXT = st.sampled_from(
    ["datagram", "connected", "0x8001", "0xffff", "0x8001ff", "0", "1", "", "ib0",
     "ib1", "bond0", "mlx4_0", "active-backup 1", " ", "\n", "\udcff", "٣", "-1",
     "9" * 5000]
) | st.text(max_size=8)  # fmt: skip
SYS_FILES = st.sampled_from(
    ["ib0/mode", "ib0/pkey", "ib0/dev_port", "ib0/carrier", "ib0/parent",
     "ib0.8001/parent", "ib0.8001/mode", "ib1/phys_port_name", "ib1/address",
     "bond0/bonding/mode", "bond0/bonding/active_slave",
     "bond0/bonding/fail_over_mac"]
).map("/sys/class/net/{}".format)  # fmt: skip


@given(
    st.lists(st.tuples(SYS_FILES, SYS_TEXT), max_size=4),
    mutated(FEATURES, PIECES),
    mutated(LINKS, PIECES),
    mutated(GENERAL, PIECES) | st.just(GENERAL[0]),
    st.tuples(*(mutated(said, PIECES) for said in (DEVICES, CONNECTIONS, PROFILES))),
)
def test_odd_netdevs_make_facts_that_can_be_read_back(
    host, rewritten, survive_json, changes, features, links, general, nmcli
):
    said = dict(zip(("device", "connection", "show"), nmcli))

    def run(argv):
        if argv[0] == "nmcli":
            return {**said, "general": general}["show" if "show" in argv else argv[4]]
        if argv[0] == "ethtool":
            return features
        return links if "addr" in argv else host.runner(argv)

    problems: list[str] = []
    tools, reader = Tools(run, "/"), HostReader(host.path, run)
    with rewritten(host, changes):
        devices = reader.rdma_devices(problems)
        netdevs = with_rdma_details(
            FileTree(host.path), tools, reader.netdevs(problems), devices, problems
        )
    facts = Facts(
        "hv1",
        "6.1",
        1.0,
        netdevs=netdevs,
        network_manager=read_network_manager(tools, netdevs, problems),
        problems=tuple(problems),
    )
    assert survive_json(facts)
    assert [n.name for n in netdevs] == ["bond0", "ib0", "ib0.8001", "ib1", "lo"]
    assert all(n.ipoib for n in netdevs if n.name.startswith("ib"))
