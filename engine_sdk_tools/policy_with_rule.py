# SPDX-License-Identifier: GPL-2.0-or-later
"""A policy.yaml with one rule put into it: an export gets a transport. Pure.

The text is edited where the rule stands, so that comments, order and spelling of all
the rest stay. What comes out is read again, and is refused unless it says what the old
text said, but for that rule.
"""

from __future__ import annotations

import posixpath
from dataclasses import replace
from typing import Any, Optional

import yaml

from ovirt_rdma.engine_sdk_tools import yaml_places as places
from ovirt_rdma.host.export import Export
from ovirt_rdma.host.policy import NfsRule, Policy, RuleMatch, rule_for
from ovirt_rdma.host.policy_file import parse_policy
from ovirt_rdma.host.problem import Problem

# What a rule may say beside its name, server, path and transport.
_OTHER_KEYS = (
    "port",
    "options",
    "readiness_timeout",
    "settle_timeout",
    "failure_cache",
)


class RuleProblem(Problem):
    """The rule cannot be put into this text; the fix shows the rule."""


def with_rule(
    text: Optional[str],
    export: Export,
    transport: str,
    name: str = "",
    where: str = "policy.yaml",
) -> str:
    """Return ``text`` with ``transport`` for ``export``; as it is where it says so.

    A rule that names just this export gets the transport and keeps its other keys. One
    that names more stays, and a rule for the export with its other keys goes before
    it. ``name`` is the new rule's, unless another has it. None is no file: a new one.
    ``where`` names the file in sentences.

    Raises PolicyProblem where ``text`` is no policy, RuleProblem where it cannot be
    edited.
    """
    before = parse_policy(text or "", where).policy
    match = rule_for(before, export)
    if match is not None and match.rule.transport == transport:
        return text or ""
    rule = _rule(before, match, export, transport, name)
    try:
        new = _edited(text or "", match, rule)
        after = parse_policy(new, where).policy
        right = _same_but_for(before, after, match, export, transport)
    except (Problem, ValueError) as error:
        raise _refusal(where, rule) from error
    if not right:
        raise _refusal(where, rule)
    return new


def _refusal(where: str, rule: dict[str, Any]) -> RuleProblem:
    return RuleProblem(
        f"{where}: a rule for {rule['server']}:{rule['path']} cannot be put into this "
        "text without touching more of it",
        f"put this rule there by hand, before others that name the export: "
        f"{places.flow(rule)}",
    )


def _rule(
    policy: Policy,
    match: Optional[RuleMatch],
    export: Export,
    transport: str,
    name: str,
) -> dict[str, Any]:
    """Return the new rule's keys, without those of the rule that it goes before."""
    rule: dict[str, Any] = {}
    if name and name not in {rule.name for rule in policy.nfs.rules}:
        rule["name"] = name
    return {
        **rule,
        "server": export.server,
        "path": _as_pattern(export.path),
        "transport": transport,
    }


def _as_pattern(path: str) -> str:
    """Return what names ``path`` and no other, where it has a glob's characters."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in path)


def _edited(text: str, match: Optional[RuleMatch], rule: dict[str, Any]) -> str:
    root = yaml.compose(text, Loader=yaml.SafeLoader) if text.strip() else None
    if not isinstance(root, yaml.MappingNode):
        start = text if not text or text.endswith("\n") else f"{text}\n"
        return f"{start}version: 1\n{places.block_nfs(rule)}"
    edit = places.Text(text)
    nfs = places.value(root, "nfs")
    rules = places.value(nfs, "rules")
    if isinstance(rules, yaml.SequenceNode) and match is not None:
        return _beside(edit, rules, match.rule, rule)
    if isinstance(rules, yaml.SequenceNode) and rules.value:
        return edit.with_item(rules, len(rules.value), rule)
    if isinstance(nfs, yaml.MappingNode) and nfs.value:
        return edit.with_value(nfs, "rules", [rule])
    return edit.with_value(root, "nfs", {"rules": [rule]})


def _beside(
    edit: places.Text,
    rules: yaml.SequenceNode,
    found: NfsRule,
    rule: dict[str, Any],
) -> str:
    """Change the rule that names the export, or put ``rule`` before it."""
    position = found.number - 1
    item = rules.value[position]
    if _names_only(found, rule):
        return edit.with_value(item, "transport", rule["transport"])
    for key in _OTHER_KEYS:
        # As the rule says it itself; what comes from the defaults comes anyway.
        node = places.value(item, key)
        if node is not None:
            rule[key] = places.plain(node)
    return edit.with_item(rules, position, rule)


def _names_only(found: NfsRule, rule: dict[str, Any]) -> bool:
    """Whether ``found`` names the export of ``rule``, by its text, and no other."""
    same = found.server.rstrip(".").lower() == rule["server"].rstrip(".").lower()
    return same and found.path in {rule["path"], posixpath.normpath(rule["path"])}


def _same_but_for(
    before: Policy,
    after: Policy,
    match: Optional[RuleMatch],
    export: Export,
    transport: str,
) -> bool:
    won = rule_for(after, export)
    if won is None or won.rule.transport != transport:
        return False
    old, new = list(before.nfs.rules), list(after.nfs.rules)
    position = won.rule.number - 1
    if len(new) == len(old):
        if match is None or match.rule.number != won.rule.number:
            return False
        old[position] = replace(old[position], transport=transport)
    elif match is not None:
        kept = {key: getattr(match.rule, key) for key in _OTHER_KEYS}
        if won.rule != replace(won.rule, **kept):
            return False
        del new[position]
    else:
        del new[position]
    rest = (before.version, before.host) == (after.version, after.host)
    return rest and list(map(_said, old)) == list(map(_said, new))


def _said(rule: NfsRule) -> NfsRule:
    """Return the rule without what its place in the list gives it."""
    unnamed = rule.name == f"rule {rule.number}"
    return replace(rule, number=0, name="" if unnamed else rule.name)
