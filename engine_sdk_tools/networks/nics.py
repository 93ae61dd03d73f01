# SPDX-License-Identifier: GPL-2.0-or-later
"""Choose the NICs of hosts by what they are, the largest MTU that IPoIB allows on them,
and their static addresses. Pure.

The engine requires that the MTU of network and netdev are equal. If the kernel accepts
an MTU but uses a smaller one, the network stays out of sync.

A text is words and conditions with commas. Words are alternatives: a name or glob, a
port GUID or a PCI address. Conditions are KEY=VALUE, and all of them must hold, besides
one of the words. The keys are those of ``ovirt-rdma-host facts --interfaces -o json``,
and ``partition``, the name that a partition has in the host's policy.

What a NIC is comes from the host's facts. Without them the engine's own data say two
things: the last 8 of the 20 bytes of an IPoIB address are the port's GUID (RFC 4391,
9.1.1), and no other link layer has such addresses. The engine passes nothing else on
that a host reports of a NIC (docs/engine.md).

Addresses come from a plan file or from a range; they are compared with the selected
hosts and with the addresses that hosts have. A plan file is strict YAML, with one host
and its address with prefix per line::

    host01: 10.0.0.11/24
    host02: 10.0.0.12/24

A range is ``10.0.0.11-10.0.0.60/24``. ``10.0.0.11/24`` counts from that address to the
end of its network, ``10.0.0.0/24`` from the network's first usable address. IPv6 is
written the same way.
"""

from __future__ import annotations

import fnmatch
import ipaddress
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Callable, Optional, Union

from ovirt_rdma.engine_sdk_tools.hosts.report import HostReport, loaded_policy
from ovirt_rdma.engine_sdk_tools.model import Host, Nic, nearest
from ovirt_rdma.host.errors import Sentence, UsageProblem
from ovirt_rdma.host.facts.devices import Guid
from ovirt_rdma.host.facts.infiniband import (
    CONNECTED,
    CONNECTED_MTU,
    DATAGRAM,
    full_member,
    partition_of,
    pkey_of_vlan,
)
from ovirt_rdma.host.facts.model import Facts
from ovirt_rdma.host.facts.uses import ETHERNET, INFINIBAND, Interface, interfaces_of
from ovirt_rdma.host.policy.model import Policy
from ovirt_rdma.host.policy.texts import glob_mistake
from ovirt_rdma.host.rules.base import Interface as PolicyInterface
from ovirt_rdma.host.rules.base import View
from ovirt_rdma.host.rules.ipoib import (
    MTU,
    may_be_group_mtu,
    mtu_limit,
    no_connected_mode,
    settings_of,
)

IpAddress = Union[ipaddress.IPv4Address, ipaddress.IPv6Address]
Address = Union[ipaddress.IPv4Interface, ipaddress.IPv6Interface]

_FORM = "write one line per host, as in host01: 10.0.0.11/24"
_RANGE_FORM = (
    "write FIRST-LAST/PREFIX (10.0.0.11-10.0.0.60/24), FIRST/PREFIX or NETWORK/PREFIX"
)


def read_plan_file(text: str, where: str) -> dict[str, Address]:
    """Return the addresses of a plan file by host name, in the order of the file.

    ``where`` names the file in messages. Raises UsageProblem with one line per
    mistake: invalid YAML, no mapping, a repeated host, no address with a prefix.
    """
    from ovirt_rdma.host.policy.yaml_source import read_yaml  # noqa: PLC0415

    document = read_yaml(text)
    remarks: list[str] = [remark.at(where) for remark in document.mistakes]
    if not remarks and not isinstance(document.data, dict):
        remarks.append(f"{where}: the plan is empty, or no mapping of hosts")
    addresses: dict[str, Address] = {}
    for host, value in document.data.items() if not remarks else ():
        try:
            if "/" not in value:
                raise ValueError
            addresses[host] = ipaddress.ip_interface(value)
        except (TypeError, ValueError):
            remarks.append(
                f"{where}:{document.lines[host,]}: {host}: {value!r} is not an IP "
                "address with its prefix, as 10.0.0.11/24"
            )
    if remarks:
        raise UsageProblem("address-plan-invalid", "\n".join(remarks), _FORM)
    return addresses


