# SPDX-License-Identifier: GPL-2.0-or-later
"""Define the policy: its table of keys, the rule for an export or a netdev, and how two
policies differ. Pure.

Each field of a record that is made by :func:`~.forms.key` is one row of the table: the
key's name, what it may be, how it is converted and what counts if it is left out. From
it come the reading of policy.yaml (:mod:`.load`) and of the stored policy
(:func:`from_json_dict`), and with the meanings in docs/policy.md the JSON Schema for
editors (tools/policy_reference.py). What a field means is there. The parts ``fabric:``
and ``block:`` are in :mod:`.fabric` and :mod:`.block`.

In the ``host:`` part, a key that is left out is None: that property is not changed.
``auto`` lets the rules choose.
"""

from __future__ import annotations

import fnmatch
import functools
import ipaddress
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Optional, Union

from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.export import CHOICES as SERVER_KINDS
from ovirt_rdma.host.export import Export
from ovirt_rdma.host.facts import infiniband
from ovirt_rdma.host.facts.devices import Netdev, RdmaDevice, RdmaPort
from ovirt_rdma.host.facts.infiniband import partition_of
from ovirt_rdma.host.policy import texts
from ovirt_rdma.host.policy.block import BLOCK, BlockPolicy
from ovirt_rdma.host.policy.fabric import FABRIC, FabricPolicy
from ovirt_rdma.host.policy.forms import (
    NAME,
    Given,
    Key,
    Keys,
    ListOf,
    MapOf,
    Number,
    Numbered,
    Text,
    key,
    repeated,
)
from ovirt_rdma.host.policy.texts import OFF, ON
from ovirt_rdma.host.system.json_codec import Records, WrongRecord, digest_of, plain

AUTO, DATAGRAM, CONNECTED = TRANSPORT_MODES = infiniband.MODES
OFFLOAD_CHOICES = (AUTO, ON, OFF)
INFINIBAND, ETHERNET = "infiniband", "ethernet"
LINK_LAYERS = (INFINIBAND, ETHERNET)
# The P_Key children of a port's base netdev follow the port's P_Key table.
FOLLOW = "follow"
# Seconds between two reads of the P_Key tables.
PARTITIONS_INTERVAL_S = 30
# The values of mlx4_portN_mtu (drivers/net/ethernet/mellanox/mlx4/main.c).
PORT_MTUS = (256, 512, 1024, 2048, 4096)

# The types that the port of a VPI adapter can have: InfiniBand, Ethernet.
IB, ETH = PORT_TYPES = ("ib", "eth")

_MIN_MTU = 68  # of IPv4 (RFC 791)
# More than InfiniBand's 254: mlx5 counts the representors of its VFs as ports.
_MAX_PORT = 65535
# PCI Express has 16 bits for it.
_MOST_VFS = 65535
# A subnet manager takes seconds for a sweep. With more than an hour, netdevs would
# hardly follow the table.
_MIN_INTERVAL_S, _MAX_INTERVAL_S = 5, 3600

_BY_NAME = Sentence(
    "match-by-name",
    "a netdev cannot be matched by its name, because the name can change with another "
    "adapter or at boot; match its port instead: device, pci, port or guid "
    "(ovirt-rdma-host facts shows them)",
)


def _match_keys(if_empty: str) -> Keys:
    """Return the form of ``match``; the record around it has its keys."""

    def check(match: Given) -> None:
        if not match.written:
            match.refuse((), "match-empty", f"names nothing; write {if_empty}")

    names = ("name", "netdev", "interface", "ifname", "interface_name")
    return Keys(rows={}, check=check, not_offered=dict.fromkeys(names, _BY_NAME))


_match = functools.partial(key, default=None, within="match")


@dataclass(frozen=True)
class RoceClass:
    """The lossless class of RoCE at a port; ``buffer`` is in bytes."""

    priority: int = key(Number(0, 7))
    dscp: Optional[int] = key(Number(0, 63), None)
    ecn: str = key(Text(choices=(ON, OFF), written=True), ON)
    buffer: Optional[int] = key(Number(4096, 1 << 24), None)

    @property
    def code_point(self) -> int:
        """The DSCP."""
        return 8 * self.priority + 2 if self.dscp is None else self.dscp

    @property
    def tos(self) -> int:
        """The type of service: the DSCP, and ECT(0) (RFC 3168) with ECN."""
        return self.code_point << 2 | (2 if self.ecn == ON else 0)


