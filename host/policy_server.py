# SPDX-License-Identifier: GPL-2.0-or-later
"""What a rule's ``server:`` may be, and which of two patterns names more. Pure."""

from __future__ import annotations

import ipaddress
import re
from typing import Optional

from ovirt_rdma.host.export import Export
from ovirt_rdma.host.policy import is_glob, network_of, server_match
from ovirt_rdma.host.policy_glob import glob_mistake

_DIGITS_AND_DOTS = re.compile(r"[0-9.]+")
_NAME_OR_GLOB = re.compile(r"[A-Za-z0-9._*?\[\]!-]+")


def server_mistake(server: str) -> Optional[str]:
    """Return a sentence where no export's server can be meant by ``server``."""
    if "%" in server and network_of(server) is not None:
        address = server.partition("%")[0]
        return f"{server!r} has a zone; write {address}, it names every zone's"
    if network_of(server) is not None:
        return None
    return _export_mistake(server) or _number_mistake(server) or _name_mistake(server)


def names_all_servers_of(earlier: str, later: str) -> bool:
    """Whether ``earlier`` certainly names every server that ``later`` names.

    Two globs that differ are never certain.
    """
    if earlier == "*":
        return True
    network = network_of(later)
    if network is not None:
        wider = network_of(earlier)
        return (
            wider is not None
            and wider.version == network.version
            and network.subnet_of(wider)  # type: ignore[arg-type]
        )
    if is_glob(later):
        return earlier.rstrip(".").lower() == later.rstrip(".").lower()
    return bool(server_match(earlier, Export(later, "/")))


def _export_mistake(server: str) -> Optional[str]:
    if ":/" in server:
        name, _, path = server.partition(":/")
        return f"{server!r} is a whole export; write server: {name} and path: /{path}"
    inner = server[1:-1]
    if server.startswith("[") and server.endswith("]") and ":" in inner:
        return f"{server!r} has brackets; write the address without them: {inner}"
    return None


def _number_mistake(server: str) -> Optional[str]:
    if "/" in server:
        try:
            meant = ipaddress.ip_network(server, strict=False)
        except ValueError:
            return f"{server!r} is not a network; allowed: 10.20.0.0/24, fd00::/64"
        address = server.partition("/")[0]
        return (
            f"{server!r} is an address inside a network; "
            f"write {meant} for the network or {address} for the address"
        )
    if ":" in server:
        return (
            f"{server!r} is not an IPv6 address; allowed: an address such as fd00::1 "
            "or a network such as fd00::/64 (no globs in IPv6)"
        )
    if _DIGITS_AND_DOTS.fullmatch(server):
        return (
            f"{server!r} is not an IPv4 address; allowed: an address, "
            "a network such as 10.20.0.0/24 or a glob such as 10.20.*"
        )
    return None


def _name_mistake(server: str) -> Optional[str]:
    if not _NAME_OR_GLOB.fullmatch(server):
        return (
            f"{server!r} has a character that no host name has; allowed: letters, "
            "digits, '.', '-', '_' and the glob characters * ? [ ]"
        )
    if server.count("[") != server.count("]"):
        return f"{server!r} has a bracket without its partner"
    return glob_mistake(server)
