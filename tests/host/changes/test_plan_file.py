# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.host import sample_rules
from support.problems import problem

from ovirt_rdma.host.changes.plan import (
    Plan,
    PlannedBy,
    from_json_dict,
    load,
    save,
    to_json_dict,
)
from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.rules.base import CLASSES, Change, Step

PLAN = Plan(
    hostname="hv1",
    kernel_release="5.14.0",
    made_at="2026-01-02T03:04:05+00:00",
    policy=PlannedBy("/etc/ovirt-rdma/policy.yaml", "sha256:0"),
    steps=(sample_rules.MODE, sample_rules.REFUSED, sample_rules.OPTION),
)

texts = st.text(max_size=6) | st.sampled_from(["\udcff", "\x1b[2J", "a\nb"])
changes = st.builds(Change, texts, texts, st.none() | texts, st.none() | texts, texts)
steps = st.builds(
    Step,
    *[texts] * 5,
    st.sampled_from(CLASSES),
    *[texts] * 3,
    st.lists(changes, max_size=2).map(tuple),
    texts,
    st.lists(texts, max_size=2).map(tuple),
)


@given(st.lists(steps, max_size=3).map(tuple))
def test_a_plan_comes_back_as_it_was(some):
    plan = Plan("h", "k", "t", PlannedBy("s", "d"), some)
    data = json.loads(json.dumps(to_json_dict(plan)))
    assert from_json_dict(data, "x") == plan


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner),
)


@given(json_values, st.sampled_from(["steps", "policy", "hostname"]))
def test_odd_values_are_refused_in_a_sentence(value, key):
    data = {**to_json_dict(PLAN), key: value}
    try:
        plan = from_json_dict(data, "x")
    except Problem as problem:
        assert str(problem).startswith("x: ")
    else:
        assert to_json_dict(plan) == data


def test_a_saved_plan_is_loaded_and_is_its_owner_s_alone(tmp_path):
    path = tmp_path / "plan.json"
    save(PLAN, path)
    assert load(path) == PLAN
    assert path.stat().st_mode & 0o777 == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["plan.json"]


@pytest.mark.parametrize(
    "content",
    ["", '{"schema_version": 9, "kind": "plan", "steps": [], "more": 1}'],
    ids=["empty", "another version"],
)
def test_what_may_be_replaced(tmp_path, content):
    path = tmp_path / "plan.json"
    path.write_text(content)
    save(PLAN, path)
    assert load(path) == PLAN


@pytest.mark.parametrize(
    "content",
    ["x", "[]", "{}", '{"kind": "facts", "steps": []}', '{"kind": "plan"}', b"\xff"],
)
def test_what_is_not_replaced(tmp_path, content):
    path = tmp_path / "plan.json"
    content = content.encode() if isinstance(content, str) else content
    path.write_bytes(content)
    with problem("plan-file-exists", path):
        save(PLAN, path)
    assert path.read_bytes() == content


def test_neither_a_folder_nor_a_device_nor_a_dangling_link_is_replaced(tmp_path):
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "nowhere")
    for path in (tmp_path, Path("/dev/null"), link):
        with problem("plan-file-exists", path):
            save(PLAN, path)
    assert link.is_symlink()


def changed(*path, to):
    """Return the plan's data with one value replaced, or a key removed."""
    data = json.loads(json.dumps(to_json_dict(PLAN)))
    inner = data
    for key in path[:-1]:
        inner = inner[key]
    if to is None:
        del inner[path[-1]]
    else:
        inner[path[-1]] = to
    return data


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ([], "an array"),
        (
            changed("schema_version", to=2),
            "a newer version of ovirt-rdma (schema version 2",
        ),
        (
            changed("schema_version", to=True),
            "schema_version is True, not a whole number",
        ),
        (changed("kind", to="facts"), "kind is 'facts', not 'plan'"),
        (changed("kind", to=None), "kind is missing, not 'plan'"),
        (changed("hostname", to=None), "hostname is missing"),
        (changed("more", to=1), "more is not a key of the plan"),
        (changed("steps", to={}), "steps is an object, not an array"),
        (changed("steps", 0, to=1), "steps[0] is a number, not an object"),
        (changed("steps", 1, "id", to=None), "steps[1].id is None"),
        (
            changed("steps", 1, "id", to="SAMPLE-MODE-01/ib9"),
            "steps[1].id is 'SAMPLE-MODE-01/ib9', not 'SAMPLE-MODE-01/ib1'",
        ),
        (
            changed("steps", 0, "changes", 0, "after", to=4),
            "steps[0].changes[0].after is a number, not a string",
        ),
        (changed("policy", "digest", to=None), "policy.digest is missing"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(data, sentence):
    with pytest.raises(Problem) as caught:
        from_json_dict(data, "plan file x")
    assert caught.value.id in ("plan-file-invalid", "plan-file-version")
    assert str(caught.value).startswith("plan file x: ")
    assert sentence in str(caught.value)
    assert "plan --out" in caught.value.fix


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"{", "it is not JSON: column 2: "),
        (b"\xff", "is not JSON: byte 0 is not UTF-8"),
    ],
)
def test_what_is_no_json_is_a_sentence(tmp_path, content, sentence):
    path = tmp_path / "plan.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(Problem, match=sentence) as caught:
        load(path)
    assert caught.value.id == "plan-file-unreadable"
