# SPDX-License-Identifier: GPL-2.0-or-later
"""Hold the policy file and the drop-ins of a host as one text, and add a drop-in with a
rule for one export. Pure.

The text is that of policy.yaml if there are no drop-ins, otherwise a JSON object with
all files, which no policy.yaml can be. So what a host has, before and after a change,
is compared and restored as a whole.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import NamedTuple, Optional

from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.export import Export
from ovirt_rdma.host.policy.load import PolicyFile, parse_policy
from ovirt_rdma.host.policy.model import TRANSPORTS, rule_for

_FILE, _DROP_INS = "policy.yaml", "policy.d"
_START = f'{{"{_FILE}": '
# Leaves room for an admin's drop-ins before and after it.
_NUMBER = 50
_HEAD = "# Written by ovirt-rdma, which replaces or removes this file: "
# The keys of a rule besides name, server, path and transport.
_OTHER_KEYS = (
    "port",
    "options",
    "readiness_timeout",
    "settle_timeout",
    "failure_cache",
)


class PolicyFiles(NamedTuple):
    """A host's policy.yaml, None for none, and its drop-ins by name."""

    file: Optional[str]
    drop_ins: dict[str, str]


def joined(file: Optional[str], drop_ins: Mapping[str, str]) -> Optional[str]:
    """Return both as one text; None if there is neither."""
    if not drop_ins:
        return file
    return json.dumps({_FILE: file, _DROP_INS: dict(sorted(drop_ins.items()))})


def split(text: Optional[str]) -> PolicyFiles:
    """Return the files in a text of :func:`joined`."""
    if text is None or not text.startswith(_START):
        return PolicyFiles(text, {})
    try:
        files = json.loads(text)
        return PolicyFiles(files[_FILE], dict(files[_DROP_INS]))
    except (ValueError, KeyError, TypeError):
        return PolicyFiles(text, {})  # an invalid policy.yaml


def files_of(text: Optional[str]) -> dict[str, str]:
    """Return the contents in a text of :func:`joined`, by name: ``policy.yaml`` or that
    of a drop-in.
    """
    file, drop_ins = split(text)
    return {**({} if file is None else {_FILE: file}), **drop_ins}


def with_files(
    text: Optional[str], contents: Mapping[str, Optional[str]]
) -> Optional[str]:
    """Return ``text``, of :func:`joined`, with other ``contents`` of some files, by
    name; None for no such file.
    """
    files = files_of(text)
    if all(files.get(name) == content for name, content in contents.items()):
        return text
    new = {n: t for n, t in {**files, **contents}.items() if t is not None}
    return joined(new.pop(_FILE, None), new)


def parse_files(text: Optional[str], where: str) -> PolicyFile:
    """Read the policy in a text of :func:`joined`. Raises PolicyProblem."""
    files = split(text)
    return parse_policy(files.file or "", where, files.drop_ins)


def shown(text: Optional[str]) -> list[str]:
    """Return the lines of all files, each drop-in after its name."""
    files = split(text)
    lines = (files.file or "").splitlines() or ["(no policy.yaml)"]
    for name, drop_in in files.drop_ins.items():
        lines += [f"--- {_DROP_INS}/{name}", *drop_in.splitlines()]
    return lines


class RuleProblem(Problem):
    """No drop-in can have the rule; the fix shows the rule."""


