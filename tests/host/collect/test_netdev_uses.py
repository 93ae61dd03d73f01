# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import json

import pytest
from support.fakes.fake_root import FakeRoot

from ovirt_rdma.host.collect.netdev_users import (
    parse_connections,
    read_netdev_uses,
    read_storage_sessions,
)
from ovirt_rdma.host.collect.tools import Tools
from ovirt_rdma.host.facts.devices import (
    ARPHRD_INFINIBAND,
    ARPHRD_LOOPBACK,
    Ipoib,
    Netdev,
    NetdevUse,
    OvirtNetwork,
    PciIdentity,
    RdmaDevice,
)
from ovirt_rdma.host.facts.model import CmId, Facts, NfsMount, Route
from ovirt_rdma.host.system.commands import CommandFailed
from ovirt_rdma.host.system.tree import FileTree


def netdev(name, *addresses, type=1, port=None, parent=None):
    device = "mlx4_0" if port else None
    hardware = f"00:00:10:87:fe:80:{'00:' * 6}00:02:c9:03:00:fb:12:3{port}"
    return Netdev(
        name, type, 1500, hardware if port else "", "up", addresses=addresses,
        rdma_device=device, rdma_port=port, ipoib=Ipoib(parent=parent) if port else None
    )  # fmt: skip


NETDEVS = (
    netdev("eth0", "192.0.2.5/24", "2001:db8::5/64"),
    netdev("ib0", "10.0.0.2/24", "fd00::2/64", type=ARPHRD_INFINIBAND, port=1),
    netdev("ib0.8001", "10.1.0.2/16", type=ARPHRD_INFINIBAND, port=1, parent="ib0"),
    netdev("ib1", "10.0.2.2/24", "fe80::2/64", type=ARPHRD_INFINIBAND, port=2),
    netdev("lo", "127.0.0.1/8", "::1/128", type=ARPHRD_LOOPBACK),
)


ROUTES = (
    Route("10.0.0.1", "ib0"),
    Route("fd00::1", "ib0"),
    Route("10.0.2.1", "ib1"),
    Route("10.1.0.1", "ib0.8001"),
)


def uses(host: FakeRoot, tools=None, **facts):
    problems: list[str] = []
    known = {"netdevs": NETDEVS, "routes": ROUTES, **facts}
    tree = FileTree(host.path)
    facts = Facts("hv1", "6.1", 1.0, **known)
    sessions = read_storage_sessions(tree, facts.nfs_mounts, problems)
    found = read_netdev_uses(tree, facts, sessions, problems, tools=tools)
    return found, problems


def mount(address="10.0.0.1"):
    return NfsMount("nas:/data", "/rhev/nas", "rw", address=address)


NFS = "nas:/data at /rhev/nas"


# NFS


@pytest.mark.parametrize(
    ("address", "facts", "netdevs"),
    [
        ("10.0.0.1", {"routes": (Route("10.0.0.1", "ib0", "10.0.0.2"),)}, ["ib0"]),
        ("192.0.2.9", {"routes": (Route("192.0.2.9", "ib1"),)}, ["ib1"]),
        ("10.9.9.9", {"routes": (Route("10.9.9.9", problem="unreachable"),)}, []),
        ("127.0.0.1", {"routes": (Route("127.0.0.1", "lo"),)}, []),
        # An address of this host: hyperconverged, or its own NFS server.
        ("10.0.0.2", {"routes": (Route("10.0.0.2", "lo"),)}, ["ib0"]),
        ("fd00::1", {}, ["ib0"]),
        ("fe80::1%ib1", {}, ["ib1"]),
        (  # /proc shows the index of a netdev
            "fe80::1%4",
            {"routes": (Route("fe80::1%3", "ib0"), Route("fe80::1%4", "ib1"))},
            ["ib1"],
        ),
        # The connection is more precise than the present route.
        (
            "10.0.0.1",
            {
                "routes": (Route("10.0.0.1", "eth0"),),
                "cm_ids": (
                    CmId("mlx4_0", "CONNECT", "[rpcrdma]", "10.0.0.2:4", "10.0.0.1:5"),
                ),
            },
            ["ib0"],
        ),
        (
            "fd00::1",
            {
                "cm_ids": (
                    CmId(None, "CONNECT", "[rpcrdma]", "[fd00::2]:4", "[fd00::1]:5"),
                )
            },
            ["ib0"],
        ),
    ],
)
def test_the_netdev_that_leads_to_an_nfs_server(host, address, facts, netdevs):
    found, problems = uses(host, nfs_mounts=(mount(address),), **facts)
    assert found == tuple(NetdevUse(name, "nfs", NFS) for name in netdevs)
    assert not problems


