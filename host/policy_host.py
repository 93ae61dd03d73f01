# SPDX-License-Identifier: GPL-2.0-or-later
"""The ``host:`` part of the policy, and which of its rules names a netdev. Pure.

A key that is left out is None: then that property is left as it is. ``auto`` lets
the rules choose.
"""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass
from typing import Optional, Union

from ovirt_rdma.host.netdev_facts import Netdev
from ovirt_rdma.host.rdma_facts import RdmaDevice, RdmaPort

AUTO = "auto"
DATAGRAM = "datagram"
CONNECTED = "connected"
TRANSPORT_MODES = (AUTO, DATAGRAM, CONNECTED)
ON, OFF = "on", "off"
OFFLOAD_CHOICES = (AUTO, ON, OFF)
INFINIBAND, ETHERNET = "infiniband", "ethernet"
LINK_LAYERS = (INFINIBAND, ETHERNET)
# The P_Key children of a port's base netdev follow the port's P_Key table.
FOLLOW = "follow"
PARTITIONS = (FOLLOW,)
# Seconds between two looks at the P_Key tables.
PARTITIONS_INTERVAL_S = 30
# mlx4_portN_mtu takes these (drivers/net/ethernet/mellanox/mlx4/main.c).
PORT_MTUS = (256, 512, 1024, 2048, 4096)

# The full-member bit of a P_Key.
FULL_MEMBER = 0x8000


@dataclass(frozen=True)
class InterfaceRule:
    """What the netdevs of some RDMA ports should be like.

    ``number`` counts from 1, ``name`` is the admin's or ``interface N``. The netdevs
    are named by all of ``link_layer``, ``device`` (an RDMA device's name or a glob),
    ``pci`` (``0000:04:00.0``), ``port`` (from 1), ``guid`` (a port's, as
    ``0002:c903:00fb:1231``) and ``pkey`` (``0x8001``) that are not None; without
    ``pkey`` a port's P_Key children are meant too.
    ``mtu`` in bytes or AUTO, ``port_mtu`` an IB MTU in bytes (mlx4), ``pkey_children``
    the P_Keys for which there should be a child on the port's base netdev;
    ``partitions`` FOLLOW: those of the port's P_Key table, as it is at any time.
    """

    number: int
    name: str
    link_layer: Optional[str] = None
    device: Optional[str] = None
    pci: Optional[str] = None
    port: Optional[int] = None
    guid: Optional[str] = None
    pkey: Optional[str] = None
    transport_mode: Optional[str] = None
    mtu: Union[int, str, None] = None
    tso: Optional[str] = None
    port_mtu: Optional[int] = None
    pkey_children: tuple[str, ...] = ()
    partitions: Optional[str] = None

    @property
    def title(self) -> str:
        """How sentences call the rule: ``interface 3``, or ``interface 'storage'``."""
        unnamed = f"interface {self.number}"
        return unnamed if self.name == unnamed else f"interface {self.name!r}"


@dataclass(frozen=True)
class ModuleOption:
    """``options MODULE NAME=VALUE``, as modprobe.d(5) has it."""

    module: str
    name: str
    value: str


@dataclass(frozen=True)
class HostPolicy:
    """The ``host:`` part; empty, it touches nothing.

    ``modules`` are to be loaded at every boot. ``partitions_interval`` is how many
    seconds lie between two looks at the P_Key tables of ports whose rule says
    ``partitions: follow``.
    """

    interfaces: tuple[InterfaceRule, ...] = ()
    modules: tuple[str, ...] = ()
    module_options: tuple[ModuleOption, ...] = ()
    partitions_interval: int = PARTITIONS_INTERVAL_S

    @property
    def follows_partitions(self) -> bool:
        """Whether a rule says ``partitions: follow``."""
        return any(rule.partitions == FOLLOW for rule in self.interfaces)


def interface_rule_for(
    policy: HostPolicy, netdev: Netdev, device: RdmaDevice, port: RdmaPort
) -> Optional[InterfaceRule]:
    """Return the first rule that names ``netdev``, which is on ``port`` of ``device``,
    or None: then it is left as it is.
    """
    for rule in policy.interfaces:
        if names_port(rule, device, port) and names_pkey(rule, netdev):
            return rule
    return None


def names_port(rule: InterfaceRule, device: RdmaDevice, port: RdmaPort) -> bool:
    """Whether ``rule`` names ``port``, whatever the P_Key."""
    address = device.pci.address if device.pci else None
    return (
        (rule.link_layer is None or rule.link_layer == port.link_layer.lower())
        and (rule.device is None or fnmatch.fnmatchcase(device.name, rule.device))
        and (rule.pci is None or rule.pci == address)
        and (rule.port is None or rule.port == port.number)
        and (rule.guid is None or rule.guid == port.guid)
    )


def names_pkey(rule: InterfaceRule, netdev: Netdev) -> bool:
    """Whether ``rule`` names a netdev with that P_Key.

    Full and limited membership are one partition, so bit 15 does not count.
    """
    if rule.pkey is None:
        return True
    found = partition_read(netdev.ipoib.pkey if netdev.ipoib else None)
    return found is not None and found == partition(rule.pkey)


def partition(pkey: str) -> int:
    """Return the partition of a P_Key such as ``0x8001``: its low 15 bits."""
    return int(pkey, 16) & ~FULL_MEMBER


def partition_read(pkey: Optional[str]) -> Optional[int]:
    """Return the partition of a P_Key as facts have it; None where they have none, or
    what they have is no number.
    """
    try:
        return partition(pkey or "")
    except ValueError:
        return None
