# SPDX-License-Identifier: GPL-2.0-or-later
"""Our block in the engine's post-tasks file: what others wrote stays, byte for byte."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ovirt_rdma.engine_sdk_tools.hosts import deploy_hook
from ovirt_rdma.engine_sdk_tools.hosts.deploy_hook import (
    INSTALLED,
    MISSING,
    OUTDATED,
    PostTasksProblem,
    find,
    installed,
    removed,
)

pytestmark = pytest.mark.hypervisor

# Accepts a tab after a value, as Ansible does.
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
TASK = b"- name: theirs\n  ansible.builtin.command: /bin/true\n"
GOOD = {
    "missing": None,
    "empty": b"",
    "only a start": b"---\n",
    "a task": TASK,
    "CRLF": TASK.replace(b"\n", b"\r\n"),
    "a byte order mark": b"\xef\xbb\xbf---\n" + TASK,
    "indented": b"---\n  - name: a\n    x: 1\n  - name: b\n",
    "empty lines at the end": TASK + b"\n\n\n",
    "a text that keeps its line breaks": b"- x: |+\n    a\n\n\n",
    "a tag": b"- x: !vault |\n    $ANSIBLE_VAULT;1.1;AES256\n",
    "our marks in a text": b"- copy:\n    content: |\n      # BEGIN ovirt-rdma x\n",
    "a block of others": b"# BEGIN ANSIBLE MANAGED BLOCK\n" + TASK + b"# END\n",
    "a marked block of metrics": b"# BEGIN ovirt-metrics\n" + TASK,
    "no ASCII": "- name: größer ✓ \U0001f600\n".encode(),
    "an alias inside of itself": b"- &a [*a]\n",
    "a tab in a comment": TASK + b"#\tx\n",
    "a tab after a value": b"- name: x\t\n",
}
BAD = {
    "post-tasks-not-yaml": (
        b"- a: [\n",
        b"- a: 1\n---\n- b: 1\n",
        b"- a: 1\n\t- b: 1\n",
        b"- a: 'x\n",
        b"- a: \x00\n",
        b"\xff\xfe-\x00",
        b"- \xe4\n",
    ),
    "post-tasks-no-list": (
        *(b"a: 1\n", b"a:\n", b"null\n", b"text\n", b"{}\n"),
        *(b"[]\n", b"--- [{name: x}]\n"),
        *(b"- x: |\n    a", b"- x: >\n    a"),
        *(b"---", b"# tasks", b"  - name: a", TASK.rstrip(), TASK + b"   "),
        *(b"---\n" + TASK + b"...\n", TASK + b"..."),
    ),
}


def tasks(content):
    return yaml.load(content, Loader=LOADER) or []


@pytest.mark.parametrize("before", GOOD.values(), ids=list(GOOD))
def test_what_is_installed_is_removed_without_a_trace(before):
    after = installed(before)
    assert find(after).state == INSTALLED
    assert removed(after) == before
    assert installed(after) == after  # a second time changes nothing


@pytest.mark.parametrize("before", GOOD.values(), ids=list(GOOD))
def test_the_tasks_of_others_stay_first_and_ours_come_last(before):
    if before is not None and (b"!vault" in before or b"*a" in before):
        pytest.skip("these have no plain value")
    theirs, every = tasks(before or b""), tasks(installed(before))
    assert every[: len(theirs)] == theirs
    assert every[len(theirs) :] == tasks(deploy_hook.tasks_of())


@pytest.mark.parametrize(
    ("id", "before"), [(id, one) for id, several in BAD.items() for one in several]
)
def test_a_file_that_takes_no_block_is_one_sentence(id, before):
    with pytest.raises(PostTasksProblem) as caught:
        installed(before)
    assert caught.value.id == id
    assert "\n" not in str(caught.value)
    assert caught.value.fix


def test_tasks_that_were_added_after_the_block_stay():
    after = installed(TASK) + b"- name: later\n"
    assert installed(after) == after
    assert removed(after) == TASK + b"- name: later\n"


def test_an_editor_that_writes_crlf_leaves_no_carriage_return():
    after = installed(TASK).replace(b"\n", b"\r\n")
    assert find(after).state == INSTALLED
    assert removed(after) == TASK.replace(b"\n", b"\r\n")


def test_a_block_is_updated_in_its_place():
    old = installed(TASK, "/old/place") + b"- name: later\n"
    assert find(old).state == OUTDATED
    new = installed(old)
    assert find(new).state == INSTALLED
    assert removed(new) == removed(old) == TASK + b"- name: later\n"
    assert new.endswith(b"- name: later\n")


def test_a_block_that_was_edited_is_written_again():
    edited = installed(TASK).replace(b"report", b"fail")
    assert find(edited).state == OUTDATED
    assert installed(edited) == installed(TASK)
    assert removed(edited) == TASK


def test_a_new_file_that_others_have_added_to_is_kept():
    after = installed(None) + TASK
    assert removed(after) == b"---\n" + TASK


@pytest.mark.parametrize(
    "spoil",
    [
        lambda content: content.replace(b"# END ovirt-rdma\n", b""),
        lambda content: content + content,
        lambda content: b"# END ovirt-rdma\n" + content,
    ],
)
def test_incomplete_marks_are_one_sentence(spoil):
    content = spoil(installed(TASK))
    for change in (installed, removed):
        with pytest.raises(PostTasksProblem, match=r"marks .*lines"):
            change(content)


def test_no_block_is_no_block():
    assert find(TASK).state == MISSING
    assert removed(TASK) == TASK


def test_no_condition_asks_for_what_include_vars_returned():
    """ansible-core 2.14 evaluates all templates in it then, and one of a variable that
    is not defined ends the installation of the host (seen with 2.14.18).
    """
    (reads,) = (t for t in tasks(deploy_hook.tasks_of().encode()) if _INCLUDE_VARS in t)
    assert "register" not in reads
    assert reads["ignore_errors"] is True


_INCLUDE_VARS = "ansible.builtin.include_vars"
ATOMS = st.sampled_from(
    [
        "- name: a\n",
        "  x: 1\n",
        "  y: |\n    t\n",
        "  y: |+\n    t\n\n",
        "  y: >-\n    t\n    u\n",
        "# c\n",
        "#\n",
        "\n",
        "---\n",
        "...\n",
        "- b: 'q\n",
        "  r'\n",
        "# BEGIN ovirt-rdma\n",
        "# END ovirt-rdma\n",
        "  # BEGIN ovirt-rdma x\n",
        "\t\n",
        "- ",
        " ",
        "é",
        "- [1, {a: b}]\n",
        "!!seq\n",
        "--- !!seq\n",
        "--- &tasks\n",
        "\r",
        "- c\r",
    ]
)


@pytest.mark.parametrize(
    "content",
    [
        b"- name: a\r",
        b"- name: a\r- name: b\r",
        b"- name: a\r\n- name: b\r",
        b"- name: a\n# c\r",
        b"--- !!seq\n- name: a\n",
        b"--- &tasks !!seq\n- name: a\n",
        b"!!seq\n  - name: a\n",
    ],
)
def test_a_carriage_return_at_the_end_and_a_tag_before_the_list(content):
    """R11 of the third review: with the first, our mark was not found again; with the
    second, the block was in the column of the tag, and a traceback followed.
    """
    merged = installed(content)
    assert find(merged).state == INSTALLED
    assert len(yaml.safe_load(merged)) > len(yaml.safe_load(content))
    assert installed(merged) == merged
    assert removed(merged) == content


@given(
    st.lists(ATOMS, max_size=8).map("".join),
    st.sampled_from(["\n", "\r\n"]),
    st.booleans(),
    st.booleans(),
)
def test_of_any_file_nothing_is_lost(text, line_break, mark, final):
    content = text.replace("\n", line_break)
    content = content if final else content.rstrip("\n").removesuffix("\r")
    before = (b"\xef\xbb\xbf" if mark else b"") + content.encode()
    try:
        after = installed(before)
    except PostTasksProblem as problem:
        assert problem.fix
        return
    assert find(after).state == INSTALLED
    assert installed(after) == after
    # What stands between marks of ours is a block of ours, which is replaced.
    is_new = find(before).state == MISSING
    assert removed(after) == (before if is_new else removed(before))
