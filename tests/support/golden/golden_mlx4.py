# SPDX-License-Identifier: GPL-2.0-or-later
"""Hosts with ConnectX to ConnectX-3, with mlx4 or without a driver."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ovirt_rdma.host.paths import DAEMON_UNIT
from support.fakes.fake_root import FakeRoot, Pci
from support.golden.golden_base import (
    INFINIBAND,
    MLX4,
    hypervisor,
    infiniband_device,
    infiniband_port,
    kernel_file,
    no_link,
    profile,
    shipped,
    without_tso,
)

LISTS = ("rdma", "infiniband", "roce")
CONNECTX = Pci("0000:04:00.0", "0x15b3", "0x634a", "mlx4_core", "0xa0")
CONNECTX_2 = Pci("0000:04:00.0", "0x15b3", "0x673c", "", "0xb0")
CONNECTX_3 = Pci("0000:82:00.0", "0x15b3", "0x1003", "mlx4_core", "0x00")
CONNECTX_3_PRO = Pci("0000:82:00.0", "0x15b3", "0x1007", "mlx4_core", "0x00")


def connectx_a0_in_box(path: Path) -> FakeRoot:
    """The first ConnectX on Debian, whose driver detects it; ifupdown manages ib0,
    which has a child made by ``create_child``.
    """
    host = hypervisor(
        path, distribution="debian12", loaded=(*MLX4, *INFINIBAND), lists=LISTS
    )
    _connectx(host)
    host.pkey_child("ib0", "0x8001", addresses=("10.1.0.2/24",))
    without_tso(host, "ib0", "ib0.8001")
    for netdev in ("ib0", "ib0.8001"):
        host.nm_device(netdev, "unmanaged")
    return host


def connectx_a0_old_driver(path: Path) -> FakeRoot:
    """The same adapter on EL9, with an out-of-tree driver that does not detect it."""
    host = hypervisor(path, loaded=(*MLX4, *INFINIBAND), lists=LISTS)
    own = [kernel_file(host, m) for m in shipped("el9") if m not in MLX4]
    host.module_files(*own, *(f"extra/mlx4/{module}.ko" for module in MLX4))
    _connectx(host)
    host.pkey_child("ib0", "0x8001", addresses=("10.1.0.2/24",))
    profile(host, "ib0")
    profile(host, "ib0.8001", parent="ib0", p_key="0x8001")
    return host


def _connectx(host: FakeRoot) -> None:
    infiniband_device(
        host,
        "mlx4_0",
        CONNECTX,
        "0002:c903:0002:7d10",
        "2.9.1000",
        "a0",
        "MT25418",
        "MT_04A0120002",
        class_code="0x0c0600",
    )
    host.mlx4_port(CONNECTX, 1, "ib")
    infiniband_port(
        host,
        "mlx4_0",
        "0002:c903:0002:7d11",
        rate="20 Gb/sec (4X DDR)",
        active_mtu=2048,
        pkeys=("0xffff", "0x8001"),
    )
    host.ipoib(
        "ib0", pci=CONNECTX, guid="0002:c903:0002:7d11", addresses=("10.0.0.2/24",)
    )


def connectx_2_on_el9(path: Path) -> FakeRoot:
    """ConnectX-2: mlx4_core is loaded and does not claim it."""
    host = hypervisor(path)
    host.adapter(CONNECTX_2, "0x0c0600")
    return host


def connectx_3_on_el10(path: Path) -> FakeRoot:
    """ConnectX-3 Pro, whose driver EL10 has removed."""
    host = hypervisor(path, distribution="el10")
    host.adapter(replace(CONNECTX_3_PRO, driver=""), "0x028000")
    return host


def connectx_3_vpi(path: Path) -> FakeRoot:
    """ConnectX-3: port 1 is InfiniBand, port 2 Ethernet; with settings of old guides:
    dead module options, a udev rule for the mode.
    """
    host = hypervisor(path, loaded=(*MLX4, "mlx4_en", *INFINIBAND), lists=LISTS)
    connectx_3(host)
    host.mlx4_port(CONNECTX_3, 2, "eth", mtu=0)
    infiniband_port(
        host, "mlx4_0", "0002:c903:00a0:0091", rate="56 Gb/sec (4X FDR)", lid=7
    )
    host.ipoib("ib0", pci=CONNECTX_3, guid="0002:c903:00a0:0091", mtu=4092)
    profile(host, "ib0")
    host.rdma_port(
        "mlx4_0",
        2,
        rate="40 Gb/sec (4X FDR10)",
        link_layer="Ethernet",
        table_size=3,
    )
    host.fabric_port("mlx4_0", 2, lid=0, sm_lid=0, table_size=1)
    host.ib_mtus("mlx4_0", 2, 4096, 1024)
    host.gid("mlx4_0", 2, 0, "fe80:0000:0000:0000:0002:c9ff:fea0:0092", netdev="ens6d1")
    host.gid("mlx4_0", 2, 1, "0000:0000:0000:0000:0000:ffff:0a02:0002", netdev="ens6d1")
    host.netdev(
        "ens6d1",
        address="00:02:c9:a0:00:92",
        pci=CONNECTX_3,
        addresses=("10.2.0.2/24",),
    )
    host.write("/sys/class/net/ens6d1/dev_port", "1")
    host.nm_device("ens6d1")
    host.nm_profile("ens6d1", "802-3-ethernet", active_on="ens6d1")
    host.pause("ens6d1")
    host.modprobe_d("mlx4", "options mlx4_core set_4k_mtu=1 log_num_mtt=24")
    host.udev_rules(
        "70-ipoib",
        'ACTION=="add", SUBSYSTEM=="net", KERNEL=="ib*", ATTR{mode}="connected"',
    )
    return host


def connectx_3_busy(path: Path) -> FakeRoot:
    """ConnectX-3, ib0 with an NFS mount over RDMA and an iSCSI session; ib1 without a
    cable.
    """
    host = hypervisor(path, loaded=(*MLX4, *INFINIBAND), lists=LISTS)
    connectx_3(host)
    host.mlx4_port(CONNECTX_3, 2, "ib")
    infiniband_port(host, "mlx4_0", "0002:c903:00fb:1231", rate="56 Gb/sec (4X FDR)")
    no_link(host, "mlx4_0", "0002:c903:00fb:1232", 2)
    host.ipoib("ib0", 1, CONNECTX_3, mtu=4092, addresses=("10.0.0.2/24",))
    host.ipoib("ib1", 2, CONNECTX_3, "0002:c903:00fb:1232", mtu=4092, carrier=False)
    profile(host, "ib0", mtu="4092")
    host.nm_device("ib1", "disconnected")
    host.route("10.0.0.1", "ib0", "10.0.0.2")
    host.nfs_mount(
        "10.0.0.1:/export/vm", "/rhev/data-center/mnt/10.0.0.1:_export_vm", "rdma"
    )
    host.cm_id("mlx4_0", "10.0.0.2:40001", "10.0.0.1:20049")
    host.iscsi_session(4, "iqn.2016-06.org:lun1", address="10.0.0.1")
    return host


def engine_owned_mtu(path: Path) -> FakeRoot:
    """ib0 is in the logical network ``storage``, whose MTU is VDSM's default."""
    host = hypervisor(path, loaded=(*MLX4, *INFINIBAND), lists=LISTS)
    connectx_3(host, CONNECTX_3_PRO, "0", "MT4103", "MT_1090111019")
    infiniband_port(host, "mlx4_0", "f452:1403:0012:3451", rate="40 Gb/sec (4X FDR10)")
    host.ipoib(
        "ib0",
        pci=CONNECTX_3_PRO,
        guid="f452:1403:0012:3451",
        mtu=1500,
        addresses=("10.0.0.2/24",),
    )
    profile(host, "ib0", mtu="1500")
    host.ovirt_network("storage", nic="ib0", bridged=False, mtu=1500)
    return host


