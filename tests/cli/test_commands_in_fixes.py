# SPDX-License-Identifier: GPL-2.0-or-later
"""Each command of ours that the product tells people to run is one that its parser has.

``support/fixes/texts.py`` finds the commands in the source; so no fix names a verb or
an option that has another name by now.
"""

from __future__ import annotations

import argparse
import re

import pytest
from support.fixes.texts import COMMAND, sentences

from ovirt_rdma.host.errors import UsageProblem
from tools.verbs import PARSERS, verbs, walk

pytestmark = pytest.mark.engine

PROGRAMS = ("ovirt-rdma-host", "ovirt-rdma")
# After the name of a program, package or folder: prose.
PROSE = {
    *("again", "and", "as", "at", "by", "changes", "converts", "did", "does", "for"),
    *("from", "has", "is", "lacks", "may", "needs", "of", "on", "or", "prepares"),
    *("reads", "remounts", "revision", "runs", "says", "sets", "that", "to"),
    *("until", "was"),
    "unit",  # a hidden group
}


def commands():
    for sentence in sentences():
        for program, words in COMMAND.findall(sentence.example):
            if words.split()[0] not in PROSE:
                yield f"{sentence.place} {sentence.line}", program, words


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


# What would stand for a real name; a metavar of help, which is not looked at.
PLACEHOLDER = re.compile(
    r"(?<![\w$%{@.-])(ADDRESS|DOMAIN|EXPORT|FILE|FOLDER|HOSTS?|NAME|NETDEV|NEW|NUMBER|"
    r"PATH|PCI_ADDRESS|PLANFILE|PORT|SECTION|SERVER|STEP|UNIT|USER|VALUE|WWID|XX+)"
    r"(?![\w(=-])|: \.\.\.\}|--[\w-]+ \.\.\."
)
# Sentences that describe a form that the reader has to write, and no fix.
FORMS = {
    "engine_sdk_tools/hosts/deploy_hook.py:read_settings",
    "engine_sdk_tools/hosts/report.py:DumpFolder._listed",
    "engine_sdk_tools/hosts/ansible.py:read_inventory",
    "engine_sdk_tools/networks/nics.py:_RANGE_FORM",
    "host/collect/rdma.py:_word",
    "host/export.py:ExportProblem.__init__",
    "host/policy/load.py:_drop_ins_of",
    "storage/rdma_cm_probe.py:main",
}


def test_no_fix_has_a_placeholder():
    """It names the real thing, or is a sentence without a command."""
    found = [
        f"{one.place}:{one.line}: {one.example}"
        for one in sentences()
        if " " in one.example.strip() and not one.example.isupper()
        if PLACEHOLDER.search(one.example)
        if not one.is_help and one.place not in FORMS
    ]
    assert not found, "\n".join(found)