ROCE = Keys(RoceClass)
MATCH = _match_keys(
    "at least one key, such as link_layer: infiniband for all InfiniBand ports"
)


@dataclass(frozen=True)
class InterfaceRule(Numbered):
    """The wanted settings of the netdevs of some RDMA ports: those that match all of
    ``link_layer`` to ``pkey`` that are not None; without ``pkey`` also the P_Key
    children. ``pci`` is ``0000:04:00.0``, ``guid`` of the port
    ``0002:c903:00fb:1231``, a P_Key ``0x8001``. MTUs are in bytes.
    """

    noun = "interface"

    number: int
    name: str = key(NAME, required=False)
    match = Key(MATCH, required=True)
    link_layer: Optional[str] = _match(Text(choices=LINK_LAYERS))
    device: Optional[str] = _match(texts.DEVICE)
    pci: Optional[str] = _match(texts.PCI)
    port: Optional[int] = _match(Number(1, _MAX_PORT))
    guid: Optional[str] = _match(texts.GUID)
    pkey: Optional[str] = _match(texts.PKEY)
    transport_mode: Optional[str] = key(Text(choices=TRANSPORT_MODES), None)
    mtu: Union[int, str, None] = key(
        Number(_MIN_MTU, infiniband.CONNECTED_MTU, word=AUTO), None
    )
    tso: Optional[str] = key(Text(choices=OFFLOAD_CHOICES, written=True), None)
    port_mtu: Optional[int] = key(Number(choices=PORT_MTUS), None)
    pkey_children: tuple[str, ...] = key(ListOf(texts.CHILD_PKEY), ())
    partitions: Optional[str] = key(Text(choices=(FOLLOW,)), None)
    port_type: Optional[str] = key(Text(choices=PORT_TYPES), None)
    roce: Optional[RoceClass] = key(ROCE, None)


# What excludes each other: with the first, the keys after it are a mistake.
def _check_interface(rule: Given) -> None:
    match = rule.get("match", {})
    layer, mode = match.get("link_layer"), rule.get("transport_mode")
    for applies, keys, id, text in (
        (
            layer == ETHERNET,
            "transport_mode port_mtu pkey_children partitions match.guid match.pkey",
            "key-not-for-ethernet",
            "is for InfiniBand, but match names Ethernet ports; remove it",
        ),
        (
            layer == INFINIBAND,
            "roce",
            "key-not-for-infiniband",
            "is for Ethernet, but match names InfiniBand ports; remove it",
        ),
        (
            "port_type" in rule,
            "match.link_layer match.guid match.pkey",
            "match-by-type",
            "cannot be together with port_type, which changes it; write device or pci, "
            "and port",
        ),
        (
            mode == CONNECTED and rule.get("tso") == ON,
            "tso",
            "tso-in-connected-mode",
            "connected mode has no TSO; write auto, or transport_mode: datagram",
        ),
        (
            rule.get("pkey_children"),
            "partitions",
            "children-given-twice",
            f"{FOLLOW} creates the children of all partitions of the port; remove it, "
            "or pkey_children",
        ),
    ):
        for one in keys.split() if applies else ():
            place = tuple(one.split("."))
            if (match if place[1:] else rule).get(place[-1]):
                rule.refuse(place, id, text)
    _check_children(rule, match.get("pkey"))
    port_mtu, most = rule.get("port_mtu"), infiniband.MOST_DATAGRAM_MTU
    limit = port_mtu - infiniband.HEADER if port_mtu else most
    mtu = rule.get("mtu")
    if mode == DATAGRAM and isinstance(mtu, int) and mtu > limit:
        shown = f" with port_mtu: {port_mtu}, whose limit is {limit}"
        if not port_mtu:
            shown = f", whose limit is 4092 ({most} on Omni-Path)"
        rule.refuse(
            "mtu",
            "mtu-too-large",
            f"{mtu} is too large for datagram mode{shown}; write auto or less, or "
            "transport_mode: connected",
        )


def _check_children(rule: Given, own: Optional[str]) -> None:
    children = rule.get("pkey_children", ())
    for later, first in repeated(enumerate(children)):
        rule.refuse(
            ("pkey_children", later),
            "pkey-repeated",
            f"{rule.text('pkey_children', later)} is the same partition as "
            f"pkey_children[{first + 1}]",
        )
    for position, child in enumerate(children):
        if own and partition_of(child) == partition_of(own):
            rule.refuse(
                ("pkey_children", position),
                "pkey-of-match",
                f"{rule.text('pkey_children', position)} is the P_Key of match; a "
                "netdev cannot have a child with its own P_Key",
            )


