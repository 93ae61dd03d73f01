# SPDX-License-Identifier: GPL-2.0-or-later
"""Represent the policy as data, and find the rule for an export or a netdev. Pure.

In the ``host:`` part, a key that is left out is None: that property is not changed.
``auto`` lets the rules choose. The YAML file is read by
:mod:`ovirt_rdma.host.policy.load`; code inside vdsmd reads the JSON that is made from
it, with :mod:`ovirt_rdma.host.policy.store`.
"""

from __future__ import annotations

import fnmatch
import functools
import ipaddress
import re
from dataclasses import dataclass
from typing import Optional, Union

from ovirt_rdma.host.export import Export
from ovirt_rdma.host.facts import ipoib
from ovirt_rdma.host.facts.devices import Netdev, RdmaDevice, RdmaPort
from ovirt_rdma.host.facts.pkeys import partition_of
from ovirt_rdma.host.policy.block_fields import BlockPolicy
from ovirt_rdma.host.policy.fabric import FabricPolicy

AUTO, DATAGRAM, CONNECTED = TRANSPORT_MODES = ipoib.MODES
ON, OFF = "on", "off"
OFFLOAD_CHOICES = (AUTO, ON, OFF)
INFINIBAND, ETHERNET = "infiniband", "ethernet"
LINK_LAYERS = (INFINIBAND, ETHERNET)
# The P_Key children of a port's base netdev follow the port's P_Key table.
FOLLOW = "follow"
PARTITIONS = (FOLLOW,)
# Seconds between two reads of the P_Key tables.
PARTITIONS_INTERVAL_S = 30
# The values of mlx4_portN_mtu (drivers/net/ethernet/mellanox/mlx4/main.c).
PORT_MTUS = (256, 512, 1024, 2048, 4096)

# The types that the port of a VPI adapter can have: InfiniBand, Ethernet.
IB, ETH = PORT_TYPES = ("ib", "eth")


