# SPDX-License-Identifier: GPL-2.0-or-later
"""Choose the NICs of hosts by what they are, the largest MTU that IPoIB allows on them,
and their static addresses. Pure.

The engine requires that the MTU of network and netdev are equal. If the kernel accepts
an MTU but uses a smaller one, the network stays out of sync.

``--nic-match`` is words and conditions with commas. Words are alternatives: a name or
glob, a port GUID or a PCI address. Conditions are KEY=VALUE, with the keys of
``ovirt-rdma-host facts --interfaces -o json``; all must hold, besides one of the words.

What a NIC is comes from the host's facts. Without them the engine's own data say two
things: the last 8 of the 20 bytes of an IPoIB address are the port's GUID (RFC 4391,
9.1.1), and no other link layer has such addresses (docs/engine.md).

Addresses come from a plan file, strict YAML with lines as ``host01: 10.0.0.11/24``, or
from a range as ``10.0.0.11-10.0.0.60/24``. ``10.0.0.11/24`` counts from that address to
the end of its network, ``10.0.0.0/24`` from the network's first usable address. IPv6 is
written the same way. They are compared with those that hosts have.
"""

from __future__ import annotations

import fnmatch
import ipaddress
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Callable, Optional, Union

from ovirt_rdma.engine_sdk_tools.hosts.report import HostReport
from ovirt_rdma.engine_sdk_tools.model import Host, Nic, listed, nearest
from ovirt_rdma.host.errors import Sentence, UsageProblem
from ovirt_rdma.host.facts.devices import Guid
from ovirt_rdma.host.facts.infiniband import (
    CONNECTED,
    CONNECTED_MTU,
    DATAGRAM,
    partition_of,
)
from ovirt_rdma.host.facts.model import Facts
from ovirt_rdma.host.facts.uses import ETHERNET, INFINIBAND, Interface, interfaces_of
from ovirt_rdma.host.policy.model import Policy
from ovirt_rdma.host.policy.texts import glob_mistake
from ovirt_rdma.host.policy.yaml_source import read_yaml
from ovirt_rdma.host.rules.base import Interface as PolicyInterface
from ovirt_rdma.host.rules.base import View
from ovirt_rdma.host.rules.ipoib import MTU, may_be_group_mtu, mtu_limit, settings_of

IpAddress = Union[ipaddress.IPv4Address, ipaddress.IPv6Address]
Address = Union[ipaddress.IPv4Interface, ipaddress.IPv6Interface]

_FORM = "write one line per host, as in host01: 10.0.0.11/24"
_RANGE_FORM = (
    "write FIRST-LAST/PREFIX (10.0.0.11-10.0.0.60/24), FIRST/PREFIX or NETWORK/PREFIX"
)


