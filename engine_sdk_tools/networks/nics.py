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
from ovirt_rdma.host.errors import Problem, Sentence, UsageProblem
from ovirt_rdma.host.exit_code import ExitCode
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
from ovirt_rdma.host.facts.uses import (
    ETHERNET,
    INFINIBAND,
    Interface,
    interfaces_of,
)
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

Address = Union[ipaddress.IPv4Interface, ipaddress.IPv6Interface]

_FORM = "write one line per host, as in host01: 10.0.0.11/24"
_RANGE_FORM = (
    "write FIRST-LAST/PREFIX (10.0.0.11-10.0.0.60/24), FIRST/PREFIX or NETWORK/PREFIX"
)
# From this prefix length on, every address of a network is usable (RFC 3021, 6164).
_POINT_TO_POINT = {4: 31, 6: 127}


class AddressProblem(Problem):
    """A plan file or a range is invalid (exit code 2)."""

    exit_code = ExitCode.USAGE


def read_plan_file(text: str, where: str) -> dict[str, Address]:
    """Return the addresses of a plan file by host name, in the order of the file.

    ``where`` names the file in messages. Raises AddressProblem with one line per
    mistake: invalid YAML, no mapping, a repeated host, no address with a prefix.
    """
    from ovirt_rdma.host.policy.yaml_source import read_yaml  # noqa: PLC0415

    document = read_yaml(text)
    remarks: list[str] = [remark.at(where) for remark in document.mistakes]
    data = document.data
    if not remarks and not isinstance(data, dict):
        wrong = "is empty" if data is None else "is not a mapping of hosts to addresses"
        remarks.append(f"{where}: the plan {wrong}")
    addresses: dict[str, Address] = {}
    for host, value in data.items() if isinstance(data, dict) else ():
        at = f"{where}:{document.line((host,))}: {host}:"
        try:
            addresses[host] = _with_prefix(value)
        except ValueError as error:
            remarks.append(f"{at} {error}")
    if remarks:
        raise AddressProblem("address-plan-invalid", "\n".join(remarks), _FORM)
    return addresses


def addresses_from_range(text: str, hosts: Sequence[str]) -> dict[str, Address]:
    """Assign the addresses of the range ``text`` to ``hosts``, in their order.

    Hosts for which no address is left are not in the result. Raises AddressProblem if
    ``text`` is not a range.
    """
    numbers = _range(text)
    return dict(zip(hosts, numbers))


def is_range(text: str) -> bool:
    """Whether ``text`` looks like a range, not like a file name."""
    return (
        re.fullmatch(r"[0-9a-fA-F:.]+(-[0-9a-fA-F:.]+)?/[0-9]{1,3}", text) is not None
    )


def _with_prefix(value: object) -> Address:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not an address; {_FORM}")
    if "/" not in value:
        raise ValueError(f"{value!r} has no prefix, as in {value}/24")
    try:
        return ipaddress.ip_interface(value)
    except ValueError:
        raise ValueError(f"{value!r} is not an IP address with a prefix") from None


def _range(text: str) -> Iterator[Address]:
    span, slash, prefix = text.strip().partition("/")
    first, dash, last = span.partition("-")
    if not slash:
        raise AddressProblem(
            "address-range-invalid", f"the range {text!r} has no prefix", _RANGE_FORM
        )
    try:
        begin = ipaddress.ip_interface(f"{first.strip()}/{prefix}")
        end = ipaddress.ip_interface(f"{last.strip()}/{prefix}") if dash else None
    except ValueError:
        raise AddressProblem(
            "address-range-invalid",
            f"{text!r} is not a range of addresses",
            _RANGE_FORM,
        ) from None
    network = begin.network
    if end is not None and end.network != network:
        raise AddressProblem(
            "address-range-invalid",
            f"the range {text!r} ends outside {network}",
            _RANGE_FORM,
        )
    if end is not None and int(end) < int(begin):
        raise AddressProblem(
            "address-range-invalid",
            f"the last address of the range {text!r} is before its first",
            _RANGE_FORM,
        )
    low, high = usable(network)
    start = low if end is None and begin.ip == network.network_address else int(begin)
    stop = int(end) if end is not None else high
    kind = type(begin)
    return (kind((number, network.prefixlen)) for number in range(start, stop + 1))


