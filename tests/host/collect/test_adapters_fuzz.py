# SPDX-License-Identifier: GPL-2.0-or-later
"""Valid and broken text about adapters, ports and connections, of kernel and
ibv_devinfo: reading it never raises, and the facts survive JSON.

``make fuzz`` runs many more examples.
"""

from __future__ import annotations

import ipaddress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fakes.fake_root import FakeRoot, Pci
from support.mutation import mutated

from ovirt_rdma.host.collect.netdev_users import (
    NetdevPaths,
    parse_connections,
    plain_address,
    read_netdev_uses,
    read_storage_sessions,
)
from ovirt_rdma.host.collect.rdma import (
    parse_port_mtus,
    rates_mbps,
    read_adapters,
    read_rdma_devices,
)
from ovirt_rdma.host.collect.tools import Tools
from ovirt_rdma.host.facts.devices import ARPHRD_INFINIBAND, NetdevUse
from ovirt_rdma.host.facts.model import Facts
from ovirt_rdma.host.system.tree import FileTree

HCA = Pci("0000:04:00.0", "0x15b3", "0x1003", "mlx4_core")
DEVINFO = (
    "hca_id:\tmlx4_0\n\tfw_ver:\t\t\t\t2.42.5000\n\tphys_port_cnt:\t\t\t1\n"
    "\t\tport:\t1\n\t\t\tstate:\t\t\tPORT_ACTIVE (4)\n\t\t\tmax_mtu:\t\t4096 (5)\n"
    "\t\t\tactive_mtu:\t\t2048 (4)\n\t\t\tsm_lid:\t\t\t1\n\n"
)
LAST = "hca_id:\trxe9\n\t\tport:\t1\n\t\t\tmax_mtu:\t\t4096 (5)\n"
SOCKETS = (
    b"  sl  local_address rem_address   st tx_queue rx_queue\n"
    b"   0: 0200000A:C000 0100000A:0CBC 01 00000000:00000000 00:00000000 00000000 0\n"
    b"   1: 00000000:0801 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0\n"
)
GOOD_SOCKET = (
    b"\n   9: 0500000A:D431 0900000A:9C40 01 00000000:00000000 00:00000000 00000000 0\n"
)
PIECES = st.sampled_from(
    ["\n", "\t\tport:\t", "port:\t٣", "hca_id:\t", "(5)", "(٣)", "invalid MTU (0)", " ",
     "\0", "\udcff", "9" * 400, ":", "max_mtu:"]
) | st.text(max_size=4)  # fmt: skip
BYTES = st.sampled_from(
    [b"\n", b" ", b":", b"FFFF", b"01", b"0000000000000000FFFF00000100007F", b"\xff"]
) | st.binary(max_size=4)  # fmt: skip


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    """One for all examples, because its creation takes most of an example's time."""
    made = FakeRoot(tmp_path_factory.mktemp("host"))
    made.adapter(HCA, "0x028000", max_vfs=8)
    made.mlx4_port(HCA, 1, "ib")
    made.rdma_device("mlx4_0", pci=HCA)
    made.rdma_port("mlx4_0", rate="56 Gb/sec (4X FDR)")
    made.rdma_identity("mlx4_0", "1", "MT4099", "MT_1090120019")
    made.gid("mlx4_0", 1, 0, "fe80:0000:0000:0000:0002:c903:00fb:1231")
    made.fabric_port("mlx4_0", pkeys=("0xffff", "0x8001"), table_size=4)
    made.default_gid_type("mlx4_0", 1, "RoCE v2")
    made.netdev("ib0", type=ARPHRD_INFINIBAND, addresses=("10.0.0.2/24",))
    made.iscsi_session(1, address="10.0.0.1")
    made.srp_session(2, "mlx4_0")
    made.nvme_controller(0)
    made.tcp_connections(("10.0.0.2", 16514, "10.0.0.6", 50000))
    return made


@given(mutated([DEVINFO, DEVINFO + DEVINFO.replace("mlx4_0", "rxe0")], PIECES))
def test_an_odd_ibv_devinfo_hides_no_other_device(text):
    found = parse_port_mtus(text + "\n" + LAST)
    assert found["rxe9", 1]["max"] == 4096
    assert {mtu for one in found.values() for mtu in one.values()} <= {
        256, 512, 1024, 2048, 4096, 8192, 10240, None
    }  # fmt: skip


@given(mutated([SOCKETS], BYTES))
def test_an_odd_connection_hides_no_other_one(data):
    connections, odd = parse_connections(data + GOOD_SOCKET)
    last = connections[-1]
    assert (last.local, last.local_port, last.remote) == ("10.0.0.5", 54321, "10.0.0.9")
    assert len(connections) + odd <= (data + GOOD_SOCKET).count(b"\n")
    for connection in connections:
        assert plain_address(connection.local) == connection.local
        ipaddress.ip_address(connection.remote)


