# SPDX-License-Identifier: GPL-2.0-or-later
"""Hosts with ConnectX-5 to ConnectX-7, which use mlx5."""

from __future__ import annotations

from pathlib import Path

from support.fakes.fake_adapters import lldp_text
from support.fakes.fake_hosts import mapped_gid, roce_gids
from support.fakes.fake_root import FakeRoot, Pci
from support.golden.golden_base import (
    INFINIBAND,
    MLX4,
    MLX5,
    enhanced,
    hypervisor,
    infiniband_device,
    infiniband_port,
    kernel_file,
    no_link,
    profile,
    shipped,
)
from support.golden.golden_mlx4 import LISTS, connectx_3

NO_GUID = ("0000:0000:0000:0000", "0000:0000:0000:0000", "auto")
HOST_UUID = "3c2ee5a2-1b1e-4c35-b2a5-6a56fd8f8f14"
CONNECTX_5 = Pci("0000:5e:00.0", "0x15b3", "0x1017", "mlx5_core")
CONNECTX_5_B = Pci("0000:5e:00.1", "0x15b3", "0x1017", "mlx5_core")
CONNECTX_6_DX = Pci("0000:3b:00.0", "0x15b3", "0x101d", "mlx5_core")
CONNECTX_6_DX_B = Pci("0000:3b:00.1", "0x15b3", "0x101d", "mlx5_core")
CONNECTX_7 = Pci("0000:1a:00.0", "0x15b3", "0x1021", "mlx5_core")


def _device(
    host: FakeRoot,
    name: str,
    pci: Pci,
    guid: str,
    firmware: str = "16.35.4030",
    hca_type: str = "MT4119",
    board_id: str = "MT_0000000008",
) -> None:
    infiniband_device(host, name, pci, guid, firmware, "0", hca_type, board_id)


def connectx_5_ib(path: Path) -> FakeRoot:
    """One port of EDR; ib0 has the kernel's default and a profile of its own."""
    host = hypervisor(path, loaded=(*MLX5, *INFINIBAND), lists=LISTS)
    _connectx_5(host)
    host.cabled("mlx5_0")
    profile(host, "ib0")
    return host


def _connectx_5(host: FakeRoot) -> None:
    guid = "ec0d:9a03:007d:7d1a"
    _device(host, "mlx5_0", CONNECTX_5, guid)
    infiniband_port(host, "mlx5_0", guid, rate="100 Gb/sec (4X EDR)")
    addresses = ("10.0.0.2/24",)
    host.ipoib("ib0", pci=CONNECTX_5, guid=guid, can_connect=False, addresses=addresses)
    enhanced(host, "ib0")


def connectx_7_ndr(path: Path) -> FakeRoot:
    """One port of NDR, in two partitions; NetworkManager has no profile for ib0."""
    host = hypervisor(path, loaded=(*MLX5, *INFINIBAND), lists=LISTS)
    guid = "58a2:e103:002a:1640"
    _device(host, "mlx5_0", CONNECTX_7, guid, "28.39.2048", "MT4129", "MT_0000000838")
    infiniband_port(
        host,
        "mlx5_0",
        guid,
        rate="400 Gb/sec (4X NDR)",
        lid=1691,
        pkeys=("0xffff", "0x8001"),
    )
    host.ipoib("ib0", pci=CONNECTX_7, guid=guid, can_connect=False)
    enhanced(host, "ib0")
    host.nm_device("ib0", "disconnected")
    return host


