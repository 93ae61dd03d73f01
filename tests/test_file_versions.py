# SPDX-License-Identifier: GPL-2.0-or-later
"""Files of other versions, both directions: the table of docs/packages.md.

tests/data/earlier-version was written by commit 41d5319; findings.json and
preparation.json by f3ab963, facts.json by fbbc7ca, conversion-rolling.json later. What
this version writes for the same content has the same bytes, so those versions read it
after a downgrade; but for facts.
"""

from __future__ import annotations

import ast
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from ovirt_rdma.engine_sdk_tools.conversion.state_file import CONVERSION, StateFile
from ovirt_rdma.engine_sdk_tools.preparation.state_file import (
    PREPARATION,
    PreparationFile,
)
from ovirt_rdma.host.changes import boot, plan_file
from ovirt_rdma.host.changes.journal import Journal, line_of
from ovirt_rdma.host.changes.kinds.model import RECORDS
from ovirt_rdma.host.collect.parsers import degraded_marks
from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.facts import dump
from ovirt_rdma.host.paths import BOOT_JSON, FINDINGS_JSON, JOURNAL, under
from ovirt_rdma.host.policy import json_form, store
from ovirt_rdma.host.services import capabilities, kernel_change
from ovirt_rdma.host.system.json_codec import plain
from ovirt_rdma.host.system.json_document import Envelope
from ovirt_rdma.storage.benchmark.model import DOCUMENT
from ovirt_rdma.storage.health.state import HEALTH

TOP = Path(__file__).parents[1]
DATA = TOP / "tests/data"
EARLIER = DATA / "earlier-version"
HOOK = TOP / "vdsm_hooks/after_get_caps/50_ovirt_rdma"


def _boot(path: Path) -> bytes:
    settings = boot.read_boot_settings(path.parents[3])
    return boot.BOOT_SETTINGS.text({"settings": plain(settings)}).encode()


def _policy(path: Path) -> bytes:
    stored = store.read(path)
    policy = json_form.to_json_dict(stored.policy)
    content = {"source": stored.source, "loaded_at": stored.loaded_at, "policy": policy}
    assert stored.digest == store.STORED.around(content)["digest"]
    return store.STORED.text(content).encode()


def _findings(path: Path) -> bytes:
    root = path.parents[3]
    kernel_change.write_record(root, kernel_change.read_record(root))
    return path.read_bytes()


def _plan(path: Path) -> bytes:
    plan_file.save(plan_file.load(path), path)
    return path.read_bytes()


def _state(path: Path) -> bytes:
    file = (PreparationFile if "prep" in path.name else StateFile)(path)
    file.write(file.read())
    return path.read_bytes()


@dataclass(frozen=True)
class Stored:
    """A row of the table. ``again`` reads the file and returns it as it is written now;
    ``place`` is where it has to be below a root.
    """

    name: str
    envelope: Envelope
    sample: Path
    again: Callable[[Path], bytes]
    place: str = ""


ROWS = (
    Stored(
        "facts",
        dump.FACTS,
        EARLIER / "facts.json",
        lambda path: dump.to_json(dump.load(path)).encode(),
    ),
    Stored("a saved plan", plan_file.PLAN, EARLIER / "plan.json", _plan),
    Stored(
        "journal",
        RECORDS,
        EARLIER / "journal-of-every-record.jsonl",
        lambda path: b"".join(map(line_of, Journal(path.parents[3]).records())),
        JOURNAL,
    ),
    Stored("boot.json", boot.BOOT_SETTINGS, EARLIER / "boot.json", _boot, BOOT_JSON),
    Stored("policy.json", store.STORED, EARLIER / "policy-of-every-key.json", _policy),
    Stored(
        "findings.json",
        kernel_change.FINDINGS,
        EARLIER / "findings.json",
        _findings,
        FINDINGS_JSON,
    ),
    Stored(
        "degraded.json",
        degraded_marks.MARKS,
        EARLIER / "degraded.json",
        lambda path: degraded_marks.to_json(
            degraded_marks.from_json(path.read_bytes())
        ),
    ),
    Stored(
        "the state of a conversion",
        CONVERSION,
        EARLIER / "conversion-rolling.json",
        _state,
    ),
    Stored(
        "the state of a preparation", PREPARATION, EARLIER / "preparation.json", _state
    ),
)
each_row = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)


