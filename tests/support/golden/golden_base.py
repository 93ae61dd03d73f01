# SPDX-License-Identifier: GPL-2.0-or-later
"""Build the common parts of the hosts in :mod:`golden_hosts`.

They are a hypervisor with its management network, distribution and RDMA packages, and
InfiniBand ports in a line.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Optional

from support.fakes.fake_root import EL9_KERNEL, FakeRoot, Pci

KERNELS = {
    "el9": EL9_KERNEL,
    "el10": "6.12.0-55.9.1.el10_0.x86_64",
    "debian12": "6.1.0-56-amd64",
}
NFS = ("sunrpc", "rpcrdma", "nfs", "nfsv3", "nfsv4", "lockd")
RDMA = ("ib_core", "ib_cm", "iw_cm", "rdma_cm", "ib_uverbs", "rdma_ucm", "ib_iser")
INFINIBAND = ("ib_ipoib", "ib_umad")
MLX4 = ("mlx4_core", "mlx4_ib")
MLX5 = ("mlx5_core", "mlx5_ib")
# EL9's, loaded or not; EL10 has none of MLX4, rdma_rxe and siw.
BLOCK = ("ib_srp", "ib_srpt", "ib_isert", "nvme_rdma", "nvmet_rdma")
SHIPPED = (*NFS, *RDMA, *INFINIBAND, *MLX5, *BLOCK, "hfi1", "irdma")

_FOLDERS = {
    "sunrpc": "net/sunrpc",
    "rpcrdma": "net/sunrpc/xprtrdma",
    "lockd": "fs/lockd",
    "ib_ipoib": "drivers/infiniband/ulp/ipoib",
    "ib_iser": "drivers/infiniband/ulp/iser",
    "ib_isert": "drivers/infiniband/ulp/isert",
    "ib_srp": "drivers/infiniband/ulp/srp",
    "ib_srpt": "drivers/infiniband/ulp/srpt",
    "ib_qib": "drivers/infiniband/hw/qib",
    "nvme_rdma": "drivers/nvme/host",
    "nvmet_rdma": "drivers/nvme/target",
    "mlx4_core": "drivers/net/ethernet/mellanox/mlx4",
    "mlx4_en": "drivers/net/ethernet/mellanox/mlx4",
    "mlx5_core": "drivers/net/ethernet/mellanox/mlx5/core",
    "mlx4_ib": "drivers/infiniband/hw/mlx4",
    "mlx5_ib": "drivers/infiniband/hw/mlx5",
    "hfi1": "drivers/infiniband/hw/hfi1",
    "irdma": "drivers/infiniband/hw/irdma",
    "rdma_rxe": "drivers/infiniband/sw/rxe",
}

_CONFIG = {
    "INFINIBAND": "m",
    "INFINIBAND_USER_ACCESS": "m",
    "INFINIBAND_USER_MAD": "m",
    "INFINIBAND_IPOIB": "m",
    "INFINIBAND_IPOIB_CM": "y",
    "MLX5_CORE": "m",
    "MLX5_CORE_IPOIB": "y",
    "MLX5_INFINIBAND": "m",
    "SUNRPC_XPRT_RDMA": "m",
    "NFS_FS": "m",
    "CONFIGFS_FS": "y",
    "DCB": "y",
}
# Symbols that are not set, and additional ones that are.
_CONFIGS: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "el9": (
        ("MLX4_CORE_GEN2", "INFINIBAND_QIB", "INFINIBAND_MTHCA"),
        {"MLX4_CORE": "m", "MLX4_INFINIBAND": "m"},
    ),
    "el10": (("MLX4_CORE", "INFINIBAND_QIB", "INFINIBAND_MTHCA"), {}),
    "debian12": (
        (),
        {
            "MLX4_CORE": "m",
            "MLX4_CORE_GEN2": "y",
            "MLX4_INFINIBAND": "m",
            "INFINIBAND_QIB": "m",
            "INFINIBAND_MTHCA": "m",
        },
    ),
}


def hypervisor(
    path: Path,
    *,
    distribution: str = "el9",
    loaded: Sequence[str] = (),
    lists: Sequence[str] = (),
    vdsm: str = "4.50.5.1",
) -> FakeRoot:
    """Return a host with eno1 below ovirtmgmt, NetworkManager and rdma-core.

    ``loaded`` lists modules in addition to those of NFS and RDMA, which are loaded if
    ``lists``, the names of rdma-core's lists for the hardware, is not empty.
    """
    host = FakeRoot(path, kernel=KERNELS[distribution])
    host.distribution(distribution)
    unset, values = _CONFIGS[distribution]
    host.kernel_config(*unset, **_CONFIG, **values)
    ulps = (*NFS, *RDMA) if lists else ("sunrpc", "nfs", "nfsv4", "lockd")
    kernel_modules(host, (*ulps, *loaded), shipped(distribution))
    rdma_core(host, lists)
    host.rdma_core_lists(red_hat=distribution != "debian12")
    if distribution != "debian12":
        host.package("vdsm", vdsm)
        host.package("rdma-core", "48.0" if distribution == "el9" else "54.0")
        host.unit("vdsmd.service")
    host.network_manager()
    _management(host)
    return host


def shipped(distribution: str) -> tuple[str, ...]:
    """Return the modules that a distribution's kernel has."""
    if distribution == "el10":
        return SHIPPED
    more = ("ib_qib", "ib_mthca") if distribution == "debian12" else ("siw",)
    return (*SHIPPED, *MLX4, "mlx4_en", "rdma_rxe", *more)


