# SPDX-License-Identifier: GPL-2.0-or-later
"""Static addresses as an operator writes them: a plan file, or a range. Pure.

A plan file is strict YAML, a host's name and its address with the prefix a line::

    host01: 10.0.0.11/24
    host02: 10.0.0.12/24

A range is ``10.0.0.11-10.0.0.60/24``; ``10.0.0.11/24`` counts on from that address to
the end of its network, and ``10.0.0.0/24`` from the network's first usable one. IPv6 is
written the same way.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Sequence
from typing import Union

from ovirt_rdma.host.policy_yaml import read_yaml
from ovirt_rdma.host.problem import Problem

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
    remarks = [remark.at(where) for remark in document.mistakes]
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
        raise AddressProblem("\n".join(remarks), _FORM)
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
        raise AddressProblem(f"the range {text!r} has no prefix", _RANGE_FORM)
    try:
        begin = ipaddress.ip_interface(f"{first.strip()}/{prefix}")
        end = ipaddress.ip_interface(f"{last.strip()}/{prefix}") if dash else None
    except ValueError:
        raise AddressProblem(
            f"{text!r} is no range of addresses", _RANGE_FORM
        ) from None
    network = begin.network
    if end is not None and end.network != network:
        raise AddressProblem(
            f"the range {text!r} ends outside of {network}", _RANGE_FORM
        )
    if end is not None and int(end) < int(begin):
        raise AddressProblem(f"the range {text!r} ends before it begins", _RANGE_FORM)
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
