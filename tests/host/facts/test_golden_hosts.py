# SPDX-License-Identifier: GPL-2.0-or-later
"""Whole hosts: their facts, and the decision for each with a policy.

tests/data/hosts/NAME has the facts, a policy and the decision; WRITE_GOLDEN=1 writes
facts and decision again after an intended change. Read them before you commit them.
"""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

import pytest
from support.command_line import run
from support.fitted_json import fitted
from support.golden.golden_hosts import DATA, HOSTS

from ovirt_rdma.host.facts import model
from ovirt_rdma.host.policy.load import load_policy_file
from ovirt_rdma.host.policy.model import Policy
from ovirt_rdma.host.rules.base import FAIL, WARN
from ovirt_rdma.host.rules.registry import (
    Decision,
    decide,
)

WRITE = bool(os.environ.get("WRITE_GOLDEN"))


def in_file(name: str, file: str) -> Path:
    """Return one of a host's three files."""
    return DATA / name / file


def shown(decision: Decision) -> str:
    """Return a decision as in the file: problems and steps, fields that are not empty.

    What passes or is skipped is left out: a new rule would be in the file of each host.
    """
    outcomes = {
        "findings": [
            _said(one) for one in decision.findings if one.verdict in (WARN, FAIL)
        ],
        "steps": [{"id": step.id, **_said(step)} for step in decision.steps],
    }
    return fitted(json.dumps(outcomes))


def _said(outcome) -> dict:
    fields = dataclasses.asdict(outcome)
    if "changes" in fields:
        fields["changes"] = [
            {k: v for k, v in change.items() if v not in ("", False)}
            for change in fields["changes"]
        ]
    return {name: value for name, value in fields.items() if value not in ("", (), [])}


@pytest.fixture(params=HOSTS)
def name(request):
    return request.param


@pytest.fixture
def facts(name):
    return model.load(in_file(name, "facts.json"))


@pytest.fixture
def policy(name):
    found = load_policy_file(in_file(name, "policy.yaml"))
    assert found.warnings == ()
    return found.policy


def test_facts_are_read_off_the_host(name, tmp_path):
    text = fitted(model.to_json(HOSTS[name].build(tmp_path).reader().facts()))
    file = in_file(name, "facts.json")
    if WRITE:
        file.write_text(text)
    assert text == file.read_text()


def test_the_decision_follows(name, facts, policy):
    text = shown(decide(facts, policy))
    file = in_file(name, "decision.json")
    if WRITE:
        file.write_text(text)
    assert text == file.read_text()


def test_an_empty_policy_changes_nothing(facts):
    assert decide(facts, Policy()).steps == ()


def test_nothing_is_said_twice(name, facts, policy):
    """No finding and no step is repeated."""
    for decision in (decide(facts, policy), decide(facts, Policy())):
        for outcomes in (decision.findings, decision.steps):
            assert len(set(outcomes)) == len(outcomes)
        ids = [step.id for step in decision.steps]
        assert len(set(ids)) == len(ids)


def test_the_verbs(name, capsys, tmp_path):
    golden = HOSTS[name]
    empty = tmp_path / "empty.yaml"
    empty.write_text("version: 1\n")
    files = ("--facts", str(in_file(name, "facts.json")), "--policy")
    for words, file, code in (
        (("check",), in_file(name, "policy.yaml"), golden.check),
        (("check",), empty, golden.plain),
        (("plan", "--exit-code"), in_file(name, "policy.yaml"), golden.plan),
        (("plan", "--diff"), in_file(name, "policy.yaml"), 0),
        (("plan", "--exit-code"), empty, 0),
    ):
        result = run(capsys, *words, *files, str(file))
        assert (result.code, result.err) == (code, ""), words
        assert result.out
