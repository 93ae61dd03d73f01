# SPDX-License-Identifier: GPL-2.0-or-later
"""Define the policy: its table of keys, and the rule for an export or a netdev. Pure.

Each field of a record that is made by :func:`~.forms.key` is one row of the table: the
key's name, what it may be and how it is converted, its meaning, and what counts if it
is left out. From it come the reading of policy.yaml (:mod:`.load`) and of the stored
policy (:func:`from_json_dict`), the JSON Schema for editors, and the tables of
docs/policy.md (tools/policy_reference.py). The parts ``fabric:`` and ``block:`` are in
:mod:`.fabric` and :mod:`.block`.

In the ``host:`` part, a key that is left out is None: that property is not changed.
``auto`` lets the rules choose.
"""

from __future__ import annotations

import fnmatch
import functools
import ipaddress
import itertools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Optional, Union

from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.export import Export
from ovirt_rdma.host.facts import infiniband
from ovirt_rdma.host.facts.devices import Netdev, RdmaDevice, RdmaPort
from ovirt_rdma.host.facts.infiniband import partition_of
from ovirt_rdma.host.policy import texts
from ovirt_rdma.host.policy.block import BLOCK, BlockPolicy
from ovirt_rdma.host.policy.fabric import FABRIC, FabricPolicy
from ovirt_rdma.host.policy.forms import (
    NAME,
    Form,
    Given,
    Key,
    Keys,
    ListOf,
    MapOf,
    Number,
    Numbered,
    Refused,
    Text,
    key,
    optional,
    repeated,
    stored_rows,
)
from ovirt_rdma.host.server_kinds import CHOICES as SERVER_KINDS
from ovirt_rdma.host.system.json_codec import Records, WrongRecord, digest_of, plain

AUTO, DATAGRAM, CONNECTED = TRANSPORT_MODES = infiniband.MODES
ON, OFF = "on", "off"
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

_UNCHANGED = "unchanged"
_BY_NAME = Sentence(
    "match-by-name",
    "a netdev cannot be matched by its name, because the name can change with another "
    "adapter or at boot; match its port instead: device, pci, port or guid "
    "(ovirt-rdma-host facts shows them)",
)
_NOT_MATCHED = dict.fromkeys(
    ("name", "netdev", "interface", "ifname", "interface_name"), _BY_NAME
)


# Keys of ``match`` that both kinds of rules have.
_DEVICE = texts.DEVICE, "for example `mlx4_0`, `mlx5_*`"
_PCI = texts.PCI, "of the adapter; `04:00.0` is in domain 0000"
_GUID = (
    texts.GUID,
    "of the InfiniBand port: `0002:c903:00fb:1231`, `0x0002c90300fb1231`, "
    "`0002c90300fb1231`",
)


_MOST_DSCP = 63


@dataclass(frozen=True)
class RoceClass:
    """The lossless class of RoCE at a port: its ``priority``, alone with flow control;
    the DSCP of connections of the kernel, with the mark for ECN or not; and the bytes
    of a receive buffer of its own.
    """

    priority: int = key(Number(0, 7), "the one with priority flow control (PFC)")
    dscp: Optional[int] = optional(
        Number(0, _MOST_DSCP),
        "of storage's packets",
        "8 times the priority and 2: 26 for priority 3",
    )
    ecn: str = optional(
        Text(choices=(ON, OFF), written=True),
        "congestion notification: packets are marked for it",
        "`on`",
        default=ON,
    )
    buffer: Optional[int] = optional(
        Number(4096, 1 << 24),
        "mlx5: bytes of a receive buffer for this priority only",
        "the adapter divides them itself",
    )

    @property
    def code_point(self) -> int:
        """The DSCP."""
        return 8 * self.priority + 2 if self.dscp is None else self.dscp

    @property
    def tos(self) -> int:
        """The type of service: the DSCP, and ECT(0) (RFC 3168) with ECN."""
        return self.code_point << 2 | (2 if self.ecn == ON else 0)


ROCE = Keys(RoceClass)


def _match(form: Form, meaning: str) -> Any:
    return optional(form, meaning, "any", within="match")