def kernel_modules(
    host: FakeRoot, loaded: Sequence[str], available: Sequence[str]
) -> None:
    """Write /proc/modules, and a modules.dep with the kernel's own folders."""
    host.modules(loaded=tuple(sorted(set(loaded))))
    paths = [kernel_file(host, name) for name in (*available, *loaded)]
    host.module_files(*sorted(set(paths)))


def kernel_file(host: FakeRoot, name: str) -> str:
    """Return the path of the kernel's own build of a module, as in modules.dep."""
    folder = _FOLDERS.get(name, "drivers/infiniband/core")
    if name.startswith("nfs"):
        folder = "fs/nfs"
    suffix = "ko" if "amd64" in host.kernel else "ko.xz"
    return f"kernel/{folder}/{name}.{suffix}"


def rdma_core(host: FakeRoot, lists: Sequence[str]) -> None:
    """Set rdma-core's units; those of ``lists`` are active."""
    host.unit("rdma-hw.target", "active" if lists else "inactive", "static")
    for name in ("rdma", "infiniband", "roce", "iwarp", "opa"):
        active = "active" if name in lists else "inactive"
        host.unit(f"rdma-load-modules@{name}.service", active, "static")
    host.unit("rdma-ndd.service", "active" if lists else "inactive", "static")
    host.unit("NetworkManager.service")


def _management(host: FakeRoot) -> None:
    nic = Pci("0000:01:00.0", "0x8086", "0x1521", "igb", "0x01")
    host.netdev("eno1", address="3c:fd:fe:12:34:56", pci=nic)
    host.adapter(nic)
    host.netdev(
        "ovirtmgmt",
        address="3c:fd:fe:12:34:56",
        kind="bridge",
        lowers=("eno1",),
        addresses=("192.0.2.11/24",),
    )
    host.ovirt_network("ovirtmgmt", nic="eno1", defaultRoute=True)
    for name, type in (("eno1", "802-3-ethernet"), ("ovirtmgmt", "bridge")):
        host.nm_device(name)
        host.nm_profile(name, type, active_on=name)


def infiniband_device(
    host: FakeRoot,
    name: str,
    pci: Pci,
    guid: str,
    firmware: str,
    hw_rev: str = "0",
    hca_type: Optional[str] = None,
    board_id: Optional[str] = None,
    class_code: str = "0x020700",
) -> None:
    """Add an adapter and its RDMA device, without ports."""
    host.adapter(pci, class_code)
    host.rdma_device(name, node_guid=guid, firmware=firmware, pci=pci)
    host.rdma_identity(name, hw_rev, hca_type, board_id)


def infiniband_port(
    host: FakeRoot,
    device: str,
    guid: str,
    number: int = 1,
    *,
    state: str = "4: ACTIVE",
    physical_state: str = "5: LinkUp",
    rate: str = "40 Gb/sec (4X QDR)",
    lid: int = 5,
    sm_lid: int = 1,
    pkeys: Sequence[str] = ("0xffff",),
    active_mtu: int = 4096,
) -> None:
    """Add an InfiniBand port."""
    host.rdma_port(device, number, state, physical_state, rate, table_size=2)
    host.gid(device, number, 0, f"fe80:0000:0000:0000:{guid}")
    host.fabric_port(device, number, lid, sm_lid, pkeys, table_size=4)
    host.ib_mtus(device, number, 4096, active_mtu)


def no_link(host: FakeRoot, device: str, guid: str, number: int = 1) -> None:
    """Add an InfiniBand port without a cable."""
    infiniband_port(
        host,
        device,
        guid,
        number,
        state="1: DOWN",
        physical_state="2: Polling",
        rate="10 Gb/sec (4X SDR)",
        lid=0,
        sm_lid=0,
    )


def profile(
    host: FakeRoot, netdev: str, mode: str = "datagram", **properties: str
) -> str:
    """Let NetworkManager manage an IPoIB netdev by a profile of its name; the keys of
    ``properties`` are those of the section infiniband (``mtu``).
    """
    host.nm_device(netdev)
    more = {f"infiniband.{k.replace('_', '-')}": v for k, v in properties.items()}
    return host.nm_profile(
        netdev,
        active_on=netdev,
        properties={"infiniband.transport-mode": mode, **more},
    )


def enhanced(host: FakeRoot, *netdevs: str) -> None:
    """Set the features of mlx5's enhanced IPoIB."""
    for netdev in netdevs:
        host.offloads(
            netdev,
            {
                "tx-tcp-segmentation": "on",
                "tx-tcp6-segmentation": "on",
                "tx-checksum-ipv6": "on",
            },
        )


def without_tso(host: FakeRoot, *netdevs: str) -> None:
    """Set the features that ib_ipoib shows for an HCA without TSO."""
    for netdev in netdevs:
        host.offloads(
            netdev,
            {
                "tcp-segmentation-offload": "off",
                "tx-tcp-segmentation": "off [fixed]",
            },
        )