def addresses_from_range(text: str, hosts: Sequence[str]) -> dict[str, Address]:
    """Assign the addresses of the range ``text`` to ``hosts``, in their order.

    Hosts for which no address is left are not in the result. Raises UsageProblem if
    ``text`` is not a range.
    """
    span, _, prefix = text.strip().partition("/")
    first, dash, last = (part.strip() for part in span.partition("-"))
    try:
        begin = ipaddress.ip_interface(f"{first}/{prefix}")
        end = ipaddress.ip_interface(f"{last}/{prefix}") if dash else begin
    except ValueError:
        wrong = "is not a range of addresses with a prefix"
    else:
        network = begin.network
        low, high = usable(network)
        start, stop = int(begin), int(end) if dash else high
        if not dash and begin.ip == network.network_address:
            start = low
        wrong = f"ends outside {network}" if end.network != network else ""
        if not wrong and int(end) < int(begin):
            wrong = "has its last address before its first"
    if wrong:
        sentence = f"the range {text!r} {wrong}"
        raise UsageProblem("address-range-invalid", sentence, _RANGE_FORM)
    numbers = range(start, stop + 1)
    kind = type(begin)
    return {host: kind((n, network.prefixlen)) for host, n in zip(hosts, numbers)}


def is_range(text: str) -> bool:
    """Whether ``text`` looks like a range, not like a file name."""
    return (
        re.fullmatch(r"[0-9a-fA-F:.]+(-[0-9a-fA-F:.]+)?/[0-9]{1,3}", text) is not None
    )


def is_unusable_address(address: IpAddress) -> bool:
    """Whether no host can have ``address`` on a network: it is loopback, multicast,
    unspecified or reserved (RFC 1122, 3.2.1.3; RFC 4291, 2.4).
    """
    if address.is_loopback or address.is_multicast or address.is_unspecified:
        return True
    this_network = address.version == 4 and int(address) < 1 << 24
    return this_network or address.is_reserved


def usable(
    network: Union[ipaddress.IPv4Network, ipaddress.IPv6Network],
) -> tuple[int, int]:
    """Return the first and the last address that a host may have."""
    low, high = int(network.network_address), int(network.broadcast_address)
    # A network of one or two addresses has no other ones (RFC 3021, 6164).
    if network.prefixlen >= network.max_prefixlen - 1:
        return low, high
    # IPv6 has no broadcast address; its first is the routers' (RFC 4291, 2.6.1).
    return low + 1, high - 1 if network.version == 4 else high


def netmask(address: Address) -> str:
    """Return the netmask in the engine's form: ``255.255.255.0``, for IPv6 ``64``."""
    if address.version == 4:
        return str(address.network.netmask)
    return str(address.network.prefixlen)


def address_refusals(
    asked: Mapping[str, Address],
    hosts: Sequence[Host],
    every: Sequence[Host],
    network: str,
) -> Iterator[Sentence]:
    """Compare the requested addresses (``asked``) with the selected ``hosts`` and with
    ``every`` host of the engine.

    An address that a host already has through its attachment of ``network`` (an id) is
    no conflict.
    """
    known = [host.name for host in every]
    chosen = [host.name for host in hosts]
    for name in asked:
        if name not in chosen:
            id, why = "address-host-not-selected", "--hosts does not select"
            if name not in known:
                id = "address-host-unknown"
                why = f"the engine does not know; {nearest(name, known)}"
            yield Sentence(id, f"the plan has an address for {name}, which {why}")
    for name in chosen:
        if name not in asked:
            yield Sentence("address-missing", f"the plan has no address for {name}")
    addresses = {name: asked[name] for name in chosen if name in asked}
    networks = Counter(address.network for address in addresses.values())
    names: dict[IpAddress, list[str]] = {}
    for name, address in addresses.items():
        names.setdefault(address.ip, []).append(name)
        id, why = _unusable(address)
        (common, _), *_ = networks.most_common(1)
        if not id and address.network != common:
            id, why = "address-outside", f"outside {common}, the network of the others"
        if id:
            yield Sentence(id, f"{name} cannot have {address}: it is {why}")
    for ip, repeated in names.items():
        if len(repeated) > 1:
            sentence = f"the plan assigns {ip} more than once: {', '.join(repeated)}"
            yield Sentence("address-repeated", sentence)
    yield from _in_use(names, every, network)


def _in_use(
    names: Mapping[IpAddress, Sequence[str]], every: Sequence[Host], network: str
) -> Iterator[Sentence]:
    """Refuse addresses that another NIC has; ``names`` are the hosts by address."""
    for other in every:
        for ip, (nic, of_network) in _used(other).items():
            for name in names.get(ip, ()):
                if (other.name, network) != (name, of_network):
                    sentence = f"{name} cannot have {ip}: {nic} of {other.name} has it"
                    yield Sentence("address-in-use", sentence)