MATCH = Keys(
    rows={},
    not_offered=_NOT_MATCHED,
    if_empty=Sentence(
        "match-empty",
        "names nothing; write at least one key, such as link_layer: infiniband for all "
        "InfiniBand ports",
    ),
)


@dataclass(frozen=True)
class InterfaceRule(Numbered):
    """The wanted settings of the netdevs of some RDMA ports.

    A netdev must match all of these that are not None: ``link_layer``, ``device`` (an
    RDMA device's name or a glob), ``pci`` (``0000:04:00.0``), ``port`` (from 1),
    ``guid`` (of the port, as ``0002:c903:00fb:1231``) and ``pkey`` (``0x8001``).
    Without ``pkey`` the rule also names the P_Key children of the port.

    ``mtu`` is in bytes or AUTO. ``port_mtu`` is an IB MTU in bytes (mlx4).
    ``pkey_children`` has the P_Keys of the children on the port's base netdev;
    with ``partitions`` FOLLOW they are those of the port's current P_Key table.
    ``port_type`` is IB or ETH.
    """

    noun = "interface"

    number: int
    name: str = key(NAME, "different for each rule", "`interface N`, counted from 1")
    match = Key(MATCH, "at least one key of the table below", required=True)
    link_layer: Optional[str] = _match(Text(choices=LINK_LAYERS), "of the port")
    device: Optional[str] = _match(*_DEVICE)
    pci: Optional[str] = _match(*_PCI)
    port: Optional[int] = _match(Number(1, _MAX_PORT), "its number at the device")
    guid: Optional[str] = _match(*_GUID)
    pkey: Optional[str] = _match(texts.PKEY, "of the IPoIB netdev")
    transport_mode: Optional[str] = optional(
        Text(choices=TRANSPORT_MODES), "IPoIB", _UNCHANGED
    )
    mtu: Union[int, str, None] = optional(
        Number(_MIN_MTU, infiniband.CONNECTED_MTU, word=AUTO),
        "in bytes; what is possible depends on the mode",
        _UNCHANGED,
    )
    tso: Optional[str] = optional(
        Text(choices=OFFLOAD_CHOICES, written=True),
        "TCP segmentation offload",
        _UNCHANGED,
    )
    port_mtu: Optional[int] = optional(
        Number(choices=PORT_MTUS),
        "mlx4, InfiniBand: the port's largest IB MTU",
        _UNCHANGED,
    )
    pkey_children: tuple[str, ...] = optional(
        ListOf(texts.CHILD_PKEY),
        "P_Keys for which the port's base netdev has a child",
        "none is made",
        default=(),
    )
    partitions: Optional[str] = optional(
        Text(choices=(FOLLOW,)),
        "IPoIB: the children follow the port's P_Key table",
        "none is made",
    )
    port_type: Optional[str] = optional(
        Text(choices=PORT_TYPES),
        "mlx4: InfiniBand or Ethernet; see [VPI adapters](virtual-functions.md#vpi)",
        _UNCHANGED,
    )
    roce: Optional[RoceClass] = optional(
        ROCE, "RoCE: its lossless class, the table `roce` below", _UNCHANGED
    )


def _check_interface(rule: Given) -> None:
    match = rule.get("match", {})
    if match.get("link_layer") == ETHERNET:
        given = [("match", one) for one in ("guid", "pkey") if one in match]
        of_infiniband = ("transport_mode", "port_mtu", "pkey_children", "partitions")
        for place in [*given, *((one,) for one in of_infiniband if rule.get(one))]:
            rule.refuse(
                place,
                "key-not-for-ethernet",
                "is for InfiniBand, but match names Ethernet ports; remove it",
            )
    if rule.get("roce") and match.get("link_layer") == INFINIBAND:
        rule.refuse(
            "roce",
            "key-not-for-infiniband",
            "is for Ethernet, but match names InfiniBand ports; remove it",
        )
    if rule.get("port_type"):
        for one in ("link_layer", "guid", "pkey"):
            if one in match:
                rule.refuse(
                    ("match", one),
                    "match-by-type",
                    "cannot be together with port_type, which changes it; write device "
                    "or pci, and port",
                )
    _check_children(rule, match.get("pkey"))
    _check_mode(rule)


