# SPDX-License-Identifier: GPL-2.0-or-later
"""Make the reference of the policy from its table of keys.

That is docs/policy.schema.json and the tables of docs/policy.md, and of docs/servers.md
for the key server_kind. WRITE_GOLDEN=1 pytest tests/host/policy/test_policy_docs.py
writes them. The schema is for editors: those with
a YAML language server complete keys, show their meanings and mark mistakes. It accepts
more than ``policy check``, which also knows what a schema cannot say, and reads
``tso: on`` as it is written.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ovirt_rdma.host.policy.block import BLOCK, ISER_TARGET, OPTIONS, SRP
from ovirt_rdma.host.policy.fabric import FABRIC, PARTITION, SUBNET_MANAGER
from ovirt_rdma.host.policy.forms import (
    Form,
    Key,
    Keys,
    ListOf,
    MapOf,
    Number,
    Text,
)
from ovirt_rdma.host.policy.model import (
    HOST,
    INTERFACE,
    MATCH,
    NFS,
    POLICY,
    ROCE,
    RULE,
    VIRTUAL_FUNCTIONS,
)
from ovirt_rdma.host.server_kinds import KINDS

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE, SCHEMA = DOCS / "policy.md", DOCS / "policy.schema.json"
SERVERS = DOCS / "servers.md"
SERVERS_MARK = "<!-- Made from the table in host/server_kinds. -->\n"
MARK = "<!-- {}: made from the table in host/policy. -->\n"
_HEAD = ("key", "allowed", "what it is", "if left out")

_PARTS = {"nfs": NFS, "host": HOST, "fabric": FABRIC, "block": BLOCK}
TABLES: dict[str, dict[str, Key]] = {
    "The file": {
        "version": POLICY.rows["version"],
        **{
            f"{part}.{name}": row
            for part, keys in _PARTS.items()
            for name, row in keys.rows.items()
        },
    },
    "A rule for exports": RULE.rows,
    "A rule for netdevs": INTERFACE.rows,
    "match": MATCH.rows,
    "roce": ROCE.rows,
    "A rule for virtual functions": VIRTUAL_FUNCTIONS.rows,
    "A partition": PARTITION.rows,
    "A subnet manager": SUBNET_MANAGER.rows,
    "An SRP target": SRP.rows,
    "options of a login": OPTIONS.rows,
    "An iSER target": ISER_TARGET.rows,
}


def table(name: str) -> str:
    """Return a table of docs/policy.md."""
    rows = [
        (f"`{key}`", _allowed(row.form), row.meaning, _left_out(row))
        for key, row in TABLES[name].items()
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


def _left_out(row: Key) -> str:
    if not row.if_left_out and isinstance(row.default, (int, float)):
        return f"{row.default:g}"
    return row.if_left_out or ("required" if row.required else "")


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


def servers_page(text: str) -> str:
    """Return docs/servers.md with the table as host/server_kinds has it."""
    before, mark, after = text.partition(SERVERS_MARK)
    if not mark:
        raise ValueError(f"{SERVERS} has no table")
    lines = []
    for kind in KINDS.values():
        said = [f"NFS {', '.join(kind.versions)}"] if kind.versions else []
        if kind.client:
            said.append(f"{', '.join(kind.client_versions)} with {kind.client}")
        said += [*filter(None, [kind.fabrics]), *kind.requires]
        if kind.largest:
            said.append(f"rsize and wsize at most {kind.largest}, set if named")
        links = ", ".join(f"[{title}]({address})" for title, address in kind.documents)
        lines.append(f"- `{kind.name}`, {kind.title}: {'; '.join(said)} ({links})\n")
    rest = after.splitlines(keepends=True)
    while rest and rest[0].startswith(("|", "-")):
        rest.pop(0)
    return before + mark + "".join(lines) + "".join(rest)


def schema() -> str:
    """Return the JSON Schema (draft 7) of policy.yaml as a file."""
    head = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$comment": "SPDX-License-Identifier: GPL-2.0-or-later. Made by "
        "tools/policy_reference.py.",
        "title": "The policy of ovirt-rdma: /etc/ovirt-rdma/policy.yaml",
    }
    return (
        json.dumps({**head, **_schema(POLICY), "type": ["object", "null"]}, indent=2)
        + "\n"
    )


def _schema(form: Form) -> dict[str, Any]:
    kind, rest = _kind_of(form)
    kinds = [*kind, "null"] if form.nullable else kind
    return {"type": kinds[0] if len(kinds) == 1 else kinds, **rest}


def _kind_of(form: Form) -> tuple[list[str], dict[str, Any]]:
    """Return the types of a form, and the other keywords of its schema."""
    if isinstance(form, Keys):
        return ["object"], {
            "properties": {
                name: {**_schema(row.form), "description": _plain(row)}
                for name, row in form.rows.items()
            },
            "required": [name for name, row in form.rows.items() if row.required],
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


def _plain(row: Key) -> str:
    """Return the description of a key for editors."""
    meaning = row.meaning.removesuffix("see below").removesuffix("; ")
    allowed = row.form.allowed if isinstance(row.form, (Text, Number)) else ""
    left_out = "" if row.required else _left_out(row)
    parts = (
        meaning,
        allowed and f"allowed: {allowed}",
        left_out and f"if left out: {left_out}",
    )
    return "; ".join(filter(None, parts)).replace("`", "").replace("**", "")