def _unusable(address: Address) -> tuple[str, str]:
    """Return the id and the words for an address that no host can have."""
    low, high = usable(address.network)
    if not low <= int(address) <= high:
        kind = "network" if int(address) < low else "broadcast"
        return f"address-is-{kind}", f"the {kind} address of {address.network}"
    link_local = address.version == 6 and address.is_link_local
    if link_local or is_unusable_address(address.ip):
        words = "loopback, multicast, link-local, unspecified or reserved"
        return "address-reserved", words
    return "", ""


def _used(host: Host) -> dict[IpAddress, tuple[str, Optional[str]]]:
    """Return NIC and network (an id) of the addresses that ``host`` has."""
    names = {nic.id: nic.name for nic in host.nics or ()}
    # The host also reports addresses of NICs without a network.
    found = [(nic.address or "", nic.name, nic.network) for nic in host.nics or ()]
    for attachment in host.attachments or ():
        nic = names.get(attachment.nic or "", "a NIC")
        ips = (text.partition("/")[0] for text in attachment.addresses)
        found += [(ip, nic, attachment.network) for ip in ips]
    used: dict[IpAddress, tuple[str, Optional[str]]] = {}
    for text, name, of_network in found:
        try:
            used[ipaddress.ip_address(text)] = name, of_network
        except ValueError:
            continue
    return used


@dataclass(frozen=True)
class NetdevMtu:
    """``mtu`` in bytes, None if unknown; ``because`` is the reason, a clause.

    ``no_mode`` is a clause on why the requested mode is not possible, "" if it is.
    """

    netdev: str
    mtu: Optional[int]
    because: str
    child: bool = False
    no_mode: str = ""


def ipoib_mtus(facts: Facts, mode: Optional[str] = None) -> dict[str, NetdevMtu]:
    """Return the limit of each IPoIB netdev, by name.

    ``mode`` is the transport mode that they will get (``connected``, ``datagram``);
    None: their present mode.
    """
    view = View(facts, Policy())
    return {netdev.name: _limit(view, netdev, mode) for netdev in view.ipoib}


def _limit(view: View, interface: PolicyInterface, mode: Optional[str]) -> NetdevMtu:
    now = interface.netdev.ipoib.mode if interface.netdev.ipoib else None
    wanted = mode if mode in (CONNECTED, DATAGRAM) else now
    no_mode = no_connected_mode(view, interface) if wanted == CONNECTED else ""
    limit = mtu_limit(interface, DATAGRAM)
    mtu: Optional[int] = interface.netdev.mtu
    if wanted not in (CONNECTED, DATAGRAM):
        mtu, because = None, "the host does not report the transport mode"
    elif wanted == CONNECTED and not no_mode:
        mtu, because = CONNECTED_MTU, "it is in connected mode"
        if now != CONNECTED:
            because = "connected mode is requested"
    elif limit is None:
        mtu, because = None, "neither port nor link report their MTU (ibv_devinfo)"
    elif may_be_group_mtu(interface, limit.mtu) and _stays_below(view, interface):
        because = "the subnet manager's broadcast group allows no more, although "
        because += limit.reason
    else:
        mtu, because = limit.mtu, f"in datagram mode, {limit.reason}"
    if no_mode:
        because = f"connected mode is not possible: {no_mode}"
    return NetdevMtu(interface.name, mtu, because, interface.is_child, no_mode)


def _stays_below(view: View, interface: PolicyInterface) -> bool:
    """Whether neither profile nor network asks for the netdev's present MTU."""
    if interface.netdev.carrier is False:
        return False
    network = interface.network.mtu if interface.network else None
    kept = settings_of(view, interface).number(MTU)
    return interface.netdev.mtu not in (kept, network)


# Read ``--nic-match``, and say which NICs it matches.

_GUID = re.compile(
    r"(?:0x)?([0-9a-f]{16}|[0-9a-f]{4}(?::[0-9a-f]{4}){3}|[0-9a-f]{2}(?::[0-9a-f]{2}){7})"
)
_PCI = re.compile(r"(?:([0-9a-f]{4}):)?([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])")
_MOST_DIGITS = 9

Read = Callable[[str], Optional[str]]
"""Returns the normal form of a condition's value; None if the value is invalid."""


def _guid(text: str) -> Optional[str]:
    found = _GUID.fullmatch(text.lower())
    return found.group(1).replace(":", "") if found else None