def pkeys(path: Path) -> FakeRoot:
    """Three partitions, and a child for a fourth that the port is not in; the subnet
    manager is running on this host.
    """
    host = hypervisor(path, loaded=(*MLX4, *INFINIBAND), lists=LISTS)
    host.unit("opensm.service")
    connectx_3(host)
    infiniband_port(
        host,
        "mlx4_0",
        "0002:c903:00fb:1231",
        rate="56 Gb/sec (4X FDR)",
        lid=1,
        pkeys=("0xffff", "0x8001", "0x0004", "0x8005"),
    )
    host.ipoib("ib0", pci=CONNECTX_3)
    host.pkey_child("ib0", "0x8002", mtu=4092, carrier=False)
    host.pkey_child("ib0", "0x8005", by_ip_link=True, name="migration")
    profile(host, "ib0")
    profile(host, "ib0.8002", parent="ib0", p_key="0x8002")
    host.nm_device("migration", "unmanaged")
    return host


def partitions(path: Path) -> FakeRoot:
    """The children follow the P_Key table: one exists, three are missing, one is of
    a partition that the port is no longer in.
    """
    host = hypervisor(path, loaded=(*MLX4, *INFINIBAND), lists=LISTS)
    host.unit(DAEMON_UNIT, "inactive", "disabled")
    connectx_3(host)
    infiniband_port(
        host,
        "mlx4_0",
        "0002:c903:00fb:1231",
        rate="56 Gb/sec (4X FDR)",
    )
    table = ("0x8010", "0xffff", "0x8001", "0x0004", "0x8005", "0x8002")
    host.fabric_port("mlx4_0", 1, 5, 1, table, table_size=8)
    host.ipoib("ib0", pci=CONNECTX_3, pkey="0x8010")
    profile(host, "ib0")
    for pkey, carrier in (("0x8001", True), ("0x8003", False)):
        host.pkey_child("ib0", pkey, carrier=carrier)
        name = f"ib0.{pkey[2:]}"
        profile(host, name, parent="ib0", p_key=pkey)
    # The administrator's, which NetworkManager has not activated.
    host.nm_profile(
        "ib0.8005",
        properties={"infiniband.parent": "ib0", "infiniband.p-key": "0x8005"},
    )
    return host


def connectx_3(
    host: FakeRoot,
    pci: Pci = CONNECTX_3,
    hw_rev: str = "1",
    hca_type: str = "MT4099",
    board_id: str = "MT_1090120019",
) -> None:
    """Add the adapter ``mlx4_0``, whose port 1 is InfiniBand."""
    infiniband_device(
        host,
        "mlx4_0",
        pci,
        "0002:c903:00fb:1230",
        "2.42.5000",
        hw_rev,
        hca_type,
        board_id,
        class_code="0x028000",
    )
    host.mlx4_port(pci, 1, "ib")