def connectx_6_dx_roce(path: Path) -> FakeRoot:
    """RoCE LAG: the engine's network ``storage`` is VLAN 100 over bond0."""
    host = hypervisor(path, loaded=MLX5, lists=LISTS)
    mac, link_local = "b8:3f:d2:2d:65:02", "fe80:0000:0000:0000:ba3f:d2ff:fe2d:6502"
    ports = (("ens1f0np0", CONNECTX_6_DX), ("ens1f1np1", CONNECTX_6_DX_B))
    for name, pci in ports:
        host.adapter(pci, max_vfs=8)
        host.netdev(name, mtu=1500, address=mac, pci=pci)
        host.dcb(name, pfc=(3,), dscp=((26, 3),))
        host.pause(name, rx=False, tx=False)
        chassis = f"MAC: 00:1c:73:aa:00:0{name[-1]}"
        host.lldp(name, lldp_text(f"leaf{name[-1]}", chassis=chassis))
    below = ("ens1f0np0", "ens1f1np1")
    host.bond("bond0", below, mode="802.3ad 4", fail_over_mac="none 0", active="")
    host.netdev(
        "bond0.100",
        address=mac,
        kind="vlan",
        lowers=("bond0",),
        addresses=("10.0.0.2/24", "fd00::2/64"),
    )
    host.rdma_device(
        "mlx5_bond_0",
        node_guid="b83f:d203:002d:6502",
        firmware="22.38.1900",
        pci=CONNECTX_6_DX,
    )
    host.rdma_identity("mlx5_bond_0", "0", "MT4125", "MT_0000000436")
    host.rdma_port(
        "mlx5_bond_0", rate="100 Gb/sec (4X EDR)", link_layer="Ethernet", table_size=8
    )
    host.fabric_port("mlx5_bond_0", lid=0, sm_lid=0, table_size=1)
    host.ib_mtus("mlx5_bond_0", 1, 4096, 1024)
    entries = [("bond0", link_local), ("bond0.100", link_local)]
    entries += [("bond0.100", mapped_gid("10.0.0.2"))]
    entries += [("bond0.100", "fd00:0000:0000:0000:0000:0000:0000:0002")]
    roce_gids(host, "mlx5_bond_0", entries)
    host.default_gid_type("mlx5_bond_0", 1, "RoCE v2")
    for name, type in (
        ("ens1f0np0", "802-3-ethernet"),
        ("ens1f1np1", "802-3-ethernet"),
        ("bond0", "bond"),
        ("bond0.100", "vlan"),
    ):
        host.nm_device(name)
        host.nm_profile(name, type, active_on=name)
    host.ovirt_network("storage", bonding="bond0", vlan=100, bridged=False, mtu=1500)
    host.route("10.0.0.1", "bond0.100", "10.0.0.2")
    host.nfs_mount(
        "10.0.0.1:/export/vm", "/rhev/data-center/mnt/10.0.0.1:_export_vm", "rdma"
    )
    host.cm_id("mlx5_bond_0", "10.0.0.2:40001", "10.0.0.1:20049")
    return host


def two_hcas(path: Path) -> FakeRoot:
    """ConnectX-3 and ConnectX-5, whose netdev has another name than in its profile;
    and a VDSM without support for IPoIB.
    """
    host = hypervisor(
        path, loaded=(*MLX4, *MLX5, *INFINIBAND), lists=LISTS, vdsm="4.50.0.13"
    )
    old = Pci("0000:04:00.0", "0x15b3", "0x1003", "mlx4_core")
    connectx_3(host, old)
    infiniband_port(host, "mlx4_0", "0002:c903:00fb:1231", lid=9, active_mtu=2048)
    host.ipoib("ib0", pci=old)
    guid = "ec0d:9a03:007d:7d1a"
    _device(host, "mlx5_0", CONNECTX_5, guid)
    infiniband_port(host, "mlx5_0", guid, rate="100 Gb/sec (4X EDR)", lid=12)
    host.ipoib("ib1", pci=CONNECTX_5, guid=guid, can_connect=False, mtu=4092)
    enhanced(host, "ib1")
    profile(host, "ib0")
    host.nm_device("ib1", "disconnected")
    host.nm_profile(
        "storage",
        interface_name="ib5",
        properties={
            "infiniband.mac-address": "80:00:02:0A:FE:80:00:00:00:00:00:00:"
            "EC:0D:9A:03:00:7D:7D:1A"
        },
    )
    return host


def bond_of_ipoib(path: Path) -> FakeRoot:
    """Both ports of a ConnectX-5, active-backup, with the engine's network."""
    host = hypervisor(path, loaded=(*MLX5, *INFINIBAND), lists=LISTS)
    for number, pci in enumerate((CONNECTX_5, CONNECTX_5_B)):
        guid = f"506b:4b03:00cc:f9e{2 + number}"
        _device(host, f"mlx5_{number}", pci, guid)
        infiniband_port(
            host, f"mlx5_{number}", guid, rate="100 Gb/sec (4X EDR)", lid=20 + number
        )
        host.ipoib(f"ib{number}", pci=pci, guid=guid, can_connect=False, mtu=2044)
    enhanced(host, "ib0", "ib1")
    host.bond(
        "bond0", ("ib0", "ib1"), active="ib0", mtu=2044, addresses=("10.0.0.2/24",)
    )
    host.nm_device("bond0")
    uuid = host.nm_profile(
        "bond0",
        "bond",
        active_on="bond0",
        properties={"bond.options": "mode=active-backup,miimon=100,fail_over_mac=1"},
    )
    for name in ("ib0", "ib1"):
        host.nm_device(name)
        host.nm_profile(
            name,
            active_on=name,
            properties={"connection.master": uuid, "connection.slave-type": "bond"},
        )
    host.ovirt_network("storage", bonding="bond0", bridged=False, mtu=2044)
    host.route("10.0.0.1", "bond0", "10.0.0.2")
    host.nfs_mount(
        "10.0.0.1:/export/vm", "/rhev/data-center/mnt/10.0.0.1:_export_vm", "tcp"
    )
    return host


