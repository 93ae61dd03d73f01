# SPDX-License-Identifier: GPL-2.0-or-later
"""Validate the ``nfs:`` part beyond its form: servers, paths, globs, options. Pure.

It also finds rules that never win. The functions that get the data of the file skip
values of the wrong type, which their form refuses.
"""

from __future__ import annotations

import ipaddress
import posixpath
import re
from collections.abc import Iterator, Mapping
from typing import Any, Callable, Optional

from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.export import Export
from ovirt_rdma.host.mount_options import ENGINE_REFUSES
from ovirt_rdma.host.policy.diagnostics import KeyPath, Mistake
from ovirt_rdma.host.policy.forms import Check
from ovirt_rdma.host.policy.model import (
    TRANSPORTS,
    NfsRule,
    Policy,
    is_glob,
    network_of,
    path_match,
    server_match,
)

# A set of characters; a ] at its start belongs to it.
_SET = re.compile(r"\[!?(\]?[^]]*)\]")
_RANGE = re.compile(r"(.)-(.)", re.DOTALL)


def glob_mistake(glob: str) -> Optional[Sentence]:
    """Return a sentence if a range such as ``[z-a]`` ends before it begins.

    fnmatch of Python 3.9 raises an error for it; later versions match nothing.
    """
    for characters in _SET.findall(glob):
        for first, last in _RANGE.findall(characters):
            if first > last:
                return Sentence(
                    "glob-range-invalid",
                    f"{glob!r} has a range that ends before it begins: {first}-{last}",
                )
    return None


def each(mistake: Callable[[str], Optional[Sentence]]) -> Check:
    """Return the check of a function that returns one sentence, or None."""

    def check(text: str) -> Iterator[Sentence]:
        sentence = mistake(text)
        if sentence:
            yield sentence

    return check


_BY_TRANSPORT = "use the key transport"
_BY_PORT = "use the key port"
_BY_PROGRAM = "ovirt-rdma sets it for every export that a rule names"
_BY_DOMAIN = (
    "set it in the storage domain (NFS version, retransmissions, timeout), "
    "the engine sends it"
)
_BY_MOUNT = "mount.nfs determines it"
_BY_ENGINE = "it is a field of the engine's storage connection"

# Options that a policy must not have, and where each is set instead.
_OWNED_ELSEWHERE = {
    **dict.fromkeys(
        ("proto", "rdma", "rdma6", "tcp", "tcp6", "udp", "udp6"), _BY_TRANSPORT
    ),
    "port": _BY_PORT,
    "retry": _BY_PROGRAM,
    **dict.fromkeys(ENGINE_REFUSES, _BY_DOMAIN),
    **dict.fromkeys(("addr", "clientaddr", "mountproto"), _BY_MOUNT),
    **dict.fromkeys(("vfs_type", "protocol_version"), _BY_ENGINE),
    "bg": "vdsmd would see a mount that does not exist yet",
}
_VERSION_WORD = re.compile(r"v[2-4](\.\d+)?")

# NFS_MAX_CONNECTIONS in the kernel's fs/nfs/internal.h.
_MAX_NCONNECT = 16


def option_mistakes(options: str) -> Iterator[Sentence]:
    """Yield a sentence for each option that is malformed or not for a policy."""
    if not options:
        return
    if options.count('"') % 2:
        yield Sentence("quote-unmatched", "has an unmatched quote")
    seen: set[str] = set()
    for item in options.split(","):
        name, _, value = item.partition("=")
        if not item:
            yield Sentence(
                "option-empty",
                "has an empty item; write a,b with single commas between options",
            )
            continue
        if any(c.isspace() or not c.isprintable() for c in item):
            sentence = f"{item!r} has a blank in it; write a,b without blanks"
            yield Sentence("option-has-blank", sentence)
            continue
        if name in seen:
            sentence = f"{name} is given twice, and only the last one would be used"
            yield Sentence("option-repeated", sentence)
        seen.add(name)
        owner = _OWNED_ELSEWHERE.get(name)
        if _VERSION_WORD.fullmatch(name):
            owner = _BY_DOMAIN
        if owner:
            sentence = f"{name} is not allowed in a policy; {owner}"
            yield Sentence("option-not-for-policy", sentence)
        elif name == "nconnect" and not _is_connection_count(value):
            yield Sentence(
                "value-out-of-range",
                f"{item} is out of range; allowed: nconnect=1 to {_MAX_NCONNECT}",
            )


def _is_connection_count(text: str) -> bool:
    number = text.isascii() and text.isdecimal() and len(text) < 10
    return number and 1 <= int(text) <= _MAX_NCONNECT


_DIGITS_AND_DOTS = re.compile(r"[0-9.]+")
_NAME_OR_GLOB = re.compile(r"[A-Za-z0-9._*?\[\]!-]+")


def server_mistake(server: str) -> Optional[Sentence]:
    """Return a sentence if ``server`` cannot match the server of any export."""
    if "%" in server and network_of(server) is not None:
        address = server.partition("%")[0]
        sentence = f"{server!r} has a zone; write {address}, which matches every zone"
        return Sentence("server-has-zone", sentence)
    if network_of(server) is not None:
        return None
    return _export_mistake(server) or _number_mistake(server) or _name_mistake(server)


