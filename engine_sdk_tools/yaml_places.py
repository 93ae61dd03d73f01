# SPDX-License-Identifier: GPL-2.0-or-later
"""Where things stand in a YAML text, and putting one more there. Pure.

PyYAML's nodes know their places; it has no writer that keeps comments. Edits are made
at the end of what is there, in its own style: block or flow.
"""

from __future__ import annotations

import json
from typing import Any, Optional

import yaml

_STEP = "  "


def value(node: Optional[yaml.Node], key: str) -> Optional[yaml.Node]:
    """Return the node of ``key`` in a mapping, or None."""
    pair = _pair(node, key)
    return None if pair is None else pair[1]


def plain(node: yaml.Node) -> Any:
    """Return what a scalar says."""
    return yaml.constructor.SafeConstructor().construct_object(node)


def flow(data: Any) -> str:
    """Return ``data`` on one line: ``{server: nas1, port: 20049}``."""
    if isinstance(data, dict):
        return "{" + ", ".join(f"{k}: {flow(v)}" for k, v in data.items()) + "}"
    if isinstance(data, list):
        return "[" + ", ".join(map(flow, data)) + "]"
    return _scalar(data)


def block_nfs(rule: dict[str, Any]) -> str:
    """Return the ``nfs:`` part of a new file with this one rule."""
    return "\n".join(["nfs:", *_block({"rules": [rule]}, _STEP)]) + "\n"


class Text:
    """A YAML text that is edited; the nodes are of this text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._newline = "\r\n" if "\r\n" in text else "\n"

    def with_value(self, mapping: yaml.CollectionNode, key: str, data: Any) -> str:
        """Return the text with ``data`` for ``key``: in the place of what it has, or
        as a new key at the mapping's end.
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
        # Nothing is under the key yet, or an empty list.
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
        # Where there was nothing, the colon stands right before.
        blank = "" if old else " "
        return f"{self._text[: start.index]}{blank}{new}{self._text[end.index :]}"

    def _after(self, node: yaml.Node, lines: list[str]) -> str:
        """Put lines below the last line that has something of ``node``."""
        end = _last(node)
        line_end = self._text.find("\n", end)
        if line_end < 0:
            return self._newline.join([self._text, *lines, ""])
        head, tail = self._text[: line_end + 1], self._text[line_end + 1 :]
        return head + self._newline.join([*lines, ""]) + tail

    def _dash_line(self, index: int, column: int) -> int:
        """Return where the line with the item's dash starts, or the comment that
        stands above it.
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
        for found, of_it in node.value:
            if found.value == key:
                return found, of_it
    return None


def _last(node: yaml.Node) -> int:
    """Return the index of the last character of ``node``; its own end mark is that of
    what follows it.
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
    """Return a value as YAML takes it, in block and in flow: quoted if need be."""
    if not isinstance(data, str):
        return json.dumps(data)
    odd = (
        not data
        or data.strip() != data
        or any(c in "[]{},#\"'\\%@`*&!|>?" for c in data)
    )
    if not odd and ": " not in data and not data.endswith(":") and data.isprintable():
        try:
            if yaml.safe_load(data) == data and yaml.safe_load(f"[{data}]") == [data]:
                return data
        except (yaml.YAMLError, ValueError):
            pass
    return json.dumps(data, ensure_ascii=not data.isprintable())