def read_plan_file(text: str, where: str) -> dict[str, Address]:
    """Return the addresses of a plan file by host name, in its order; ``where`` names
    it. Raises UsageProblem with one line per mistake.
    """
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
    """Assign the addresses of the range ``text`` to ``hosts``, as far as there are
    some. Raises UsageProblem if ``text`` is not a range.
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
    link-local (IPv6), unspecified or reserved (RFC 1122, 3.2.1.3; RFC 4291, 2.4).
    """
    if address.is_loopback or address.is_multicast or address.is_unspecified:
        return True
    if address.version == 4:
        return address.is_reserved or int(address) < 1 << 24
    return address.is_reserved or address.is_link_local


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
    """Compare the addresses ``asked`` for with the selected ``hosts`` and with
    ``every`` one of the engine. One that a host has by its attachment of ``network``
    (id) is no conflict.
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
        nics = {nic.id: nic.name for nic in other.nics or ()}
        # The host also reports addresses of NICs without a network.
        found = [(nic.address or "", nic.name, nic.network) for nic in other.nics or ()]
        for attachment in other.attachments or ():
            nic = nics.get(attachment.nic or "", "a NIC")
            ips = (text.partition("/")[0] for text in attachment.addresses)
            found += [(ip, nic, attachment.network) for ip in ips]
        used = {_ip(text): (nic, of_network) for text, nic, of_network in found}
        for ip, hosts in names.items():
            nic, of_network = used.get(ip, ("", ""))
            for name in hosts if nic else ():
                if (other.name, network) != (name, of_network):
                    sentence = f"{name} cannot have {ip}: {nic} of {other.name} has it"
                    yield Sentence("address-in-use", sentence)


def _ip(text: str) -> Optional[IpAddress]:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _unusable(address: Address) -> tuple[str, str]:
    """Return the id and the words for an address that no host can have."""
    low, high = usable(address.network)
    if not low <= int(address) <= high:
        kind = "network" if int(address) < low else "broadcast"
        return f"address-is-{kind}", f"the {kind} address of {address.network}"
    if is_unusable_address(address.ip):
        words = "loopback, multicast, link-local, unspecified or reserved"
        return "address-reserved", words
    return "", ""


@dataclass(frozen=True)
class NetdevMtu:
    """``mtu`` in bytes, None if unknown; ``because`` is the reason, a clause."""

    netdev: str
    mtu: Optional[int]
    because: str
    child: bool = False


def ipoib_mtus(facts: Facts) -> dict[str, NetdevMtu]:
    """Return the limit of each IPoIB netdev in its present mode, by name."""
    view = View(facts, Policy())
    return {netdev.name: _limit(view, netdev) for netdev in view.ipoib}


def _limit(view: View, interface: PolicyInterface) -> NetdevMtu:
    mode = interface.netdev.ipoib.mode if interface.netdev.ipoib else None
    limit = mtu_limit(interface, DATAGRAM)
    mtu: Optional[int] = interface.netdev.mtu
    if mode == CONNECTED:
        mtu, because = CONNECTED_MTU, "it is in connected mode"
    elif mode != DATAGRAM:
        mtu, because = None, "the host does not report the transport mode"
    elif limit is None:
        mtu, because = None, "neither port nor link report their MTU (ibv_devinfo)"
    elif may_be_group_mtu(interface, limit.mtu) and _stays_below(view, interface):
        because = "the subnet manager's broadcast group allows no more, although "
        because += limit.reason
    else:
        mtu, because = limit.mtu, f"in datagram mode, {limit.reason}"
    return NetdevMtu(interface.name, mtu, because, interface.is_child)


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
}
# What the engine knows of a NIC: its name and MAC address.
_OF_ENGINE = frozenset({"name", "guid", "link_layer"})
# By these a P_Key child is chosen; other conditions mean the netdev of a port.
_OF_CHILDREN = frozenset({"name", "parent", "pkey", "pkey_vlan"})


@dataclass(frozen=True)
class NicMatch:
    """A parsed ``--nic-match``; ``text`` is as written.

    ``groups`` are pairs of a key and a value, one of which must hold in each group: the
    words are one group, the conditions with the same key another.
    """

    text: str
    groups: tuple[tuple[tuple[str, str], ...], ...] = ()

    @classmethod
    def parse(cls, text: str) -> NicMatch:
        """Read ``ib*``, ``0002:c903:00fb:1231``, ``0000:04:00.0``,
        ``link_layer=InfiniBand``, or several. Raises UsageProblem.
        """
        groups: dict[str, list[tuple[str, str]]] = {}
        for word in filter(None, (part.strip() for part in text.split(","))):
            if "=" in word:
                key, value = _condition(word)
                groups.setdefault(key, []).append((key, value))
                continue
            if guid := _guid(word):
                pair = ("guid", guid)
            elif pci := _pci(word):
                pair = ("bus_info", pci)
            elif mistake := glob_mistake(word):
                raise UsageProblem("nic-match-invalid", f"--nic-match: {mistake}")
            else:
                pair = ("name", word)
            groups.setdefault("", []).append(pair)
        if not groups:
            raise UsageProblem(
                "nic-match-empty",
                f"--nic-match {text!r} names no NIC",
                "give a name or glob (ib*), a port GUID, a PCI address, or conditions "
                "(link_layer=InfiniBand,port=1)",
            )
        return cls(text, tuple(map(tuple, groups.values())))

    @property
    def keys(self) -> frozenset[str]:
        """What it looks at."""
        return frozenset(key for group in self.groups for key, _ in group)

    def means(self, nic: Interface) -> bool:
        """Whether it matches; nothing unknown does, and no child by what ports have."""
        is_child = nic.pkey is not None and nic.parent is not None
        if is_child and not self.keys & _OF_CHILDREN:
            return False
        return all(
            any(_holds(nic, key, value) for key, value in group)
            for group in self.groups
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


@dataclass(frozen=True)
class Chosen:
    """The NIC or bond ``target``, with its ``ports``. ``new_bond``: it must be made.
    ``interface`` is what the NIC is, as far as that is known.
    """

    target: str
    ports: tuple[str, ...] = ()
    new_bond: bool = False
    interface: Optional[Interface] = field(default=None, compare=False)


def choose_nics(
    host: Host, match: NicMatch, report: Optional[HostReport], bond: bool
) -> Union[Chosen, Sentence]:
    """Return the NIC of ``host`` that ``match`` selects, or why there is none.
    ``bond``: an active-backup bond of all that match, or the existing one with exactly
    these ports.
    """
    facts = report.facts if report else None
    unclear = _unclear(host, match, report)
    if unclear is not None:
        return unclear
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
        id, what = "bond-needs-nics", f"matches {meant[0]} only; a bond needs 2"
    elif meant:
        id, what = "nic-ambiguous", f"matches {listed(meant)}; narrow it, or give "
        what += "--bond active-backup"
    else:
        id, what = "nic-unmatched", f"matches no NIC ({listed([*nics]) or 'none'})"
        if match.keys & {"pkey", "pkey_vlan"}:
            what += "; pkey_children in its policy make the child of a partition"
    if not bond and facts:
        what += "; 'ovirt-rdma-host facts --interfaces' there shows what each NIC is"
    return Sentence(id, f"{host.name}: {match.text!r} {what}")


def _unclear(
    host: Host, match: NicMatch, report: Optional[HostReport]
) -> Optional[Sentence]:
    """Refuse what needs facts without facts, and the name of a VLAN."""
    keys = sorted(match.keys - _OF_ENGINE)
    if keys and (report is None or report.facts is None):
        why = f" ({report.problem})" if report and report.problem else ""
        return Sentence(
            "nic-match-needs-facts",
            f"{host.name}: {', '.join(keys)} can only be matched with the host's facts"
            f"{why}; give --facts-dir, or a name or port GUID instead",
        )
    for nic in host.nics or ():
        if nic.vlan_of and any(("name", nic.name) in g for g in match.groups):
            return Sentence(
                "nic-is-vlan",
                f"{host.name}: {nic.name} is a VLAN on {nic.vlan_of}; the engine makes "
                f"VLANs itself, for networks with a VLAN tag: give {nic.vlan_of}",
            )
    return None


def _seen(nic: Nic, known: Interface) -> Interface:
    """Return what a NIC is, from the host's facts (``known``) and the engine."""
    guid = Guid.of_address(nic.mac or "")
    layer = known.link_layer or (nic.mac and ETHERNET)
    return replace(
        known,
        link_layer=INFINIBAND if nic.infiniband else layer,
        guid=guid.in_groups if guid and guid.assigned else known.guid,
    )