def _pci(text: str) -> Optional[str]:
    found = _PCI.fullmatch(text.lower())
    return f"{found.group(1) or '0000'}:{found.group(2)}" if found else None


def _link_layer(text: str) -> Optional[str]:
    names = (INFINIBAND, ETHERNET)
    return next((name for name in names if name.lower() == text.lower()), None)


def _number(text: str) -> Optional[str]:
    digits = text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS
    return str(int(text)) if digits else None


def _partition(text: str) -> Optional[str]:
    """Return the partition: a netdev's P_Key has the bit of full members, or not."""
    partition = partition_of(text)
    return None if partition is None else f"0x{partition:04x}"


def _glob(text: str) -> Optional[str]:
    return None if not text or glob_mistake(text) else text


# The keys that can be given, how their values are read, and what a value is.
KEYS: Mapping[str, tuple[Read, str]] = {
    "name": (_glob, "a name or glob"),
    "link_layer": (_link_layer, f"{INFINIBAND} or {ETHERNET}"),
    "driver": (_glob, "a name or glob"),
    "bus_info": (_pci, "a PCI address, as 0000:04:00.0"),
    "device": (_glob, "the name of an RDMA device, or a glob"),
    "port": (_number, "a number"),
    "guid": (_guid, "a port GUID, as 0002:c903:00fb:1231"),
    "parent": (_glob, "a name or glob"),
    "pkey": (_partition, "a P_Key, as 0x8064"),
    "pkey_vlan": (_number, "a number"),
    "speed_mbps": (_number, "a number"),
    "roles": (_glob, "a role, as storage, or a glob"),
    # In place of ``pkey``: the host's policy says which P_Key that is.
    "partition": (lambda text: text or None, "the name of a partition"),
}
# What the engine knows of a NIC: its name and MAC address.
_OF_ENGINE = frozenset({"name", "guid", "link_layer"})
# By these a P_Key child is chosen; other conditions mean the netdev of a port.
_OF_CHILDREN = frozenset({"name", "parent", "pkey", "pkey_vlan"})


@dataclass(frozen=True)
class NicMatch:
    """A parsed ``--nic-match``; ``text`` is as written.

    ``words`` are pairs of a key and a value, of which one must hold; ``conditions`` are
    values by key, and one of the values of each key must hold.
    """

    text: str
    words: tuple[tuple[str, str], ...] = ()
    conditions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> NicMatch:
        """Read ``ib*``, ``0002:c903:00fb:1231``, ``0000:04:00.0``,
        ``link_layer=InfiniBand``, or several.

        Raises UsageProblem if it is empty, has an invalid glob, an unknown key or an
        invalid value.
        """
        words: list[tuple[str, str]] = []
        conditions: dict[str, tuple[str, ...]] = {}
        for word in filter(None, (part.strip() for part in text.split(","))):
            if "=" in word:
                key, value = _condition(word)
                conditions[key] = (*conditions.get(key, ()), value)
            elif guid := _guid(word):
                words.append(("guid", guid))
            elif pci := _pci(word):
                words.append(("bus_info", pci))
            elif mistake := glob_mistake(word):
                raise UsageProblem("nic-match-invalid", f"--nic-match: {mistake}")
            else:
                words.append(("name", word))
        if not words and not conditions:
            raise UsageProblem(
                "nic-match-empty",
                f"--nic-match {text!r} names no NIC",
                "give a name or glob (ib*), a port GUID, a PCI address, or conditions "
                "(link_layer=InfiniBand,port=1)",
            )
        return cls(text, tuple(words), conditions)

    @property
    def partitions(self) -> tuple[str, ...]:
        """The names of partitions; :meth:`with_pkeys` makes conditions of them."""
        return self.conditions.get("partition", ())

    def with_pkeys(self, pkeys: Sequence[str]) -> NicMatch:
        """Return it with the P_Keys of its partitions as conditions."""
        others = {k: v for k, v in self.conditions.items() if k != "partition"}
        wanted = (*others.get("pkey", ()), *filter(None, map(_partition, pkeys)))
        return replace(self, conditions={**others, "pkey": wanted})

    @property
    def for_facts(self) -> tuple[str, ...]:
        """The conditions, and ``a PCI address``, that only a host's facts can show."""
        keys = [key for key in self.conditions if key not in _OF_ENGINE]
        pci = any(key == "bus_info" for key, _ in self.words)
        return (*keys, "a PCI address") if pci else tuple(keys)

    def means(self, nic: Interface) -> bool:
        """Whether the NIC matches. What is not known of it does not match. A P_Key
        child matches only by what no port has.
        """
        if nic.pkey is not None and nic.parent is not None:
            keys = {*self.conditions, *(key for key, _ in self.words if key == "name")}
            if not keys & _OF_CHILDREN:
                return False
        named = any(_holds(nic, key, value) for key, value in self.words)
        return (named or not self.words) and not self.lacks(nic)

    def lacks(self, nic: Interface) -> tuple[str, ...]:
        """Return the keys of the conditions that do not hold."""
        return tuple(
            key
            for key, wanted in self.conditions.items()
            if not any(_holds(nic, key, value) for value in wanted)
        )


