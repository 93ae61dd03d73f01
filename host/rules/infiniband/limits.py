# SPDX-License-Identifier: GPL-2.0-or-later
"""What an HCA, its driver and the link allow an IPoIB netdev. Pure.

What rules about IPoIB want to know of an RDMA device's chip and driver. Pure.

The revision that forbids TSO is the kernel's ``MLX4_IB_CARD_REV_A0``
(drivers/infiniband/hw/mlx4/mlx4_ib.h, main.c).

What driver, port and link allow an IPoIB netdev: connected mode, MTU, TSO. Pure.

Sources: drivers/infiniband/ulp/ipoib/{ipoib.h,ipoib_main.c,ipoib_cm.c}, Linux 6.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from ovirt_rdma.host.facts.devices import Adapter, Netdev, RdmaDevice, RdmaPort
from ovirt_rdma.host.policy.model import CONNECTED
from ovirt_rdma.host.rules.pci_ids import CONNECTX_OR_2, HFI1, MLX4, MLX5, model_of
from ovirt_rdma.host.rules.view import Interface, View

REVISION_A0 = "a0"


def is_connectx_a0(device: RdmaDevice) -> bool:
    """Whether ``device`` is a ConnectX of revision a0.

    ConnectX-2 has the same PCI ids and revision b0. The driver goes by the revision
    in the HCA's NodeInfo, which it shows as ``hw_rev``; the PCI revision counts where
    that is not known.
    """
    model = model_of(device.pci) if device.pci else None
    if device.pci is None or model is None or not model.gen2:
        return False
    revision = device.pci.revision if device.hw_rev is None else device.hw_rev
    return _bare(revision) == REVISION_A0


def revision_text(device: RdmaDevice) -> str:
    """Return what told the chip: ``15b3:634a, PCI revision a0, hw_rev a0``."""
    if device.pci is None:
        return "no PCI identity"
    ids = f"{_bare(device.pci.vendor)}:{_bare(device.pci.device)}"
    hw_rev = "unknown" if device.hw_rev is None else _bare(device.hw_rev)
    return f"PCI id {ids}, PCI revision {_bare(device.pci.revision)}, hw_rev {hw_rev}"


def chip(device: RdmaDevice) -> str:
    """Return how people call the chip, or the driver where the id is not known."""
    model = model_of(device.pci) if device.pci else None
    if model is None or model.name == CONNECTX_OR_2:
        return device.driver or "RDMA device"
    return model.name


def is_mlx5(device: RdmaDevice) -> bool:
    """Whether mlx5 drives ``device``: Connect-IB, ConnectX-4 and later."""
    return device.driver == MLX5


def is_omni_path(device: RdmaDevice) -> bool:
    """Whether ``device`` is an Omni-Path HFI."""
    return device.driver == HFI1


def _bare(number: str) -> str:
    """Return ``a0`` for ``0xA0`` and for ``a0``."""
    return number.strip().lower().removeprefix("0x")


# IPOIB_ENCAP_LEN: IPoIB's own header, which takes its bytes from the IB MTU.
HEADER = 4
# IPOIB_CM_MTU: 64 KiB less the 16 bytes that the driver keeps.
CONNECTED_MTU = 65520
# IPOIB_FLAGS_RC in the first byte of the address: the driver takes connections.
_RC_FLAG = 0x80
# What a broadcast group gives: IB's MTUs, and OPA's two.
GROUP_MTUS = tuple(m - HEADER for m in (256, 512, 1024, 2048, 4096, 8192, 10240))

TSO_FEATURES = ("tx-tcp-segmentation", "tx-tcp6-segmentation")


@dataclass(frozen=True)
class MtuLimit:
    """The largest IPoIB MTU in bytes, and a clause that says what sets it."""

    mtu: int
    because: str


@dataclass(frozen=True)
class Tso:
    """The TSO features by name: those that are ``on``, those that the driver lets one
    change, and those that are off but asked for (they come back by themselves).
    """

    on: tuple[str, ...]
    changeable: tuple[str, ...]
    asked: tuple[str, ...]


def no_connected_mode(view: View, interface: Interface) -> str:
    """Say, as a clause, why ``interface`` cannot be in connected mode, or nothing.

    A netdev whose address cannot be read is taken for able.
    """
    ipoib = interface.netdev.ipoib
    if ipoib and ipoib.mode == CONNECTED:
        return ""
    for option in view.facts.software.kernel_config or ():
        if option.name == "INFINIBAND_IPOIB_CM" and option.value == "n":
            return "this kernel is built without CONFIG_INFINIBAND_IPOIB_CM"
    if takes_connections(interface.netdev) is False:
        first = interface.netdev.address[:2]
        if is_mlx5(interface.device):
            return (
                "mlx5's enhanced IPoIB (ConnectX-4 and later) is datagram only, and "
                f"the address begins with {first}"
            )
        return f"the driver takes no connections: the address begins with {first}"
    return no_mode_file(interface)


def no_mode_file(interface: Interface) -> str:
    """Say, as a clause, why neither we nor NetworkManager can change the mode of
    ``interface`` at all, or nothing.
    """
    ipoib = interface.netdev.ipoib
    if ipoib is None or ipoib.sysfs:
        return ""
    return "it was made by ip link, and such a child has no sysfs file for its mode"


def takes_connections(netdev: Netdev) -> Optional[bool]:
    """Whether the address says that connected mode is possible, None where it cannot
    be read.
    """
    try:
        return bool(int(netdev.address.split(":")[0], 16) & _RC_FLAG)
    except ValueError:
        return None


def port_limit(interface: Interface) -> Optional[MtuLimit]:
    """Return the largest datagram MTU that the kernel takes at all, once the policy's
    port_mtu is set: more is EINVAL.
    """
    most = interface.port.max_mtu
    planned = coming_port_mtu(interface)
    if planned is not None:
        return MtuLimit(planned - HEADER, f"the policy sets port_mtu {planned}")
    if most is None:
        return None
    return MtuLimit(most - HEADER, f"the port's largest MTU is {most}")


def without_port_mtu(device: RdmaDevice) -> str:
    """Say what to do where a port's largest MTU is not known."""
    if is_omni_path(device):
        return (
            "Omni-Path's driver tells verbs 4096 at most: write a number for mtu, "
            "10236 where the fabric has 10240"
        )
    return "install ibv_devinfo (libibverbs-utils; ibverbs-utils on Debian)"


