# SPDX-License-Identifier: GPL-2.0-or-later
"""Find tasks in the post-tasks file that the engine does not survive, or report."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ovirt_rdma.engine_sdk_tools.deploy_hook.block import (
    PostTasksProblem,
    nodes_of,
    tasks_of,
)
from ovirt_rdma.engine_sdk_tools.deploy_hook.traps import included_roles, traps_of

pytestmark = pytest.mark.hypervisor


def found(text):
    return [(trap.id, trap.line) for trap in traps_of(nodes_of(text.encode()))]


def test_our_own_tasks_have_none():
    assert traps_of(nodes_of(tasks_of().encode())) == []


@pytest.mark.parametrize(
    ("task", "id"),
    [
        ("debug: {var: x}", "debug"),
        ("ansible.builtin.debug: {msg: [a, b]}", "debug"),
        ("{debug: {msg: a}, loop: [1]}", "debug"),
        ("{debug: {msg: a}, with_items: [1]}", "debug"),
        ("debug: {msg: an ERROR}", "debug"),
        ('debug: {msg: "a\\nb"}', "debug"),
        ("{name: Fetch vdsm id, command: x}", "name"),
        ("{block: [{command: x}], rescue: [{command: y}]}", "rescue"),
        ("meta: end_play", "end"),
        ("{block: [{debug: {var: x}}]}", "debug"),
        ("{block: [{command: x}], always: [{debug: {var: x}}]}", "debug"),
        ("just text", "no-task"),
    ],
)
def test_each_trap_is_found_with_its_line(task, id):
    assert found(f"---\n\n- {task}\n") == [(f"deploy-hook-{id}", 3)]


@pytest.mark.parametrize(
    "task",
    [
        "debug: {msg: all is well}",
        'debug: {msg: "[WARNING] it is warm"}',
        "debug: {msg: '{{ x }}'}",
        "{command: x, loop: [1]}",
        "meta: flush_handlers",
        "{block: [{command: x}]}",
        "copy: {content: an ERROR}",
    ],
)
def test_what_the_engine_survives_is_no_finding(task):
    assert found(f"- {task}\n") == []


def test_a_task_inside_of_itself_ends():
    assert found("- &a {block: [*a]}\n") == []


def test_roles_that_are_looked_for_during_the_run():
    text = (
        "- include_role: {name: one}\n"
        "- block:\n"
        "  - name: inner\n"
        "    ansible.builtin.include_role:\n"
        "      name: a.b.two\n"
        "- include_role: {name: '{{ x }}'}\n"
    )
    roles = included_roles(nodes_of(text.encode()))
    assert [(one.line, one.task, one.role) for one in roles] == [
        (1, "", "one"),
        (3, "inner", "a.b.two"),
    ]


ATOMS = (
    "- ",
    "debug: ",
    "{",
    "}",
    "[",
    "]",
    "msg: ",
    "a",
    "\n",
    "  ",
    "block:\n",
    "*a",
)


@given(st.lists(st.sampled_from((*ATOMS, "&a ", "? ", "meta: ")), max_size=12))
def test_of_any_tasks_there_is_a_verdict(parts):
    try:
        nodes = nodes_of("".join(parts).encode())
    except PostTasksProblem:
        return
    traps_of(nodes)
    included_roles(nodes)
