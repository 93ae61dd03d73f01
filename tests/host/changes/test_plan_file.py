# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import errno
import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.host import sample_rules
from support.problems import problem

from ovirt_rdma.host.changes.plan import load, plan_document, save
from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.facts import model
from ovirt_rdma.host.system import json_codec

PLAN = plan_document(
    model.load((Path(__file__).parents[2] / "data" / "facts") / "rxe-one-mount.json"),
    "/etc/ovirt-rdma/policy.yaml",
    "sha256:0",
    (sample_rules.MODE, sample_rules.REFUSED, sample_rules.OPTION),
)
STEPS = [step["id"] for step in PLAN["steps"] if not step["refused"]]

texts = st.text(max_size=6) | st.sampled_from(["\udcff", "\x1b[2J", "a\nb"])
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner),
)


@given(json_values, st.sampled_from(["steps", "policy", "hostname"]))
def test_odd_values_are_refused_in_a_sentence(value, key):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "plan.json")
        path.write_text(json.dumps({**PLAN, key: value}))
        try:
            load(str(path))
        except Problem as problem:
            assert str(problem).startswith(f"plan file {path}: ")


def test_a_saved_plan_is_loaded_and_is_its_owner_s_alone(tmp_path):
    path = tmp_path / "plan.json"
    save(PLAN, path)
    assert list(load(str(path)).steps) == STEPS
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
    assert list(load(str(path)).steps) == STEPS


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


def test_a_name_that_cannot_be_a_file_is_not_called_a_file(tmp_path):
    """So it is with a folder that may not be entered; root may enter all."""
    with problem("plan-file-not-written", "File name too long"):
        save(PLAN, tmp_path / f"{'x' * 300}.json")


def test_why_a_file_cannot_be_read_is_said(tmp_path, monkeypatch):
    def denied(path):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(json_codec, "read_named", denied)
    path = tmp_path / "plan.json"
    path.write_text("theirs")
    with problem("plan-file-exists", path, "cannot be read: Permission denied"):
        save(PLAN, path)
    assert path.read_text() == "theirs"


def changed(*path, to):
    """Return the plan with one value replaced, or a key removed."""
    data = json.loads(json.dumps(PLAN))
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
        (changed("hostname", to=None), "it was edited by hand"),
        (changed("steps", to=4), "it was edited by hand"),
        (changed("steps", 0, to=1), "it was edited by hand"),
        (changed("steps", 1, "refused", to=None), "it was edited by hand"),
        (changed("policy", "digest", to=None), "it was edited by hand"),
    ],
)
def test_what_is_no_plan_is_said(tmp_path, data, sentence):
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(data))
    with pytest.raises(Problem) as caught:
        load(str(path))
    assert caught.value.id in ("plan-file-invalid", "plan-file-version")
    assert str(caught.value).startswith(f"plan file {path}: ")
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
        load(str(path))
    assert caught.value.id == "plan-file-unreadable"