@pytest.mark.parametrize("address", ["10.9.9.9", "fe80::1", "nas"])
def test_a_netdev_that_cannot_be_told_is_a_sentence(host, address):
    found, problems = uses(host, nfs_mounts=(mount(address),))
    assert found == (NetdevUse(None, "nfs", f"{NFS}, by an unknown netdev"),)
    assert problems == ["the netdev that nas:/data at /rhev/nas (nfs) uses is unknown"]


def connection(destination, source, owner="[rpcrdma]", state="CONNECT"):
    return CmId("mlx4_0", state, owner, source, destination)


def test_a_connection_over_a_second_path_uses_its_netdev(host):
    """The mount keeps its address when the daemon moves its connections."""
    moved = connection("10.20.2.5:20049", "10.0.2.2:1")
    cm_ids = (
        moved,
        moved,
        connection("10.0.0.1:20049", "10.0.0.2:3"),
        connection("[fd00::9]:20049", "[fd00::2]:4"),
        connection("10.20.3.5:7174", "192.0.2.5:5", owner="rping"),
        CmId("mlx4_0", "LISTEN", "[rpcrdma]", "0.0.0.0:20049"),
    )
    found, problems = uses(host, nfs_mounts=(mount(),), cm_ids=cm_ids)
    assert found == (
        NetdevUse("ib0", "nfs", "an RDMA connection with fd00::9"),
        NetdevUse("ib0", "nfs", NFS),
        NetdevUse("ib1", "nfs", "an RDMA connection with 10.20.2.5"),
    )
    assert not problems


@pytest.mark.parametrize("protocol", ["rdma", "tcp"])
def test_connections_that_are_unknown_are_users_of_each_netdev(host, protocol):
    """``rdma`` failed: a mount may have a connection over a second path."""
    host.rdma_device("mlx4_0")
    host.netdev("ib0", addresses=("10.0.0.2/24",))
    host.route("10.0.0.1", "ib0", "10.0.0.2")
    host.nfs_mount("10.0.0.1:/data", "/mnt/data", protocol=protocol)
    host.runner.answer("rdma -j resource show cm_id", CommandFailed("no"))
    facts = host.reader().facts()
    failure = "rdma -j resource show cm_id failed: no"
    unknown = [use for use in facts.netdev_uses if use.netdev is None]
    assert unknown == [NetdevUse(None, "unknown", failure)] * (protocol == "rdma")
    assert facts.problems.count(failure) == 1


def test_addresses_that_are_unknown_are_users_of_each_netdev(host):
    """``ip`` failed: no use that is found by its address is seen."""
    host.netdev("ib0", addresses=("10.0.0.2/24",))
    host.tcp_connections(("10.0.0.2", 54321, "10.0.0.9", 4000))
    host.runner.answer("ip -j -d addr show", CommandFailed("timed out"))
    facts = host.reader().facts()
    failure = "ip -j -d addr show failed: timed out"
    assert facts.netdev_uses == (NetdevUse(None, "unknown", failure),)
    assert facts.problems.count(failure) == 1


def test_a_tcp_connection_that_no_mount_shows_uses_its_netdev(host):
    """Trunking, and the data servers of pNFS."""
    host.tcp_connections(
        ("10.0.0.2", 700, "10.0.0.1", 2049),
        ("10.0.2.2", 701, "10.0.2.9", 2049),
        ("192.0.2.5", 2049, "192.0.2.9", 702),
    )
    found, problems = uses(host, nfs_mounts=(mount(),))
    assert found == (
        NetdevUse("ib0", "nfs", NFS),
        NetdevUse("ib1", "nfs", "a TCP connection with 10.0.2.9"),
    )
    assert not problems


