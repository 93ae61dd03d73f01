# SPDX-License-Identifier: GPL-2.0-or-later
"""Make the reference of the policy from its table of fields.

That is docs/policy.schema.json and the tables of docs/policy.md. WRITE_GOLDEN=1 pytest
tests/host/policy/test_policy_docs.py writes both. The schema is for editors: those with
a YAML language server complete keys, show their meanings and mark mistakes. It accepts
more than ``policy check``, which also knows what a schema cannot say, and reads
``tso: on`` as it is written.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ovirt_rdma.host.policy.block_fields import BLOCK, ISER_TARGET, OPTIONS, SRP
from ovirt_rdma.host.policy.fabric import FABRIC, PARTITION, SUBNET_MANAGER
from ovirt_rdma.host.policy.fields import (
    HOST,
    INTERFACE,
    MATCH,
    NFS,
    POLICY,
    RULE,
    VIRTUAL_FUNCTIONS,
)
from ovirt_rdma.host.policy.forms import (
    Field,
    Form,
    Keys,
    ListOf,
    MapOf,
    Number,
    Text,
)

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE, SCHEMA = DOCS / "policy.md", DOCS / "policy.schema.json"
MARK = "<!-- {}: made from host/policy/fields.py. -->\n"
_HEAD = ("key", "allowed", "what it is", "if left out")

TABLES: dict[str, list[tuple[str, Field]]] = {
    "The file": [
        ("", POLICY.fields["version"]),
        *(("nfs.", field) for field in NFS.fields.values()),
        *(("host.", field) for field in HOST.fields.values()),
        *(("fabric.", field) for field in FABRIC.fields.values()),
        *(("block.", field) for field in BLOCK.fields.values()),
    ],
    "A rule for exports": [("", field) for field in RULE.fields.values()],
    "A rule for netdevs": [("", field) for field in INTERFACE.fields.values()],
    "match": [("", field) for field in MATCH.fields.values()],
    "A rule for virtual functions": [
        ("", field) for field in VIRTUAL_FUNCTIONS.fields.values()
    ],
    "A partition": [("", field) for field in PARTITION.fields.values()],
    "A subnet manager": [("", field) for field in SUBNET_MANAGER.fields.values()],
    "An SRP target": [("", field) for field in SRP.fields.values()],
    "options of a login": [("", field) for field in OPTIONS.fields.values()],
    "An iSER target": [("", field) for field in ISER_TARGET.fields.values()],
}


def table(name: str) -> str:
    """Return a table of docs/policy.md."""
    rows = [
        (
            f"`{before}{field.name}`",
            _allowed(field.form),
            field.meaning,
            _left_out(field),
        )
        for before, field in TABLES[name]
    ]
    lines = [_HEAD, ("---",) * len(_HEAD), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _allowed(form: Form) -> str:
    if isinstance(form, ListOf):
        item = form.item
        return f"a list: {'rules' if isinstance(item, Keys) else item.allowed}"
    if isinstance(form, MapOf):
        return form.shown
    text = form.allowed.replace("*", "\\*")
    return f"keys: {text}" if isinstance(form, Keys) else text


def _left_out(field: Field) -> str:
    if field.if_left_out or field.default is None:
        return field.if_left_out or ("must be there" if field.required else "")
    return f"{field.default:g}"


def page(text: str) -> str:
    """Return docs/policy.md with all tables as the fields have them."""
    for name in TABLES:
        before, mark, after = text.partition(MARK.format(name))
        if not mark:
            raise ValueError(f"{PAGE} has no table {name!r}")
        rest = after.splitlines(keepends=True)
        while rest and rest[0].startswith("|"):
            rest.pop(0)
        text = before + mark + table(name) + "".join(rest)
    return text


def schema() -> str:
    """Return the JSON Schema (draft 7) of policy.yaml as a file."""
    head = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$comment": "SPDX-License-Identifier: GPL-2.0-or-later. Made by "
        "tools/policy_reference.py.",
        "title": "The policy of ovirt-rdma: /etc/ovirt-rdma/policy.yaml",
    }
    return json.dumps({**head, **_schema(POLICY.or_null())}, indent=2) + "\n"


def _schema(form: Form) -> dict[str, Any]:
    kind, rest = _kind_of(form)
    kinds = [*kind, "null"] if form.nullable else kind
    return {"type": kinds[0] if len(kinds) == 1 else kinds, **rest}


def _kind_of(form: Form) -> tuple[list[str], dict[str, Any]]:
    """Return the types of a form, and the other keywords of its schema."""
    if isinstance(form, Keys):
        return ["object"], {
            "properties": {
                name: {**_schema(field.form), "description": _plain(field)}
                for name, field in form.fields.items()
            },
            "required": [n for n, field in form.fields.items() if field.required],
            "additionalProperties": False,
        }
    if isinstance(form, ListOf):
        return ["array"], {"items": _schema(form.item)}
    if isinstance(form, MapOf):
        return ["object"], {"additionalProperties": _schema(form.item)}
    return _number(form) if isinstance(form, Number) else _text(form)


def _number(form: Number) -> tuple[list[str], dict[str, Any]]:
    if form.choices:
        return ["integer"], {"enum": list(form.choices)}
    limits = {"minimum": form.low, "maximum": form.high}
    if form.word:
        return ["integer", "string"], {**limits, "pattern": f"^{form.word}$"}
    return ["number" if form.fraction else "integer"], limits


def _text(form: Form) -> tuple[list[str], dict[str, Any]]:
    if not isinstance(form, Text):
        raise TypeError(f"no schema for the form {form}")
    kinds = ["string", "number", "boolean"] if form.written else ["string"]
    if form.choices:
        # An editor may read on and off as YAML 1.1 does.
        truths = [True, False] if form.written else []
        return kinds, {"enum": [*form.choices, *truths]}
    return kinds, {} if form.may_be_empty else {"minLength": 1}


def _plain(field: Field) -> str:
    """Return the description of a key for editors."""
    meaning = field.meaning.removesuffix("see below").removesuffix("; ")
    allowed = field.form.allowed if isinstance(field.form, (Text, Number)) else ""
    left_out = "" if field.required else _left_out(field)
    parts = (
        meaning,
        allowed and f"allowed: {allowed}",
        left_out and f"if left out: {left_out}",
    )
    return "; ".join(filter(None, parts)).replace("`", "").replace("**", "")