def virtual_functions(path: Path) -> FakeRoot:
    """A ConnectX-5 with eight VFs: four for guests, two unused, two with netdevs on
    this host, one of which has no link.
    """
    host = hypervisor(path, loaded=(*MLX5, *INFINIBAND), lists=LISTS)
    _connectx_5(host)
    host.adapter(CONNECTX_5, "0x020700", max_vfs=8)
    vfs = host.virtual_functions(
        CONNECTX_5, 8, "0x1018", driver="", class_code="0x020700"
    )
    for vf in vfs[:4]:
        host.link(f"{vf.folder}/driver", "/sys/bus/drivers/vfio-pci")
    for number, vf in enumerate(vfs[4:6], 1):
        guid = f"0011:2233:4455:66{number:02d}"
        host.link(f"{vf.folder}/driver", "/sys/bus/drivers/mlx5_core")
        pci = Pci(vf.address, vf.vendor, vf.device, "mlx5_core", vf.revision)
        device = f"mlx5_{number}"
        host.rdma_device(device, node_guid=guid, firmware="16.35.4030", pci=pci)
        host.rdma_identity(device, "0", "MT4120", "MT_0000000008")
        if number == 1:
            infiniband_port(host, device, guid, rate="100 Gb/sec (4X EDR)", lid=5)
        else:
            no_link(host, device, guid)
        host.ipoib(
            f"ib{number}",
            pci=pci,
            guid=guid,
            can_connect=False,
            carrier=number == 1,
            # Without a link it has not joined the group, which would lower its MTU.
            mtu=2044 if number == 1 else 4092,
        )
    enhanced(host, "ib1", "ib2")
    for name in ("ib0", "ib1", "ib2"):
        profile(host, name)
    host.write("/sys/class/dmi/id/product_uuid", HOST_UUID)
    # VFs 0 to 3 are with guests, 4 and 5 on this host; nobody gave 6 and 7 a GUID.
    guids = [f"0011:2233:4455:66{(number - 3) % 8:02d}" for number in range(6)]
    host.ip_vfs("ib0", [(guid, guid, "auto") for guid in guids] + [NO_GUID] * 2)
    return host


def virtual_functions_wanted(path: Path) -> FakeRoot:
    """A ConnectX-5 that could have eight VFs, and has none."""
    host = hypervisor(path, loaded=(*MLX5, *INFINIBAND), lists=LISTS)
    _connectx_5(host)
    host.adapter(CONNECTX_5, "0x020700", max_vfs=8)
    enhanced(host, "ib0")
    profile(host, "ib0")
    host.write("/sys/class/dmi/id/product_uuid", HOST_UUID)
    return host


def mlnx_ofed(path: Path) -> FakeRoot:
    """MLNX_OFED, installed without NFS over RDMA."""
    host = hypervisor(path, loaded=(*MLX5, *INFINIBAND), lists=LISTS)
    # Its list has xprtrdma, which cannot be loaded.
    host.unit("rdma-load-modules@rdma.service", "failed", "static")
    theirs = {
        "core": ("ib_core", "ib_cm", "iw_cm", "rdma_cm", "ib_uverbs", "rdma_ucm"),
        "hw/mlx5": ("mlx5_ib",),
        "ulp/ipoib": ("ib_ipoib",),
    }
    extra = "extra/mlnx-ofa_kernel"
    files = [
        f"{extra}/drivers/infiniband/{folder}/{module}.ko"
        for folder, modules in theirs.items()
        for module in modules
    ]
    files.append(f"{extra}/drivers/infiniband/core/ib_umad.ko")
    files.append(f"{extra}/drivers/net/ethernet/mellanox/mlx5/core/mlx5_core.ko")
    files.append(f"{extra}/compat/mlx_compat.ko")
    nfs = ("sunrpc", "nfs", "nfsv3", "nfsv4", "lockd")
    files += [kernel_file(host, module) for module in nfs]
    files += [kernel_file(host, m) for m in shipped("el9") if m.startswith("mlx4")]
    host.module_files(*files)
    infiniband = [module for modules in theirs.values() for module in modules]
    loaded = [*infiniband, "ib_umad", "mlx5_core", *nfs]
    host.write("/proc/modules", "\n".join(f"{m} 1 0 - Live 0x0" for m in loaded))
    host.mlnx_ofed()
    host.unit("openibd.service")
    _connectx_5(host)
    profile(host, "ib0")
    host.modprobe_d("ib_ipoib", "options ib_ipoib ipoib_enhanced=1")
    host.module_parameters("ib_ipoib", ipoib_enhanced=1)
    return host