# Block storage


@pytest.mark.parametrize(
    ("session", "netdev", "what"),
    [
        (
            {"local": "10.0.0.2"},
            "ib0",
            "iqn.2016-06.org:data at 10.0.0.1:3260",
        ),
        (
            {"local": "192.0.2.5", "netdev": "ib1"},
            "ib1",
            "iqn.2016-06.org:data at 10.0.0.1:3260",
        ),
        (
            {"transport": "iscsi_iser", "address": "10.0.2.1"},
            "ib1",
            "iqn.2016-06.org:data at 10.0.2.1:3260 over iSER",
        ),
        (
            {
                "local": "fd00:0000:0000:0000:0000:0000:0000:0002",
                "address": "fd00:0000:0000:0000:0000:0000:0000:0001",
            },
            "ib0",
            "iqn.2016-06.org:data at [fd00:0000:0000:0000:0000:0000:0000:0001]:3260",
        ),
        # Its connection is down: it will be restored the same way.
        ({"address": None}, "ib0", "iqn.2016-06.org:data at 10.0.0.1:3260"),
    ],
)
def test_iscsi_sessions(host, session, netdev, what):
    host.iscsi_session(3, **session)
    assert uses(host) == ((NetdevUse(netdev, "iscsi", what),), [])


def test_the_route_tells_the_way_to_block_storage_behind_a_gateway(host):
    host.netdev("eth0", addresses=("192.0.2.5/24",))
    host.nvme_controller(0, "traddr=10.9.9.9,trsvcid=4420", "tcp")
    host.nvme_controller(1, "traddr=10.9.9.8,src_addr=192.0.2.5", "tcp")
    host.nvme_controller(2, "traddr=fe80::1,trsvcid=4420", "tcp")
    host.iscsi_session(3, address="nas.example.org")
    host.route("10.9.9.9", "eth0", "192.0.2.5")  # any other question fails the test
    facts = host.reader().facts()
    assert {(use.netdev, use.what) for use in facts.netdev_uses} == {
        ("eth0", "nqn.2014-08.org:data at 10.9.9.9:4420"),
        ("eth0", "nqn.2014-08.org:data at 10.9.9.8"),
        (
            None,
            "iqn.2016-06.org:data at nas.example.org:3260, by an unknown netdev",
        ),
        (None, "nqn.2014-08.org:data at [fe80::1]:4420, by an unknown netdev"),
    }
    assert [p for p in facts.problems if "is unknown" in p] == [
        "the netdev that iqn.2016-06.org:data at nas.example.org:3260 (iscsi) uses is "
        "unknown",
        "the netdev that nqn.2014-08.org:data at [fe80::1]:4420 (nvme) uses is unknown",
    ]


def test_an_iscsi_session_that_cannot_be_placed_is_a_sentence(host):
    host.iscsi_session(3, address="10.9.9.9")
    host.iscsi_session(4)
    found, problems = uses(host)
    assert [use.netdev for use in found] == [None, "ib0"]
    assert problems == [
        "the netdev that iqn.2016-06.org:data at 10.9.9.9:3260 (iscsi) uses is unknown"
    ]


def test_srp_uses_every_netdev_of_its_port(host):
    host.srp_session(7, "mlx4_0", "1")
    host.srp_session(8, "mlx5_9", "1")  # a device that goes
    host.write("/sys/class/scsi_host/host0/proc_name", "ahci")
    what = "target 0x0002c903000a0b0c as host7, running"
    assert uses(host) == (
        (NetdevUse("ib0", "srp", what), NetdevUse("ib0.8001", "srp", what)),
        [],
    )


def test_srp_by_a_port_without_a_netdev_uses_the_adapter(host):
    """Without ib_ipoib. A new port type removes the RDMA device, and the LUNs."""
    host.srp_session(7, "mlx4_0", "1")
    pci = PciIdentity("0000:04:00.0", "0x15b3", "0x1003", "0x00")
    devices = (
        RdmaDevice("mlx4_0", "CA", "0", pci=pci),
        RdmaDevice("mlx5_0", "CA", "0"),
    )
    what = "target 0x0002c903000a0b0c as host7, running"
    assert uses(host, netdevs=NETDEVS[:1], rdma_devices=devices) == (
        (NetdevUse("0000:04:00.0", "srp", what),),
        [],
    )


