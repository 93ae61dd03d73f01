# SPDX-License-Identifier: GPL-2.0-or-later
"""Files of other versions are refused: the table of docs/packages.md."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ovirt_rdma.engine_sdk_tools.conversion.model import CONVERSION, StateFile
from ovirt_rdma.engine_sdk_tools.fleet.preparation import (
    PREPARATION,
    PreparationFile,
)
from ovirt_rdma.host.changes import journal, plan
from ovirt_rdma.host.collect.storage import MARKS, marks_from_json
from ovirt_rdma.host.daemon import tasks
from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.facts import model
from ovirt_rdma.host.paths import JOURNAL, under
from ovirt_rdma.host.policy import store
from ovirt_rdma.host.system.json_codec import Envelope

TOP = Path(__file__).parents[1]
HOOK = TOP / "vdsm_hooks/after_get_caps/50_ovirt_rdma"


@dataclass(frozen=True)
class Stored:
    """A row of the table. ``read`` reads the file, which has to be at ``place`` below a
    root.
    """

    name: str
    envelope: Envelope
    read: Callable[[Path], Any]
    place: str = "/a/b/file.json"


ROWS = (
    Stored("facts", model.FACTS, model.load),
    Stored("a saved plan", plan.PLAN, lambda path: plan.load(str(path))),
    Stored(
        "journal.json",
        journal.DOCUMENT,
        lambda path: journal.Journal(path.parents[3]).ledger(),
        JOURNAL,
    ),
    Stored("policy.json", store.STORED, store.read),
    Stored(
        "degraded.json",
        MARKS,
        lambda path: marks_from_json(path.read_bytes()),
    ),
    Stored(
        "the state of a conversion", CONVERSION, lambda path: StateFile(path).read()
    ),
    Stored(
        "the state of a preparation",
        PREPARATION,
        lambda path: PreparationFile(path).read(),
    ),
)
each_row = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)


def table() -> dict[str, list[str]]:
    """Return the cells of the page's rows by file, without code marks."""
    section = (
        (TOP / "docs/packages.md").read_text().partition("## Files of other ver")[2]
    )
    lines = section.partition("\n## ")[0].replace("`", "").splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")]
    return {row[0]: row[1:] for row in rows[1:]}


def row_of(name: str) -> list[str]:
    """Return the cells after the one that names the file."""
    (found,) = [cells for file, cells in table().items() if name in file]
    return found


@each_row
@pytest.mark.parametrize("newer", [True, False])
def test_another_version_is_refused_in_one_sentence_and_the_file_stays(
    row, newer, tmp_path
):
    """Another version explains all other mistakes: its keys are not known."""
    version = row.envelope.version + (1 if newer else -1)
    path = under(tmp_path, row.place)
    path.parent.mkdir(parents=True)
    whole = {"schema_version": version, "kind": row.envelope.kind, "more": 1}
    path.write_text(json.dumps(whole))
    before = path.read_bytes()
    with pytest.raises((Problem, ValueError)) as caught:
        row.read(path)
    who = "a newer" if newer else "an older"
    assert (
        f"it was written by {who} version of ovirt-rdma (schema version {version}; "
        f"this one reads {row_of(row.name)[1]})"
    ) in str(caught.value)
    assert path.read_bytes() == before
    cell = row_of(row.name)[2]
    # Marks are ignored then, and a line is logged.
    problem = isinstance(caught.value, Problem)
    fix = caught.value.fix if problem else "nothing"
    assert cell.startswith(fix if newer else fix.partition(", or")[0])


@each_row
def test_the_table_says_what_the_code_has(row):
    envelope = row.envelope
    assert row_of(row.name)[:2] == [envelope.kind, str(envelope.version)]


def test_the_capabilities_are_as_the_hook_reads_them():
    whole = json.loads(tasks.text_of_caps())
    reads = re.search(r"^SCHEMA_VERSION = (\d+)$", HOOK.read_text(), re.MULTILINE)
    assert int(reads[1]) == whole["schema_version"]
    assert row_of("caps.json")[:2] == [whole["kind"], reads[1]]


def test_every_envelope_is_in_the_table():
    made = [
        node
        for room in ("cli", "engine_sdk_tools", "host", "storage", "vdsm_hooks")
        for path in (TOP / room).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "Envelope"
    ]
    kinds = {node.args[0].value for node in made}
    assert {cells[0] for cells in table().values()} == kinds
    assert len(table()) == len(made)
