# SPDX-License-Identifier: GPL-2.0-or-later
"""The policy as data, and which of its rules names an export. Pure.

The YAML file is read by :mod:`ovirt_rdma.host.policy_file`; what runs inside
vdsmd reads the JSON made from it, by :mod:`ovirt_rdma.host.policy_store`.
"""

from __future__ import annotations

import fnmatch
import functools
import ipaddress
import re
from dataclasses import dataclass
from typing import Optional, Union

from ovirt_rdma.host.export import Export
from ovirt_rdma.host.policy_host import HostPolicy

POLICY_VERSION = 1

REQUIRE_RDMA = "require-rdma"
PREFER_RDMA = "prefer-rdma"
TCP = "tcp"
TRANSPORTS = (REQUIRE_RDMA, PREFER_RDMA, TCP)

# IANA: nfsrdma, RFC 5667 section 6; knfsd's and every vendor's default.
DEFAULT_PORT = 20049

# Every export is held against the same patterns again, so what they mean is kept:
# room for a policy of some thousand rules, and for the one before it.
_KEPT = 8192

IpNetwork = Union[ipaddress.IPv4Network, ipaddress.IPv6Network]


@dataclass(frozen=True)
class NfsRule:
    """A rule with the defaults already filled in.

    ``number`` counts from 1, ``name`` is the admin's or ``rule N``. ``server``
    is a name, an address, a network or a glob; ``path`` a path or a glob.
    ``options`` are extra mount options. Times are in seconds:
    ``readiness_timeout`` for one server to answer, ``settle_timeout`` after boot
    for ports still coming up, ``failure_cache`` for how long a failed mount
    decides for the server's other exports.
    """

    number: int
    name: str
    server: str
    path: str
    transport: str
    port: int = DEFAULT_PORT
    options: str = ""
    readiness_timeout: float = 2.0
    settle_timeout: float = 30.0
    failure_cache: float = 60.0

    @property
    def title(self) -> str:
        """How sentences call the rule: ``rule 3``, or ``rule 'storage'``."""
        unnamed = f"rule {self.number}"
        return unnamed if self.name == unnamed else f"rule {self.name!r}"


@dataclass(frozen=True)
class NfsPolicy:
    """The ``nfs:`` part; an empty list of rules names no export."""

    rules: tuple[NfsRule, ...] = ()


_EMPTY_HOST = HostPolicy()


@dataclass(frozen=True)
class Policy:
    """The whole policy. The fabric and block parts get fields beside these."""

    version: int = POLICY_VERSION
    nfs: NfsPolicy = NfsPolicy()
    host: HostPolicy = _EMPTY_HOST


@dataclass(frozen=True)
class RuleMatch:
    """The rule that wins for an export, and the sentence that says why."""

    rule: NfsRule
    reason: str


def rule_for(policy: Policy, export: Export) -> Optional[RuleMatch]:
    """Return the first rule that names ``export``, or None: then it stays stock.

    The server is compared as the export writes it: no name is resolved, so an
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
    """Say how ``pattern`` names the export's server, or return an empty string.

    Names and globs ignore case (RFC 4343); addresses and networks compare as
    numbers, so ``fd00::1`` names ``[fd00:0::1]``. A network or an address never
    names a server that the export writes as a name.
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
    """Whether ``pattern`` names the export path ``path``: as a glob, or letter by
    letter, so that a path with ``[`` in it can be named as it is written.
    """
    return pattern == path or (is_glob(pattern) and bool(_glob(pattern).match(path)))


def is_glob(pattern: str) -> bool:
    """Whether ``pattern`` has a character that fnmatch gives a meaning."""
    return "*" in pattern or "?" in pattern or "[" in pattern


@functools.lru_cache(_KEPT)
def network_of(pattern: str) -> Optional[IpNetwork]:
    """Return the network, or the address as a network of one, or None: no numbers."""
    try:
        return ipaddress.ip_network(pattern)
    except ValueError:
        return None


@functools.lru_cache(_KEPT)
def _glob(pattern: str) -> re.Pattern[str]:
    # As fnmatch.fnmatchcase, which up to Python 3.10 keeps 256 patterns only.
    return re.compile(fnmatch.translate(pattern))
