# SPDX-License-Identifier: GPL-2.0-or-later
"""docs/reference/messages.md has what code knows of messages, and every fact is read.

WRITE_GOLDEN=1 writes the page.
"""

from __future__ import annotations

import ast
import dataclasses
import os
import re
import typing
from pathlib import Path

from ovirt_rdma.host.facts.model import Facts
from ovirt_rdma.storage.messages import MOUNT, log_messages

TOP = Path(__file__).parents[1]
PAGE = TOP / "docs/reference/messages.md"
ROOMS = ("cli", "engine_sdk_tools", "host", "storage", "vdsm_hooks")


def _records(kind, found):
    """Collect all records of facts, with the types of their fields."""
    found[kind] = hints = typing.get_type_hints(kind)
    parts = list(hints.values())
    for part in parts:
        parts += typing.get_args(part)
        if dataclasses.is_dataclass(part) and part not in found:
            _records(part, found)
    return found


def test_every_fact_is_read():
    """By a rule, a verb, the report or a metric: not only by what collects it."""
    read = {
        node.attr
        for room in ROOMS
        for path in (TOP / room).rglob("*.py")
        if "host/collect/" not in str(path)
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.Attribute)
    }
    # The tables of facts name attributes in texts.
    tables = (TOP / "cli/host/devices.py").read_text()
    read |= set(re.findall(r"\w+", tables))
    records = _records(Facts, {})
    assert len(records) > 40
    assert [
        f"{kind.__name__}.{name}"
        for kind, hints in records.items()
        for name in hints
        if name not in read
    ] == []


def test_each_message_has_a_meaning_and_a_next_step():
    """``explain`` reads the page's second table; the first one is the code's."""
    heading, marker, log = PAGE.read_text().partition("\n## The kern")
    beginning = heading[: heading.index("| message |")]

    def row(*cells):
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    mount = [
        row(f"`{one.text}`", one.meaning, one.fix, one.rdma_fix or "the same")
        for one in MOUNT
    ]
    messages = log_messages()
    assert len(messages) == log.count("\n| `") > 30
    for one in (*MOUNT, *messages):
        assert one.meaning and one.fix, one
    text = f"{beginning}| message | meaning | what to do | over RDMA |\n" + "\n".join(
        ["|---|---|---|---|", *mount, f"{marker}{log}"]
    )
    if os.environ.get("WRITE_GOLDEN"):
        PAGE.write_text(text)
    assert PAGE.read_text() == text