def _check_children(rule: Given, own: Optional[str]) -> None:
    children = rule.get("pkey_children", ())
    if children and rule.get("partitions") == FOLLOW:
        rule.refuse(
            "partitions",
            "children-given-twice",
            f"{FOLLOW} creates the children of all partitions of the port; remove it, "
            "or pkey_children",
        )
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


def _check_mode(rule: Given) -> None:
    mode, mtu = rule.get("transport_mode"), rule.get("mtu")
    if mode == CONNECTED and rule.get("tso") == ON:
        rule.refuse(
            "tso",
            "tso-in-connected-mode",
            "connected mode has no TSO; write auto, or transport_mode: datagram",
        )
    if mode != DATAGRAM or not isinstance(mtu, int):
        return
    most = (
        rule.get("port_mtu", infiniband.MOST_DATAGRAM_MTU + infiniband.HEADER)
        - infiniband.HEADER
    )
    if mtu > infiniband.MOST_DATAGRAM_MTU:
        rule.refuse(
            "mtu",
            "mtu-too-large",
            f"{mtu} is too large for datagram mode, whose limit is 4092 "
            f"({infiniband.MOST_DATAGRAM_MTU} on Omni-Path); write auto, or "
            "transport_mode: connected",
        )
    elif mtu > most:
        rule.refuse(
            "mtu",
            "mtu-too-large",
            f"{mtu} is too large for datagram mode with port_mtu: {rule['port_mtu']}, "
            f"whose limit is {most}; write auto or less",
        )


INTERFACE = Keys(InterfaceRule, check=_check_interface)

# How VFs get their GUIDs: derived from the host and the VF, or not from us.
DERIVED, KEEP = GUID_CHOICES = ("derived", "keep")
LINK_STATES = ("auto", "enable", "disable")
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
        if not match:
            return None
        first, last = int(match[1]), int(match[2] or match[1])
        if first > last:
            return None
        numbers.update(range(first, min(last + 1, count)))
    return frozenset(numbers)


def _guests(text: str) -> str:
    if guest_numbers(text, 0) is not None:
        return text
    raise Refused(
        "guests-invalid", f"{text!r} is not all, none, or numbers such as 0-11,14"
    )


@dataclass(frozen=True)
class VfRule(Numbered):
    """The wanted virtual functions of some adapters.

    The physical function must match all of ``device``, ``pci`` and ``guid`` (of its
    port) that are not None. It has ``count`` VFs; ``guids`` is DERIVED or KEEP. Those
    in ``guests`` (ALL, NONE or ``0-11,14``) are for virtual machines, the others stay
    on the host. ``link_state`` is None if it is left as it is. ``pkeys`` (mlx4) are the
    first entries of each VF's P_Key table, none if they are left as they are.
    """

    noun = "virtual functions"

    number: int
    name: str = key(
        NAME, "different for each rule", "`virtual functions N`, counted from 1"
    )
    match = Key(
        Keys(
            rows={},
            not_offered=_NOT_MATCHED,
            if_empty=Sentence(
                "match-empty",
                "names nothing; write device, pci or guid of the physical function",
            ),
        ),
        "at least one of device, pci and guid: the physical function",
        required=True,
    )
    count: int = key(Number(1, _MOST_VFS), "how many there are")
    device: Optional[str] = _match(*_DEVICE)
    pci: Optional[str] = _match(*_PCI)
    guid: Optional[str] = _match(*_GUID)
    guids: str = optional(
        Text(choices=GUID_CHOICES),
        "InfiniBand: `derived` from the host, the adapter and the VF's number",
        "`derived`",
        default=DERIVED,
    )
    guests: str = optional(
        Text("all, none, or numbers such as 0-11,14", normal=_guests, written=True),
        "which are for virtual machines; the others get their driver on this host",
        "`all`",
        default=ALL,
    )
    link_state: Optional[str] = optional(
        Text(choices=LINK_STATES), "mlx5: `auto` follows the port's link", _UNCHANGED
    )
    pkeys: tuple[str, ...] = optional(
        ListOf(texts.PKEY),
        "mlx4: the P_Keys of each VF, in this order",
        _UNCHANGED,
        default=(),
    )

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


