# SPDX-License-Identifier: GPL-2.0-or-later
"""Each command of ours that the product tells people to run is one that its parser has.

The commands are found in the strings of the source, f-strings with an example in place
of each value; so no fix names a verb or an option that has another name by now.
"""

from __future__ import annotations

import argparse
import ast
import re
from pathlib import Path

import pytest

from ovirt_rdma.host.errors import UsageProblem
from tools.verbs import PARSERS, verbs, walk

pytestmark = pytest.mark.engine

ROOT = Path(__file__).parents[2]
PRODUCT = ("cli", "engine_sdk_tools", "host", "storage", "vdsm_hooks")
PROGRAMS = ("ovirt-rdma-host", "ovirt-rdma")
COMMAND = re.compile(r"(?<![\w/.-])(ovirt-rdma(?:-host)?) ([a-z][^;:,()'`\n]*)")
# After the name of a program, package or folder: prose.
PROSE = {
    *("again", "and", "as", "at", "by", "changes", "converts", "did", "does", "for"),
    *("from", "has", "is", "lacks", "may", "needs", "of", "on", "or", "prepares"),
    *("reads", "remounts", "revision", "runs", "says", "sets", "that", "to"),
    *("until", "was"),
}


def strings(path):
    """Yield the strings of a module but its docstrings, values as ``1``."""
    tree = ast.parse(path.read_text())
    inner = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):
            inner.add(node.value)
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            inner.update(node.values)
            parts = [
                p.value if isinstance(p, ast.Constant) else "1" for p in node.values
            ]
            yield node.lineno, "".join(parts)
        elif isinstance(node, ast.Constant) and node not in inner:
            yield node.lineno, node.value if isinstance(node.value, str) else ""


def commands():
    for folder in PRODUCT:
        for path in sorted((ROOT / folder).rglob("*.py")):
            for line, text in strings(path):
                for program, words in COMMAND.findall(text):
                    if words.split()[0] not in PROSE:
                        yield f"{path.relative_to(ROOT)}:{line}", program, words


def test_each_command_that_people_are_told_to_run_is_one_of_ours():
    known = {program: verbs(program) for program in PROGRAMS}
    groups = {p: {words for words, _ in walk(PARSERS[p]())} for p in PROGRAMS}
    wrong, right = [], 0
    for place, program, text in commands():
        verb, words = "", [word.strip('."') for word in text.split()]
        while words and f"{verb} {words[0]}".strip() in groups[program]:
            verb = f"{verb} {words.pop(0)}".strip()
        parser = known[program].get(verb)
        if parser is None and verb and words in ([], ["1"]):
            continue  # a group, or one of its verbs by its value
        if parser is None:
            wrong.append(f"{place}: {program} {text}")
            continue
        right += 1
        options = {name for one in parser.arguments for name in one.option_strings}
        typed = {word.partition("=")[0] for word in words if re.match("--?[a-z]", word)}
        wrong += [f"{place}: {verb} has no {one}" for one in typed - options - {"-"}]
    assert not wrong, "\n".join(wrong)
    assert right > 100


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_value_that_an_option_does_not_take_has_a_sentence(program):
    """argparse names our function, ``invalid _seconds value``, for a ValueError."""
    for verb, parser in verbs(program).items():
        for one in parser.arguments:
            for text in ("", "a\u2603", "-1", "9" * 5000, "nan"):
                if one.type is None:
                    continue
                try:
                    one.type(text)
                except (argparse.ArgumentTypeError, UsageProblem) as error:
                    assert str(error), (verb, one.dest)
