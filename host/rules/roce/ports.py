# SPDX-License-Identifier: GPL-2.0-or-later
"""RoCE ports, their netdevs and profiles. Pure.

RoCE ports, and the netdevs over which RDMA CM reaches them. Pure.

The GID table of a port follows every bond, VLAN and bridge above its netdev
(drivers/infiniband/core/roce_gid_mgmt.c), so an address may be on any of them.

The NetworkManager profile in which settings of a RoCE port's netdev are kept. Pure.

The netdev is an ordinary Ethernet one, so its profile is the admin's, the installer's
or the engine's. It is never made here: only single properties of it are set.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Optional, Union

from ovirt_rdma.host.facts.devices import Netdev, RdmaDevice, RdmaPort
from ovirt_rdma.host.policy.model import ETHERNET
from ovirt_rdma.host.rules.base import HOST, SKIP, Change, Finding, no_device
from ovirt_rdma.host.rules.infiniband.settings import Settings
from ovirt_rdma.host.rules.view import Interface, View, is_kept

SOFT_ROCE = "rdma_rxe"
# node_type of an iWARP device.
_IWARP = "RNIC"


@dataclass(frozen=True)
class RocePort:
    """``bases`` are the port's own netdevs, ``netdevs`` these and all above."""

    device: RdmaDevice
    port: RdmaPort
    bases: tuple[Interface, ...]
    netdevs: tuple[Netdev, ...]

    @property
    def name(self) -> str:
        """``mlx5_0/1``."""
        return f"{self.device.name}/{self.port.number}"

    @property
    def is_soft(self) -> bool:
        """Whether it is Soft-RoCE."""
        return self.device.driver == SOFT_ROCE

    @property
    def with_address(self) -> tuple[Netdev, ...]:
        """The netdevs that have an address of their own, link-local ones apart."""
        return tuple(netdev for netdev in self.netdevs if any(global_addresses(netdev)))


def roce_ports(view: View) -> Iterator[RocePort]:
    """Yield the ports with an Ethernet link layer, iWARP's apart."""
    for device in view.facts.rdma_devices:
        for port in device.ports:
            if device.node_type == _IWARP or port.link_layer.lower() != ETHERNET:
                continue
            bases = tuple(
                one for one in view.roce if one.device is device and one.port is port
            )
            names = [name for base in bases for name in view.carriers(base.name)]
            names += [gid.netdev for gid in port.gids if gid.netdev]
            found = (view.netdev(name) for name in dict.fromkeys(names))
            yield RocePort(device, port, bases, tuple(n for n in found if n))


def without_roce(view: View, rule: str) -> Finding:
    """Return the finding for a host without RoCE."""
    if not view.facts.rdma_devices:
        return no_device(rule)
    return Finding(rule, HOST, SKIP, "no port is RoCE")


def global_addresses(netdev: Netdev) -> Iterator[str]:
    """Yield a netdev's addresses, without their prefix lengths, but for link-local
    ones, which every netdev has.
    """
    for text in netdev.addresses:
        address = text.partition("/")[0]
        parsed = _parsed(address)
        if parsed is not None and not parsed.is_link_local:
            yield address


def gid_of(address: str) -> Optional[str]:
    """Return the GID of an IP address, in the kernel's form; None: no address.

    An IPv4 address stands at the end of ``::ffff:0:0/96`` (rdma_ip2gid).
    """
    parsed = _parsed(address)
    if parsed is None:
        return None
    if isinstance(parsed, ipaddress.IPv4Address):
        parsed = ipaddress.IPv6Address(f"::ffff:{parsed}")
    digits = parsed.packed.hex()  # .exploded shows a mapped address otherwise from 3.13
    return ":".join(digits[at : at + 4] for at in range(0, len(digits), 4))


def _parsed(
    address: str,
) -> Union[ipaddress.IPv4Address, ipaddress.IPv6Address, None]:
    try:
        return ipaddress.ip_address(address)
    except ValueError:
        return None


def without_profile(view: View, interface: Interface) -> str:
    """Say why there is no profile to set a property of, or return ""."""
    manager = view.facts.network_manager
    if manager is None or not manager.running:
        return "NetworkManager does not run here: set it where the netdev is set up"
    if interface.profile is None:
        return f"no NetworkManager profile is active on {interface.name}"
    if not is_kept(interface.profile):
        return f"the profile of {interface.name} is in NetworkManager's memory only"
    return ""


def kept_value(interface: Interface, name: str) -> Optional[str]:
    """Return a property of the profile; None where there is no profile, or it does not
    say.
    """
    return Settings(profile=interface.profile).value(name)


def profile_change(interface: Interface, name: str, after: str) -> tuple[Change, ...]:
    """Return the Change that sets a property; none where it is so already."""
    if interface.profile is None:
        return ()
    return Settings(interface.profile.uuid, interface.profile).change(name, after)
