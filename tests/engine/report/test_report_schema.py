# SPDX-License-Identifier: GPL-2.0-or-later
"""docs/report.schema.json describes the document, and is made from the data's types.

``WRITE_GOLDEN=1 pytest tests/engine/report/test_report_schema.py`` writes it.
"""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest

from ovirt_rdma.engine_sdk_tools.model import VERDICTS
from ovirt_rdma.engine_sdk_tools.report.model import Report

pytestmark = pytest.mark.engine

TOP = Path(__file__).parents[3]
SCHEMA = TOP / "docs/report.schema.json"
LICENSE = "SPDX-License-Identifier: GPL-2.0-or-later"
_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean"}
# These are objects with numbers by transport, and the documents of matrices.
_COUNTED = {"type": "object", "additionalProperties": {"type": "integer", "minimum": 1}}
_AXES = {
    "type": "array",
    "items": {"type": "object", "required": ["name", "id"]},
}
_MATRIX = {
    "type": "object",
    "required": ["of", "worst", "rows", "columns", "cells", "notes"],
    "properties": {
        "of": {"enum": ["hosts", "domains"]},
        "worst": {"enum": list(VERDICTS)},
        "rows": _AXES,
        "columns": _AXES,
        "cells": {
            "type": "array",
            "items": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["verdict", "text", "sentence", "fix", "source"],
                    "properties": {"verdict": {"enum": list(VERDICTS)}},
                },
            },
        },
        "notes": {"type": "array", "items": {"type": "string"}},
    },
}


def _of(hint: Any) -> dict[str, Any]:
    if dataclasses.is_dataclass(hint):
        if hint.__name__ == "Matrix":
            return _MATRIX
        hints = get_type_hints(hint)
        return {
            "type": "object",
            "required": list(hints),
            "additionalProperties": False,
            "properties": {name: _of(its) for name, its in hints.items()},
        }
    if get_origin(hint) is Union:
        (inner,) = (one for one in get_args(hint) if one is not type(None))
        return {"anyOf": [_of(inner), {"type": "null"}]}
    if get_origin(hint) is tuple:
        inner = get_args(hint)[0]
        if get_origin(inner) is tuple:
            return _COUNTED
        return {"type": "array", "items": _of(inner)}
    return {"type": _PLAIN[hint]}


def _schema() -> dict[str, Any]:
    schema = _of(Report)
    head = {"schema_version": {"const": 1}, "kind": {"const": "report"}}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$comment": LICENSE,
        "title": "ovirt-rdma report -o json",
        **schema,
        "required": [*head, *schema["required"]],
        "properties": {**head, **schema["properties"]},
    }


def test_the_schema_is_that_of_the_data() -> None:
    text = json.dumps(_schema(), indent=1) + "\n"
    if os.environ.get("WRITE_GOLDEN"):
        SCHEMA.write_text(text, encoding="utf-8")
    assert SCHEMA.read_text(encoding="utf-8") == text


def test_every_key_is_described() -> None:
    page = (TOP / "docs/report.md").read_text(encoding="utf-8")
    document = page.partition("## The document")[2]

    def keys(schema: Any) -> set[str]:
        if isinstance(schema, list):
            return set().union(*map(keys, schema))
        if not isinstance(schema, dict) or schema is _MATRIX:
            return set()
        found = set(schema.get("properties", {}))
        parts = [*schema.get("properties", {}).values(), schema.get("items")]
        return found.union(*map(keys, [*parts, *schema.get("anyOf", ())]))

    missing = {key for key in keys(_of(Report)) if f"`{key}`" not in document}
    assert missing == set()