INTERFACE = Keys(InterfaceRule, check=_check_interface)

# How VFs get their GUIDs: derived from the host and the VF, or not from us.
DERIVED, KEEP = GUID_CHOICES = ("derived", "keep")
ENABLE = "enable"
LINK_STATES = ("auto", ENABLE, "disable")
ALL, NONE = "all", "none"


def guest_numbers(text: str, count: int) -> Optional[frozenset[int]]:
    """Return the numbers below ``count`` in ``all``, ``none`` or ``0-11,14``; None for
    any other text.
    """
    if text in (ALL, NONE):
        return frozenset(range(count) if text == ALL else ())
    numbers: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*([0-9]{1,4})(?:\s*-\s*([0-9]{1,4}))?\s*", part)
        if not match or int(match[1]) > int(match[2] or match[1]):
            return None
        numbers.update(range(int(match[1]), min(int(match[2] or match[1]) + 1, count)))
    return frozenset(numbers)


@dataclass(frozen=True)
class VfRule(Numbered):
    """The wanted virtual functions of the physical functions that match all of
    ``device``, ``pci`` and ``guid`` (of the port) that are not None. ``pkeys`` (mlx4)
    are the first entries of each VF's P_Key table, none if they are left as they are.
    """

    noun = "virtual functions"

    number: int
    name: str = key(NAME, required=False)
    match = Key(
        _match_keys("device, pci or guid of the physical function"), required=True
    )
    count: int = key(Number(1, _MOST_VFS))
    device: Optional[str] = _match(texts.DEVICE)
    pci: Optional[str] = _match(texts.PCI)
    guid: Optional[str] = _match(texts.GUID)
    guids: str = key(Text(choices=GUID_CHOICES), DERIVED)
    guests: str = key(
        Text(
            "all, none, or numbers such as 0-11,14",
            normal=lambda text: None if guest_numbers(text, 0) is None else text,
            written=True,
        ),
        ALL,
    )
    link_state: Optional[str] = key(Text(choices=LINK_STATES), None)
    pkeys: tuple[str, ...] = key(ListOf(texts.PKEY), ())

    def is_for_guest(self, vf: int) -> bool:
        """Whether VF number ``vf``, from 0, is for virtual machines."""
        return vf in (guest_numbers(self.guests, self.count) or ())


VIRTUAL_FUNCTIONS = Keys(VfRule)


@dataclass(frozen=True)
class ModuleOption:
    """``options MODULE NAME=VALUE`` of modprobe.d(5)."""

    module: str
    name: str
    value: str


@dataclass(frozen=True)
class HostPolicy:
    """The ``host:`` part; an empty one changes nothing. Intervals are in seconds."""

    interfaces: tuple[InterfaceRule, ...] = key(ListOf(INTERFACE), ())
    modules: tuple[str, ...] = key(
        ListOf(Text("a module's name such as nvme_rdma", normal=texts.module)), ()
    )
    module_options: tuple[ModuleOption, ...] = key(
        MapOf(
            Text("letters, digits, '_' and '-'", normal=texts.module),
            MapOf(
                Text("letters, digits, '_' and '-'", normal=texts.option_name),
                Text(
                    "up to 1024 ASCII characters without blanks, quotes and "
                    "backslashes, such as 1,1",
                    normal=texts.option_value,
                    written=True,
                ),
                lambda name, value: (name, value),
            ),
            lambda module, options: [ModuleOption(module, *one) for one in options],
            "module: option: value",
        ),
        (),
    )
    partitions_interval: int = key(
        Number(_MIN_INTERVAL_S, _MAX_INTERVAL_S), PARTITIONS_INTERVAL_S
    )
    virtual_functions: tuple[VfRule, ...] = key(ListOf(VIRTUAL_FUNCTIONS), ())
    metrics_folder: Optional[str] = key(
        Text(
            "an absolute path such as /var/lib/node_exporter/textfile_collector",
            normal=texts.folder,
        ),
        None,
    )

    @property
    def is_empty(self) -> bool:
        """Whether it has no rule for anything."""
        return self == HostPolicy(partitions_interval=self.partitions_interval)

    @property
    def follows_partitions(self) -> bool:
        """Whether a rule has ``partitions: follow``."""
        return any(rule.partitions == FOLLOW for rule in self.interfaces)


