# SPDX-License-Identifier: GPL-2.0-or-later
"""Check the collection's data, and the role against the traps of the engine."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from ovirt_rdma.host import __version__

COLLECTION = Path(__file__).resolve().parents[2] / "host_deploy"
ROLE = COLLECTION / "roles/prepare"
OURS = "ovirt-rdma: "
REPORTED = "{{ ovirt_rdma_on_failure == 'report' }}"


def loaded(path: str) -> Any:
    return yaml.safe_load((COLLECTION / path).read_text("utf-8"))


MAIN = loaded("roles/prepare/tasks/main.yml")
IMPORTED = [
    task
    for name in ("present", "absent", "confirm")
    for task in loaded(f"roles/prepare/tasks/{name}.yml")
]
TASKS = [*MAIN, *IMPORTED]


def test_the_collection_has_the_version_of_the_product():
    assert loaded("galaxy.yml")["version"] == __version__
    assert f"## {__version__}\n" in (COLLECTION / "CHANGELOG.md").read_text("utf-8")


def test_every_variable_is_documented_with_its_default():
    defaults = loaded("roles/prepare/defaults/main.yml")
    options = loaded("roles/prepare/meta/argument_specs.yml")["argument_specs"]["main"][
        "options"
    ]
    assert {name: option["default"] for name, option in options.items()} == defaults
    table = re.findall(
        r"^\| `(ovirt_rdma_\w+)` \| (?:`([^`]*)`|empty) \|",
        (ROLE / "README.md").read_text("utf-8"),
        re.MULTILINE,
    )
    assert {name: yaml.safe_load(text) or "" for name, text in table} == {
        name: value or yaml.safe_load(yaml.safe_dump(value)) or ""
        for name, value in defaults.items()
    }


def action(task: dict[str, Any]) -> str:
    return next(key for key in task if "." in key)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task["name"])
def test_a_task_is_an_event_to_read_and_no_trap(task):
    """The traps are those of tests/support/engine/host_deploy_events.py."""
    assert task["name"].startswith(OURS)
    # The engine formats the output of "debug", and throws if it looks different.
    assert action(task).count(".") == 2
    # Of a loop the engine shows the name without its item.
    assert "loop" not in task
    # A rescued failure fails the installation too.
    assert not {"block", "rescue", "always"} & set(task)
    if action(task).startswith("ovirt_rdma.host."):
        assert (task["ignore_errors"], "register" in task) == (REPORTED, True)


def test_severities_are_where_the_engine_looks_for_them():
    marked = {task["name"] for task in TASKS if "[" in task["name"]}
    assert marked == {
        "ovirt-rdma: attention: [WARNING] {{ ovirt_rdma_attention }}",
        "ovirt-rdma: host is not prepared: [ERROR] {{ ovirt_rdma_problem }}",
    }


def test_the_sentinel_is_last():
    assert MAIN[-1]["name"] == "ovirt-rdma: host is prepared {{ ovirt_rdma_proof }}"
    assert "not ansible_check_mode" in MAIN[-1]["when"]
    names = [task["name"] for task in TASKS]
    assert sum(name.startswith("ovirt-rdma: host is prepared") for name in names) == 1


def test_a_failure_of_every_step_is_looked_at():
    results = "".join(loaded("roles/prepare/vars/main.yml")["ovirt_rdma_results"])
    registered = {task["register"] for task in TASKS if "register" in task}
    assert set(re.findall(r"\{\{ (\w+) \|", results)) == registered


@pytest.mark.parametrize(
    "path",
    [*COLLECTION.glob("plugins/modules/*.py")],
    ids=lambda path: path.stem,
)
def test_a_module_is_listed(path):
    assert f"`{path.stem}`" in (COLLECTION / "README.md").read_text("utf-8")
    assert f"`{path.stem}`" in (COLLECTION / "CHANGELOG.md").read_text("utf-8")
