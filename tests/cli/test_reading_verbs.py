# SPDX-License-Identifier: GPL-2.0-or-later
"""Verbs that read change nothing on the host, neither files nor through tools."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

READING = (
    ("facts",),
    ("check",),
    ("plan",),
    ("plan", "--diff"),
    ("plan", "--exit-code"),
    ("explain", "IPOIB-MODE-01"),
    ("policy", "show"),
    ("status",),
    ("history", "-v"),
)
# Arguments with which the tools of a host change something.
CHANGING = {"modify", "add", "delete", "load", "up", "enable", "disable", "set", "-K"}


def everything(root: Path) -> dict[str, tuple[object, ...]]:
    """Return everything below ``root``: mode, owner, time of last change, content."""
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted(root.rglob("*")):
        known = path.lstat()
        content: object = None
        if path.is_symlink():
            content = path.readlink()
        elif stat.S_ISREG(known.st_mode):
            content = path.read_bytes()
        found[str(path)] = (known.st_mode, known.st_uid, known.st_mtime_ns, content)
    return found


def changes(ran: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    return [argv for argv in ran if argv[0] == "modprobe" or CHANGING & set(argv)]


@pytest.mark.parametrize("applied", [False, True], ids=["before apply", "after it"])
def test_nothing_is_changed(ready, applied):
    assert not applied or ready("apply").code == 0
    before = everything(ready.root)
    ready.fake.runner.ran.clear()
    for words in READING:
        assert ready(*words).out, words
        assert everything(ready.root) == before, words
    assert changes(ready.fake.runner.ran) == []


def test_it_would_be_seen(ready):
    before = everything(ready.root)
    assert ready("apply").code == 0
    assert everything(ready.root) != before
