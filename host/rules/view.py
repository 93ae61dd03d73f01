# SPDX-License-Identifier: GPL-2.0-or-later
"""Join facts and policy for the rules. Pure.

A View has every netdev of an RDMA port together with its device, port, adapter,
profile, logical network, users and policy rule.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Callable, Optional, TypeVar, cast

from ovirt_rdma.host.facts.devices import (
    ARPHRD_INFINIBAND,
    Adapter,
    Netdev,
    NetdevGraph,
    NetdevUse,
    OvirtNetwork,
    Profile,
    RdmaDevice,
    RdmaPort,
)
from ovirt_rdma.host.facts.model import Facts
from ovirt_rdma.host.facts.uses import NetdevUsers
from ovirt_rdma.host.policy.model import (
    FOLLOW,
    TCP,
    InterfaceRule,
    Policy,
    interface_rule_for,
    names_port,
)

RDMA = "rdma"


@dataclass(frozen=True)
class Port:
    """An RDMA port with its device and adapter; ``rules`` are those of the policy that
    name the port, with a P_Key or without, in their order.
    """

    device: RdmaDevice
    port: RdmaPort
    adapter: Optional[Adapter]
    rules: tuple[InterfaceRule, ...] = ()

    @property
    def name(self) -> str:
        """``mlx4_0/1``."""
        return f"{self.device.name}/{self.port.number}"

    @property
    def rule(self) -> Optional[InterfaceRule]:
        """The first rule that names the port itself, not a partition of it."""
        return next((rule for rule in self.rules if rule.pkey is None), None)


@dataclass(frozen=True)
class Interface:
    """A netdev of an RDMA port: IPoIB (P_Key children included), or RoCE's Ethernet.

    - ``wanted``: the policy's rule for it.
    - ``profile``: the NetworkManager profile that is active on it or names it.
    - ``network``: the logical network on the netdev, or on a bond, VLAN or bridge of
      it (not on a P_Key child, which has its own MTU).
    - ``uses``: who is known to use the netdev, or a netdev above it, P_Key children
      included.
    - ``users``: whom a link-down would interrupt, as text; uses of an unknown netdev
      count.
    - ``planned``: the plan creates the netdev.
    """

    netdev: Netdev
    device: RdmaDevice
    port: RdmaPort
    adapter: Optional[Adapter]
    wanted: Optional[InterfaceRule]
    profile: Optional[Profile]
    network: Optional[OvirtNetwork]
    uses: tuple[NetdevUse, ...]
    users: tuple[str, ...] = ()
    planned: bool = False

    @property
    def name(self) -> str:
        """The netdev's name."""
        return self.netdev.name

    @property
    def port_name(self) -> str:
        """``mlx4_0/1``."""
        return f"{self.device.name}/{self.port.number}"

    @property
    def mode(self) -> Optional[str]:
        """The present transport mode of IPoIB; None if it is unknown."""
        return self.netdev.ipoib.mode if self.netdev.ipoib else None

    @property
    def pkey(self) -> Optional[str]:
        """The P_Key of IPoIB; None if it is unknown."""
        return self.netdev.ipoib.pkey if self.netdev.ipoib else None

    @property
    def is_ipoib(self) -> bool:
        """Whether it is IPoIB."""
        return self.netdev.type == ARPHRD_INFINIBAND

    @property
    def is_child(self) -> bool:
        """Whether it is a P_Key child."""
        return self.parent is not None

    @property
    def parent(self) -> Optional[str]:
        """The netdev on which a P_Key child was created; None for others."""
        return self.netdev.ipoib.parent if self.netdev.ipoib else None

    @property
    def follows(self) -> bool:
        """Whether the policy lets its children follow the P_Key table."""
        rule = self.wanted
        return not self.is_child and rule is not None and rule.partitions == FOLLOW