def is_unusable_address(
    address: Union[ipaddress.IPv4Address, ipaddress.IPv6Address],
) -> bool:
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
    if network.prefixlen >= _POINT_TO_POINT[network.version]:
        return low, high
    # IPv6 has no broadcast address; its first is the routers' (RFC 4291, 2.6.1).
    return low + 1, high - 1 if network.version == 4 else high


def netmask(address: Address) -> str:
    """Return the netmask in the engine's form: ``255.255.255.0``, for IPv6 ``64``."""
    if address.version == 4:
        return str(address.network.netmask)
    return str(address.network.prefixlen)


@dataclass(frozen=True)
class AddressPlan:
    """``addresses`` by host name, in host order. ``problems`` is empty if every host
    can have its address.
    """

    addresses: Mapping[str, Address]
    problems: tuple[Sentence, ...] = ()


def check_addresses(
    asked: Mapping[str, Address],
    hosts: Sequence[Host],
    every: Sequence[Host],
    network: str,
) -> AddressPlan:
    """Compare the requested addresses (``asked``) with the selected ``hosts`` and with
    ``every`` host of the engine.

    An address that a host already has through its attachment of ``network`` (an id) is
    no conflict.
    """
    problems = list(_unknown(asked, hosts, every))
    addresses: dict[str, Address] = {}
    for host in hosts:
        if host.name in asked:
            addresses[host.name] = asked[host.name]
        else:
            sentence = f"the plan has no address for {host.name}"
            problems.append(Sentence("address-missing", sentence))
    problems += _unusable(addresses)
    problems += _repeated(addresses)
    problems += _outside(addresses)
    problems += _in_use(addresses, every, network)
    return AddressPlan(addresses, tuple(problems))


def _unknown(
    asked: Mapping[str, Address], hosts: Sequence[Host], every: Sequence[Host]
) -> Iterator[Sentence]:
    known = [host.name for host in every]
    chosen = {host.name for host in hosts}
    for name in asked:
        if name not in known:
            yield Sentence(
                "address-host-unknown",
                f"the plan has an address for {name}, which the engine does not know; "
                f"{nearest(name, known)}",
            )
        elif name not in chosen:
            yield Sentence(
                "address-host-not-selected",
                f"the plan has an address for {name}, which --hosts does not select",
            )


def _unusable(addresses: Mapping[str, Address]) -> Iterator[Sentence]:
    for host, address in addresses.items():
        low, high = usable(address.network)
        number = int(address)
        if not low <= number <= high:
            kind = "network" if number < low else "broadcast"
            yield Sentence(
                f"address-is-{kind}",
                f"{host} cannot have {address.ip}: it is the {kind} address of "
                f"{address.network}",
            )
        elif is_unusable_address(address.ip):
            yield Sentence(
                "address-reserved",
                f"{host} cannot have {address.ip}: the address is loopback, multicast, "
                "unspecified or reserved",
            )
        elif address.version == 6 and address.is_link_local:
            yield Sentence(
                "address-link-local",
                f"{host} cannot have {address.ip}: the kernel assigns link-local "
                "addresses itself",
            )


def _repeated(addresses: Mapping[str, Address]) -> Iterator[Sentence]:
    by_ip: dict[str, list[str]] = {}
    for host, address in addresses.items():
        by_ip.setdefault(str(address.ip), []).append(host)
    for ip, names in by_ip.items():
        if len(names) > 1:
            yield Sentence(
                "address-repeated",
                f"the plan assigns {ip} more than once: {', '.join(names)}",
            )


def _outside(addresses: Mapping[str, Address]) -> Iterator[Sentence]:
    networks = Counter(address.network for address in addresses.values())
    if len(networks) < 2:
        return
    common, _ = networks.most_common(1)[0]
    for host, address in addresses.items():
        if address.network != common:
            yield Sentence(
                "address-outside",
                f"{host}: {address} is outside {common}, the network of the others",
            )


def _in_use(
    addresses: Mapping[str, Address], every: Sequence[Host], network: str
) -> Iterator[Sentence]:
    wanted = {str(address.ip): host for host, address in addresses.items()}
    for other in every:
        for ip, nic, of_network in _has(other):
            host = wanted.get(ip)
            if host is not None and (other.name, network) != (host, of_network):
                yield Sentence(
                    "address-in-use",
                    f"{host} cannot have {ip}: {nic} of {other.name} has it",
                )


