# SPDX-License-Identifier: GPL-2.0-or-later
"""Write JSON for people who review it: what fits into a line is on one line."""

from __future__ import annotations

import json

_WIDTH = 88


def fitted(text: str) -> str:
    """Return the JSON in ``text`` in lines of at most 88 characters, if it has no
    longer scalars.
    """
    return _fitted(json.loads(text), 0, 0) + "\n"


def _fitted(value: object, indent: int, around: int) -> str:
    whole = json.dumps(value)
    if indent + len(whole) + around <= _WIDTH or not isinstance(value, (dict, list)):
        return whole
    inner = indent + 2
    if isinstance(value, dict):
        heads = [f"{json.dumps(key)}: " for key in value]
        parts = value.values()
        brackets = "{}"
    else:
        heads, parts, brackets = [""] * len(value), value, "[]"
    lines: list[str] = []
    for head, part in zip(heads, parts):
        text = head + _fitted(part, inner, len(head) + 1)
        last = lines[-1] if lines else "\n"
        short = inner + len(last) + len(text) + 3 <= _WIDTH
        if short and "\n" not in last + text:
            lines[-1] = f"{last}, {text}"
        else:
            lines.append(text)
    body = ",\n".join(" " * inner + line for line in lines)
    return f"{brackets[0]}\n{body}\n{' ' * indent}{brackets[1]}"