def test_an_srp_session_that_cannot_be_read_is_a_sentence(host):
    """The caller counts it as a user of an unknown netdev."""
    host.srp_session(7, "mlx4_0", "1")
    host.unreadable("/sys/class/scsi_host/host7/ioc_guid")
    found, (sentence,) = uses(host)
    assert found == ()
    assert sentence.startswith("/sys/class/scsi_host/host7/ioc_guid ")


@pytest.mark.parametrize("port", ["first", "", "-1"])
def test_an_odd_srp_port_is_a_sentence(host, port):
    host.srp_session(7, "mlx4_0", port)
    host.srp_session(8, "mlx4_0", "2")
    found, problems = uses(host)
    assert [use.netdev for use in found] == ["ib1"]
    (sentence,) = problems
    assert sentence.startswith("/sys/class/scsi_host/host7/local_ib_port ")


@pytest.mark.parametrize(
    ("address", "netdev"),
    [
        ("traddr=10.0.0.1,trsvcid=4420", "ib0"),
        ("traddr=10.9.9.9,trsvcid=4420,host_traddr=10.0.2.2", "ib1"),
        ("traddr=10.0.0.1,trsvcid=4420,host_traddr=10.0.0.2,host_iface=ib1", "ib1"),
        ("traddr=10.9.9.9,trsvcid=4420,src_addr=192.0.2.5", "eth0"),
    ],
)
def test_nvme_over_rdma_and_tcp(host, address, netdev):
    host.nvme_controller(0, address)
    host.nvme_controller(1, "0000:01:00.0", transport="pcie")
    (use,), problems = uses(host)
    assert (use.netdev, use.purpose) == (netdev, "nvme")
    assert use.what.startswith("nqn.2014-08.org:data at 10.")
    assert use.what.endswith(":4420")
    assert not problems


@pytest.mark.parametrize("address", ["", "traddr", "traddr=,=,", "host_iface=eth9"])
def test_an_odd_nvme_address_is_a_sentence(host, address):
    host.nvme_controller(0, address)
    (use,), problems = uses(host)
    assert (use.netdev, use.purpose) == (None, "nvme")
    assert problems[-1].startswith("the netdev that nqn.2014-08.org")


# The engine's networks


def test_the_management_network(host):
    networks = (
        OvirtNetwork("ovirtmgmt", southbound="eth0", bridged=True),
        OvirtNetwork("display", southbound="ib1", default_route=True),
        OvirtNetwork("storage", southbound="ib0"),
        OvirtNetwork("ovirtmgmt", southbound="eth9"),
    )
    assert uses(host, ovirt_networks=networks)[0] == (
        NetdevUse("eth0", "management", "network ovirtmgmt"),
        NetdevUse("ib1", "management", "network display"),
    )


def test_the_netdev_by_which_the_engine_is_connected(host):
    host.tcp_connections(
        ("::ffff:192.0.2.5", 54321, "::ffff:192.0.2.1", 40000),
        ("::ffff:192.0.2.5", 54321, "::ffff:192.0.2.1", 40002),
        ("::1", 54321, "::1", 40000),
    )
    host.tcp_connections(("10.0.0.2", 54321, "10.0.0.9", 4000), state="06")
    host.tcp_connections(("10.0.0.2", 40000, "10.0.0.9", 54321))
    assert uses(host) == (
        (NetdevUse("eth0", "management", "VDSM, connected from 192.0.2.1"),),
        [],
    )


@pytest.mark.parametrize(
    ("control", "memory"),
    [
        (("192.0.2.5", 16514, "192.0.2.6", 50000), ("10.0.0.2", 49152, "10.0.0.6", 7)),
        (("192.0.2.5", 50000, "192.0.2.6", 16509), ("10.0.0.2", 7, "10.0.0.6", 49215)),
    ],
)
def test_a_migration_that_runs(host, control, memory):
    host.tcp_connections(control, memory)
    assert uses(host)[0] == (
        NetdevUse("eth0", "migration", "a VM, with 192.0.2.6"),
        NetdevUse("ib0", "migration", "a VM, with 10.0.0.6"),
    )