def _has(host: Host) -> Iterator[tuple[str, str, Optional[str]]]:
    """Yield the addresses of a host's NICs: address, NIC name and network id."""
    names = {nic.id: nic.name for nic in host.nics or ()}
    places: dict[str, tuple[str, Optional[str]]] = {}
    for attachment in host.attachments or ():
        for text in attachment.addresses:
            place = names.get(attachment.nic or "", "a NIC"), attachment.network
            places[_plain(text.partition("/")[0]) or text] = place
    # The host also reports addresses of NICs without a network.
    for nic in host.nics or ():
        places.setdefault(_plain(nic.address) or "", (nic.name, nic.network))
    for ip, (name, network) in places.items():
        yield ip, name, network


def _plain(address: Optional[str]) -> Optional[str]:
    try:
        return str(ipaddress.ip_address(address or ""))
    except ValueError:
        return None


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
    mtu: Optional[int] = None
    because = "the host does not report the transport mode"
    if wanted == CONNECTED:
        cannot = no_connected_mode(view, interface)
        if not cannot:
            because = "it is in connected mode"
            if now != CONNECTED:
                because = "connected mode is requested"
            return NetdevMtu(interface.name, CONNECTED_MTU, because, interface.is_child)
        mtu, _ = _datagram(view, interface)
        because = f"connected mode is not possible: {cannot}"
        return NetdevMtu(interface.name, mtu, because, interface.is_child, cannot)
    if wanted == DATAGRAM:
        mtu, because = _datagram(view, interface)
    return NetdevMtu(interface.name, mtu, because, interface.is_child)


def _datagram(view: View, interface: PolicyInterface) -> tuple[Optional[int], str]:
    limit = mtu_limit(interface, DATAGRAM)
    if limit is None:
        return None, "neither port nor link report their MTU (ibv_devinfo)"
    mtu = interface.netdev.mtu
    if may_be_group_mtu(interface, limit.mtu) and _stays_below(view, interface):
        return mtu, (
            "the subnet manager's broadcast group allows no more, although "
            f"{limit.reason}"
        )
    return limit.mtu, f"in datagram mode, {limit.reason}"


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
# In place of ``pkey``: the host's policy says which P_Key that is.
_PARTITION = "partition"
# What the engine knows of a NIC: its name and MAC address.
_OF_ENGINE = frozenset({"name", "guid", "link_layer"})
# By these a P_Key child is chosen; other conditions mean the netdev of a port.
_OF_CHILDREN = frozenset({"name", "parent", "pkey", "pkey_vlan"})


@dataclass(frozen=True)
class NicMatch:
    """A parsed ``--nic-match``; ``text`` is as written.

    ``conditions`` are the values by key; one of the values of each key must hold.
    ``partitions`` are names of partitions; :meth:`with_pkeys` makes conditions of them.
    """

    text: str
    names: tuple[str, ...] = ()
    guids: tuple[str, ...] = ()
    pcis: tuple[str, ...] = ()
    conditions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    partitions: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> NicMatch:
        """Read ``ib*``, ``0002:c903:00fb:1231``, ``0000:04:00.0``,
        ``link_layer=InfiniBand``, or several.

        Raises UsageProblem if it is empty, has an invalid glob, an unknown key or an
        invalid value.
        """
        names, guids, pcis, partitions = [], [], [], []
        conditions: dict[str, tuple[str, ...]] = {}
        for word in filter(None, (part.strip() for part in text.split(","))):
            guid, pci = _guid(word), _pci(word)
            if "=" in word:
                key, value = _condition(word)
                if key == _PARTITION:
                    partitions.append(value)
                else:
                    conditions[key] = (*conditions.get(key, ()), value)
            elif guid:
                guids.append(guid)
            elif pci:
                pcis.append(pci)
            elif mistake := glob_mistake(word):
                raise UsageProblem("nic-match-invalid", f"--nic-match: {mistake}")
            else:
                names.append(word)
        if not (names or guids or pcis or conditions or partitions):
            raise UsageProblem(
                "nic-match-empty",
                f"--nic-match {text!r} names no NIC",
                "give a name or glob (ib*), a port GUID, a PCI address, or conditions "
                "(link_layer=InfiniBand,port=1)",
            )
        words = (tuple(names), tuple(guids), tuple(pcis))
        return cls(text, *words, conditions, tuple(partitions))

    def with_pkeys(self, pkeys: Sequence[str]) -> NicMatch:
        """Return it with the P_Keys of its partitions as conditions."""
        found = filter(None, map(_partition, pkeys))
        wanted = (*self.conditions.get("pkey", ()), *found)
        return replace(self, conditions={**self.conditions, "pkey": wanted})

    @property
    def for_facts(self) -> tuple[str, ...]:
        """The conditions, and ``a PCI address``, that only a host's facts can show."""
        keys = [key for key in self.conditions if key not in _OF_ENGINE]
        keys += [_PARTITION] if self.partitions else []
        return (*keys, "a PCI address") if self.pcis else tuple(keys)

    @property
    def children(self) -> bool:
        """Whether P_Key children can match."""
        return bool(self.names or self.conditions.keys() & _OF_CHILDREN)

    def means(self, nic: Interface) -> bool:
        """Whether the NIC matches. What is not known of it does not match."""
        if nic.pkey is not None and nic.parent is not None and not self.children:
            return False
        words = self.names or self.guids or self.pcis
        return (not words or self._is_named(nic)) and not self.lacks(nic)

    def _is_named(self, nic: Interface) -> bool:
        return (
            any(fnmatch.fnmatchcase(nic.name, glob) for glob in self.names)
            or plain_guid(nic) in self.guids
            or nic.bus_info in self.pcis
        )

    def lacks(self, nic: Interface) -> dict[str, str]:
        """Return the conditions that do not hold, with the value that the NIC has."""
        return {
            key: shown_value(nic, key)
            for key, wanted in self.conditions.items()
            if not any(_holds(nic, key, value) for value in wanted)
        }


