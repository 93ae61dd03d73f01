# SPDX-License-Identifier: GPL-2.0-or-later
"""With ``-o json`` an error is a document on stdout too, with a stable id."""

from __future__ import annotations

import json

import pytest
import yaml
from support.command_line import run

from ovirt_rdma.cli.host import status


def test_an_error_has_its_id_exit_code_sentences_and_fix(capsys):
    document = run(capsys, "explain", "NO-SUCH-01", "-o", "json").error(
        "rule-unknown", 2
    )
    assert "NO-SUCH-01" in document["sentences"][0]
    assert document["fix"]
    assert document["reasons"] == []


def test_yaml_has_the_same(capsys):
    result = run(capsys, "explain", "NO-SUCH-01", "-o", "yaml")
    assert yaml.safe_load(result.out)["id"] == "rule-unknown"


@pytest.mark.parametrize(
    ("words", "id"),
    [
        ("-o json facts --no-such", "verb-unknown"),
        ("facts --no-such -ojson", "arguments-unknown"),
        ("plan --output=json --exit", "arguments-unknown"),
        ("nfs -o json", "verb-unknown"),
        ("apply --confirm-timeout 9 -o json", "usage"),
        ("nfs check nas -o json", "export-server-missing"),
        ("nfs --output json", "verb-unknown"),
    ],
)
def test_a_usage_error_is_a_document_too(capsys, words, id):
    run(capsys, *words.split()).error(id, 2)


def test_a_usage_error_in_yaml(capsys):
    result = run(capsys, "facts", "--no-such", "-o", "yaml")
    assert yaml.safe_load(result.out)["id"] == "arguments-unknown"


@pytest.mark.parametrize("words", ["facts --no-such", "facts --no-such -o xml"])
def test_a_usage_error_for_people_is_no_document(capsys, words):
    run(capsys, *words.split()).refused(2)


def test_people_get_it_on_stderr_only(capsys):
    run(capsys, "explain", "NO-SUCH-01").refused(2, "NO-SUCH-01")


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