def _check_host(host: Given) -> None:
    modules = host.get("modules", ())
    for later, first in repeated(enumerate(modules)):
        sentence = f"{modules[later]} is already in the list, as modules[{first + 1}]"
        host.refuse(("modules", later), "module-repeated", sentence)


def _made_host(
    module_options: Iterable[list[ModuleOption]] = (), **keys: Any
) -> HostPolicy:
    options = tuple(itertools.chain.from_iterable(module_options))
    return HostPolicy(module_options=options, **keys)


HOST = Keys(HostPolicy, make=_made_host, check=_check_host)


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
    return (
        (rule.link_layer is None or rule.link_layer == port.link_layer.lower())
        and (rule.port is None or rule.port == port.number)
        and _names_adapter(rule, device, port)
    )


def _names_adapter(
    rule: Union[InterfaceRule, VfRule], device: RdmaDevice, port: RdmaPort
) -> bool:
    address = device.pci.address if device.pci else None
    return (
        (rule.device is None or fnmatch.fnmatchcase(device.name, rule.device))
        and (rule.pci is None or rule.pci == address)
        and (rule.guid is None or rule.guid == port.guid)
    )


def vf_rule_for(
    policy: HostPolicy, device: RdmaDevice, port: RdmaPort
) -> Optional[VfRule]:
    """Return the first rule for VFs of ``device``, which has ``port``, or None."""
    rules = policy.virtual_functions
    return next((rule for rule in rules if _names_adapter(rule, device, port)), None)


def names_pkey(rule: InterfaceRule, netdev: Netdev) -> bool:
    """Whether ``rule`` names the P_Key of ``netdev``.

    Full and limited members belong to the same partition, so bit 15 is ignored.
    """
    if rule.pkey is None:
        return True
    own = partition_of(netdev.ipoib.pkey if netdev.ipoib else None)
    return own is not None and own == partition_of(rule.pkey)


REQUIRE_RDMA = "require-rdma"
PREFER_RDMA = "prefer-rdma"
TCP = "tcp"
TRANSPORTS = (REQUIRE_RDMA, PREFER_RDMA, TCP)

# IANA: nfsrdma, RFC 5667 section 6; knfsd's and every vendor's default.
DEFAULT_PORT = 20049
# The longest settle_timeout, in seconds: the engine waits 180 s for all exports of a
# call (engine, vdsTimeout).
MAX_SETTLE_S = 120
# A question is waited for 2 s, and the engine's timeouts for storage are minutes.
_MIN_HEALTH_S, _MAX_HEALTH_S = 5, 300
# The engine's timeout for a whole connectStorageServer call is 180 s. The waits for
# ports and for the server of one export must leave time for the mount itself.
_MAX_READINESS_S = 30
# On a busy host a helper process needs this long to start.
_MIN_READINESS_S = 0.1
_MAX_FAILURE_CACHE_S = 3600
# One path cannot fail over; a mount has a connection for each.
_FEWEST_PATHS, _MOST_PATHS = 2, 4
_MAX_PATHS_RETURN_S = 3600


@dataclass(frozen=True)
class NfsRule(Numbered):
    """A rule, with the defaults filled in. Timeouts, ``failure_cache`` and
    ``paths_return`` are in seconds; ``server_kind`` is AUTO or a name of
    :mod:`ovirt_rdma.host.export`; ``paths`` are the IPv4 addresses of the server,
    none if no connection is moved.
    """

    noun = "rule"

    number: int
    name: str = key(NAME, required=False)
    server: str = key(
        Text(
            "a name, an address, a network such as 10.20.0.0/24 or fd00::/64, or a "
            "glob such as 10.20.* (not for IPv6)",
            normal=texts.server,
        )
    )
    path: str = key(
        Text("a path or a glob, such as /export/vm*", normal=texts.export_path), "*"
    )
    # Not required: it may be in nfs.defaults; policy.yaml has it in one of the two.
    transport: str = key(Text(choices=TRANSPORTS), TCP)
    port: int = key(Number(1, 65535), DEFAULT_PORT)
    options: str = key(
        Text(
            "mount options with commas between them",
            normal=texts.options,
            may_be_empty=True,
        ),
        "",
    )
    readiness_timeout: float = key(
        Number(_MIN_READINESS_S, _MAX_READINESS_S, fraction=True), 2.0
    )
    settle_timeout: float = key(Number(0, MAX_SETTLE_S, fraction=True), 30.0)
    failure_cache: float = key(Number(0, _MAX_FAILURE_CACHE_S, fraction=True), 60.0)
    server_kind: str = key(Text(choices=SERVER_KINDS), AUTO)
    paths: tuple[str, ...] = key(
        ListOf(
            Text(
                "an IPv4 address of the server such as 10.20.1.5",
                normal=texts.path_address,
            ),
            _FEWEST_PATHS,
            _MOST_PATHS,
        ),
        (),
    )
    paths_return: int = key(Number(1, _MAX_PATHS_RETURN_S), 10)


