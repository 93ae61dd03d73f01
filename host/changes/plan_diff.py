# SPDX-License-Identifier: GPL-2.0-or-later
"""Show the changes of a step as a unified diff. Pure.

Files get diff(1)'s own form. Settings, which have no lines, are shown in a similar
form: the netdev, profile, module or unit, and the values before and after.
"""

from __future__ import annotations

import difflib
import io
import itertools
from collections.abc import Iterator, Sequence

from ovirt_rdma.host.changes.kinds.registry import kind_of
from ovirt_rdma.host.rules.base import Change

# diff(1)'s name for a missing file, and its line for a missing newline at the end.
_NOTHING = "/dev/null"
_NO_NEWLINE = "\\ No newline at end of file"


def diff(changes: Sequence[Change]) -> Iterator[str]:
    """Yield the lines for ``changes``, in their order, without line ends.

    Changes of one profile or netdev that follow each other are shown as one.
    """
    for _, grouped in itertools.groupby(
        changes, key=lambda change: (change.kind, change.target)
    ):
        group = list(grouped)
        kind = kind_of(group[0])
        if kind.is_text:
            for change in group:
                yield from _file(change)
        else:
            yield from _settings(kind.title.format(group[0].target), group)


def _file(change: Change) -> Iterator[str]:
    before, after = change.before, change.after
    diff_lines = difflib.unified_diff(
        _lines(before or ""),
        _lines(after or ""),
        _NOTHING if before is None else change.target,
        _NOTHING if after is None else change.target,
    )
    for line in diff_lines:
        yield line.rstrip("\n")
        if not line.endswith("\n"):
            yield _NO_NEWLINE


def _lines(text: str) -> list[str]:
    # Not str.splitlines: for it a form feed ends a line.
    return list(io.StringIO(text))


def _settings(title: str, changes: Sequence[Change]) -> Iterator[str]:
    new = all(change.before is None for change in changes)
    yield f"--- {_NOTHING if new else title}"
    yield f"+++ {title}"
    for change in changes:
        if change.before is not None and change.before == change.after:
            yield " " + _setting(change, change.before)  # written although unchanged
            continue
        for sign, value in (("-", change.before), ("+", change.after)):
            if value is not None:
                yield sign + _setting(change, value)


def _setting(change: Change, value: str) -> str:
    return f"{change.name}: {value}" if change.name else value