def _options(module: str, values: Iterable[tuple[str, str]]) -> list[ModuleOption]:
    return [ModuleOption(module, name, value) for name, value in values]


@dataclass(frozen=True)
class HostPolicy:
    """The ``host:`` part; an empty one changes nothing.

    ``modules`` are loaded at every boot. ``partitions_interval`` is the number of
    seconds between two reads of the P_Key tables of ports whose rule has
    ``partitions: follow``. ``metrics_folder`` is where the metrics are written, None:
    nowhere.
    """

    interfaces: tuple[InterfaceRule, ...] = optional(
        ListOf(INTERFACE),
        "the **first** rule that names a netdev wins",
        "unchanged",
        default=(),
    )
    modules: tuple[str, ...] = optional(
        ListOf(Text("a module's name such as nvme_rdma", normal=texts.module)),
        "kernel modules to load at every boot",
        "none",
        default=(),
    )
    module_options: tuple[ModuleOption, ...] = optional(
        MapOf(
            Text(normal=texts.module),
            MapOf(
                Text(normal=texts.option_name),
                Text(
                    "a value without blanks and quotes, such as 1,1",
                    normal=texts.option_value,
                    written=True,
                ),
                lambda name, value: (name, value),
            ),
            _options,
            "module: option: value",
        ),
        "options of kernel modules",
        "none",
        default=(),
    )
    partitions_interval: int = optional(
        Number(_MIN_INTERVAL_S, _MAX_INTERVAL_S),
        "seconds between two looks at the P_Key tables, for `partitions: follow`",
        default=PARTITIONS_INTERVAL_S,
    )
    virtual_functions: tuple[VfRule, ...] = optional(
        ListOf(VIRTUAL_FUNCTIONS),
        "the **first** rule that names an adapter wins",
        "unchanged",
        default=(),
    )
    metrics_folder: Optional[str] = optional(
        Text(
            "a folder such as /var/lib/node_exporter/textfile_collector",
            normal=texts.folder,
        ),
        "node_exporter's textfile folder, for [metrics](metrics.md) every 15 s",
        "no metrics are written",
    )

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


@dataclass(frozen=True)
class NfsRule(Numbered):
    """A rule, with the defaults filled in.

    ``server`` is a name, an address, a network or a glob; ``path`` is a path or a glob.
    ``options`` are extra mount options. In seconds: ``readiness_timeout``, for one
    server to answer; ``settle_timeout``, for a port to come up, from the first question
    of vdsmd that finds it down; ``failure_cache``, how long a failed mount decides for
    the other exports of the server. ``server_kind`` is AUTO or a name of
    :mod:`ovirt_rdma.host.server_kinds`.
    """

    noun = "rule"

    number: int
    name: str = key(NAME, "different for each rule", "`rule N`, counted from 1")
    server: str = key(
        Text("a name, an address, a network or a glob", normal=texts.server),
        "compared with the text of the export; see below",
    )
    path: str = key(
        Text("a path or a glob, such as /export/vm*", normal=texts.export_path),
        "`*` matches `/` as well",
        "`*`, every path",
        absent="*",
    )
    transport: str = key(
        Text(choices=TRANSPORTS),
        "see below",
        "from the defaults; must be in one of the two",
    )
    port: int = optional(
        Number(1, 65535), "the server's RDMA port", default=DEFAULT_PORT
    )
    options: str = optional(
        Text(
            "mount options with commas between them",
            normal=texts.options,
            may_be_empty=True,
        ),
        "added to the engine's; see below",
        "none",
        default="",
    )
    readiness_timeout: float = optional(
        Number(_MIN_READINESS_S, _MAX_READINESS_S, fraction=True),
        "seconds for the server to answer over RDMA",
        default=2.0,
    )
    settle_timeout: float = optional(
        Number(0, MAX_SETTLE_S, fraction=True),
        "seconds that vdsmd waits for an RDMA port to come up, from the first connect "
        "that finds it down",
        default=30.0,
    )
    failure_cache: float = optional(
        Number(0, _MAX_FAILURE_CACHE_S, fraction=True),
        "seconds for which a failed RDMA mount decides for the server's exports, "
        "unless the server itself has said since that it is ready",
        default=60.0,
    )
    server_kind: str = optional(
        Text(choices=SERVER_KINDS),
        "whose server it is, for what its [documents](servers.md) require; `auto`: as "
        "the server says, if it does",
        "`auto`",
        default=AUTO,
    )