def _check_nfs_rule(rule: Given) -> None:
    paths = rule.get("paths", ())
    for later, first in repeated(enumerate(paths)):
        sentence = f"{paths[later]} is already in the list, as paths[{first + 1}]"
        rule.refuse(("paths", later), "path-repeated", f"{sentence}; remove one")
    network = network_of(rule.get("server", "*"))
    if network is None or not paths or None in paths:
        return
    if not any(ipaddress.ip_address(path) in network for path in paths):
        rule.refuse(
            "server",
            "server-not-a-path",
            f"{rule['server']} has none of paths, so the mount would use an address "
            "that is no path; write one of paths, or the server's name",
        )


RULE = Keys(NfsRule, check=_check_nfs_rule)
# What decides how an export is mounted.
MOUNTING = {
    name: row
    for name, row in RULE.rows.items()
    if name not in ("name", "server", "path")
}
# nfs.defaults has the rest for all rules: paths are of one server.
_DEFAULTS = Keys(
    rows={name: row for name, row in MOUNTING.items() if name != "paths"},
    not_offered={
        "paths": Sentence(
            "paths-not-for-defaults",
            "are of one server, so they are not for nfs.defaults; write them in a rule",
        )
    },
)


@dataclass(frozen=True)
class NfsPolicy:
    """The ``nfs:`` part; an empty list of rules names no export. ``health_interval`` is
    in seconds, None if nobody watches the mounts.
    """

    defaults = Key(_DEFAULTS)
    rules: tuple[NfsRule, ...] = key(ListOf(RULE), ())
    health_interval: Optional[int] = key(Number(_MIN_HEALTH_S, _MAX_HEALTH_S), None)


NFS = Keys(NfsPolicy)
POLICY_VERSION = 1


@dataclass(frozen=True)
class Policy:
    """The whole policy."""

    version: int = key(Number(choices=(POLICY_VERSION,)), POLICY_VERSION, required=True)
    nfs: NfsPolicy = key(NFS, NfsPolicy())
    host: HostPolicy = key(HOST, HostPolicy())
    fabric: FabricPolicy = key(FABRIC, FabricPolicy())
    block: BlockPolicy = key(BLOCK, BlockPolicy())


POLICY = Keys(Policy)

# Keys of policy.yaml that a drop-in does not have.
_ONLY_IN_POLICY = Sentence(
    "not-for-drop-in",
    "is not for a drop-in, which has only rules for exports; write it in policy.yaml",
)
_DROP_IN_NFS = Keys(
    rows={"rules": NFS.rows["rules"]},
    not_offered=dict.fromkeys(NFS.rows, _ONLY_IN_POLICY),
)
DROP_IN = Keys(
    rows={"version": POLICY.rows["version"], "nfs": Key(_DROP_IN_NFS)},
    not_offered=dict.fromkeys(POLICY.rows, _ONLY_IN_POLICY),
)


def to_json_dict(policy: Policy) -> dict[str, Any]:
    """Return the policy as dicts, lists, strings, numbers, truth values and None.

    It has every field of the records, defaults too, so that a later version with other
    defaults reads the same policy.
    """
    data: dict[str, Any] = plain(policy)
    return data


def from_json_dict(data: object) -> Policy:
    """Read the result of :func:`to_json_dict`.

    It was validated when it was loaded, and has a digest. Raises ValueError, with a
    sentence that names the key, for an unknown or missing key, a value of the wrong
    type or another policy version.
    """
    # Another version explains all other mistakes.
    version = data.get("version", POLICY_VERSION) if isinstance(data, dict) else None
    if version is not None and version != POLICY_VERSION:
        raise WrongRecord(f"version is {version!a}; allowed: {POLICY_VERSION}")
    return Records("the policy").read(Policy, data)


