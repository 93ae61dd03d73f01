# SPDX-License-Identifier: GPL-2.0-or-later
"""Find RoCE ports, the netdevs over which RDMA CM reaches them, and profiles. Pure.

The GID table of a port includes every bond, VLAN and bridge above its netdev
(drivers/infiniband/core/roce_gid_mgmt.c), so the address may be on any of them.

The netdev is an ordinary Ethernet one, so its NetworkManager profile belongs to the
admin, the installer or the engine. Only single properties of it are set; no profile is
created.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Optional, Union

from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.facts.devices import Netdev, RdmaDevice, RdmaPort
from ovirt_rdma.host.rules.base import HOST, SKIP, Change, Finding, no_device
from ovirt_rdma.host.rules.infiniband.settings import Settings
from ovirt_rdma.host.rules.view import Interface, View, is_persistent


@dataclass(frozen=True)
class RocePort:
    """A RoCE port; ``bases`` are its own netdevs, ``netdevs`` these and all above."""

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
        return self.device.is_soft_roce

    @property
    def with_address(self) -> tuple[Netdev, ...]:
        """The netdevs that have an address; link-local ones do not count."""
        return tuple(netdev for netdev in self.netdevs if any(global_addresses(netdev)))


def roce_ports(view: View) -> Iterator[RocePort]:
    """Yield the ports with an Ethernet link layer, except iWARP's."""
    for device in view.facts.rdma_devices:
        for port in device.ports:
            if device.is_iwarp or not port.is_ethernet:
                continue
            bases = tuple(
                interface
                for interface in view.roce
                if interface.device is device and interface.port is port
            )
            names = [name for base in bases for name in view.carriers(base.name)]
            names += [gid.netdev for gid in port.gids if gid.netdev]
            netdevs = (view.netdev(name) for name in dict.fromkeys(names))
            yield RocePort(device, port, bases, tuple(n for n in netdevs if n))


def without_roce(view: View, rule: str) -> Finding:
    """Return the finding for a host without RoCE."""
    if not view.facts.rdma_devices:
        return no_device(rule)
    return Finding(rule, HOST, SKIP, "this host has no RoCE port")


def global_addresses(netdev: Netdev) -> Iterator[str]:
    """Yield a netdev's addresses without prefix lengths.

    Link-local ones are left out: every netdev has them.
    """
    for text in netdev.addresses:
        address = text.partition("/")[0]
        parsed = _parsed(address)
        if parsed is not None and not parsed.is_link_local:
            yield address


def gid_of(address: str) -> Optional[str]:
    """Return the GID of an IP address, in the kernel's form; None if it is not valid.

    An IPv4 address is at the end of ``::ffff:0:0/96`` (rdma_ip2gid).
    """
    parsed = _parsed(address)
    if parsed is None:
        return None
    if isinstance(parsed, ipaddress.IPv4Address):
        parsed = ipaddress.IPv6Address(f"::ffff:{parsed}")
    digits = parsed.packed.hex()  # .exploded of a mapped address differs from 3.13 on
    return ":".join(digits[at : at + 4] for at in range(0, len(digits), 4))


def _parsed(
    address: str,
) -> Union[ipaddress.IPv4Address, ipaddress.IPv6Address, None]:
    try:
        return ipaddress.ip_address(address)
    except ValueError:
        return None


def why_no_profile(view: View, interface: Interface) -> str:
    """Return why there is no profile to change; empty if there is one."""
    manager = view.facts.network_manager
    if manager is None or not manager.running:
        return Sentence(
            "network-manager-not-running",
            "NetworkManager is not running: set it where the netdev is configured",
        )
    if interface.profile is None:
        return Sentence(
            "profile-missing",
            f"no NetworkManager profile is active on {interface.name}",
        )
    if not is_persistent(interface.profile):
        return Sentence(
            "profile-in-memory-only",
            f"the profile of {interface.name} is in NetworkManager's memory only",
        )
    return ""


def profile_value(interface: Interface, name: str) -> Optional[str]:
    """Return a property of the profile; None if there is none."""
    return Settings(profile=interface.profile).value(name)


def profile_change(interface: Interface, name: str, after: str) -> tuple[Change, ...]:
    """Return the Change that sets a property; none if it has that value already."""
    if interface.profile is None:
        return ()
    return Settings(interface.profile.uuid, interface.profile).change(name, after)
