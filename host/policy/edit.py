# SPDX-License-Identifier: GPL-2.0-or-later
"""Give an export a transport in the text of a policy.yaml. Pure.

PyYAML has no writer that keeps comments, but its nodes have their positions. So the
text is edited there, in its own style (block or flow), and the rest stays as it is
written. The new text is parsed again; it is refused if it differs from the old policy
in anything but that rule.
"""

from __future__ import annotations

import json
import posixpath
from dataclasses import replace
from typing import Any, Optional

import yaml

from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.export import Export
from ovirt_rdma.host.policy.load import parse_policy
from ovirt_rdma.host.policy.model import NfsRule, Policy, RuleMatch, rule_for

_STEP = "  "


def value(node: Optional[yaml.Node], key: str) -> Optional[yaml.Node]:
    """Return the node of ``key`` in a mapping, or None."""
    pair = _pair(node, key)
    return None if pair is None else pair[1]


def plain(node: yaml.Node) -> Any:
    """Return the value of a scalar."""
    return yaml.constructor.SafeConstructor().construct_object(node)


def flow(data: Any) -> str:
    """Return ``data`` on one line: ``{server: nas1, port: 20049}``."""
    if isinstance(data, dict):
        return "{" + ", ".join(f"{k}: {flow(v)}" for k, v in data.items()) + "}"
    if isinstance(data, list):
        return "[" + ", ".join(map(flow, data)) + "]"
    return _scalar(data)


def block_nfs(rule: dict[str, Any]) -> str:
    """Return the ``nfs:`` part of a new file with this rule only."""
    return "\n".join(["nfs:", *_block({"rules": [rule]}, _STEP)]) + "\n"


class Text:
    """A YAML text to edit; the nodes that its methods take are of this text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._newline = "\r\n" if "\r\n" in text else "\n"

    def with_value(self, mapping: yaml.CollectionNode, key: str, data: Any) -> str:
        """Return the text with ``data`` as the value of ``key``: the present value is
        replaced, a new key goes to the end of the mapping.
        """
        pair = _pair(mapping, key)
        if mapping.flow_style:
            if pair is not None:
                return self._put(pair[1].start_mark, pair[1].end_mark, flow(data))
            start = mapping.start_mark.index + 1
            more = f"{key}: {flow(data)}" + (", " if mapping.value else "")
            return self._text[:start] + more + self._text[start:]
        if pair is not None and isinstance(data, (str, int, float)):
            return self._put(pair[1].start_mark, pair[1].end_mark, flow(data))
        indent = " " * mapping.start_mark.column
        lines = _key_lines(key, data, indent)
        if pair is None:
            return self._after(mapping, lines)
        # The key has no value yet, or an empty list.
        key_node, node = pair
        if node.end_mark.index > node.start_mark.index:
            return self._put(node.start_mark, node.end_mark, flow(data))
        return self._after(key_node, lines[1:])

    def with_item(self, sequence: yaml.CollectionNode, position: int, item: Any) -> str:
        """Return the text with ``item`` at ``position`` of a list that is not empty."""
        items = sequence.value
        if sequence.flow_style:
            if position < len(items):
                start = items[position].start_mark.index
                return f"{self._text[:start]}{flow(item)}, {self._text[start:]}"
            end = items[-1].end_mark.index
            return f"{self._text[:end]}, {flow(item)}{self._text[end:]}"
        column = sequence.start_mark.column
        lines = _item_lines(item, " " * column)
        if position == len(items):
            return self._after(sequence, lines)
        start = self._dash_line(items[position].start_mark.index, column)
        added = self._newline.join([*lines, ""])
        return self._text[:start] + added + self._text[start:]

    def _put(self, start: yaml.Mark, end: yaml.Mark, new: str) -> str:
        old = self._text[start.index : end.index]
        # An empty value directly follows the colon.
        blank = "" if old else " "
        return f"{self._text[: start.index]}{blank}{new}{self._text[end.index :]}"

    def _after(self, node: yaml.Node, lines: list[str]) -> str:
        """Insert lines below the last line of ``node``."""
        end = _last(node)
        line_end = self._text.find("\n", end)
        if line_end < 0:
            return self._newline.join([self._text, *lines, ""])
        head, tail = self._text[: line_end + 1], self._text[line_end + 1 :]
        return head + self._newline.join([*lines, ""]) + tail

    def _dash_line(self, index: int, column: int) -> int:
        """Return the start of the line with the item's dash, or of the comment above
        it.
        """
        start = self._line_start(index)
        while self._line(start)[column : column + 1] != "-" and start:
            start = self._line_start(start - 1)
        while start:
            above = self._line_start(start - 1)
            if not self._line(above).lstrip().startswith("#"):
                break
            start = above
        return start

    def _line_start(self, index: int) -> int:
        return self._text.rfind("\n", 0, index) + 1

    def _line(self, start: int) -> str:
        return self._text[start:].split("\n", 1)[0]


def _pair(node: Optional[yaml.Node], key: str) -> Optional[tuple[yaml.Node, yaml.Node]]:
    if isinstance(node, yaml.MappingNode):
        for key_node, value_node in node.value:
            if key_node.value == key:
                return key_node, value_node
    return None


def _last(node: yaml.Node) -> int:
    """Return the index of the last character of ``node``. The end mark of a block
    collection is where the next node starts.
    """
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        if isinstance(last, tuple):
            last = last[0] if last[1].start_mark == last[1].end_mark else last[1]
        return _last(last)
    end = int(node.end_mark.index)
    # A block scalar ends where the next line starts.
    literal = isinstance(node, yaml.ScalarNode) and node.style in ("|", ">")
    return end - 1 if literal else end


def _key_lines(key: str, data: Any, indent: str) -> list[str]:
    if isinstance(data, (dict, list)):
        return [f"{indent}{key}:", *_block(data, indent + _STEP)]
    return [f"{indent}{key}: {_scalar(data)}"]


def _block(data: Any, indent: str) -> list[str]:
    if isinstance(data, list):
        return [line for item in data for line in _item_lines(item, indent)]
    return [line for k, v in data.items() for line in _key_lines(k, v, indent)]


def _item_lines(item: dict[str, Any], indent: str) -> list[str]:
    first, *rest = _block(item, indent + _STEP)
    return [f"{indent}- {first.lstrip()}", *rest]


def _scalar(data: Any) -> str:
    """Return a value as YAML text for block and flow style, in quotes if necessary."""
    if not isinstance(data, str):
        return json.dumps(data)
    needs_quotes = (
        not data
        or data.strip() != data
        or any(c in "[]{},#\"'\\%@`*&!|>?" for c in data)
    )
    if (
        not needs_quotes
        and ": " not in data
        and not data.endswith(":")
        and data.isprintable()
    ):
        try:
            if yaml.safe_load(data) == data and yaml.safe_load(f"[{data}]") == [data]:
                return data
        except (yaml.YAMLError, ValueError):
            pass
    return json.dumps(data, ensure_ascii=not data.isprintable())


# The keys of a rule besides name, server, path and transport.
_OTHER_KEYS = (
    "port",
    "options",
    "readiness_timeout",
    "settle_timeout",
    "failure_cache",
)


class RuleProblem(Problem):
    """The rule cannot be added to this text; the fix shows the rule."""


def with_rule(
    text: Optional[str],
    export: Export,
    transport: str,
    name: str = "",
    where: str = "policy.yaml",
) -> str:
    """Return ``text`` with ``transport`` for ``export``; unchanged if it says so.

    A rule that names only this export gets the transport and keeps its other keys. A
    rule that names more exports is kept; a new rule for the export, with the same other
    keys, is inserted before it. ``name`` is the name of the new rule unless another
    rule has it. ``text`` is None if there is no file yet. ``where`` names the file in
    sentences.

    Raises PolicyProblem if ``text`` is not a valid policy, RuleProblem if it cannot be
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
        "policy-not-editable",
        f"{where}: a rule for {rule['server']}:{rule['path']} cannot be added without "
        "changing other parts of the file",
        f"add this rule by hand, before other rules that name the export: {flow(rule)}",
    )


