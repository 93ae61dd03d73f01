# SPDX-License-Identifier: GPL-2.0-or-later
"""A host's history is read if it has the form of ours, whatever the host sends."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.engine.report_site import history, run

from ovirt_rdma.engine_sdk_tools.report.model import MOST_RUNS, runs_of

pytestmark = pytest.mark.engine

AT = "2026-11-20T08:00:00Z"


def test_runs_have_their_steps_once():
    acts = run(7, AT, "done", "A/ib0", "A/ib0", "B/ib0")
    acts["acts"][1]["held"] = acts["acts"][2]["held"] = False
    (found,), problem = runs_of(history(acts))
    assert problem == ""
    assert (found.number, found.at, found.outcome) == (7, AT, "done")
    assert (found.steps, found.applied) == (("A/ib0", "B/ib0"), 1)
    assert found.by == "ovirt-rdma-host apply --assume-yes"


def test_a_run_without_an_end_was_interrupted():
    (found,), _ = runs_of(history(run(1, AT, None)))
    assert found.outcome == "interrupted"
    assert found.sentence


def test_keys_of_a_newer_version_are_no_mistake():
    document = {**history({**run(1, AT), "later": [1]}), "later": {}}
    assert len(runs_of(document)[0]) == 1


def test_no_history_and_an_empty_one_differ():
    assert runs_of(None) == (None, "")
    assert runs_of(history()) == ((), "")


def test_a_long_history_is_cut():
    runs, _ = runs_of(history(*(run(n, AT) for n in range(MOST_RUNS + 9, 0, -1))))
    assert [one.number for one in runs][:2] == [MOST_RUNS + 9, MOST_RUNS + 8]
    assert len(runs) == MOST_RUNS


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (lambda one: one.pop("runs"), "runs is missing"),
        (lambda one: one.update(runs={}), "runs is an object"),
        (lambda one: one.update(runs=[[]]), "runs[0] is an array"),
        (lambda one: one["runs"][0].update(run="1"), "runs[0].run is a string"),
        (lambda one: one["runs"][0].update(run=True), "runs[0].run is true or"),
        (lambda one: one["runs"][0].update(at=5), "runs[0].at is a number"),
        (lambda one: one["runs"][0].pop("acts"), "runs[0].acts is missing"),
        (lambda one: one["runs"][0]["acts"].append(None), "runs[0].acts[1] is null"),
        (
            lambda one: one["runs"][0]["acts"][0].update(held=None),
            "runs[0].acts[0].",
        ),
    ],
)
def test_another_form_is_one_sentence(change, where):
    document = json.loads(json.dumps(history(run(1, AT, "done", "A/ib0"))))
    change(document)
    runs, problem = runs_of(document)
    assert runs is None
    assert where in problem


_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["runs", "run", "acts", "step", "held", "at", "by", "verb"]
            ),
            inner,
            max_size=8,
        )
    ),
    max_leaves=25,
)


@given(st.dictionaries(st.just("runs"), _values, max_size=1))
def test_any_document_gives_runs_or_a_sentence(document):
    runs, problem = runs_of(document)
    assert (runs is None) == bool(problem)


@given(st.text(min_size=1101, max_size=1300))
def test_long_texts_are_cut(text):
    document = history({**run(1, AT), "by": text})
    assert len(runs_of(document)[0][0].by) == 1003
