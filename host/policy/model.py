# SPDX-License-Identifier: GPL-2.0-or-later
"""The policy as data, and which rule names an export or a netdev. Pure.

The ``host:`` part of the policy, and which of its rules names a netdev. Pure.

A key that is left out is None: then that property is left as it is. ``auto`` lets
the rules choose.

The policy as data, and which of its rules names an export. Pure.

The YAML file is read by :mod:`ovirt_rdma.host.policy.load`; what runs inside
vdsmd reads the JSON made from it, by :mod:`ovirt_rdma.host.policy.store`.
"""

from __future__ import annotations

import fnmatch
import functools
import ipaddress
import re
from dataclasses import dataclass
from typing import Optional, Union

from ovirt_rdma.host.export import Export
from ovirt_rdma.host.facts.devices import Netdev, RdmaDevice, RdmaPort

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


POLICY_VERSION = 1

REQUIRE_RDMA = "require-rdma"
PREFER_RDMA = "prefer-rdma"
TCP = "tcp"
TRANSPORTS = (REQUIRE_RDMA, PREFER_RDMA, TCP)

# IANA: nfsrdma, RFC 5667 section 6; knfsd's and every vendor's default.
DEFAULT_PORT = 20049

# Every export is held against the same patterns again, so what they mean is kept:
# room for a policy of some thousand rules, and for the one before it.
_KEPT = 8192

IpNetwork = Union[ipaddress.IPv4Network, ipaddress.IPv6Network]


@dataclass(frozen=True)
class NfsRule:
    """A rule with the defaults already filled in.

    ``number`` counts from 1, ``name`` is the admin's or ``rule N``. ``server``
    is a name, an address, a network or a glob; ``path`` a path or a glob.
    ``options`` are extra mount options. Times are in seconds:
    ``readiness_timeout`` for one server to answer, ``settle_timeout`` after boot
    for ports still coming up, ``failure_cache`` for how long a failed mount
    decides for the server's other exports.
    """

    number: int
    name: str
    server: str
    path: str
    transport: str
    port: int = DEFAULT_PORT
    options: str = ""
    readiness_timeout: float = 2.0
    settle_timeout: float = 30.0
    failure_cache: float = 60.0

    @property
    def title(self) -> str:
        """How sentences call the rule: ``rule 3``, or ``rule 'storage'``."""
        unnamed = f"rule {self.number}"
        return unnamed if self.name == unnamed else f"rule {self.name!r}"


@dataclass(frozen=True)
class NfsPolicy:
    """The ``nfs:`` part; an empty list of rules names no export."""

    rules: tuple[NfsRule, ...] = ()


_EMPTY_HOST = HostPolicy()


@dataclass(frozen=True)
class Policy:
    """The whole policy. The fabric and block parts get fields beside these."""

    version: int = POLICY_VERSION
    nfs: NfsPolicy = NfsPolicy()
    host: HostPolicy = _EMPTY_HOST


@dataclass(frozen=True)
class RuleMatch:
    """The rule that wins for an export, and the sentence that says why."""

    rule: NfsRule
    reason: str


def rule_for(policy: Policy, export: Export) -> Optional[RuleMatch]:
    """Return the first rule that names ``export``, or None: then it stays stock.

    The server is compared as the export writes it: no name is resolved, so an
    export that no rule names costs nothing and never waits for DNS.
    """
    for rule in policy.nfs.rules:
        server_reason = server_match(rule.server, export)
        if server_reason and path_match(rule.path, export.path):
            path_reason = (
                f"path matches {rule.path}" if rule.path != "*" else "any path"
            )
            return RuleMatch(rule, f"{server_reason}, {path_reason}")
    return None


def server_match(pattern: str, export: Export) -> str:
    """Say how ``pattern`` names the export's server, or return an empty string.

    Names and globs ignore case (RFC 4343); addresses and networks compare as
    numbers, so ``fd00::1`` names ``[fd00:0::1]``. A network or an address never
    names a server that the export writes as a name.
    """
    network = network_of(pattern)
    if network is not None:
        address = export.address
        if address is None or address not in network:
            return ""
        if "/" in pattern:
            return f"server {address} is in {pattern}"
        return f"server is {pattern}"
    name = export.server.rstrip(".").lower()
    wanted = pattern.rstrip(".").lower()
    if name == wanted:
        return f"server is {pattern}"
    if is_glob(pattern) and _glob(wanted).match(name):
        return f"server matches {pattern}"
    return ""


def path_match(pattern: str, path: str) -> bool:
    """Whether ``pattern`` names the export path ``path``: as a glob, or letter by
    letter, so that a path with ``[`` in it can be named as it is written.
    """
    return pattern == path or (is_glob(pattern) and bool(_glob(pattern).match(path)))


def is_glob(pattern: str) -> bool:
    """Whether ``pattern`` has a character that fnmatch gives a meaning."""
    return "*" in pattern or "?" in pattern or "[" in pattern


@functools.lru_cache(_KEPT)
def network_of(pattern: str) -> Optional[IpNetwork]:
    """Return the network, or the address as a network of one, or None: no numbers."""
    try:
        return ipaddress.ip_network(pattern)
    except ValueError:
        return None


@functools.lru_cache(_KEPT)
def _glob(pattern: str) -> re.Pattern[str]:
    # As fnmatch.fnmatchcase, which up to Python 3.10 keeps 256 patterns only.
    return re.compile(fnmatch.translate(pattern))