def datagram_limit(interface: Interface) -> Optional[MtuLimit]:
    """Return the largest datagram MTU that port, link and policy allow, None where
    nothing tells.

    The broadcast group may allow less: the kernel does not show its MTU, only what
    comes of it.
    """
    port = interface.port
    limits = [limit] if (limit := port_limit(interface)) else []
    # Where the port itself allows less than it will, it is what holds the link down.
    held = coming_port_mtu(interface) is not None and port.active_mtu == port.max_mtu
    if port.active_mtu is not None and port.state == "ACTIVE" and not held:
        why = f"the link runs with MTU {port.active_mtu}, as its other end allows"
        limits.append(MtuLimit(port.active_mtu - HEADER, why))
    return min(limits, key=lambda limit: limit.mtu) if limits else None


def coming_port_mtu(interface: Interface) -> Optional[int]:
    """Return the port MTU in bytes that the plan sets, which makes the netdev anew.

    None where it stays.
    """
    wanted = interface.wanted.port_mtu if interface.wanted else None
    if no_port_mtu(interface.device, interface.adapter, interface.port):
        return None
    return wanted if wanted != port_mtu_of(interface.adapter, interface.port) else None


def no_port_mtu(device: RdmaDevice, adapter: Optional[Adapter], port: RdmaPort) -> str:
    """Say, as a clause, why the MTU of ``port`` itself cannot be set, or nothing.

    Only mlx4 has it, for InfiniBand ports, and not on virtual functions or beside
    them (drivers/net/ethernet/mellanox/mlx4/main.c, mlx4_init_port_info).
    """
    if port.link_layer != "InfiniBand":
        return "it is an Ethernet port, and only InfiniBand ports have one"
    if device.driver != MLX4:
        return f"only mlx4 has that setting, and this is {chip(device)}"
    if adapter and adapter.physical_function:
        return "it is a virtual function, and only the physical one can"
    if adapter and adapter.vfs:
        return f"mlx4 does not let it be set while there are {adapter.vfs} VFs"
    if port_mtu_of(adapter, port) is None:
        return "the driver does not show it (mlx4_portN_mtu)"
    return ""


def port_mtu_of(adapter: Optional[Adapter], port: RdmaPort) -> Optional[int]:
    """Return the ``mlx4_portN_mtu`` of ``port`` in bytes, None where there is none."""
    mtus = adapter.port_mtus if adapter else ()
    return mtus[port.number - 1] if 1 <= port.number <= len(mtus) else None


def tso_of(netdev: Netdev) -> Optional[Tso]:
    """Return the TSO features of ``netdev``, None where ethtool did not tell."""
    features = [o for o in netdev.offloads if o.name in TSO_FEATURES]
    if not features:
        return None
    return Tso(
        tuple(f.name for f in features if f.on),
        tuple(f.name for f in features if not f.fixed),
        tuple(f.name for f in features if not f.on and f.requested),
    )


def no_tso(interface: Interface) -> Optional[str]:
    """Say, as a clause, why datagrams go without TSO here; nothing where they can
    have it, and None where that cannot be told.
    """
    if is_connectx_a0(interface.device):
        return "a ConnectX of revision a0 must not use TSO"
    tso = tso_of(interface.netdev)
    if tso is None:
        return None
    return "" if tso.on or tso.changeable else "the driver offers no TSO"
