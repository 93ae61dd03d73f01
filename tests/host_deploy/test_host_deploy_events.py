# SPDX-License-Identifier: GPL-2.0-or-later
"""Test the double of the engine's parser of Ansible's events."""

from __future__ import annotations

from typing import Any

import pytest
from support.engine.host_deploy_events import (
    ERROR,
    NORMAL,
    WARNING,
    deployed,
    format_debug_message,
)


def event(kind: str, task: str, stdout: str = "", **data: Any) -> dict[str, Any]:
    about = {"task": task, "task_action": "command", "host": "hv1", **data}
    return {"event": kind, "stdout": stdout, "event_data": about}


@pytest.mark.parametrize(
    ("task", "shown"),
    [
        ("Install it", (NORMAL, "Install it")),
        ("Host [ERROR] is bad", (ERROR, "Host is bad")),
        ("a: b: [WARNING] c; fix: d", (WARNING, "a: b: c; fix: d")),
        # Nothing after it: the name is shown as it is.
        ("Host [ERROR]", (NORMAL, "Host [ERROR]")),
        ("[ERROR] is bad", (NORMAL, "[ERROR] is bad")),
    ],
)
def test_a_task_that_is_done_is_an_event(task, shown):
    assert deployed([event("runner_on_ok", task)]).events == [shown]


def test_the_first_failure_ends_the_installation():
    result = deployed(
        [event("runner_on_failed", "a", ignore_errors=None), event("runner_on_ok", "b")]
    )
    assert (result.events, result.failure) == ([], "Task a failed to execute.")


def test_an_ignored_failure_is_no_event():
    result = deployed([event("runner_on_failed", "a", ignore_errors=True)])
    assert (result.events, result.failure) == ([], "")


def test_a_host_that_is_unreachable_fails_the_installation():
    assert deployed([event("runner_on_unreachable", "a")]).failure == "UNREACHABLE"


@pytest.mark.parametrize("kind", ["error", "verbose", "runner_on_skipped", "warning"])
def test_other_events_say_nothing(kind):
    result = deployed([event(kind, "a")])
    assert (result.events, result.failure) == ([], "")


PRINTED = 'ok: [hv1] => {{\r\n    "msg": "{}"\r\n}}'


def test_the_output_of_debug_is_no_event_unless_it_has_a_severity():
    output = PRINTED.format("hello")
    assert format_debug_message("say", output) == "say: debug msg: hello"
    debug = {"task_action": "debug"}
    done = event("runner_on_ok", "say", output, **debug)
    assert deployed([done]).events == []
    done = event("runner_on_ok", "say", PRINTED.format("[WARNING] hello"), **debug)
    assert deployed([done]).events == [(WARNING, "say: hello")]


@pytest.mark.parametrize("output", ["", PRINTED.format("an ERROR there")])
def test_debug_can_fail_the_installation(output):
    done = event("runner_on_ok", "say", output, task_action="debug")
    assert "Exception" in deployed([done]).failure
