# SPDX-License-Identifier: GPL-2.0-or-later
"""Determine the limits that HCA, driver, port and link set for an IPoIB netdev. Pure.

The limits are connected mode, MTU and TSO. The revision that must not use TSO is the
kernel's ``MLX4_IB_CARD_REV_A0`` (drivers/infiniband/hw/mlx4/mlx4_ib.h, main.c).

Sources: drivers/infiniband/ulp/ipoib/{ipoib.h,ipoib_main.c,ipoib_cm.c}, Linux 6.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.facts.devices import Adapter, Netdev, RdmaDevice, RdmaPort
from ovirt_rdma.host.facts.ipoib import CONNECTED, CONNECTED_MTU, DATAGRAM, HEADER
from ovirt_rdma.host.rules.pci_ids import CONNECTX_OR_2, HFI1, MLX4, MLX5, model_of
from ovirt_rdma.host.rules.view import Interface, View

REVISION_A0 = "a0"


def is_connectx_a0(device: RdmaDevice) -> bool:
    """Whether ``device`` is a ConnectX of revision a0.

    ConnectX-2 has the same PCI ids and revision b0. The driver uses the revision in the
    HCA's NodeInfo, which it shows as ``hw_rev``; the PCI revision counts if that is
    unknown.
    """
    model = model_of(device.pci) if device.pci else None
    if device.pci is None or model is None or not model.gen2:
        return False
    revision = device.pci.revision if device.hw_rev is None else device.hw_rev
    return _bare(revision) == REVISION_A0


def revision_text(device: RdmaDevice) -> str:
    """Return ``PCI id 15b3:634a, PCI revision a0, hw_rev a0``."""
    if device.pci is None:
        return "no PCI identity"
    ids = f"{_bare(device.pci.vendor)}:{_bare(device.pci.device)}"
    hw_rev = "unknown" if device.hw_rev is None else _bare(device.hw_rev)
    return f"PCI id {ids}, PCI revision {_bare(device.pci.revision)}, hw_rev {hw_rev}"


def chip(device: RdmaDevice) -> str:
    """Return the product name of the chip, or the driver if the id is unknown."""
    model = model_of(device.pci) if device.pci else None
    if model is None or model.name == CONNECTX_OR_2:
        return device.driver or "RDMA device"
    return model.name


def is_mlx5(device: RdmaDevice) -> bool:
    """Whether ``device`` uses mlx5: Connect-IB, ConnectX-4 and later."""
    return device.driver == MLX5


def is_omni_path(device: RdmaDevice) -> bool:
    """Whether ``device`` is an Omni-Path HFI."""
    return device.driver == HFI1


def _bare(number: str) -> str:
    """Return ``a0`` for ``0xA0`` and for ``a0``."""
    return number.strip().lower().removeprefix("0x")


# IPOIB_FLAGS_RC in the first byte of the address: the driver accepts connections.
_RC_FLAG = 0x80

TSO_FEATURES = ("tx-tcp-segmentation", "tx-tcp6-segmentation")


@dataclass(frozen=True)
class MtuLimit:
    """The largest IPoIB MTU in bytes, and a clause about what limits it."""

    mtu: int
    reason: str


@dataclass(frozen=True)
class Tso:
    """The TSO features by name: those that are ``on``, those that can be changed, and
    those that are off but requested (the kernel turns them on again by itself).
    """

    on: tuple[str, ...]
    changeable: tuple[str, ...]
    requested: tuple[str, ...]


def no_connected_mode(view: View, interface: Interface) -> str:
    """Return a clause why ``interface`` cannot be in connected mode; empty if it can.

    Connected mode counts as possible if the address cannot be read.
    """
    ipoib = interface.netdev.ipoib
    if ipoib and ipoib.mode == CONNECTED:
        return ""
    for option in view.facts.software.kernel_config or ():
        if option.name == "INFINIBAND_IPOIB_CM" and option.value == "n":
            return Sentence(
                "kernel-option-missing",
                "this kernel is built without CONFIG_INFINIBAND_IPOIB_CM",
            )
    if accepts_connections(interface.netdev) is False:
        first = interface.netdev.address[:2]
        why = f"the driver accepts no connections (the address begins with {first})"
        if is_mlx5(interface.device):
            why = (
                "mlx5's enhanced IPoIB (ConnectX-4 and later) supports datagram mode "
                f"only (the address begins with {first})"
            )
        return Sentence("connected-mode-unsupported", why)
    return no_mode_file(interface)


def no_mode_file(interface: Interface) -> str:
    """Return a clause why neither we nor NetworkManager can change the mode of
    ``interface``; empty if they can.
    """
    ipoib = interface.netdev.ipoib
    if ipoib is None or ipoib.sysfs:
        return ""
    return Sentence(
        "mode-file-missing",
        "it was created by ip link, and such a child has no sysfs file for its mode",
    )


def accepts_connections(netdev: Netdev) -> Optional[bool]:
    """Whether the address shows that connected mode is possible; None if unknown."""
    try:
        return bool(int(netdev.address.split(":")[0], 16) & _RC_FLAG)
    except ValueError:
        return None


def port_limit(interface: Interface) -> Optional[MtuLimit]:
    """Return the largest datagram MTU that the kernel accepts once the policy's
    port_mtu is set (more is EINVAL); None if unknown.
    """
    most = interface.port.max_mtu
    planned = planned_port_mtu(interface)
    if planned is not None:
        return MtuLimit(planned - HEADER, f"the policy sets port_mtu {planned}")
    if most is None:
        return None
    return MtuLimit(most - HEADER, f"the port's largest MTU is {most}")


def unknown_mtu_fix(device: RdmaDevice) -> str:
    """Return the fix if a port's largest MTU is unknown."""
    if is_omni_path(device):
        return (
            "Omni-Path's driver reports at most 4096 to verbs: set mtu to a number, "
            "10236 if the fabric has 10240"
        )
    return "install ibv_devinfo (libibverbs-utils; ibverbs-utils on Debian)"