def plain_guid(nic: Interface) -> Optional[str]:
    """Return the GUID of a NIC as 16 hex digits; None if it has none."""
    return nic.guid.replace(":", "") if nic.guid else None


def shown_value(nic: Interface, key: str) -> str:
    """Return the value of a key for a sentence: ``none`` if there is none."""
    value = getattr(nic, key)
    return (
        "+".join(value) or "none" if isinstance(value, tuple) else str(value or "none")
    )


def _condition(word: str) -> tuple[str, str]:
    key, _, text = (part.strip() for part in word.partition("="))
    if key == _PARTITION and text:
        return key, text
    if key not in KEYS:
        raise UsageProblem(
            "nic-match-key-unknown",
            f"--nic-match has no key {key!r}",
            f"give one of {', '.join((*KEYS, _PARTITION))}",
        )
    read, form = KEYS[key]
    value = read(text)
    if value is None:
        raise UsageProblem(
            "nic-match-value-invalid",
            f"--nic-match: {key}={text} is not {form}",
        )
    return key, value


def _holds(nic: Interface, key: str, wanted: str) -> bool:
    value = getattr(nic, key)
    if key == "roles":
        return any(fnmatch.fnmatchcase(role, wanted) for role in value)
    if value is None:
        return False
    read, _ = KEYS[key]
    if read is _glob:
        return fnmatch.fnmatchcase(value, wanted)
    return read(str(value)) == wanted


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
    seen = seen_nics(host, facts)
    # No network is attached to a VLAN. It has the MAC address of its NIC, and its name
    # begins with that of the NIC.
    nics = tuple(nic for nic in host.nics or () if not nic.vlan_of)
    meant = [nic for nic in nics if match.means(seen[nic.name])]
    bonds = [nic for nic in nics if nic.bond_ports]
    if not bond:
        # A bond has the MAC address of its active port, so that a GUID matches both.
        above = [nic for nic in meant if nic.bond_ports]
        ports = {port for nic in above for port in nic.bond_ports}
        meant = [nic for nic in meant if nic.name not in ports]
        if len(meant) == 1:
            (nic,) = meant
            return Chosen(nic.name, nic.bond_ports, interface=seen[nic.name])
        return _not_one(host, match, meant, seen, facts)
    meant = [nic for nic in meant if not nic.bond_ports]
    names = tuple(nic.name for nic in meant)
    for nic in bonds:
        if set(nic.bond_ports) == set(names):
            return Chosen(nic.name, nic.bond_ports, interface=seen[nic.name])
    if len(names) < 2:
        return _not_one(host, match, meant, seen, facts)
    taken = {nic.name for nic in host.nics or ()}
    free = next(f"bond{n}" for n in range(len(taken) + 1) if f"bond{n}" not in taken)
    return Chosen(free, names, new_bond=True)


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
    pkeys = [policy.fabric.pkey_named(name) for name in match.partitions]
    if None in pkeys:
        missing = match.partitions[pkeys.index(None)]
        known = ", ".join(one.name for one in policy.fabric.partitions) or "none"
        return Sentence(
            "partition-unknown",
            f"{host.name}: its policy has no partition {missing!r} (fabric.partitions: "
            f"{known})",
        )
    return match.with_pkeys([pkey for pkey in pkeys if pkey is not None])