@pytest.mark.parametrize("control", [[], [("192.0.2.5", 16514, "192.0.2.5", 50000)]])
def test_without_another_libvirt_it_is_no_migration(host, control):
    """Linux uses these ports for clients too: 32768 to 60999."""
    host.tcp_connections(*control, ("10.0.0.2", 49152, "10.0.0.6", 7))
    assert uses(host) == ((), [])


def test_the_table_of_connections():
    line = (
        b"   1: 0200000A:C000 0100000A:0CBC 01 00000000:00000000 00:00000000 00000000"
        b"     0        0 1617 1 0000 100 0 0 10 0"
    )
    (connection,), odd = parse_connections(b"headings\n" + line + b"   \n\n")
    assert (connection.local, connection.local_port) == ("10.0.0.2", 49152)
    assert connection.socket == "socket:[1617]"
    assert (connection.remote, connection.remote_port) == ("10.0.0.1", 3260)
    assert odd == 0
    assert parse_connections(b"") == ((), 0)


def test_lines_that_are_no_connection_are_counted(host):
    negative = "0: -1:C000 0100000A:0CBC 01"
    host.tcp_table("tcp", ["headings", "   0: 0200000A:C000", "x", negative])
    host.tcp_table("tcp6", ["headings"])
    sentence = "/proc/net/tcp has 3 lines that are not connections"
    assert uses(host) == ((NetdevUse(None, "unknown", sentence),), [sentence])


def test_a_table_that_cannot_be_read_is_a_sentence(host):
    host.unreadable("/proc/net/tcp")
    (sentence,) = uses(host)[1]
    assert sentence.startswith("/proc/net/tcp cannot be read")


def test_uses_are_in_the_facts_of_the_host(host):
    host.netdev("ib0", addresses=("10.0.0.2/24",))
    host.route("10.0.0.1", "ib0", "10.0.0.2")
    host.nfs_mount("10.0.0.1:/data", "/mnt/data")
    assert host.reader().facts().netdev_uses == (
        NetdevUse("ib0", "nfs", "10.0.0.1:/data at /mnt/data"),
    )


# Mounts of other network file systems


@pytest.mark.parametrize(
    ("fstype", "source", "options", "netdevs"),
    [
        ("cifs", "//nas/share", "rw,vers=3.1.1,addr=10.0.0.1", ["ib0"]),
        ("cifs", "//nas/share", "rw,addr=fd00::1", ["ib0"]),
        ("ceph", "10.0.2.1:6789,10.1.0.1:6789:/", "rw", ["ib0.8001", "ib1"]),
        ("ceph", "admin@0a1b.vol=/", "rw,mon_addr=10.0.2.1:6789", ["ib1"]),
        ("lustre", "10.0.0.1@o2ib:/scratch", "rw", ["ib0"]),
        ("9p", "share", "rw,trans=virtio", []),
        ("9p", "10.0.2.1", "rw,trans=tcp", ["ib1"]),
        ("fuse.glusterfs", "[fd00::1]:/data", "rw", ["ib0"]),
        # A name: the connection to such a server shows the netdev.
        ("fuse.glusterfs", "gl1:/data", "rw", ["eth0"]),
        ("lustre", "localhost@tcp:/data", "rw", []),
        ("fuse.sshfs", "user@nas:/home", "rw", [None]),
        ("tmpfs", "10.0.0.1", "rw", []),
    ],
)
def test_mounts_of_other_network_file_systems(host, fstype, source, options, netdevs):
    host.mount(source, "/mnt/x", fstype, options)
    host.tcp_connections(
        ("192.0.2.5", 40000, "192.0.2.9", 24007), ("127.0.0.1", 7, "127.0.0.1", 988)
    )
    found, _ = uses(host)
    assert [use.netdev for use in found] == netdevs
    assert {use.purpose for use in found} <= {"mount"}
    assert all(use.what.startswith(f"{source} at /mnt/x") for use in found)