def _condition(word: str) -> tuple[str, str]:
    key, _, text = (part.strip() for part in word.partition("="))
    if key not in KEYS:
        raise UsageProblem(
            "nic-match-key-unknown",
            f"--nic-match has no key {key!r}",
            f"give one of {', '.join(KEYS)}",
        )
    read, form = KEYS[key]
    value = read(text)
    if value is None:
        sentence = f"--nic-match: {key}={text} is not {form}"
        raise UsageProblem("nic-match-value-invalid", sentence)
    return key, value


def _holds(nic: Interface, key: str, wanted: str) -> bool:
    value = getattr(nic, key)
    read, _ = KEYS[key]
    if read is _glob:
        texts = value if isinstance(value, tuple) else filter(None, [value])
        return any(fnmatch.fnmatchcase(text, wanted) for text in texts)
    return value is not None and read(str(value)) == wanted


# Choose the NIC or bond of each host for a network.

# A sentence lists no more NICs than this.
_MOST_NAMED = 6


@dataclass(frozen=True)
class Chosen:
    """The NIC for a network: ``target`` is the name of the NIC or bond, ``ports`` are
    the NICs of the bond. ``new_bond``: the bond must be made. ``interface`` is what
    the NIC is, as far as that is known.
    """

    target: str
    ports: tuple[str, ...] = ()
    new_bond: bool = False
    interface: Optional[Interface] = field(default=None, compare=False)


def choose_nics(
    host: Host, match: NicMatch, report: Optional[HostReport], bond: bool
) -> Union[Chosen, Sentence]:
    """Return the NIC of ``host`` that ``match`` selects, or why there is none.

    With ``bond``: an active-backup bond of all NICs that match, or the existing bond
    that has exactly these ports.
    """
    facts = report.facts if report else None
    found = _unclear(host, match, report) or in_partitions(host, match, report)
    if isinstance(found, Sentence):
        return found
    match = found
    known = {found.name: found for found in interfaces_of(facts)} if facts else {}
    # No network is attached to a VLAN. It has the MAC address of its NIC, and its name
    # begins with that of the NIC.
    nics = {
        nic.name: _seen(nic, known.get(nic.name, Interface(nic.name)))
        for nic in host.nics or ()
        if not nic.vlan_of
    }
    ports_of = {nic.name: nic.bond_ports for nic in host.nics or () if nic.bond_ports}
    meant = [name for name, interface in nics.items() if match.means(interface)]
    if bond:
        meant = [name for name in meant if name not in ports_of]
        same = (name for name, ports in ports_of.items() if {*ports} == {*meant})
        name = next(same, None)
        if name is None and len(meant) > 1:
            taken = {nic.name for nic in host.nics or ()}
            names = (f"bond{n}" for n in range(len(taken) + 1))
            free = next(name for name in names if name not in taken)
            return Chosen(free, tuple(meant), new_bond=True)
    else:
        # A bond has the MAC address of its active port, so that a GUID matches both.
        below = {port for name in meant for port in ports_of.get(name, ())}
        meant = [name for name in meant if name not in below]
        name = meant[0] if len(meant) == 1 else None
    if name is not None:
        return Chosen(name, ports_of.get(name, ()), interface=nics[name])
    if meant and bond:
        return Sentence(
            "bond-needs-nics",
            f"{host.name}: {match.text!r} matches {meant[0]} only; a bond needs 2",
        )
    return _not_one(
        host, match, [nics[name] for name in meant], [*nics.values()], facts
    )


