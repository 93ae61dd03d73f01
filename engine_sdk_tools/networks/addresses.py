# SPDX-License-Identifier: GPL-2.0-or-later
"""Static addresses for network attachments.

Static addresses as an operator writes them: a plan file, or a range. Pure.

A plan file is strict YAML, a host's name and its address with the prefix a line::

    host01: 10.0.0.11/24
    host02: 10.0.0.12/24

A range is ``10.0.0.11-10.0.0.60/24``; ``10.0.0.11/24`` counts on from that address to
the end of its network, and ``10.0.0.0/24`` from the network's first usable one. IPv6 is
written the same way.

Which host gets which static address: a plan held against the hosts and against
the addresses that they have. Pure.
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
from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.policy.yaml_source import read_yaml

Interface = Union[ipaddress.IPv4Interface, ipaddress.IPv6Interface]

_FORM = "write a line a host, as in host01: 10.0.0.11/24"
_RANGE_FORM = (
    "write FIRST-LAST/PREFIX (10.0.0.11-10.0.0.60/24), FIRST/PREFIX or NETWORK/PREFIX"
)
# From this prefix on a network has no address of its own, and no broadcast (RFC 3021,
# RFC 6164).
_POINT_TO_POINT = {4: 31, 6: 127}


class AddressProblem(Problem):
    """A plan file or a range that cannot be read; exit code 2."""

    exit_code = 2


def read_plan_file(text: str, where: str) -> dict[str, Interface]:
    """Return the addresses of a plan file by host name, in its order.

    ``where`` names the file in sentences. Raises AddressProblem with a line for each
    mistake: what is no YAML, no mapping, a repeated host, or no address with a prefix.
    """
    document = read_yaml(text)
    remarks: list[str] = [remark.at(where) for remark in document.mistakes]
    data = document.data
    if not remarks and not isinstance(data, dict):
        shown = "is empty" if data is None else "is no mapping of hosts to addresses"
        remarks.append(f"{where}: the plan {shown}")
    found: dict[str, Interface] = {}
    for host, value in data.items() if isinstance(data, dict) else ():
        at = f"{where}:{document.line((host,))}: {host}:"
        try:
            found[host] = _with_prefix(value)
        except ValueError as error:
            remarks.append(f"{at} {error}")
    if remarks:
        raise AddressProblem("address-plan-invalid", "\n".join(remarks), _FORM)
    return found


def counted(text: str, hosts: Sequence[str]) -> dict[str, Interface]:
    """Return addresses counted from the range ``text`` for ``hosts``, in their order.

    Hosts for which none is left are not in it. Raises AddressProblem where ``text`` is
    no range.
    """
    numbers = _range(text)
    return dict(zip(hosts, numbers))


def is_range(text: str) -> bool:
    """Whether ``text`` looks like a range and not like the name of a file."""
    return (
        re.fullmatch(r"[0-9a-fA-F:.]+(-[0-9a-fA-F:.]+)?/[0-9]{1,3}", text) is not None
    )


def _with_prefix(value: object) -> Interface:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is no address; {_FORM}")
    if "/" not in value:
        raise ValueError(f"{value!r} has no prefix, as in {value}/24")
    try:
        return ipaddress.ip_interface(value)
    except ValueError:
        raise ValueError(f"{value!r} is no IP address with a prefix") from None


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
            "address-range-invalid", f"{text!r} is no range of addresses", _RANGE_FORM
        ) from None
    network = begin.network
    if end is not None and end.network != network:
        raise AddressProblem(
            "address-range-invalid",
            f"the range {text!r} ends outside of {network}",
            _RANGE_FORM,
        )
    if end is not None and int(end) < int(begin):
        raise AddressProblem(
            "address-range-invalid",
            f"the range {text!r} ends before it begins",
            _RANGE_FORM,
        )
    low, high = usable(network)
    start = low if end is None and begin.ip == network.network_address else int(begin)
    stop = int(end) if end is not None else high
    kind = type(begin)
    return (kind((number, network.prefixlen)) for number in range(start, stop + 1))


def no_one_hosts(
    address: Union[ipaddress.IPv4Address, ipaddress.IPv6Address],
) -> bool:
    """Whether no host has ``address`` on a network: multicast, unspecified, and those
    kept for other ends (RFC 1122, 3.2.1.3; RFC 4291, 2.4).
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
    """Return what the engine calls the netmask: ``255.255.255.0``, for IPv6 ``64``."""
    if address.version == 4:
        return str(address.network.netmask)
    return str(address.network.prefixlen)