@dataclass(frozen=True)
class InterfaceRule:
    """The wanted settings of the netdevs of some RDMA ports.

    ``number`` counts from 1; ``name`` is the admin's or ``interface N``. A netdev
    must match all of these that are not None: ``link_layer``, ``device`` (an RDMA
    device's name or a glob), ``pci`` (``0000:04:00.0``), ``port`` (from 1), ``guid``
    (of the port, as ``0002:c903:00fb:1231``) and ``pkey`` (``0x8001``). Without
    ``pkey`` the rule also names the P_Key children of the port.

    ``mtu`` is in bytes or AUTO. ``port_mtu`` is an IB MTU in bytes (mlx4).
    ``pkey_children`` has the P_Keys of the children on the port's base netdev;
    with ``partitions`` FOLLOW they are those of the port's current P_Key table.
    ``port_type`` is IB or ETH.
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
    port_type: Optional[str] = None

    @property
    def title(self) -> str:
        """The rule in sentences: ``interface 3`` or ``interface 'storage'``."""
        unnamed = f"interface {self.number}"
        return unnamed if self.name == unnamed else f"interface {self.name!r}"


# How VFs get their GUIDs: derived from the host and the VF, or not from us.
DERIVED, KEEP = GUID_CHOICES = ("derived", "keep")
LINK_STATES = ("auto", "enable", "disable")
ALL, NONE = "all", "none"


@dataclass(frozen=True)
class VfRule:
    """The wanted virtual functions of some adapters.

    ``number`` counts from 1; ``name`` is the admin's or ``virtual functions N``. The
    physical function must match all of ``device``, ``pci`` and ``guid`` (of its port)
    that are not None. It has ``count`` VFs; ``guids`` is DERIVED or KEEP. Those in
    ``guests`` (ALL, NONE or ``0-11,14``) are for virtual machines, the others stay on
    the host. ``link_state`` is None if it is left as it is. ``pkeys`` (mlx4) are the
    first entries of each VF's P_Key table, none if they are left as they are.
    """

    number: int
    name: str
    count: int
    device: Optional[str] = None
    pci: Optional[str] = None
    guid: Optional[str] = None
    guids: str = DERIVED
    guests: str = ALL
    link_state: Optional[str] = None
    pkeys: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """The rule in sentences: ``virtual functions 'guests'``."""
        unnamed = f"virtual functions {self.number}"
        return unnamed if self.name == unnamed else f"virtual functions {self.name!r}"

    def is_for_guest(self, vf: int) -> bool:
        """Whether VF number ``vf``, from 0, is for virtual machines."""
        return vf in (guest_numbers(self.guests, self.count) or ())


def guest_numbers(text: str, count: int) -> Optional[frozenset[int]]:
    """Return the numbers below ``count`` in ``all``, ``none`` or ``0-11,14``; None for
    any other text.
    """
    if text in (ALL, NONE):
        return frozenset(range(count) if text == ALL else ())
    numbers: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*([0-9]{1,4})(?:\s*-\s*([0-9]{1,4}))?\s*", part)
        if not match:
            return None
        first, last = int(match[1]), int(match[2] or match[1])
        if first > last:
            return None
        numbers.update(range(first, min(last + 1, count)))
    return frozenset(numbers)


@dataclass(frozen=True)
class ModuleOption:
    """``options MODULE NAME=VALUE`` of modprobe.d(5)."""

    module: str
    name: str
    value: str


@dataclass(frozen=True)
class HostPolicy:
    """The ``host:`` part; an empty one changes nothing.

    ``modules`` are loaded at every boot. ``partitions_interval`` is the number of
    seconds between two reads of the P_Key tables of ports whose rule has
    ``partitions: follow``. ``metrics_folder`` is where the metrics are written, None:
    nowhere.
    """

    interfaces: tuple[InterfaceRule, ...] = ()
    modules: tuple[str, ...] = ()
    module_options: tuple[ModuleOption, ...] = ()
    partitions_interval: int = PARTITIONS_INTERVAL_S
    virtual_functions: tuple[VfRule, ...] = ()
    metrics_folder: Optional[str] = None

    @property
    def is_empty(self) -> bool:
        """Whether it has no rule for anything."""
        return not (
            self.interfaces
            or self.modules
            or self.module_options
            or self.virtual_functions
            or self.metrics_folder
        )

    @property
    def follows_partitions(self) -> bool:
        """Whether a rule has ``partitions: follow``."""
        return any(rule.partitions == FOLLOW for rule in self.interfaces)


def interface_rule_for(
    policy: HostPolicy, netdev: Netdev, device: RdmaDevice, port: RdmaPort
) -> Optional[InterfaceRule]:
    """Return the first rule that names ``netdev``, which is on ``port`` of ``device``.

    None if there is no such rule: the netdev is not changed.
    """
    for rule in policy.interfaces:
        if names_port(rule, device, port) and names_pkey(rule, netdev):
            return rule
    return None


def names_port(rule: InterfaceRule, device: RdmaDevice, port: RdmaPort) -> bool:
    """Whether ``rule`` names ``port``; the P_Key is ignored."""
    address = device.pci.address if device.pci else None
    return (
        (rule.link_layer is None or rule.link_layer == port.link_layer.lower())
        and (rule.device is None or fnmatch.fnmatchcase(device.name, rule.device))
        and (rule.pci is None or rule.pci == address)
        and (rule.port is None or rule.port == port.number)
        and (rule.guid is None or rule.guid == port.guid)
    )


def vf_rule_for(
    policy: HostPolicy, device: RdmaDevice, port: RdmaPort
) -> Optional[VfRule]:
    """Return the first rule for VFs of ``device``, which has ``port``, or None."""
    address = device.pci.address if device.pci else None
    for rule in policy.virtual_functions:
        if (
            (rule.device is None or fnmatch.fnmatchcase(device.name, rule.device))
            and (rule.pci is None or rule.pci == address)
            and (rule.guid is None or rule.guid == port.guid)
        ):
            return rule
    return None


def names_pkey(rule: InterfaceRule, netdev: Netdev) -> bool:
    """Whether ``rule`` names the P_Key of ``netdev``.

    Full and limited members belong to the same partition, so bit 15 is ignored.
    """
    if rule.pkey is None:
        return True
    own = partition_of(netdev.ipoib.pkey if netdev.ipoib else None)
    return own is not None and own == partition_of(rule.pkey)


POLICY_VERSION = 1

REQUIRE_RDMA = "require-rdma"
PREFER_RDMA = "prefer-rdma"
TCP = "tcp"
TRANSPORTS = (REQUIRE_RDMA, PREFER_RDMA, TCP)

# IANA: nfsrdma, RFC 5667 section 6; knfsd's and every vendor's default.
DEFAULT_PORT = 20049
# The longest settle_timeout, in seconds: the engine waits 180 s for all exports of a
# call (engine, vdsTimeout).
MAX_SETTLE_S = 120

# Every export is compared with the same patterns, so the compiled ones are cached: room
# for a policy of some thousand rules, and for the previous one.
_CACHED = 8192

IpNetwork = Union[ipaddress.IPv4Network, ipaddress.IPv6Network]


@dataclass(frozen=True)
class NfsRule:
    """A rule, with the defaults filled in.

    ``number`` counts from 1; ``name`` is the admin's or ``rule N``. ``server`` is a
    name, an address, a network or a glob; ``path`` is a path or a glob. ``options`` are
    extra mount options. In seconds: ``readiness_timeout``, for one server to answer;
    ``settle_timeout``, for a port to come up, from the first question of vdsmd that
    finds it down; ``failure_cache``, how long a failed mount decides for the other
    exports of the server.
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
        """The rule in sentences: ``rule 3`` or ``rule 'storage'``."""
        unnamed = f"rule {self.number}"
        return unnamed if self.name == unnamed else f"rule {self.name!r}"


