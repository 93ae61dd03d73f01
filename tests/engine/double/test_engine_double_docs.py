# SPDX-License-Identifier: GPL-2.0-or-later
"""Check that docs/engine-double.md counts the behaviours, each with a test of its own.

WRITE_GOLDEN=1 writes the part of it that is made from the table. Where
OVIRT_RDMA_TEST_ENGINE_SOURCE names a checkout of ovirt-engine 4.5.7, each file that is
cited must exist, and have these lines.
"""

from __future__ import annotations

import ast
import functools
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from engine_double.__main__ import main
from engine_double.behaviours import BEHAVIOURS, ROOTS, Behaviour

pytestmark = [pytest.mark.selftest, pytest.mark.hypervisor]

TESTS = Path(__file__).parents[2]
PAGE = TESTS.parent / "docs" / "engine-double.md"
MARK = (
    "<!-- From here on made from tests/engine_double/: see "
    "tests/engine/double/test_engine_double_docs.py. -->\n"
)
ID = re.compile(r"[A-Z]+-\d\d")
SOURCE = re.compile(r"(?P<root>\w+)/(?P<file>[\w./-]+):(?P<first>\d+)(-(?P<last>\d+))?")
AREAS = {
    "ATTACH": "Domains in their data center",
    "CLUSTER": "Clusters",
    "CONN": "Storage connections",
    "DOMAIN": "Domains",
    "EVENT": "Events",
    "HOST": "Hosts",
    "JOB": "Jobs",
    "MAINT": "Hosts: to maintenance",
    "NET": "Networks",
    "REST": "The API itself",
    "SPM": "The storage pool manager",
    "SSO": "Logging in",
    "UP": "Hosts: coming up",
}


def test_the_page_counts_all_behaviours() -> None:
    own, mark, made = PAGE.read_text().partition(MARK)
    assert mark
    wanted = f"\n{_table()}\n"
    if os.environ.get("WRITE_GOLDEN"):
        PAGE.write_text(own + MARK + wanted)
        made = wanted
    assert made == wanted


def test_each_behaviour_has_a_test_that_needs_it() -> None:
    assert sorted(set(BEHAVIOURS) - set(_marked())) == []


def test_each_mark_names_a_behaviour() -> None:
    assert sorted(set(_marked()) - set(BEHAVIOURS)) == []


@pytest.mark.parametrize("one", BEHAVIOURS.values(), ids=list(BEHAVIOURS))
def test_a_behaviour_has_its_form(one: Behaviour) -> None:
    assert ID.fullmatch(one.id)
    assert one.id.partition("-")[0] in AREAS
    assert one.says.endswith(".")
    for source in one.sources:
        found = SOURCE.fullmatch(source)
        assert found, f"{one.id}: {source} is not ROOT/FILE:LINE"
        assert found["root"] in ROOTS, f"{one.id}: no root {found['root']}"
        assert int(found["last"] or found["first"]) >= int(found["first"])


@pytest.mark.skipif(
    not os.environ.get("OVIRT_RDMA_TEST_ENGINE_SOURCE"),
    reason="OVIRT_RDMA_TEST_ENGINE_SOURCE names no checkout of ovirt-engine 4.5.7",
)
def test_the_sources_are_there() -> None:
    top = Path(os.environ["OVIRT_RDMA_TEST_ENGINE_SOURCE"])
    wrong = []
    for one in BEHAVIOURS.values():
        for source in one.sources:
            found = SOURCE.fullmatch(source)
            assert found
            cited = top / ROOTS[found["root"]] / found["file"]
            last = int(found["last"] or found["first"])
            if not cited.is_file() or last > _lines(cited):
                wrong.append(f"{one.id}: {source}")
    assert wrong == []


# -- what the tests and the double say


def _marked() -> Iterator[str]:
    """Return the ids of all marks engine_does in the tests."""
    for path in sorted(TESTS.rglob("test_*.py")):
        text = path.read_text()
        if "engine_does" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and _is_mark(node.func):
                yield from (ast.literal_eval(word) for word in node.args)


def _is_mark(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "engine_does"


@functools.lru_cache(512)
def _lines(path: Path) -> int:
    return len(path.read_text(errors="replace").splitlines())


# -- the page


def _table() -> str:
    areas = ", ".join(AREAS)
    return (
        f"## The behaviours\n\n{len(BEHAVIOURS)} of them. "
        "`PYTHONPATH=tests .venv/bin/python -m engine_double MAINT` prints those whose "
        f"ids begin so, or all, each with its sources: {areas}."
    )


def test_all_are_printed_or_those_of_an_area(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([]) == 0
    printed = capsys.readouterr().out
    for one in BEHAVIOURS.values():
        assert f"{one.id}  {one.says}\n    " + "\n    ".join(one.sources) in printed
    main(["UP", "SPM-01"])
    ids = re.findall(r"^[A-Z]+-\d\d", capsys.readouterr().out, re.M)
    assert ids == [i for i in sorted(BEHAVIOURS) if i.startswith(("SPM-01", "UP"))]