def with_rule(
    text: Optional[str],
    export: Export,
    transport: str,
    name: str = "",
    where: str = "policy.yaml",
) -> str:
    """Return ``text``, of :func:`joined`, with ``transport`` for ``export``; unchanged
    if it says so.

    The rule is in a drop-in of its own, with the other keys of the rule that named the
    export before. ``name`` is its name unless another rule has it. No other file is
    changed. ``where`` names policy.yaml in sentences.

    Raises PolicyProblem if ``text`` is not a valid policy, RuleProblem if the rule
    would not win, or is not one that a policy can have.
    """
    match = rule_for(parse_files(text, where).policy, export)
    old = match.rule if match else None
    if old is not None and old.transport == transport:
        return text or ""
    file, drop_ins = split(text)
    others = {n: t for n, t in drop_ins.items() if not _is_ours(n, t, export)}
    rest = parse_policy(file or "", where, others)
    rule = {
        "server": export.server,
        "path": _as_pattern(export.path),
        "transport": transport,
    }
    if name and name not in {other.name for other in rest.policy.nfs.rules}:
        rule = {"name": name, **rule}
    drop_in = _file_name(rest, export, name)

    def new_with(kept: Mapping[str, object]) -> str:
        ours = _text(name or str(export), {**rule, **kept})
        return json.dumps(
            {_FILE: file, _DROP_INS: dict(sorted({**others, drop_in: ours}.items()))}
        )

    try:
        new = new_with({})
        won = rule_for(parse_files(new, where).policy, export)
        if old is not None and won is not None:
            # The defaults of policy.yaml are for drop-ins too, so they are not copied.
            keys = [k for k in _OTHER_KEYS if getattr(old, k) != getattr(won.rule, k)]
            new = new_with({key: getattr(old, key) for key in keys})
        after = parse_files(new, where)
    except (Problem, ValueError) as error:
        raise _refusal(where, rule) from error
    won = rule_for(after.policy, export)
    if won is None or after.drop_in_of(won.rule) != drop_in or drop_in in others:
        raise _refusal(where, rule)
    return new


def _is_ours(name: str, text: str, export: Export) -> bool:
    """Whether the drop-in was written for ``export`` by :func:`with_rule`."""
    if not text.startswith(_HEAD):
        return False
    (*_, rule) = parse_policy("", name, {name: text}).policy.nfs.rules or (None,)
    return (
        rule is not None
        and rule.server == export.server
        and rule.path == _as_pattern(export.path)
    )


def _file_name(rest: PolicyFile, export: Export, name: str) -> str:
    """Return the name of the drop-in for ``export``: before the file whose rule names
    it now.
    """
    match = rule_for(rest.policy, export)
    present = rest.drop_in_of(match.rule) if match else ""
    number = min(_NUMBER, int(present[:2]) - 1) if present else _NUMBER
    slug = re.sub(r"[^A-Za-z0-9._-]+", "-", name or str(export)).strip("-.")[:100]
    code = hashlib.sha256(str(export).encode("utf-8", "replace")).hexdigest()[:8]
    plain = f"{max(number, 0):02}-{slug or code}.yaml"
    if plain in rest.drop_ins:
        return plain.replace(".yaml", f"-{code}.yaml")
    return plain


def _text(what: str, rule: Mapping[str, object]) -> str:
    lines = [f"      {key}: {_scalar(value)}\n" for key, value in rule.items()]
    lines[0] = f"    - {lines[0].lstrip()}"
    head = f"{_HEAD}{what if what.isprintable() else 'a domain'}\n"
    return f"{head}version: 1\nnfs:\n  rules:\n{''.join(lines)}"


def _scalar(value: object) -> str:
    if value in TRANSPORTS:
        return str(value)
    # JSON's strings are YAML's in quotes, but for characters written as two \\u.
    printable = not isinstance(value, str) or value.isprintable()
    return json.dumps(value, ensure_ascii=not printable)


def _refusal(where: str, rule: Mapping[str, object]) -> RuleProblem:
    shown = ", ".join(f"{key}: {_scalar(value)}" for key, value in rule.items())
    return RuleProblem(
        "policy-rule-not-added",
        f"{where}: no drop-in can have a rule that wins for "
        f"{rule['server']}:{rule['path']}",
        f"add this rule by hand, before other rules that name the export: {{{shown}}}",
    )


def _as_pattern(path: str) -> str:
    """Return a glob that matches only ``path``."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in path)