def _unclear(
    host: Host, match: NicMatch, report: Optional[HostReport]
) -> Optional[Sentence]:
    """Refuse what needs facts without facts, and the name of a VLAN."""
    if match.for_facts and (report is None or report.facts is None):
        why = f" ({report.problem})" if report and report.problem else ""
        return Sentence(
            "nic-match-needs-facts",
            f"{host.name}: {', '.join(match.for_facts)} can only be matched with the "
            f"host's facts{why}; give --facts-dir, or a name or port GUID instead",
        )
    for nic in host.nics or ():
        if nic.vlan_of and ("name", nic.name) in match.words:
            return Sentence(
                "nic-is-vlan",
                f"{host.name}: {nic.name} is a VLAN on {nic.vlan_of}; the engine makes "
                f"VLANs itself, for networks with a VLAN tag: give {nic.vlan_of}",
            )
    return None


def _not_one(
    host: Host,
    match: NicMatch,
    meant: Sequence[Interface],
    nics: Sequence[Interface],
    facts: Optional[Facts],
) -> Sentence:
    if meant:
        names = ", ".join(
            _with(nic, ("device", "port", *["parent"] * bool(nic.parent)))
            if match.conditions and nic.device
            else nic.name
            for nic in meant
        )
        return Sentence(
            "nic-ambiguous",
            f"{host.name}: {match.text!r} matches {names}; narrow it, or give --bond "
            "active-backup",
        )
    shown = [
        f"{nic.name} (a P_Key child)"
        if match.conditions and nic.parent and not match.lacks(nic)
        else _with(nic, match.lacks(nic))
        for nic in nics[:_MOST_NAMED]
    ]
    shown += ["..."] if len(nics) > _MOST_NAMED else []
    return Sentence(
        "nic-unmatched",
        f"{host.name}: no NIC matches {match.text!r} (NICs: "
        f"{', '.join(shown) or 'none'}){_missing_child(match, facts)}",
    )


def in_partitions(
    host: Host, match: NicMatch, report: Optional[HostReport]
) -> Union[NicMatch, Sentence]:
    """Return ``match`` with the P_Keys of the partitions that it names, by the policy
    that is loaded on ``host``, or why there is none.
    """
    if not match.partitions:
        return match
    policy, reason = loaded_policy(report or HostReport(host.name))
    if policy is None:
        return Sentence(
            "partitions-unknown",
            f"{host.name}: the partitions of its policy are unknown: {reason}",
        )
    pkeys = []
    for name in match.partitions:
        pkey = policy.fabric.pkey_named(name)
        if pkey is None:
            known = ", ".join(one.name for one in policy.fabric.partitions) or "none"
            return Sentence(
                "partition-unknown",
                f"{host.name}: its policy has no partition {name!r} "
                f"(fabric.partitions: {known})",
            )
        pkeys.append(pkey)
    return match.with_pkeys(pkeys)


def _seen(nic: Nic, known: Interface) -> Interface:
    """Return what a NIC is, from the host's facts (``known``) and the engine."""
    guid = Guid.of_address(nic.mac or "")
    layer = known.link_layer or (nic.mac and ETHERNET)
    return replace(
        known,
        link_layer=INFINIBAND if nic.infiniband else layer,
        guid=guid.in_groups if guid and guid.assigned else known.guid,
    )


def _with(nic: Interface, keys: Sequence[str]) -> str:
    """Return ``ib0 (port=1)``: the name, and what the NIC is."""
    values = []
    for key in keys:
        value = getattr(nic, key)
        text = "+".join(value) if isinstance(value, tuple) else value
        values.append(f"{key}={text or 'none'}")
    return f"{nic.name} ({', '.join(values)})" if values else nic.name


def _missing_child(match: NicMatch, facts: Optional[Facts]) -> str:
    """Return what to do if no NIC is in the partition, as the end of a sentence."""
    wanted = [int(pkey, 16) for pkey in match.conditions.get("pkey", ())]
    vlans = match.conditions.get("pkey_vlan", ())
    wanted += [partition_of(pkey_of_vlan(int(vlan))) or 0 for vlan in vlans]
    if facts is None or len(wanted) != 1:
        return ""
    (partition,) = wanted
    children = [i.pkey for i in interfaces_of(facts) if i.parent and i.pkey]
    if partition in map(partition_of, children):
        return ""
    pkey = full_member(partition)
    for device in facts.rdma_devices:
        for port in device.ports:
            if partition in (partition_of(entry.value) for entry in port.pkeys):
                return (
                    f"; add {pkey} to pkey_children in the host's policy, and run "
                    "'ovirt-rdma-host apply' there"
                )
    return f"; the subnet manager has given {pkey} to none of its ports"
