# SPDX-License-Identifier: GPL-2.0-or-later
"""Hosts with other vendors' InfiniBand, with none, and one with everything off."""

from __future__ import annotations

from pathlib import Path

from support.fakes.fake_root import FakeRoot, Pci
from support.golden.golden_base import (
    INFINIBAND,
    MLX4,
    hypervisor,
    infiniband_device,
    infiniband_port,
    kernel_modules,
    profile,
    shipped,
    without_tso,
)
from support.golden.golden_mlx4 import connectx_3

TRUESCALE = Pci("0000:05:00.0", "0x1077", "0x7322", "ib_qib", "0x02")
OMNI_PATH = Pci("0000:18:00.0", "0x8086", "0x24f0", "hfi1", "0x11")


def qib(path: Path) -> FakeRoot:
    """QLogic TrueScale on Debian, ib0 in connected mode and managed by ifupdown."""
    host = hypervisor(
        path,
        distribution="debian12",
        loaded=("ib_qib", "rdmavt", *INFINIBAND),
        lists=("rdma", "infiniband"),
    )
    board = "InfiniPath_QLE7342"
    guid = "0011:7500:0077:8e2c"
    infiniband_device(
        host, "qib0", TRUESCALE, guid, "", "2", board, board, class_code="0x0c0600"
    )
    infiniband_port(host, "qib0", guid, active_mtu=2048)
    host.ipoib(
        "ib0",
        pci=TRUESCALE,
        guid=guid,
        mode="connected",
        addresses=("10.0.0.2/24",),
    )
    without_tso(host, "ib0")
    host.nm_device("ib0", "unmanaged")
    return host


def hfi1(path: Path) -> FakeRoot:
    """Omni-Path: verbs show 4096, and IPoIB supports 10236."""
    host = hypervisor(
        path, loaded=("hfi1", "rdmavt", *INFINIBAND), lists=("rdma", "opa")
    )
    guid = "0011:7501:0101:2345"
    infiniband_device(
        host,
        "hfi1_0",
        OMNI_PATH,
        guid,
        "1.27.0",
        "11",
        None,
        "Intel Omni-Path HFI Adapter 100 Series",
        class_code="0x020800",
    )
    infiniband_port(
        host,
        "hfi1_0",
        guid,
        rate="100 Gb/sec (4X EDR)",
        pkeys=("0x8001", "0x7fff", "0xffff"),
    )
    host.ipoib(
        "ib0",
        pci=OMNI_PATH,
        guid=guid,
        pkey="0x8001",
        mtu=2044,
        addresses=("10.0.0.2/24",),
    )
    without_tso(host, "ib0")
    profile(host, "ib0")
    return host


def without_rdma(path: Path) -> FakeRoot:
    """No RDMA device, and a domain mounted over TCP by the management network."""
    host = hypervisor(path)
    host.route("192.0.2.1", "ovirtmgmt", "192.0.2.11")
    host.nfs_mount(
        "192.0.2.1:/data", "/rhev/data-center/mnt/192.0.2.1:_data", "tcp", "192.0.2.1"
    )
    return host


def everything_off(path: Path) -> FakeRoot:
    """ConnectX-3 whose ports are DOWN; only its driver's modules, no NetworkManager, no
    rdma-core, no kernel configuration, hardly any tool.
    """
    host = FakeRoot(path)
    kernel_modules(host, MLX4, shipped("el9"))
    connectx_3(host)
    host.rdma_port(
        "mlx4_0",
        state="1: DOWN",
        physical_state="3: Disabled",
        rate="10 Gb/sec (4X SDR)",
        table_size=1,
    )
    host.gid("mlx4_0", 1, 0, "fe80:0000:0000:0000:0002:c903:00fb:1231")
    host.fabric_port("mlx4_0", lid=0, sm_lid=0, table_size=2)
    host.unit("rdma-hw.target", "inactive", "", load="not-found")
    return host
