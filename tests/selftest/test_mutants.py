# SPDX-License-Identifier: GPL-2.0-or-later
"""Test tools/mutants.py, and that its list fits the product, tests and documents."""

from __future__ import annotations

import contextlib
import re
from dataclasses import replace
from pathlib import Path

import jinja2
import pytest
from test_docs_reliability import there_are

from tools import mutants
from tools.mutants import BROKEN, HUNG, KILLED, NOT_FOUND, SURVIVED, Mutant

TOP = Path(__file__).parents[2]
MUTANTS = mutants.read()


def one_line(text: str) -> str:
    return " ".join(text.split())


DOCS = one_line("\n".join(page.read_text() for page in TOP.glob("docs/*.md")))


def test_the_list_is_long_enough():
    assert len(MUTANTS) >= 36


# Not marked selftest: a change of a line in the list must change the list too.
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda one: one.id)
def test_each_is_about_lines_tests_and_a_promise_that_are_there(mutant):
    text = (TOP / mutant.file).read_text()
    changed = mutants.mutated(text, mutant)
    assert changed is not None, "its lines are not there, or more than once"
    assert changed != text
    if mutant.file.endswith(".py"):
        compile(changed, mutant.file, "exec")
    else:
        # A template of the report.
        jinja2.Environment(autoescape=True).parse(changed)
    assert one_line(mutant.promise) in DOCS
    assert mutant.tests
    for test in mutant.tests:
        file, _, name = test.partition("::")
        assert not file.startswith("tests/lab/")
        assert re.sub(r"\[.*", "", name) in there_are(file), test


CODE = """\
def allowed(count):
    if count < 2:
        count += 1

        return True
    return False


def also(count):
    return False
"""
TESTS = """\
from product import allowed


def test_one():
    assert allowed(1)


def test_three():
    assert not allowed(3)
"""
INDENTED = Mutant(
    id="wrong-comparison",
    promise="",
    file="product.py",
    there="if count < 2:\n    count += 1\n\n    return True",
    instead="if count > 2:\n    return True",
    tests=("test_product.py::test_one",),
)


@pytest.fixture
def tree(tmp_path):
    """A product of one file, its tests, and the links of a copied checkout."""
    (tmp_path / ".cache/package").mkdir(parents=True)
    (tmp_path / ".cache/package/product.py").symlink_to("../../product.py")
    (tmp_path / "product.py").write_text(CODE)
    (tmp_path / "test_product.py").write_text(TESTS)
    return tmp_path


LOOP = "while count < 2:\n    pass"


@pytest.mark.selftest
@pytest.mark.parametrize(
    "change, verdict",
    [
        ({}, KILLED),
        ({"instead": "if count < 3:\n    return True"}, SURVIVED),
        ({"there": "gone"}, NOT_FOUND),
        ({"file": "gone.py"}, NOT_FOUND),
        ({"instead": "if count < 2"}, BROKEN),
        ({"tests": ("test_product.py::test_gone",)}, BROKEN),
        ({"instead": LOOP}, HUNG),
    ],
)
def test_what_becomes_of_a_mutant(tree, change, verdict):
    mutant = replace(INDENTED, **change)
    limit_s = 5.0 if verdict == HUNG else 600.0
    assert mutants.run(tree, mutant, limit_s).verdict == verdict
    assert (tree / "product.py").read_text() == CODE
    # The previous text is used again, although its length and time may be the same.
    mutants.check_unmutated(tree, [INDENTED])


@pytest.mark.selftest
def test_a_test_that_fails_anyway_kills_nothing(tree):
    (tree / "test_product.py").write_text(TESTS.replace("not allowed", "allowed"))
    mutants.check_unmutated(tree, [INDENTED])
    every = replace(INDENTED, tests=("test_product.py",))
    with pytest.raises(mutants.ListProblem, match="without a mutant"):
        mutants.check_unmutated(tree, [every])


ENTRY = """\
- id: {id}
  promise: p
  file: product.py
  there: "if count < 2:"
  instead: "if count {now} 2:"
  tests: ["test_product.py"]
"""


@pytest.mark.selftest
@pytest.mark.parametrize(
    "words, code, last",
    [
        ([], 1, "1 of 2 mutants were not killed."),
        (["wrong"], 0, "All 1 mutants were killed."),
        (["gone"], 2, ""),
    ],
)
def test_the_verdict(tree, monkeypatch, capsys, words, code, last):
    table = tree / "mutants.yaml"
    table.write_text(
        ENTRY.format(id="wrong", now=">") + ENTRY.format(id="as good", now="<=")
    )
    monkeypatch.setattr(mutants, "copies", lambda n: contextlib.nullcontext([tree] * n))
    assert mutants.main(words, table) == code
    assert capsys.readouterr().out.splitlines()[-1:] == ([last] if last else [])