def _rule(
    policy: Policy,
    match: Optional[RuleMatch],
    export: Export,
    transport: str,
    name: str,
) -> dict[str, Any]:
    """Return the new rule, without the keys that it copies from the matching rule."""
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
    """Return a glob that matches only ``path``."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in path)


def _edited(text: str, match: Optional[RuleMatch], rule: dict[str, Any]) -> str:
    root = yaml.compose(text, Loader=yaml.SafeLoader) if text.strip() else None
    if not isinstance(root, yaml.MappingNode):
        start = text if not text or text.endswith("\n") else f"{text}\n"
        return f"{start}version: 1\n{block_nfs(rule)}"
    edit = Text(text)
    nfs = value(root, "nfs")
    rules = value(nfs, "rules")
    if isinstance(rules, yaml.SequenceNode) and match is not None:
        return _beside(edit, rules, match.rule, rule)
    if isinstance(rules, yaml.SequenceNode) and rules.value:
        return edit.with_item(rules, len(rules.value), rule)
    if isinstance(nfs, yaml.MappingNode) and nfs.value:
        return edit.with_value(nfs, "rules", [rule])
    return edit.with_value(root, "nfs", {"rules": [rule]})


def _beside(
    edit: Text,
    rules: yaml.SequenceNode,
    match: NfsRule,
    rule: dict[str, Any],
) -> str:
    """Change ``match``, which names the export, or insert ``rule`` before it."""
    position = match.number - 1
    item = rules.value[position]
    if _names_only(match, rule):
        return edit.with_value(item, "transport", rule["transport"])
    for key in _OTHER_KEYS:
        # Only its own values: the defaults apply to the new rule too.
        node = value(item, key)
        if node is not None:
            rule[key] = plain(node)
    return edit.with_item(rules, position, rule)


def _names_only(match: NfsRule, rule: dict[str, Any]) -> bool:
    """Whether ``match`` names only the export of ``rule``, compared as text."""
    same = match.server.rstrip(".").lower() == rule["server"].rstrip(".").lower()
    return same and match.path in {rule["path"], posixpath.normpath(rule["path"])}


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
    return rest and list(map(_unnumbered, old)) == list(map(_unnumbered, new))


def _unnumbered(rule: NfsRule) -> NfsRule:
    """Return the rule without its number and a name made from the number."""
    unnamed = rule.name == f"rule {rule.number}"
    return replace(rule, number=0, name="" if unnamed else rule.name)