@dataclass(frozen=True)
class AddressPlan:
    """``addresses`` by host name, in host order; ``problems`` are sentences, one for
    each thing that is wrong with it, none where all hosts can have theirs.
    """

    addresses: Mapping[str, Interface]
    problems: tuple[str, ...] = ()


def check_addresses(
    asked: Mapping[str, Interface],
    hosts: Sequence[Host],
    every: Sequence[Host],
    network: str,
) -> AddressPlan:
    """Hold the addresses ``asked`` for against the selected ``hosts`` and ``every``
    host of the engine.

    A host may have the address already by the attachment of ``network`` (its id): then
    it keeps it.
    """
    problems = list(_unknown(asked, hosts, every))
    addresses: dict[str, Interface] = {}
    for host in hosts:
        if host.name in asked:
            addresses[host.name] = asked[host.name]
        else:
            problems.append(f"{host.name} gets no address by the plan")
    problems += _unusable(addresses)
    problems += _repeated(addresses)
    problems += _outside(addresses)
    problems += _in_use(addresses, every, network)
    return AddressPlan(addresses, tuple(problems))


def _unknown(
    asked: Mapping[str, Interface], hosts: Sequence[Host], every: Sequence[Host]
) -> Iterator[str]:
    known = [host.name for host in every]
    chosen = {host.name for host in hosts}
    for name in asked:
        if name not in known:
            near = nearest(name, known)
            yield f"the plan names {name}, which the engine does not know; {near}"
        elif name not in chosen:
            yield f"the plan names {name}, which --hosts does not select"


def _unusable(addresses: Mapping[str, Interface]) -> Iterator[str]:
    for host, address in addresses.items():
        low, high = usable(address.network)
        number = int(address)
        if not low <= number <= high:
            kind = "network" if number < low else "broadcast"
            yield (
                f"{host} cannot have {address.ip}: it is the {kind} address of "
                f"{address.network}"
            )
        elif no_one_hosts(address.ip):
            yield f"{host} cannot have {address.ip}: no netdev can have such an address"
        elif address.version == 6 and address.is_link_local:
            yield (
                f"{host} cannot have {address.ip}: each netdev has a link-local one "
                "of its own"
            )


def _repeated(addresses: Mapping[str, Interface]) -> Iterator[str]:
    by_ip: dict[str, list[str]] = {}
    for host, address in addresses.items():
        by_ip.setdefault(str(address.ip), []).append(host)
    for ip, names in by_ip.items():
        if len(names) > 1:
            yield f"{' and '.join(names)} would both have {ip}"


def _outside(addresses: Mapping[str, Interface]) -> Iterator[str]:
    networks = Counter(address.network for address in addresses.values())
    if len(networks) < 2:
        return
    common, _ = networks.most_common(1)[0]
    for host, address in addresses.items():
        if address.network != common:
            yield f"{host}: {address} is outside of {common}, which the others are in"


def _in_use(
    addresses: Mapping[str, Interface], every: Sequence[Host], network: str
) -> Iterator[str]:
    wanted = {str(address.ip): host for host, address in addresses.items()}
    for other in every:
        for ip, where, by in _has(other):
            host = wanted.get(ip)
            if host is not None and (other.name, network) != (host, by):
                yield f"{host} cannot have {ip}: {where} of {other.name} has it"


def _has(host: Host) -> Iterator[tuple[str, str, Optional[str]]]:
    """Yield the addresses of a host's nics: address, nic and network (its id)."""
    names = {nic.id: nic.name for nic in host.nics or ()}
    found: dict[str, tuple[str, Optional[str]]] = {}
    for one in host.attachments or ():
        for text in one.addresses:
            place = names.get(one.nic or "", "a nic"), one.network
            found[_plain(text.partition("/")[0]) or text] = place
    # What the host reports, also where no network is attached.
    for nic in host.nics or ():
        found.setdefault(_plain(nic.address) or "", (nic.name, nic.network))
    for ip, (where, by) in found.items():
        yield ip, where, by


def _plain(address: Optional[str]) -> Optional[str]:
    try:
        return str(ipaddress.ip_address(address or ""))
    except ValueError:
        return None