@pytest.mark.parametrize("program", ["glusterfs", "glusterfsd", "qemu-kvm"])
def test_gluster_uses_the_netdevs_of_its_connections(host, program):
    """The mount names a server by eth0; bricks are on others, with any port."""
    host.mount("192.0.2.9:/data", "/mnt/x", "fuse.glusterfs")
    host.tcp_connections(("10.0.0.2", 1021, "10.0.0.3", 58001), inode=812)
    host.tcp_connections(("10.0.2.2", 50000, "10.0.2.9", 58002), inode=813)
    host.write("/proc/80/comm", program)
    link = host.path / "proc/80/fd/7"
    link.parent.mkdir()
    link.symlink_to("socket:[812]")
    found, problems = uses(host, routes=(Route("192.0.2.9", "eth0"),))
    bricks = NetdevUse("ib0", "mount", "Gluster, with 10.0.0.3")
    assert found == (
        NetdevUse("eth0", "mount", "192.0.2.9:/data at /mnt/x"),
        *([bricks] if program.startswith("gluster") else []),
    )
    assert not problems


@pytest.mark.parametrize("port", [3300, 6789])
def test_an_image_on_ceph_is_a_use(host, port):
    """Of the kernel, rbd-nbd or QEMU: no mount shows it."""
    host.tcp_connections(("10.0.2.2", 50000, "10.0.2.9", port))
    assert uses(host) == ((NetdevUse("ib1", "mount", "Ceph, with 10.0.2.9"),), [])


def test_gluster_on_this_host_uses_no_link(host):
    host.mount("localhost:/data", "/mnt/x", "fuse.glusterfs")
    host.tcp_connections(("127.0.0.1", 40000, "127.0.0.1", 24007))
    assert uses(host) == ((), [])


# Routes, sessions of administrators, consoles, containers

IPV4_ROUTES = """\
Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eth0\t00000000\t010200C0\t0003\t0\t0\t100\t00000000\t0\t0\t0
ib1\t00000000\t0102000A\t0003\t0\t0\t150\t00000000\t0\t0\t0
ib0\t00000000\t00000000\t0200\t0\t0\t5\t00000000\t0\t0\t0
ib0\t0000000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0
"""
IPV6_ROUTES = (
    f"{'0' * 32} 00 {'0' * 32} 00 fd00{'0' * 27}1 00000400 00000001 00000000 00000003"
    f"      ib0\n{'0' * 32} 00 {'0' * 32} 00 {'0' * 32} ffffffff 00000001 00000000 "
    f"00200200       lo\nfd00{'0' * 28} 40 {'0' * 32} 00 {'0' * 32} 00000100 00000001 "
    "00000000 00000001      ib1\n"
)


def test_the_default_gateways(host):
    """As Linux 6.1 prints them; of several the one that the kernel prefers."""
    host.write("/proc/net/route", IPV4_ROUTES)
    host.write("/proc/net/ipv6_route", IPV6_ROUTES)
    assert uses(host) == (
        (
            NetdevUse("eth0", "route", "default gateway 192.0.2.1"),
            NetdevUse("ib0", "route", "default gateway fd00::1"),
        ),
        [],
    )


@pytest.mark.parametrize("text", ["", "x y z\n", "eth0 0 0\n" * 3, "\xff" * 99])
def test_odd_routes_are_users_that_are_unknown(host, text):
    host.write("/proc/net/route", text.encode("latin1"))
    host.write("/proc/net/ipv6_route", text.encode("latin1"))
    found, problems = uses(host)
    assert {(use.netdev, use.purpose) for use in found} <= {(None, "unknown")}
    assert bool(found) == bool(text) == bool(problems)


SSH = "192.0.2.9 50000 10.0.2.2 22"


