# SPDX-License-Identifier: GPL-2.0-or-later
"""Read static addresses for network attachments, and check them. Pure.

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

import ipaddress
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Optional, Union

from ovirt_rdma.engine_sdk_tools.model import Host
from ovirt_rdma.engine_sdk_tools.names import nearest
from ovirt_rdma.host.errors import Problem, Sentence
from ovirt_rdma.host.exit_code import ExitCode

Interface = Union[ipaddress.IPv4Interface, ipaddress.IPv6Interface]

_FORM = "write one line per host, as in host01: 10.0.0.11/24"
_RANGE_FORM = (
    "write FIRST-LAST/PREFIX (10.0.0.11-10.0.0.60/24), FIRST/PREFIX or NETWORK/PREFIX"
)
# From this prefix length on, every address of a network is usable (RFC 3021, 6164).
_POINT_TO_POINT = {4: 31, 6: 127}


class AddressProblem(Problem):
    """A plan file or a range is invalid (exit code 2)."""

    exit_code = ExitCode.USAGE


def read_plan_file(text: str, where: str) -> dict[str, Interface]:
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
    addresses: dict[str, Interface] = {}
    for host, value in data.items() if isinstance(data, dict) else ():
        at = f"{where}:{document.line((host,))}: {host}:"
        try:
            addresses[host] = _with_prefix(value)
        except ValueError as error:
            remarks.append(f"{at} {error}")
    if remarks:
        raise AddressProblem("address-plan-invalid", "\n".join(remarks), _FORM)
    return addresses


def addresses_from_range(text: str, hosts: Sequence[str]) -> dict[str, Interface]:
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


def _with_prefix(value: object) -> Interface:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not an address; {_FORM}")
    if "/" not in value:
        raise ValueError(f"{value!r} has no prefix, as in {value}/24")
    try:
        return ipaddress.ip_interface(value)
    except ValueError:
        raise ValueError(f"{value!r} is not an IP address with a prefix") from None


def _range(text: str) -> Iterator[Interface]:
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


def netmask(address: Interface) -> str:
    """Return the netmask in the engine's form: ``255.255.255.0``, for IPv6 ``64``."""
    if address.version == 4:
        return str(address.network.netmask)
    return str(address.network.prefixlen)


@dataclass(frozen=True)
class AddressPlan:
    """``addresses`` by host name, in host order. ``problems`` is empty if every host
    can have its address.
    """

    addresses: Mapping[str, Interface]
    problems: tuple[Sentence, ...] = ()


def check_addresses(
    asked: Mapping[str, Interface],
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
    addresses: dict[str, Interface] = {}
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
    asked: Mapping[str, Interface], hosts: Sequence[Host], every: Sequence[Host]
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


def _unusable(addresses: Mapping[str, Interface]) -> Iterator[Sentence]:
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


def _repeated(addresses: Mapping[str, Interface]) -> Iterator[Sentence]:
    by_ip: dict[str, list[str]] = {}
    for host, address in addresses.items():
        by_ip.setdefault(str(address.ip), []).append(host)
    for ip, names in by_ip.items():
        if len(names) > 1:
            yield Sentence(
                "address-repeated",
                f"the plan assigns {ip} more than once: {', '.join(names)}",
            )


def _outside(addresses: Mapping[str, Interface]) -> Iterator[Sentence]:
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
    addresses: Mapping[str, Interface], every: Sequence[Host], network: str
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
