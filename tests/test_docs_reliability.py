# SPDX-License-Identifier: GPL-2.0-or-later
"""Check that each promise of docs/reliability.md names tests, and that they exist."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

TOP = Path(__file__).parents[1]
PAGE = TOP / "docs" / "reliability.md"
SHOWN_BY = "shown by"


def rows() -> list[list[str]]:
    """Return the cells of every row of the tables, without headings and their lines."""
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in cells if row[-1] != SHOWN_BY and set(row[-1]) != {"-"}]


@functools.cache
def there_are(file: str) -> frozenset[str]:
    """Return the tests in a file, as pytest names them, without running anything."""
    tree = ast.parse((TOP / file).read_bytes())
    found = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            inner = (one for one in node.body if isinstance(one, ast.FunctionDef))
            found.update(f"{node.name}::{one.name}" for one in inner)
    return frozenset(
        name for name in found if name.rpartition("::")[2].startswith("test_")
    )


def test_there_are_promises():
    assert len(rows()) > 20


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0][:40])
def test_a_promise_is_shown_by_tests_that_are_there(row):
    promise, shown = row
    assert promise.endswith(".")
    for name in shown.split("<br>"):
        named = re.fullmatch(r"`(tests/(?:[\w/]+/)?test_\w+\.py)::([\w:]+)`", name)
        assert named is not None, name
        assert (TOP / named[1]).is_file(), named[1]
        assert named[2] in there_are(named[1]), name


def test_none_is_named_twice_for_one_promise():
    for *_, shown in rows():
        names = shown.split("<br>")
        assert len(names) == len(set(names)), shown
