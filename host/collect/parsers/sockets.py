# SPDX-License-Identifier: GPL-2.0-or-later
"""Parse the kernel's table of TCP connections, /proc/net/tcp and tcp6. Pure.

The text is that of get_tcp4_sock() in net/ipv4/tcp_ipv4.c and of get_tcp6_sock().
"""

from __future__ import annotations

import ipaddress
import re
import sys
from dataclasses import dataclass

_LINE = re.compile(
    rb"\s*[0-9]+: ([0-9A-F]{8}|[0-9A-F]{32}):([0-9A-F]{4})"
    rb" ([0-9A-F]{8}|[0-9A-F]{32}):([0-9A-F]{4}) ([0-9A-F]{2}) .*"
)
_ESTABLISHED = b"01"  # include/net/tcp_states.h


@dataclass(frozen=True)
class Connection:
    """An established connection; addresses in the form of :func:`plain_address`."""

    local: str
    local_port: int
    remote: str
    remote_port: int


def parse_connections(data: bytes) -> tuple[tuple[Connection, ...], int]:
    """Return the established connections, and the number of invalid lines."""
    connections = []
    invalid = 0
    for line in data.split(b"\n")[1:]:  # without the headings
        if not line.strip():
            continue
        match = _LINE.fullmatch(line)
        if not match:
            invalid += 1
        elif match.group(5) == _ESTABLISHED:
            local, local_port, remote, remote_port, _ = match.groups()
            connections.append(
                Connection(
                    _address(local),
                    int(local_port, 16),
                    _address(remote),
                    int(remote_port, 16),
                )
            )
    return tuple(connections), invalid


def plain_address(text: str) -> str:
    """Return an IP address in a normal form, for comparison.

    IPv4 mapped into IPv6 becomes IPv4, and a scope (``%eth0``) is removed. Other text
    is returned unchanged.
    """
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return text
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)


def _address(words: bytes) -> str:
    """Read 32-bit words in the host's byte order, each printed as one number."""
    numbers = [int(words[place : place + 8], 16) for place in range(0, len(words), 8)]
    packed = b"".join(number.to_bytes(4, sys.byteorder) for number in numbers)
    return plain_address(str(ipaddress.ip_address(packed)))