def datagram_limit(interface: Interface) -> Optional[MtuLimit]:
    """Return the largest datagram MTU of port, link and policy; None if unknown.

    The broadcast group may allow less: the kernel does not show the group's MTU, only
    its effect on the netdev's.
    """
    port = interface.port
    limits = [limit] if (limit := port_limit(interface)) else []
    # A port whose own MTU changes limits the link only until then.
    by_port = (
        planned_port_mtu(interface) is not None and port.active_mtu == port.max_mtu
    )
    if port.active_mtu is not None and port.is_active and not by_port:
        why = f"the link has MTU {port.active_mtu}, limited by its other end"
        limits.append(MtuLimit(port.active_mtu - HEADER, why))
    return min(limits, key=lambda limit: limit.mtu) if limits else None


def mtu_limit(interface: Interface, mode: Optional[str]) -> Optional[MtuLimit]:
    """Return the largest MTU in ``mode``; None if the limit or the mode is unknown."""
    if mode == CONNECTED:
        return MtuLimit(CONNECTED_MTU, "IPoIB supports no more")
    return datagram_limit(interface) if mode == DATAGRAM else None


def planned_port_mtu(interface: Interface) -> Optional[int]:
    """Return the port MTU in bytes that the plan sets, which recreates the netdev.

    None if it is unchanged.
    """
    wanted = interface.wanted.port_mtu if interface.wanted else None
    if no_port_mtu(interface.device, interface.adapter, interface.port):
        return None
    return wanted if wanted != port_mtu_of(interface.adapter, interface.port) else None


def no_port_mtu(device: RdmaDevice, adapter: Optional[Adapter], port: RdmaPort) -> str:
    """Return a clause why the MTU of ``port`` itself cannot be set; empty if it can.

    Only mlx4 has it, for InfiniBand ports, but not on virtual functions, or while there
    are some (drivers/net/ethernet/mellanox/mlx4/main.c, mlx4_init_port_info).
    """
    why = ""
    if not port.is_infiniband:
        why = "it is an Ethernet port, and only InfiniBand ports have that setting"
    elif device.driver != MLX4:
        why = f"only mlx4 has that setting, and this is {chip(device)}"
    elif adapter and adapter.physical_function:
        why = "it is a virtual function, and only the physical one has that setting"
    elif adapter and adapter.vfs:
        why = f"mlx4 does not allow it while there are {adapter.vfs} VFs"
    elif port_mtu_of(adapter, port) is None:
        why = "the driver does not show it (mlx4_portN_mtu)"
    return Sentence("port-mtu-not-settable", why) if why else ""


def port_mtu_of(adapter: Optional[Adapter], port: RdmaPort) -> Optional[int]:
    """Return the ``mlx4_portN_mtu`` of ``port`` in bytes; None if it has none."""
    mtus = adapter.port_mtus if adapter else ()
    return mtus[port.number - 1] if 1 <= port.number <= len(mtus) else None


def tso_of(netdev: Netdev) -> Optional[Tso]:
    """Return the TSO features of ``netdev``; None if ethtool did not report them."""
    features = [o for o in netdev.offloads if o.name in TSO_FEATURES]
    if not features:
        return None
    return Tso(
        tuple(f.name for f in features if f.on),
        tuple(f.name for f in features if not f.fixed),
        tuple(f.name for f in features if not f.on and f.requested),
    )


def no_tso(interface: Interface) -> Optional[str]:
    """Return a clause why TSO is not available in datagram mode; empty if it is, None
    if unknown.
    """
    if is_connectx_a0(interface.device):
        return "a ConnectX of revision a0 must not use TSO"
    tso = tso_of(interface.netdev)
    if tso is None:
        return None
    return "" if tso.on or tso.changeable else "the driver does not support TSO"