def names_all_servers_of(earlier: str, later: str) -> bool:
    """Whether ``earlier`` certainly names every server that ``later`` names.

    Two different globs cannot be compared.
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


def _export_mistake(server: str) -> Optional[Sentence]:
    if ":/" in server:
        name, _, path = server.partition(":/")
        return Sentence(
            "server-is-export",
            f"{server!r} is a whole export; write server: {name} and path: /{path}",
        )
    inner = server[1:-1]
    if server.startswith("[") and server.endswith("]") and ":" in inner:
        sentence = f"{server!r} has brackets; write the address without them: {inner}"
        return Sentence("server-in-brackets", sentence)
    return None


def _number_mistake(server: str) -> Optional[Sentence]:
    if "/" in server:
        try:
            network = ipaddress.ip_network(server, strict=False)
        except ValueError:
            sentence = f"{server!r} is not a network; allowed: 10.20.0.0/24, fd00::/64"
            return Sentence("server-invalid", sentence)
        address = server.partition("/")[0]
        return Sentence(
            "server-address-in-network",
            f"{server!r} is an address inside a network; "
            f"write {network} for the network or {address} for the address",
        )
    if ":" in server:
        return Sentence(
            "server-invalid",
            f"{server!r} is not an IPv6 address; allowed: an address such as fd00::1 "
            "or a network such as fd00::/64 (no globs in IPv6)",
        )
    if _DIGITS_AND_DOTS.fullmatch(server):
        return Sentence(
            "server-invalid",
            f"{server!r} is not an IPv4 address; allowed: an address, "
            "a network such as 10.20.0.0/24 or a glob such as 10.20.*",
        )
    return None


def _name_mistake(server: str) -> Optional[Sentence]:
    if not _NAME_OR_GLOB.fullmatch(server):
        return Sentence(
            "server-invalid",
            f"{server!r} has a character that is not allowed in a host name; allowed: "
            "letters, digits, '.', '-', '_' and the glob characters * ? [ ]",
        )
    if server.count("[") != server.count("]"):
        return Sentence("bracket-unmatched", f"{server!r} has an unmatched bracket")
    return glob_mistake(server)


# The time to find rules that never win grows with the square of their number: 1.5 s for
# this many.
MOST_COMPARED = 1000


def rule_name(rule: Mapping[str, Any], number: int) -> str:
    """Return the admin's name of a rule, or ``rule N``, counted from 1."""
    return str(rule.get("name", f"rule {number}"))


# Each name with the first rule that has it: its file and position (from 1).
RuleNames = dict[str, tuple[str, int]]


def nfs_mistakes(
    nfs: Mapping[str, Any],
    defaults: object,
    names: RuleNames,
    before: int = 0,
    file: str = "",
) -> Iterator[Mistake]:
    """Yield every mistake of the rules in the ``nfs:`` part of ``file``.

    ``defaults`` are those of the policy file. ``before`` is the number of rules in the
    files before, and ``names`` has their names; those of this file are added.
    """
    rules = nfs.get("rules")
    for position, item in enumerate(rules if isinstance(rules, list) else [], 1):
        if not isinstance(item, dict):
            continue
        path: KeyPath = ("nfs", "rules", position - 1)
        name = rule_name(item, before + position)
        other, first = names.setdefault(name, (file, position))
        if (other, first) != (file, position):
            place = f" in {other}" if other != file else ""
            sentence = f"{name!r} is already the name of rule {first}{place}"
            yield (*path, "name"), Sentence("name-repeated", sentence)
        if "transport" not in item and not (
            isinstance(defaults, dict) and "transport" in defaults
        ):
            yield (
                (*path, "transport"),
                Sentence(
                    "key-missing",
                    "is missing here and in nfs.defaults; allowed: "
                    + ", ".join(TRANSPORTS),
                ),
            )


def rules_never_winning(policy: Policy) -> Iterator[tuple[NfsRule, NfsRule]]:
    """Yield each rule whose exports an earlier one certainly names all, and that one.

    Each of the first MOST_COMPARED rules is compared with all before it.
    """
    rules = policy.nfs.rules[:MOST_COMPARED]
    for position, later in enumerate(rules):
        earlier = next((r for r in rules[:position] if _names_all_of(r, later)), None)
        if earlier is not None:
            yield later, earlier


def _path_mistake(glob: str) -> Optional[Sentence]:
    if glob[0] != "/" and not is_glob(glob[0]):
        sentence = f"{glob!r} names no export: a path starts with /"
        return Sentence("path-not-absolute", sentence)
    mistake = glob_mistake(glob)
    if mistake:
        return mistake
    normal = posixpath.normpath(glob)
    normal = "/" + normal.lstrip("/") if glob[0] == "/" else normal
    if normal != glob:
        sentence = f"{glob!r} names no export: exports are normalised; write {normal}"
        return Sentence("path-not-normalised", sentence)
    return None


def _names_all_of(earlier: NfsRule, later: NfsRule) -> bool:
    # A glob names more than its own text. Two different globs cannot be compared.
    if is_glob(later.path):
        paths = earlier.path in {"*", later.path}
    else:
        paths = path_match(earlier.path, later.path)
    return paths and names_all_servers_of(earlier.server, later.server)


# The checks of texts, by the names in the table of fields.
NFS_CHECKS: dict[str, Check] = {
    "server": each(server_mistake),
    "path": each(_path_mistake),
    "options": option_mistakes,
}
