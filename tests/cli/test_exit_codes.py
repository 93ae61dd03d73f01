# SPDX-License-Identifier: GPL-2.0-or-later
"""Commands, verbs and documentation name the same exit codes, and with ``-o json`` an
error is a document on stdout too. `make docs` compares the manual pages.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from support.command_line import run

from ovirt_rdma.cli.engine import main as engine
from ovirt_rdma.cli.host import main as host
from ovirt_rdma.cli.host import status
from ovirt_rdma.host.errors import (
    NOTHING_CHANGED,
    ExitCode,
    Problem,
    UsageProblem,
    worst,
)
from tools.verbs import verbs

pytestmark = pytest.mark.engine

DOCS = Path(__file__).parents[2] / "docs"
PROGRAMS = {main.PROGRAM: main for main in (engine, host)}
VERBS = [
    (program, name, parser.verb.codes)
    for program in PROGRAMS
    for hidden in (False, True)
    for name, parser in verbs(program, hidden=hidden).items()
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_help_of_a_command_lists_them(capsys, program):
    assert PROGRAMS[program].main(["--help"]) == 0
    shown = re.findall(r"^  (\d+) +(.*)$", capsys.readouterr().out, re.MULTILINE)
    listed = {int(number): sentence for number, sentence in shown}
    assert listed == {code: code.sentence for code in PROGRAMS[program].EXIT_CODES}
    assert (5 in listed) == (program == "ovirt-rdma")


@pytest.mark.parametrize(("program", "name", "codes"), VERBS)
def test_a_verb_has_no_others(program, name, codes):
    named = re.findall(r"(?:^|,\s|--exit-code )(\d+) ", codes)
    assert named[0] == "0"
    assert set(map(int, named)) <= set(PROGRAMS[program].EXIT_CODES)


def test_the_engine_page_has_the_same():
    section = (DOCS / "engine.md").read_text().partition("## Exit codes\n")[2]
    rows = re.findall(r"^\| (\d+) \| (.*) \|$", section, re.MULTILINE)
    assert [int(number) for number, _ in rows] == list(engine.EXIT_CODES)
    for number, text in rows:
        assert text.startswith(ExitCode(int(number)).sentence)


def test_problems_have_them():
    assert (Problem.exit_code, UsageProblem.exit_code) == (
        ExitCode.FAILED,
        ExitCode.USAGE,
    )


@pytest.mark.parametrize("code", ExitCode)
def test_a_refusal_says_last_that_nothing_was_changed(capsys, monkeypatch, code):
    """Other errors do not: something may have been changed before them."""

    def refuse(*_):
        problem = Problem("no", "it is not safe", "wait")
        problem.exit_code = code
        raise problem

    monkeypatch.setattr(status.ShowStatus, "run", refuse)
    assert host.main(["status"]) == code
    refused = code in (ExitCode.CHECKS_FAILED, ExitCode.REFUSED, ExitCode.OTHER_RUN)
    last = [NOTHING_CHANGED] if refused else []
    assert capsys.readouterr().err.splitlines() == [
        "ovirt-rdma-host: it is not safe",
        *last,
        "fix: wait",
    ]


@pytest.mark.parametrize(
    ("codes", "whole"),
    [
        ((), 0),
        ((0, 0), 0),
        ((75, 0), 75),
        ((75, 1), 1),
        ((3, 4), 4),
        ((6, 4), 6),
        ((5, 6), 5),
        ((5, 1, 75), 1),
    ],
)
def test_the_worst_is_by_what_it_means(codes, whole):
    assert worst(codes) == worst(codes[::-1]) == whole


def test_the_order_of_the_worst_has_every_code_of_a_part():
    for code in set(ExitCode) - {ExitCode.INTERRUPTED}:
        assert worst([code]) == code


def test_an_error_has_its_id_exit_code_sentences_and_fix(capsys):
    document = run(capsys, "explain", "NO-SUCH-01", "-o", "json").error(
        "rule-unknown", 2
    )
    assert "NO-SUCH-01" in document["sentences"][0]
    assert document["fix"]
    assert document["reasons"] == []


@pytest.mark.parametrize(
    ("words", "id"),
    [("explain NO-SUCH-01", "rule-unknown"), ("facts --no-such", "arguments-unknown")],
)
def test_yaml_has_the_same(capsys, words, id):
    document = yaml.safe_load(run(capsys, *words.split(), "-o", "yaml").out)
    assert (document["kind"], document["id"]) == ("error", id)
    assert document["exit_code"] == 2


@pytest.mark.parametrize(
    ("words", "id"),
    [
        ("-o json facts --no-such", "verb-unknown"),
        ("facts --no-such -ojson", "arguments-unknown"),
        ("plan --output=json --exit", "arguments-unknown"),
        ("nfs -o json", "verb-unknown"),
        ("apply --confirm-timeout 9 -o json", "usage"),
        ("nfs check nas -o json", "export-invalid"),
        ("nfs --output json", "verb-unknown"),
    ],
)
def test_a_usage_error_is_a_document_too(capsys, words, id):
    run(capsys, *words.split()).error(id, 2)


@pytest.mark.parametrize("words", ["facts --no-such", "facts --no-such -o xml"])
def test_a_usage_error_for_people_is_no_document(capsys, words):
    run(capsys, *words.split()).refused(2)


def test_a_bug_is_a_document_too(capsys, monkeypatch):
    monkeypatch.setattr(status, "read_status", lambda *_: 1 // 0)
    result = run(capsys, "status", "-o", "json")
    document = json.loads(result.out)
    assert (document["id"], result.code) == ("bug", 1)
    assert "ZeroDivisionError" in document["sentences"][0]


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_a_result_stays_the_only_document(capsys, form, tmp_path):
    wrong = tmp_path / "policy.yaml"
    wrong.write_text("nfs: 1\n")
    result = run(capsys, "policy", "check", str(wrong), "-o", form)
    assert yaml.safe_load(result.out)["kind"] != "error"
    assert result.code == 3
