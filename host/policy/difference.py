# SPDX-License-Identifier: GPL-2.0-or-later
"""Compare two policies: what they say, and what that changes for exports. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Optional

from ovirt_rdma.host.export import Export
from ovirt_rdma.host.policy.model import (
    MOUNTING,
    NfsRule,
    Policy,
    rule_for,
    to_json_dict,
)
from ovirt_rdma.host.system.json_codec import plain

# The time of difflib grows with the product of both lengths.
_MOST_LINES = 3000


@dataclass(frozen=True)
class RuleChange:
    """Two policies treat ``export`` differently: the rule that wins before and after,
    None for none. ``what`` says why the export matters, as ``storage domain data1``.
    """

    export: str
    what: str
    before: Optional[NfsRule]
    after: Optional[NfsRule]

    @property
    def loses(self) -> bool:
        """Whether a rule that wins now changes or goes."""
        return self.before is not None

    def __str__(self) -> str:
        both = self.before is not None and self.after is not None
        others = [key for key in MOUNTING if both and key != "transport"]
        keys = [key for key in others if _differ(self, key)]
        return (
            f"{self.export} ({self.what}): {_shown(self.before, keys)} -> "
            f"{_shown(self.after, keys)}"
        )


def rule_changes(
    before: Policy, after: Policy, exports: Mapping[str, str]
) -> tuple[RuleChange, ...]:
    """Return the ``exports`` that ``after`` treats differently, in their order.

    ``exports`` has the ``what`` of each; one that is not written as an export can have
    no rule.
    """
    changes = []
    for name, what in exports.items():
        export = Export.maybe(name)
        if export is None:
            continue
        old, new = _rule(before, export), _rule(after, export)
        change = RuleChange(name, what, old, new)
        if any(_differ(change, key) for key in MOUNTING):
            changes.append(change)
    return tuple(changes)


def _rule(policy: Policy, export: Export) -> Optional[NfsRule]:
    match = rule_for(policy, export)
    return match.rule if match else None


def _differ(change: RuleChange, key: str) -> bool:
    """Whether the rules before and after have another ``key``."""
    return getattr(change.before, key, None) != getattr(change.after, key, None)


def _shown(rule: Optional[NfsRule], keys: list[str]) -> str:
    if rule is None:
        return "no rule, stock VDSM mounts it"
    values = ((key, getattr(rule, key)) for key in keys)
    more = [
        f"{key} {_entry(plain(value)) if value else 'none'}" for key, value in values
    ]
    return ", ".join([f"{rule.transport} by {rule.title}", *more])


def differing_lines(before: Policy, after: Policy) -> tuple[str, ...]:
    """Return what ``after`` says and ``before`` does not with ``+``, and the reverse
    with ``-``: a rule, or another entry of a list, is one line.
    """
    old, new = list(_lines(to_json_dict(before))), list(_lines(to_json_dict(after)))
    if max(len(old), len(new)) > _MOST_LINES:
        return (f"more than {_MOST_LINES} lines, which are not compared",)
    found = difflib.unified_diff(old, new, n=0, lineterm="")
    return tuple(
        f"{line[0]} {line[1:]}"
        for line in found
        if not line.startswith(("---", "+++", "@@"))
    )


def said_by(policy: Policy) -> tuple[str, ...]:
    """Return what a policy says and an empty one does not, a line each."""
    empty = set(_lines(to_json_dict(Policy())))
    return tuple(one for one in _lines(to_json_dict(policy)) if one not in empty)


def _lines(value: Any, key: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for name, part in value.items():
            yield from _lines(part, f"{key}.{name}" if key else name)
    elif isinstance(value, list):
        for one in value:
            yield f"{key}: {_entry(one)}"
    elif value not in (None, ""):
        yield f"{key}: {value}"


def _entry(one: Any) -> str:
    if isinstance(one, list):
        return " ".join(map(_entry, one))
    if not isinstance(one, dict):
        return str(one)
    # The number only counts the entries; an entry without a name is named by it.
    number = one.get("number")
    unnamed = number is not None and str(one.get("name")).endswith(f" {number}")
    return ", ".join(
        f"{name} {_entry(value)}"
        for name, value in one.items()
        if name != "number" and not (name == "name" and unnamed)
        if value not in (None, "", [])
    )