def digest(policy: Policy) -> str:
    """Return ``sha256:…`` over the policy's content: equal policies, equal digests."""
    return digest_of(to_json_dict(policy))


# Every export is compared with the same patterns, so the compiled ones are cached: room
# for a policy of some thousand rules, and for the previous one.
_CACHED = 8192

IpNetwork = Union[ipaddress.IPv4Network, ipaddress.IPv6Network]


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


# How two policies differ: what they say, and what that changes for exports.

# The time of difflib grows with the product of both lengths.
_MOST_LINES = 3000


@dataclass(frozen=True)
class RuleChange:
    """Two policies treat ``export`` differently: the rule that wins before and after,
    None for none. ``what`` says why the export matters, as ``storage domain data1``.
    """

    export: str
    what: str
    before: Optional[NfsRule]
    after: Optional[NfsRule]

    @property
    def loses(self) -> bool:
        """Whether a rule that wins now changes or goes."""
        return self.before is not None

    @property
    def keys(self) -> list[str]:
        """What decides how the export is mounted, and differs."""
        rules = self.before, self.after
        return [
            key for key in MOUNTING if len({getattr(r, key, None) for r in rules}) > 1
        ]

    def __str__(self) -> str:
        both = self.before is not None and self.after is not None
        keys = [key for key in self.keys if both and key != "transport"]
        return (
            f"{self.export} ({self.what}): {_shown(self.before, keys)} -> "
            f"{_shown(self.after, keys)}"
        )


def rule_changes(
    before: Policy, after: Policy, exports: Mapping[str, str]
) -> tuple[RuleChange, ...]:
    """Return the ``exports`` that ``after`` treats differently, in their order.

    ``exports`` has the ``what`` of each; one that is not written as an export can have
    no rule.
    """
    changes = []
    for name, what in exports.items():
        export = Export.maybe(name)
        if export is None:
            continue
        matches = rule_for(before, export), rule_for(after, export)
        old, new = (match.rule if match else None for match in matches)
        change = RuleChange(name, what, old, new)
        if change.keys:
            changes.append(change)
    return tuple(changes)


def _shown(rule: Optional[NfsRule], keys: list[str]) -> str:
    if rule is None:
        return "no rule, stock VDSM mounts it"
    values = ((key, plain(getattr(rule, key))) for key in keys)
    more = [f"{key} {_entry(value) if value else 'none'}" for key, value in values]
    return ", ".join([f"{rule.transport} by {rule.title}", *more])


def differing_lines(before: Policy, after: Policy) -> tuple[str, ...]:
    """Return what ``after`` says and ``before`` does not with ``+``, and the reverse
    with ``-``: a rule, or another entry of a list, is one line.
    """
    old, new = list(_lines(to_json_dict(before))), list(_lines(to_json_dict(after)))
    if max(len(old), len(new)) > _MOST_LINES:
        return (f"more than {_MOST_LINES} lines, which are not compared",)
    import difflib  # noqa: PLC0415 - vdsmd never needs it

    found = difflib.unified_diff(old, new, n=0, lineterm="")
    return tuple(
        f"{line[0]} {line[1:]}"
        for line in found
        if not line.startswith(("---", "+++", "@@"))
    )


def said_by(policy: Policy) -> tuple[str, ...]:
    """Return what a policy says and an empty one does not, a line each."""
    empty = set(_lines(to_json_dict(Policy())))
    return tuple(one for one in _lines(to_json_dict(policy)) if one not in empty)


def _lines(value: Any, key: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for name, part in value.items():
            yield from _lines(part, f"{key}.{name}" if key else name)
    elif isinstance(value, list):
        for one in value:
            yield f"{key}: {_entry(one)}"
    elif value not in (None, ""):
        yield f"{key}: {value}"


def _entry(one: Any) -> str:
    if isinstance(one, list):
        return " ".join(map(_entry, one))
    if not isinstance(one, dict):
        return str(one)
    # The number only counts the entries; an entry without a name is named by it.
    number = one.get("number")
    unnamed = number is not None and str(one.get("name")).endswith(f" {number}")
    return ", ".join(
        f"{name} {_entry(value)}"
        for name, value in one.items()
        if name != "number" and not (name == "name" and unnamed)
        if value not in (None, "", [])
    )