def seen_nics(host: Host, facts: Optional[Facts]) -> dict[str, Interface]:
    """Return what the NICs of ``host`` are, by name, from its facts and the engine."""
    known = {found.name: found for found in interfaces_of(facts)} if facts else {}
    return {
        nic.name: _seen(nic, known.get(nic.name, Interface(nic.name)))
        for nic in host.nics or ()
    }


def _seen(nic: Nic, known: Interface) -> Interface:
    guid = Guid.of_address(nic.mac or "")
    layer = known.link_layer or (nic.mac and ETHERNET)
    return replace(
        known,
        link_layer=INFINIBAND if nic.infiniband else layer,
        guid=guid.in_groups if guid and guid.assigned else known.guid,
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
        if nic.vlan_of and nic.name in match.names:
            return Sentence(
                "nic-is-vlan",
                f"{host.name}: {nic.name} is a VLAN on {nic.vlan_of}; the engine makes "
                f"VLANs itself, for networks with a VLAN tag: give {nic.vlan_of}",
            )
    return None


def _not_one(
    host: Host,
    match: NicMatch,
    meant: Sequence[Nic],
    seen: Mapping[str, Interface],
    facts: Optional[Facts],
) -> Sentence:
    if len(meant) > 1:
        names = ", ".join(_with_place(seen[nic.name], match) for nic in meant)
        return Sentence(
            "nic-ambiguous",
            f"{host.name}: {match.text!r} matches {names}; narrow it, or give --bond "
            "active-backup",
        )
    if meant:
        return Sentence(
            "bond-needs-nics",
            f"{host.name}: {match.text!r} matches {meant[0].name} only; a bond needs 2",
        )
    shown = [nic.name for nic in host.nics or () if not nic.vlan_of]
    more = ", ..." if len(shown) > _MOST_NAMED else ""
    nics = ", ".join(_with_lacks(seen[name], match) for name in shown[:_MOST_NAMED])
    return Sentence(
        "nic-unmatched",
        f"{host.name}: no NIC matches {match.text!r} (NICs: {nics or 'none'}{more})"
        f"{_missing_child(match, facts)}",
    )


def _with_place(nic: Interface, match: NicMatch) -> str:
    """Return ``ib0``, and for conditions what could tell it from the others."""
    if not match.conditions or not nic.device:
        return nic.name
    keys = ("device", "port", "parent") if nic.parent else ("device", "port")
    return f"{nic.name} ({_listed({key: shown_value(nic, key) for key in keys})})"


def _with_lacks(nic: Interface, match: NicMatch) -> str:
    """Return ``ib0``, and for conditions why it does not match."""
    if not match.conditions:
        return nic.name
    lacks = match.lacks(nic)
    if lacks:
        return f"{nic.name} ({_listed(lacks)})"
    return f"{nic.name} (a P_Key child)" if nic.parent else nic.name


def _listed(values: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in values.items())


def _missing_child(match: NicMatch, facts: Optional[Facts]) -> str:
    """Return what to do if no NIC is in the partition, as the end of a sentence."""
    pkeys = match.conditions.get("pkey", ())
    vlans = match.conditions.get("pkey_vlan", ())
    wanted = [full_member(int(partition, 16)) for partition in pkeys]
    wanted += [pkey_of_vlan(int(vlan)) for vlan in vlans]
    if facts is None or len(wanted) != 1:
        return ""
    (pkey,) = wanted
    table = [
        partition_of(entry.value)
        for device in facts.rdma_devices
        for port in device.ports
        for entry in port.pkeys
    ]
    children = [i.pkey for i in interfaces_of(facts) if i.parent and i.pkey]
    if partition_of(pkey) in map(partition_of, children):
        return ""
    if partition_of(pkey) in table:
        return (
            f"; add {pkey} to pkey_children in the host's policy, and run "
            "'ovirt-rdma-host apply' there"
        )
    return f"; the subnet manager has given {pkey} to none of its ports"