@pytest.fixture
def put(tmp_path):
    def put(row: Stored) -> Path:
        path = under(tmp_path, row.place or f"/a/b/{row.sample.name}")
        path.parent.mkdir(parents=True)
        shutil.copy(row.sample, path)
        return path

    return put


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
def test_what_an_earlier_version_wrote_is_read_and_written_as_then(row, put):
    path = put(row)
    written = row.again(path)
    if row.envelope.version == 1:
        assert written == row.sample.read_bytes()
    else:  # the earlier version refuses it
        assert json.loads(written)["schema_version"] == row.envelope.version
        assert row.again(path) == written


def with_version(path: Path, version: int) -> None:
    """Raise or lower the version of the document, and nothing else."""
    text, count = re.subn(
        r'("schema_version": ?)\d+', rf"\g<1>{version}", path.read_text(), count=1
    )
    assert count == 1
    # A line of the journal that has a checksum is damaged otherwise.
    path.write_text(re.sub(r'(?m)^\{"crc32":"\w+",', "{", text))


@each_row
@pytest.mark.parametrize("newer", [True, False])
def test_a_version_that_is_not_read_is_one_sentence_and_the_file_stays(row, newer, put):
    path = put(row)
    version = row.envelope.version + 1 if newer else row.envelope.oldest - 1
    with_version(path, version)
    before = path.read_bytes()
    with pytest.raises((Problem, ValueError)) as caught:
        row.again(path)
    who = "a newer" if newer else "an older"
    assert (
        f"it was written by {who} version of ovirt-rdma (schema version {version}; "
        f"this one reads {row_of(row.name)[2]})"
    ) in str(caught.value)
    assert path.read_bytes() == before
    cell = row_of(row.name)[3]
    # Marks are ignored then, and a line is logged.
    problem = isinstance(caught.value, Problem)
    fix = caught.value.fix if problem else "nothing"
    assert cell.startswith(fix if newer else fix.partition(", or")[0])


@each_row
def test_the_table_says_what_the_code_has(row):
    envelope = row.envelope
    oldest = f"{envelope.oldest} to " if envelope.oldest < envelope.version else ""
    kind = envelope.kind if envelope.shows_kind else "none"
    shown = [kind, str(envelope.version), f"{oldest}{envelope.version}"]
    assert row_of(row.name)[:3] == shown


def test_the_capabilities_are_as_the_hook_and_its_earlier_versions_read_them():
    text = capabilities.text_of_caps()
    assert text == '{"schema_version": 1, "additionalFeatures": ["NFS_RDMA"]}\n'
    assert row_of("caps.json")[:3] == ["none", "1", "1"]
    reads = re.search(r"^SCHEMA_VERSION = (\d+)$", HOOK.read_text(), re.MULTILINE)
    assert int(reads[1]) == json.loads(text)["schema_version"]


def test_every_envelope_is_in_the_table():
    made = [
        node
        for room in ("cli", "engine_sdk_tools", "host", "storage", "vdsm_hooks")
        for path in (TOP / room).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "Envelope"
    ]
    kinds = {node.args[0].value for node in made}
    rows = {row.envelope.kind for row in ROWS}
    # No version before this one wrote them, or they are written again within minutes.
    rows |= {capabilities.CAPS.kind, capabilities.INTERFACES.kind}
    rows |= {HEALTH.kind, DOCUMENT.kind}
    assert kinds == rows
    assert len(table()) == len(made) == len(rows)
