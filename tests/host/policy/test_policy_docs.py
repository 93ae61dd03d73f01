# SPDX-License-Identifier: GPL-2.0-or-later
"""docs/policy.md has every key of the schema, with what it allows and its default.

WRITE_GOLDEN=1 writes these columns, and the rows in the order of the schema. Meanings
are written by hand: a new key has none until somebody writes it.
"""

from __future__ import annotations

import dataclasses
import os
import re
from pathlib import Path
from typing import Any

import pytest

from ovirt_rdma.host.policy.load import _allowed
from ovirt_rdma.host.policy.model import HostPolicy, InterfaceRule, NfsRule
from ovirt_rdma.host.policy.schema import POLICY_SCHEMA

PAGE = Path(__file__).parents[3] / "docs" / "policy.md"
HEAD = ("key", "allowed", "what it is", "if left out")
MARK = "<!-- {}: made from host/policy/schema.py, but for the meanings. -->\n"
FORM = "The file"

_TOP = POLICY_SCHEMA["properties"]
_RULE = _TOP["nfs"]["properties"]["rules"]["items"]
_INTERFACE = _TOP["host"]["properties"]["interfaces"]["items"]
SCHEMAS: dict[str, dict[str, Any]] = {
    FORM: {
        "version": _TOP["version"],
        **{f"nfs.{k}": v for k, v in _TOP["nfs"]["properties"].items()},
        **{f"host.{k}": v for k, v in _TOP["host"]["properties"].items()},
    },
    "A rule for exports": _RULE["properties"],
    "A rule for netdevs": _INTERFACE["properties"],
    "match": _INTERFACE["properties"]["match"]["properties"],
}
REQUIRED = {*_RULE["required"], *_INTERFACE["required"]}
MODELS = {
    FORM: HostPolicy,
    "A rule for exports": NfsRule,
    "A rule for netdevs": InterfaceRule,
}


def table(name: str) -> tuple[str, dict[str, list[str]]]:
    """Return a table of the page as it is, and its rows by key."""
    text = PAGE.read_text().partition(MARK.format(name))[2]
    assert text, name
    (made,) = re.findall(r"\A(?:\|.*\n)+", text)
    rows = [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))]
        for line in made.splitlines()[2:]
    ]
    return made, {row[0].strip("`"): row for row in rows}


def wanted(name: str) -> str:
    """Return the table as the schema and the model say."""
    _, there = table(name)
    lines = [HEAD, ("---",) * len(HEAD)]
    for key, schema in SCHEMAS[name].items():
        _, _, meaning, otherwise = there.get(key, ["", "", "", ""])
        default = default_of(name, key)
        if key in REQUIRED:
            otherwise = "must be there"
        elif default is not None:
            otherwise = default
        lines.append((f"`{key}`", allowed(schema), meaning, otherwise))
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def allowed(schema: dict[str, Any]) -> str:
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if "array" in kinds:
        items = schema["items"]
        each = "rules" if "properties" in items else items["description"]
        return f"a list: {each}"
    if "object" in kinds and "properties" in schema:
        return f"keys: {', '.join(schema['properties'])}"
    if "object" in kinds:
        return "module: option: value"
    return _allowed(schema).removeprefix("; allowed: ").replace("*", "\\*")


def default_of(name: str, key: str) -> str | None:
    """Return the default of a number; others are described by hand."""
    fields = dataclasses.fields(MODELS[name]) if name in MODELS else ()
    defaults = {field.name: field.default for field in fields}
    found = defaults.get(key.rpartition(".")[2])
    return f"{found:g}" if isinstance(found, (int, float)) else None


@pytest.mark.parametrize("name", SCHEMAS)
def test_each_key_with_what_it_allows_and_no_other(name):
    made, _ = table(name)
    if os.environ.get("WRITE_GOLDEN"):
        text = PAGE.read_text()
        PAGE.write_text(
            text.replace(MARK.format(name) + made, MARK.format(name) + wanted(name))
        )
        made, _ = table(name)
    assert made == wanted(name)


@pytest.mark.parametrize("name", SCHEMAS)
def test_each_key_has_a_meaning(name):
    _, there = table(name)
    assert [key for key, row in there.items() if not row[2]] == []
