# SPDX-License-Identifier: GPL-2.0-or-later
"""Make the reference of the policy from its table of keys, and the meanings of keys in
docs/policy.md.

That is docs/policy.schema.json and the tables of docs/policy.md. WRITE_GOLDEN=1 pytest
tests/host/policy/test_policy_docs.py writes them: what a key may be, and a number that
counts if it is left out, come from the code; its meaning and other effects of leaving
it out are written in the page. The schema is for editors: those with a YAML language
server complete keys, show their meanings and mark mistakes. It accepts more than
``policy check``, which also knows what a schema cannot say, and reads ``tso: on`` as it
is written.
"""

from __future__ import annotations

import json
from dataclasses import MISSING
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

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE, SCHEMA = DOCS / "policy.md", DOCS / "policy.schema.json"
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


# Of rows: the meaning, and what counts if the key is left out.
Meanings = dict[Key, tuple[str, str]]
# Of the parts, which have no row in the page.
_PART_MEANINGS = {
    "nfs": "which exports are mounted over RDMA",
    "host": "how the RDMA ports of a host are configured",
    "fabric": "the partitions of the InfiniBand fabric",
    "block": "which block storage a host logs in to",
}


def _split(text: str, name: str) -> tuple[str, dict[str, list[str]], str]:
    """Return docs/policy.md before the rows of a table, these by key, and the rest."""
    before, mark, after = text.partition(MARK.format(name))
    if not mark:
        raise ValueError(f"{PAGE} has no table {name!r}")
    lines = after.splitlines(keepends=True)
    count = next((n for n, one in enumerate(lines) if one[0] != "|"), len(lines))
    cells = (line[2:-3].split(" | ") for line in lines[:count])
    rows = {first.strip("`"): others for first, *others in cells}
    return before + mark, rows, "".join(lines[count:])


def meanings(text: str) -> Meanings:
    """Return, of each row that docs/policy.md describes, its meaning and what counts if
    it is left out.
    """
    found = {}
    for name, rows in TABLES.items():
        written = _split(text, name)[1]
        for key, row in rows.items():
            _, meaning, left_out = written.get(key, ("", "", ""))
            found[row] = meaning, _left_out(row, left_out)
    return found


def page(text: str) -> str:
    """Return docs/policy.md with all tables as the fields have them."""
    found = meanings(text)
    for name, rows in TABLES.items():
        before, _, rest = _split(text, name)
        lines = [
            _HEAD,
            ("---",) * len(_HEAD),
            *((f"`{k}`", _allowed(row.form), *found[row]) for k, row in rows.items()),
        ]
        table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
        text = before + table + rest
    return text


def _allowed(form: Form) -> str:
    if isinstance(form, ListOf):
        item = form.item
        count = f" of {form.least} to {form.most}" if form.most else ""
        return f"a list{count}: {'rules' if isinstance(item, Keys) else item.allowed}"
    if isinstance(form, MapOf):
        return form.shown
    text = form.allowed.replace("*", "\\*")
    return f"keys: {text}" if isinstance(form, Keys) else text


def _left_out(row: Key, written: str) -> str:
    if row.required:
        return "required" if row.default is MISSING else written
    is_number = type(row.default) in (int, float)
    return f"{row.default:g}" if is_number else written


def schema(text: str) -> str:
    """Return the JSON Schema (draft 7) of policy.yaml as a file, with the meanings of
    docs/policy.md.
    """
    head = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$comment": "SPDX-License-Identifier: GPL-2.0-or-later. Made by "
        "tools/policy_reference.py.",
        "title": "The policy of ovirt-rdma: /etc/ovirt-rdma/policy.yaml",
    }
    whole = {**head, **_schema(POLICY, meanings(text)), "type": ["object", "null"]}
    return json.dumps(whole, indent=2) + "\n"


def _schema(form: Form, found: Meanings) -> dict[str, Any]:
    kind, rest = _kind_of(form, found)
    kinds = [*kind, "null"] if form.nullable else kind
    return {"type": kinds[0] if len(kinds) == 1 else kinds, **rest}


def _kind_of(form: Form, found: Meanings) -> tuple[list[str], dict[str, Any]]:
    """Return the types of a form, and the other keywords of its schema."""
    if isinstance(form, Keys):
        return ["object"], {
            "properties": {
                name: {
                    **_schema(row.form, found),
                    "description": _plain(name, row, found),
                }
                for name, row in form.rows.items()
            },
            "required": [name for name, row in form.rows.items() if row.required],
            "additionalProperties": False,
        }
    if isinstance(form, ListOf):
        length = {"minItems": form.least, "maxItems": form.most} if form.most else {}
        return ["array"], {"items": _schema(form.item, found), **length}
    if isinstance(form, MapOf):
        return ["object"], {"additionalProperties": _schema(form.item, found)}
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


def _plain(name: str, row: Key, found: Meanings) -> str:
    """Return the description of a key for editors."""
    # Keys of a VF rule's match mean what those of another rule's match do.
    same = row if row in found else MATCH.rows.get(name, row)
    meaning, left_out = found.get(same, (_PART_MEANINGS.get(name, ""), ""))
    meaning = meaning.removesuffix("see below").removesuffix("; ")
    allowed = row.form.allowed if isinstance(row.form, (Text, Number)) else ""
    parts = (
        meaning,
        allowed and f"allowed: {allowed}",
        f"if left out: {left_out}" if left_out and not row.required else "",
    )
    return "; ".join(filter(None, parts)).replace("`", "").replace("**", "")