@given(
    mutated(["40 Gb/sec (4X QDR)", "2.5 Gb/sec (1X SDR)"], PIECES),
    st.sampled_from(["InfiniBand", "Ethernet", "unknown"]),
)
def test_a_payload_rate_is_of_a_rate(text, link_layer):
    rate, payload = rates_mbps(text, link_layer)
    assert payload is None or rate is not None
    assert payload is None or payload >= 0


SYS_TEXT = st.sampled_from(
    ["", "0x1", "0x", "-1", "0x8001", "0x00010000", "RoCE v2", "\n", "\0", "\udcff",
     "٣", "9" * 400, "0x020700", "0x15b3", "auto (eth)", "ib", "100 Gb/sec (4X EDR)",
     "1", "rdma", "tcp", "traddr=,host_traddr=::1%x,host_iface=ib0", "fe80::1%1"]
) | st.text(max_size=8)  # fmt: skip
DEVICE = "/sys/class/infiniband/mlx4_0"
FUNCTION = f"/sys/bus/pci/devices/{HCA.address}"
FILES = st.sampled_from(
    [f"{DEVICE}/hw_rev", f"{DEVICE}/board_id",
     f"{DEVICE}/ports/1/lid", f"{DEVICE}/ports/1/sm_lid", f"{DEVICE}/ports/1/rate",
     f"{DEVICE}/ports/1/link_layer", f"{DEVICE}/ports/1/pkeys/1",
     f"{DEVICE}/ports/1/pkeys/x", f"{DEVICE}/ports/1/pkeys/٣", f"{FUNCTION}/vendor",
     f"{FUNCTION}/class", f"{FUNCTION}/device", f"{FUNCTION}/sriov_totalvfs",
     f"{FUNCTION}/sriov_numvfs", f"{FUNCTION}/mlx4_port1",
     f"{FUNCTION}/mlx4_port1_mtu",
     "/sys/kernel/config/rdma_cm/mlx4_0/ports/1/default_roce_mode",
     "/sys/class/iscsi_connection/connection1:0/address",
     "/sys/class/iscsi_host/host1/netdev", "/sys/class/scsi_host/host1/proc_name",
     "/sys/class/iscsi_session/session1/targetname",
     "/sys/class/scsi_host/host2/local_ib_port", "/sys/class/scsi_host/host2/ioc_guid",
     "/sys/class/srp_remote_ports/port-2:1/state", "/sys/class/nvme/nvme0/address",
     "/sys/class/nvme/nvme0/transport", "/proc/net/tcp"]
)  # fmt: skip


@given(st.lists(st.tuples(FILES, SYS_TEXT), max_size=4), mutated([DEVINFO], PIECES))
def test_odd_text_makes_facts_that_can_be_read_back(
    host, rewritten, survive_json, changes, devinfo
):
    tree, problems = FileTree(host.path), []
    tools = Tools(lambda _: devinfo)
    with rewritten(host, changes):
        reader = host.reader()
        devices = read_rdma_devices(tree, problems, tools=tools)
        facts = Facts(
            "hv1",
            "6.1",
            1.0,
            adapters=read_adapters(tree, devices, problems),
            rdma_devices=devices,
            netdevs=reader.netdevs(problems),
        )
        sessions = read_storage_sessions(tree, (), problems)
        uses = read_netdev_uses(tree, facts, sessions, problems)
    assert survive_json(replace(facts, netdev_uses=uses, problems=tuple(problems)))
    assert [device.name for device in devices] == ["mlx4_0"]
    assert [adapter.pci.address for adapter in facts.adapters] == [HCA.address]
    assert {use.netdev for use in uses} <= {"ib0", HCA.address, None}
    if not changes:
        assert NetdevUse("ib0", "migration", "a VM, with 10.0.0.6") in uses


@given(
    st.lists(st.text("0123456789abcdef.:%/ib", max_size=12), max_size=4),
    st.text("0123456789abcdef.:%/ib", max_size=12),
)
def test_odd_addresses_lead_nowhere(host, addresses, asked):
    netdev = host.reader().netdevs()[0]
    known = type(netdev)(netdev.name, 1, 1, "", "up", addresses=tuple(addresses))
    paths = NetdevPaths(Facts("hv1", "6.1", 1.0, netdevs=(known,)))
    assert set(paths.carrying(asked)) | set(paths.towards(asked) or ()) <= {known.name}
