# SPDX-License-Identifier: GPL-2.0-or-later
"""What a schema cannot say about the ``nfs:`` part, and which rules never win.

Pure, over the data as the file has it. A value of the wrong type is passed over
here: the schema has refused it already.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
from typing import Any, Optional

from ovirt_rdma.host.policy import TRANSPORTS, NfsRule, Policy, is_glob, path_match
from ovirt_rdma.host.policy_glob import glob_mistake
from ovirt_rdma.host.policy_options import option_mistakes
from ovirt_rdma.host.policy_remark import KeyPath
from ovirt_rdma.host.policy_server import names_all_servers_of, server_mistake

Mistake = tuple[KeyPath, str]

# Looking for rules that never win takes the square of their number: 1.5 s for these.
MOST_COMPARED = 1000


def rule_name(rule: Mapping[str, Any], number: int) -> str:
    """Return the admin's name of a rule, or ``rule N``, counted from 1."""
    return str(rule.get("name", f"rule {number}"))


def nfs_mistakes(nfs: object) -> Iterator[Mistake]:
    """Yield the place and the sentence of every mistake in the ``nfs:`` part."""
    if not isinstance(nfs, dict):
        return
    defaults = _mapping(nfs.get("defaults"))
    yield from _options_mistakes(defaults, ("nfs", "defaults"))
    rules = nfs.get("rules")
    numbers: dict[str, int] = {}
    for position, item in enumerate(rules if isinstance(rules, list) else []):
        if not isinstance(item, dict):
            continue
        path: KeyPath = ("nfs", "rules", position)
        name = rule_name(item, position + 1)
        first = numbers.setdefault(name, position + 1)
        if first != position + 1:
            yield (*path, "name"), f"{name!r} is the name of rule {first} already"
        if "transport" not in item and "transport" not in defaults:
            yield (
                (*path, "transport"),
                "is missing here and in nfs.defaults; allowed: "
                + ", ".join(TRANSPORTS),
            )
        yield from _rule_mistakes(item, path)


def never_winning(policy: Policy) -> Iterator[Mistake]:
    """Yield the rules that an earlier rule certainly leaves nothing to; each of the
    first MOST_COMPARED is held against all before it.
    """
    rules = policy.nfs.rules[:MOST_COMPARED]
    for position, later in enumerate(rules):
        earlier = next((r for r in rules[:position] if _names_all_of(r, later)), None)
        if earlier is not None:
            yield (
                ("nfs", "rules", position),
                f"{later.name!r} never wins: {earlier.name!r} stands before it and "
                "names all its exports; move it up, or remove it",
            )


def _rule_mistakes(rule: Mapping[str, Any], path: KeyPath) -> Iterator[Mistake]:
    server = rule.get("server")
    if isinstance(server, str) and server:
        mistake = server_mistake(server)
        if mistake:
            yield (*path, "server"), mistake
    glob = rule.get("path")
    if isinstance(glob, str) and glob:
        mistake = _path_mistake(glob)
        if mistake:
            yield (*path, "path"), mistake
    yield from _options_mistakes(rule, path)


def _options_mistakes(keys: Mapping[str, Any], path: KeyPath) -> Iterator[Mistake]:
    options = keys.get("options")
    if isinstance(options, str):
        for sentence in option_mistakes(options):
            yield (*path, "options"), sentence


def _path_mistake(glob: str) -> Optional[str]:
    if glob[0] != "/" and not is_glob(glob[0]):
        return f"{glob!r} names no export: a path starts with /"
    mistake = glob_mistake(glob)
    if mistake:
        return mistake
    normal = posixpath.normpath(glob)
    normal = "/" + normal.lstrip("/") if glob[0] == "/" else normal
    if normal != glob:
        return f"{glob!r} names no export: exports are normalised; write {normal}"
    return None


def _names_all_of(earlier: NfsRule, later: NfsRule) -> bool:
    # A glob names more than its own text; of two that differ nothing is certain.
    if is_glob(later.path):
        paths = earlier.path in {"*", later.path}
    else:
        paths = path_match(earlier.path, later.path)
    return paths and names_all_servers_of(earlier.server, later.server)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
