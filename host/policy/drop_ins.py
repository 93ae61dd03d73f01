# SPDX-License-Identifier: GPL-2.0-or-later
"""Hold the policy file and the drop-ins of a host as one value, and add a drop-in with
a rule for one export. Pure.

What a host has, before and after a change, is compared and restored as a whole.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple, Optional

from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.export import Export
from ovirt_rdma.host.policy.load import PolicyFile, parse_policy
from ovirt_rdma.host.policy.model import MOUNTING, TRANSPORTS, NfsRule, rule_for

_FILE, _DROP_INS = "policy.yaml", "policy.d"
# Leaves room for an admin's drop-ins before and after it.
_NUMBER = 50
_HEAD = "# Written by ovirt-rdma, which replaces or removes this file: "


class PolicyFiles(NamedTuple):
    """A host's policy.yaml, None for none, and its drop-ins by name."""

    file: Optional[str] = None
    drop_ins: Mapping[str, str] = MappingProxyType({})

    def __hash__(self) -> int:
        return hash((self.file, frozenset(self.drop_ins.items())))

    @property
    def contents(self) -> dict[str, str]:
        """The contents by name: ``policy.yaml`` or that of a drop-in."""
        return {**({} if self.file is None else {_FILE: self.file}), **self.drop_ins}

    @property
    def size(self) -> int:
        """The bytes of all files."""
        texts = self.contents.values()
        return sum(len(text.encode("utf-8", "replace")) for text in texts)

    def having(self, contents: Mapping[str, Optional[str]]) -> PolicyFiles:
        """Return these files with other ``contents`` of some, by name; None for no such
        file.
        """
        new = {**self.contents, **contents}
        left = {name: text for name, text in sorted(new.items()) if text is not None}
        return PolicyFiles(left.pop(_FILE, None), left)

    def parsed(self, where: str) -> PolicyFile:
        """Read the policy; ``where`` names policy.yaml. Raises PolicyProblem."""
        return parse_policy(self.file or "", where, self.drop_ins)

    def lines(self) -> list[str]:
        """Return the lines of all files, each drop-in after its name."""
        lines = (self.file or "").splitlines() or ["(no policy.yaml)"]
        for name, drop_in in self.drop_ins.items():
            lines += [f"--- {_DROP_INS}/{name}", *drop_in.splitlines()]
        return lines


NO_FILES = PolicyFiles()


class RuleProblem(Problem):
    """No drop-in can have the rule; the fix shows the rule."""


def with_rule(
    files: PolicyFiles,
    export: Export,
    transport: str,
    name: str = "",
    where: str = "policy.yaml",
) -> PolicyFiles:
    """Return ``files`` with ``transport`` for ``export``; unchanged if they say so.

    The rule is in a drop-in of its own, with the other keys of the rule that named the
    export before. ``name`` is its name unless another rule has it. No other file is
    changed. ``where`` names policy.yaml in sentences.

    Raises PolicyProblem if ``files`` are not a valid policy, RuleProblem if the rule
    would not win, or is not one that a policy can have.
    """
    present = files.parsed(where)
    match = rule_for(present.policy, export)
    old = match.rule if match else None
    if old is not None and old.transport == transport:
        return files
    ours = _drop_ins_for(present, export)
    others = PolicyFiles(
        files.file,
        {
            n: t
            for n, t in files.drop_ins.items()
            if not (t.startswith(_HEAD) and n in ours)
        },
    )
    rest = others.parsed(where)
    rule = {
        "server": export.server,
        "path": _as_pattern(export.path),
        "transport": transport,
    }
    if name and name not in {other.name for other in rest.policy.nfs.rules}:
        rule = {"name": name, **rule}
    drop_in = _file_name(rest, export, name)

    def new_with(kept: Mapping[str, object]) -> PolicyFiles:
        return others.having({drop_in: _text(name or str(export), {**rule, **kept})})

    try:
        new = new_with({})
        won = rule_for(new.parsed(where).policy, export)
        if old is not None and won is not None:
            # The defaults of policy.yaml are for drop-ins too, so they are not copied.
            wanted = {key: getattr(old, key) for key in MOUNTING if key != "transport"}
            kept = {k: v for k, v in wanted.items() if getattr(won.rule, k) != v}
            new = new_with(kept)
        after = new.parsed(where)
    except (Problem, ValueError) as error:
        raise _refusal(where, rule) from error
    won = rule_for(after.policy, export)
    taken = drop_in in others.drop_ins
    if won is None or after.drop_in_of(won.rule) != drop_in or taken:
        raise _refusal(where, rule)
    return new


def _drop_ins_for(present: PolicyFile, export: Export) -> list[str]:
    """Return the names of the drop-ins that have one rule, for only ``export``."""
    rules: dict[str, list[NfsRule]] = {}
    for rule in present.policy.nfs.rules:
        rules.setdefault(present.drop_in_of(rule), []).append(rule)
    wanted = [(export.server, _as_pattern(export.path))]
    return [
        n for n, its in rules.items() if [(r.server, r.path) for r in its] == wanted
    ]


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
