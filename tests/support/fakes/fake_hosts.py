# SPDX-License-Identifier: GPL-2.0-or-later
"""Hosts made after attribute lists of real ones; each returns a FakeRoot that a test
may change further.
"""

from __future__ import annotations

from pathlib import Path

from support.fakes.fake_root import FakeRoot, Pci

NFS_MODULES = ("sunrpc", "rpcrdma", "nfs", "nfsv3", "nfsv4", "lockd")
RDMA_MODULES = ("ib_core", "ib_cm", "iw_cm", "rdma_cm", "ib_uverbs", "rdma_ucm")


def without_rdma(path: Path) -> FakeRoot:
    """A virtual machine with one virtio netdev; RDMA modules there, none loaded."""
    host = FakeRoot(path)
    host.modules(
        loaded=("sunrpc",), available=(*NFS_MODULES[1:], *RDMA_MODULES, "rdma_rxe")
    )
    nic = Pci("0000:00:03.0", "0x1af4", "0x1041", "virtio_net", "0x01", "virtio2")
    host.netdev("eth0", pci=nic, addresses=("10.0.0.2/24", "fd00::2/64"))
    host.route("10.0.0.1", "eth0", "10.0.0.2")
    return host


def soft_roce(path: Path) -> FakeRoot:
    """The lab's hypervisor: ``without_rdma`` with rxe0 on eth0, ACTIVE."""
    host = without_rdma(path)
    host.modules(loaded=(*NFS_MODULES, *RDMA_MODULES, "rdma_rxe"))
    host.rdma_device("rxe0", node_guid="5054:00ff:fe12:3456", parent="eth0")
    host.rdma_port(
        "rxe0", rate="2.5 Gb/sec (1X SDR)", link_layer="Ethernet", table_size=16
    )
    local = "fe80:0000:0000:0000:5054:00ff:fe12:3456"
    for index, gid in enumerate(
        (local, mapped_gid("10.0.0.2"), "fd00:0000:0000:0000:0000:0000:0000:0002")
    ):
        host.gid("rxe0", 1, index, gid, "RoCE v2", "eth0")
    return host


def connectx3_ib(path: Path) -> FakeRoot:
    """ConnectX-3, two InfiniBand ports: ib0 up with an address, ib1 without cable."""
    host = FakeRoot(path)
    host.modules(
        loaded=(*NFS_MODULES, *RDMA_MODULES, "mlx4_core", "mlx4_ib", "ib_ipoib"),
        available=("mlx4_en", "ib_srp", "ib_iser"),
    )
    hca = Pci("0000:04:00.0", "0x15b3", "0x1003", "mlx4_core")
    host.rdma_device("mlx4_0", firmware="2.42.5000", pci=hca)
    host.rdma_port("mlx4_0", 1, rate="40 Gb/sec (4X FDR10)", table_size=8)
    host.rdma_port(
        "mlx4_0",
        2,
        state="1: DOWN",
        physical_state="2: Polling",
        rate="10 Gb/sec (4X SDR)",
        table_size=8,
    )
    for port, guid in ((1, "0002:c903:00fb:1231"), (2, "0002:c903:00fb:1232")):
        host.gid("mlx4_0", port, 0, f"fe80:0000:0000:0000:{guid}")
        host.ipoib(
            f"ib{port - 1}",
            port,
            hca,
            guid,
            carrier=port == 1,
            addresses=("10.0.0.2/24",) if port == 1 else (),
        )
    host.route("10.0.0.1", "ib0", "10.0.0.2")
    return host


def connectx5_roce(path: Path) -> FakeRoot:
    """ConnectX-5, RoCE LAG: bond0 over both ports, VLAN 100 over it, and the bridge
    ``storage`` over that, which has the address.
    """
    host = FakeRoot(path)
    host.modules(
        loaded=(*NFS_MODULES, *RDMA_MODULES, "mlx5_core", "mlx5_ib"),
        available=("ib_ipoib",),
    )
    functions = [
        Pci(f"0000:3b:00.{n}", "0x15b3", "0x1017", "mlx5_core") for n in range(2)
    ]
    mac = "b8:59:9f:00:00:0a"
    for number, function in enumerate(functions):
        host.netdev(f"ens1f{number}np{number}", mtu=9000, address=mac, pci=function)
    below: tuple[str, ...] = ("ens1f0np0", "ens1f1np1")
    for name, kind in (("bond0", "bond"), ("bond0.100", "vlan"), ("storage", "bridge")):
        host.netdev(
            name,
            mtu=9000,
            address=mac,
            kind=kind,
            lowers=below,
            addresses=("10.0.0.2/24", "fd00::2/64") if kind == "bridge" else (),
        )
        below = (name,)
    host.rdma_device(
        "mlx5_bond_0",
        node_guid="b859:9f03:0000:000a",
        firmware="16.35.2000",
        pci=functions[0],
    )
    host.rdma_port(
        "mlx5_bond_0",
        rate="100 Gb/sec (4X EDR)",
        link_layer="Ethernet",
        table_size=16,
    )
    link_local = "fe80:0000:0000:0000:ba59:9fff:fe00:000a"
    entries = [("bond0", link_local), ("bond0.100", link_local)]
    entries += [("storage", link_local), ("storage", mapped_gid("10.0.0.2"))]
    entries += [("storage", "fd00:0000:0000:0000:0000:0000:0000:0002")]
    roce_gids(host, "mlx5_bond_0", entries)
    host.route("10.0.0.1", "storage", "10.0.0.2")
    return host


def roce_gids(host: FakeRoot, device: str, entries: list[tuple[str, str]]) -> None:
    """Fill the GID table of port 1: a netdev's GID has an entry of each type."""
    for place, (netdev, gid) in enumerate(entries):
        for offset, type in enumerate(("IB/RoCE v1", "RoCE v2")):
            host.gid(device, 1, place * 2 + offset, gid, type, netdev)


def mapped_gid(ipv4: str) -> str:
    """Return the GID in which RoCE shows an IPv4 address."""
    octets = [int(octet) for octet in ipv4.split(".")]
    zeros = ":".join(["0000"] * 5)
    return "{}:ffff:{:02x}{:02x}:{:02x}{:02x}".format(zeros, *octets)