@pytest.mark.parametrize(
    ("environments", "netdev"),
    [
        ({"self": f"HOME=/\0SSH_CONNECTION={SSH}\0"}, "ib1"),
        # sudo has removed it.
        ({"self": "SUDO_USER=adm", "70": "", "60": f"SSH_CONNECTION={SSH}"}, "ib1"),
        # tmux has that of a session that has ended.
        ({"70": "SSH_CONNECTION=192.0.2.9 50001 10.0.2.2 22"}, None),
        ({"70": "SSH_CONNECTION=192.0.2.9 x 10.0.2.2 22"}, None),
        ({"70": "SSH_CONNECTION="}, None),
        ({}, None),
    ],
)
def test_the_ssh_session_that_runs_us(host, environments, netdev):
    host.tcp_connections(("10.0.2.2", 22, "192.0.2.9", 50000))
    for process, parent in (("self", 70), ("70", 60), ("60", 1)):
        host.write(f"/proc/{process}/status", f"Name:\tx\nPPid:\t{parent}")
    for process, text in environments.items():
        host.write(f"/proc/{process}/environ", text.encode())
    wanted = (NetdevUse(netdev, "ssh", "this session, from 192.0.2.9"),)
    assert uses(host)[0] == (wanted if netdev else ())


def test_a_console_of_a_virtual_machine(host):
    host.tcp_connections(("10.0.2.2", 5901, "192.0.2.9", 50000))
    host.tcp_connections(("127.0.0.1", 6010, "127.0.0.1", 50000))
    assert uses(host)[0] == (NetdevUse("ib1", "display", "a console, with 192.0.2.9"),)


# ip -j -d link show in the namespace of a container (iproute2 6.1): a macvlan on ib0's
# index, a veth, an adapter's netdev that was moved, and P_Key children of ib1 and of an
# adapter that was moved.
IN_THE_CONTAINER = [
    {"ifindex": 1, "ifname": "lo", "linkinfo": {}},
    {"ifindex": 2, "link_index": 5, "link_netnsid": 0, "ifname": "eth0",
     "linkinfo": {"info_kind": "macvlan"}},
    {"ifindex": 3, "link_index": 5, "link_netnsid": 0, "ifname": "eth1",
     "linkinfo": {"info_kind": "veth"}},
    {"ifindex": 4, "link_index": 2, "ifname": "eth0.7",
     "linkinfo": {"info_kind": "vlan"}},
    {"ifindex": 9, "ifname": "ens1", "parentbus": "pci", "parentdev": "0000:41:00.0"},
    {"ifindex": 12, "link": "if5", "ifname": "ib1.8002",
     "address": "00:00:10:99:fe:80:00:00:00:00:00:00:00:02:c9:03:00:fb:12:32",
     "linkinfo": {"info_kind": "ipoib", "info_data": {"key": "0x8002"}}},
    {"ifindex": 13, "link": "if5", "ifname": "ib7.8002",
     "address": "00:00:10:99:fe:80:00:00:00:00:00:00:00:02:c9:03:00:fb:12:39",
     "linkinfo": {"info_kind": "ipoib", "info_data": {"key": "0x8002"}}},
]  # fmt: skip


@pytest.mark.parametrize("ends", [False, True])
def test_links_of_containers(host, ends):
    for process, space in (("self", 1), ("1", 1), ("80", 2), ("81", 2)):
        link = host.path / f"proc/{process}/ns/net"
        link.parent.mkdir(parents=True)
        link.symlink_to(f"net:[{space}]")
    host.write("/proc/80/comm", "conmon")
    host.write("/sys/class/net/ib0/ifindex", "5")
    tools = Tools(host.runner)
    command = "nsenter --net=/proc/80/ns/net ip -j -d link show"
    host.runner.answer(command, json.dumps(IN_THE_CONTAINER))
    assert uses(host, tools=tools) == (
        (
            NetdevUse("0000:41:00.0", "container", "netdev ens1 of conmon (80)"),
            NetdevUse("ib0", "container", "macvlan eth0 of conmon (80)"),
            NetdevUse("ib1", "container", "ipoib ib1.8002 of conmon (80)"),
        ),
        [],
    )

    def fails():
        if ends:
            (host.path / "proc/80/ns/net").unlink()
        raise CommandFailed("reassociate to namespace failed", 1)

    host.runner.answer(command, fails)
    found, problems = uses(host, tools=tools)
    assert [use.purpose for use in found] == ([] if ends else ["unknown"])
    assert len(problems) == len(found)