class View:
    """One host's facts and a policy, joined by netdev, device and port."""

    def __init__(self, facts: Facts, policy: Policy) -> None:
        self.facts = facts
        self.policy = policy
        self._netdevs = {netdev.name: netdev for netdev in facts.netdevs}
        self.users = NetdevUsers(facts)
        self._graph = NetdevGraph(facts.netdevs)
        # Of functions with once_per_view.
        self.kept: dict[object, object] = {}
        self._devices = {device.name: device for device in facts.rdma_devices}
        self._adapters = {adapter.pci.address: adapter for adapter in facts.adapters}

    @functools.cached_property
    def ports(self) -> tuple[Port, ...]:
        """All ports, device by device."""
        rules = self.policy.host.interfaces
        return tuple(
            Port(
                device,
                port,
                self.adapter(device),
                tuple(rule for rule in rules if names_port(rule, device, port)),
            )
            for device in self.facts.rdma_devices
            for port in device.ports
        )

    @functools.cached_property
    def wants_nfs_over_rdma(self) -> bool:
        """Whether a rule of the policy requires RDMA, or a mount uses it already."""
        return any(rule.transport != TCP for rule in self.policy.nfs.rules) or any(
            (mount.protocol or "").startswith(RDMA) for mount in self.facts.nfs_mounts
        )

    @functools.cached_property
    def interfaces(self) -> tuple[Interface, ...]:
        """All netdevs of RDMA ports, by name."""
        return tuple(self._interfaces())

    @functools.cached_property
    def ipoib(self) -> tuple[Interface, ...]:
        """The IPoIB netdevs among ``interfaces``."""
        return tuple(interface for interface in self.interfaces if interface.is_ipoib)

    @functools.cached_property
    def roce(self) -> tuple[Interface, ...]:
        """The Ethernet netdevs among ``interfaces``, of RoCE and iWARP devices."""
        return tuple(
            interface for interface in self.interfaces if not interface.is_ipoib
        )

    def on_port(self, port: Port) -> tuple[Interface, ...]:
        """Return the netdevs of ``port``."""
        return tuple(one for one in self.interfaces if one.port_name == port.name)

    def netdev(self, name: str) -> Optional[Netdev]:
        """Return the netdev ``name``, or None."""
        return self._netdevs.get(name)

    def adapter(self, device: RdmaDevice) -> Optional[Adapter]:
        """Return the PCI function of ``device``, or None."""
        return self._adapters.get(device.pci.address) if device.pci else None

    def carriers(self, name: str) -> tuple[str, ...]:
        """Return ``name`` and the bonds, VLANs and bridges on it."""
        return self._graph.carriers(name)

    @property
    def profiles(self) -> tuple[Profile, ...]:
        """The profiles of NetworkManager."""
        manager = self.facts.network_manager
        return manager.profiles if manager else ()

    @functools.cached_property
    def _profiles(self) -> dict[str, Profile]:
        """By netdev: the active profile, else the one that names it.

        A profile on disk takes precedence over one that NetworkManager has in memory
        only, as it creates for a netdev that another program set up.
        """
        by_netdev: dict[str, Profile] = {}
        for on_disk in (True, False):
            chosen = [p for p in self.profiles if is_persistent(p) is on_disk]
            for profile in chosen:
                if profile.active_on:
                    by_netdev.setdefault(profile.active_on, profile)
            for profile in chosen:
                if profile.interface_name:
                    by_netdev.setdefault(profile.interface_name, profile)
        return by_netdev

    @functools.cached_property
    def managed(self) -> frozenset[str]:
        """The netdevs that a running NetworkManager manages."""
        manager = self.facts.network_manager
        return frozenset(manager.managed if manager and manager.running else ())

    def _interfaces(self) -> Iterator[Interface]:
        for netdev in self.facts.netdevs:
            device = self._devices.get(netdev.rdma_device or "")
            if device is None:
                continue
            port = next((p for p in device.ports if p.number == netdev.rdma_port), None)
            if port is None:
                continue
            carriers = set(self.carriers(netdev.name))
            yield Interface(
                netdev=netdev,
                device=device,
                port=port,
                adapter=self.adapter(device),
                wanted=interface_rule_for(self.policy.host, netdev, device, port),
                profile=self._profiles.get(netdev.name),
                network=next(
                    (n for n in self.facts.ovirt_networks if n.southbound in carriers),
                    None,
                ),
                uses=self.users.uses(netdev.name),
                users=self.users.of(netdev.name),
            )


_Result = TypeVar("_Result")


def once_per_view(decide: Callable[[View], _Result]) -> Callable[[View], _Result]:
    """Let each View keep the result of ``decide``, which several rules use."""

    @functools.wraps(decide)
    def kept(view: View) -> _Result:
        if decide not in view.kept:
            view.kept[decide] = decide(view)
        return cast("_Result", view.kept[decide])

    return kept


def is_persistent(profile: Profile) -> bool:
    """Whether ``profile`` is on disk, and survives a reboot."""
    return profile.file is not None and not profile.file.startswith("/run/")