RULE = Keys(NfsRule)
# What decides how an export is mounted. nfs.defaults has it for all rules.
MOUNTING = {
    name: row
    for name, row in RULE.rows.items()
    if name not in ("name", "server", "path")
}


@dataclass(frozen=True)
class NfsPolicy:
    """The ``nfs:`` part; an empty list of rules names no export.

    ``health_interval`` is in seconds, None if nobody watches the mounts.
    """

    defaults = Key(
        Keys(rows=MOUNTING), "for every rule that does not have the key itself"
    )
    rules: tuple[NfsRule, ...] = optional(
        ListOf(RULE),
        "the **first** rule that names an export wins",
        "no export is named",
        default=(),
    )
    health_interval: Optional[int] = optional(
        Number(_MIN_HEALTH_S, _MAX_HEALTH_S),
        "seconds between two looks at the mounts by the daemon; see "
        "[Health](health.md)",
        "nobody watches the mounts",
    )


NFS = Keys(NfsPolicy)
POLICY_VERSION = 1


@dataclass(frozen=True)
class Policy:
    """The whole policy."""

    version: int = optional(
        Number(choices=(POLICY_VERSION,)),
        "the version of this form",
        "must be there, unless the file is empty",
        required=True,
        default=POLICY_VERSION,
    )
    nfs: NfsPolicy = optional(
        NFS, "which exports are mounted over RDMA", default=NfsPolicy()
    )
    host: HostPolicy = optional(
        HOST, "how the RDMA ports of a host are configured", default=HostPolicy()
    )
    fabric: FabricPolicy = optional(
        FABRIC, "the partitions of the InfiniBand fabric", default=FabricPolicy()
    )
    block: BlockPolicy = optional(
        BLOCK, "which block storage a host logs in to", default=BlockPolicy()
    )


POLICY = Keys(Policy)

# Keys of policy.yaml that a drop-in does not have.
_ONLY_IN_POLICY = Sentence(
    "not-for-drop-in",
    "is not for a drop-in, which has only rules for exports; write it in policy.yaml",
)
DROP_IN = Keys(
    rows={
        "version": POLICY.rows["version"],
        "nfs": Key(
            Keys(
                rows={"rules": NFS.rows["rules"]},
                not_offered=dict.fromkeys(NFS.rows, _ONLY_IN_POLICY),
            ),
            POLICY.rows["nfs"].meaning,
        ),
    },
    not_offered=dict.fromkeys(POLICY.rows, _ONLY_IN_POLICY),
)


@functools.cache
def _stored_rows(record: type) -> dict[str, Key]:
    return stored_rows(record)


def _check(record: Any, values: Mapping[str, Any]) -> tuple[str, str]:
    for name, row in _stored_rows(record).items():
        value = values[name]
        mistake = row.form.stored_mistake(value) if value is not None else ""
        if mistake:
            return name, mistake
    return "", ""


_RECORDS = Records("the policy", _check)


def to_json_dict(policy: Policy) -> dict[str, Any]:
    """Return the policy as dicts, lists, strings, numbers, truth values and None.

    It has every field of the records, defaults too, so that a later version with other
    defaults reads the same policy.
    """
    data: dict[str, Any] = plain(policy)
    return data


def from_json_dict(data: object) -> Policy:
    """Read the result of :func:`to_json_dict`.

    Raises ValueError, with a sentence that names the key, for an unknown or missing
    key, a value of the wrong type or another policy version.
    """
    # Another version explains all other mistakes.
    version = data.get("version", POLICY_VERSION) if isinstance(data, dict) else None
    if version is not None and version != POLICY_VERSION:
        raise WrongRecord(f"version is {version!a}; allowed: {POLICY_VERSION}")
    return _RECORDS.read(Policy, data)


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