@dataclass(frozen=True)
class NfsPolicy:
    """The ``nfs:`` part; an empty list of rules names no export.

    ``health_interval`` is in seconds, None if nobody watches the mounts.
    """

    rules: tuple[NfsRule, ...] = ()
    health_interval: Optional[int] = None


_EMPTY_HOST, _EMPTY_FABRIC, _EMPTY_BLOCK = HostPolicy(), FabricPolicy(), BlockPolicy()


@dataclass(frozen=True)
class Policy:
    """The whole policy."""

    version: int = POLICY_VERSION
    nfs: NfsPolicy = NfsPolicy()
    host: HostPolicy = _EMPTY_HOST
    fabric: FabricPolicy = _EMPTY_FABRIC
    block: BlockPolicy = _EMPTY_BLOCK


@dataclass(frozen=True)
class RuleMatch:
    """The rule that wins for an export, and the reason as a sentence."""

    rule: NfsRule
    reason: str


def rule_for(policy: Policy, export: Export) -> Optional[RuleMatch]:
    """Return the first rule that names ``export``, or None: then the mount is stock.

    The server is compared as it is written in the export. No name is resolved, so an
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
    """Return how ``pattern`` names the export's server, or an empty string.

    Names and globs ignore case (RFC 4343). Addresses and networks are compared as
    numbers, so ``fd00::1`` names ``[fd00:0::1]``. A network or an address never names a
    server that is written as a name in the export.
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
    """Whether ``pattern`` names the export path ``path``, as a glob or literally.

    So a path with ``[`` in it can be written as it is.
    """
    return pattern == path or (is_glob(pattern) and bool(_glob(pattern).match(path)))


def is_glob(pattern: str) -> bool:
    """Whether ``pattern`` has a character that fnmatch gives a meaning."""
    return "*" in pattern or "?" in pattern or "[" in pattern


@functools.lru_cache(_CACHED)
def network_of(pattern: str) -> Optional[IpNetwork]:
    """Return the network, or the address as a network of one; None for a name."""
    try:
        return ipaddress.ip_network(pattern)
    except ValueError:
        return None


@functools.lru_cache(_CACHED)
def _glob(pattern: str) -> re.Pattern[str]:
    # As fnmatch.fnmatchcase, whose cache has only 256 patterns up to Python 3.10.
    return re.compile(fnmatch.translate(pattern))
