# SPDX-License-Identifier: GPL-2.0-or-later
"""Test docs/engine-api.md: every name in it exists, and its examples run in order."""

from __future__ import annotations

import contextlib
import importlib
import json
import re
from pathlib import Path
from unittest import mock

import pytest
from engine_double import EngineDouble, sample_world
from engine_double.jobs import jobs_of
from support.engine.engine_command_line import Clock, access
from support.engine.engine_door import DoubleDoor, status_document

from ovirt_rdma.engine_sdk_tools import automation
from ovirt_rdma.engine_sdk_tools.api.session import Session
from ovirt_rdma.engine_sdk_tools.model import Host
from ovirt_rdma.host.facts import model

pytestmark = pytest.mark.engine

PAGE = Path(__file__).parents[2] / "docs" / "engine-api.md"
PACKAGE = "ovirt_rdma.engine_sdk_tools"
ROWS = re.findall(r"^\| `([\w.]+)` \| (`.*?`) \|", PAGE.read_text(), re.MULTILINE)
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.M | re.S)


@pytest.mark.parametrize(("module", "names"), ROWS)
def test_names(module, names):
    found = importlib.import_module(f"{PACKAGE}.{module}")
    wanted = re.findall(r"`(\w+)`", names)
    assert [name for name in wanted if not hasattr(found, name)] == []


def test_what_examples_import_is_in_a_table():
    listed = {
        (f"{PACKAGE}.{module}", name)
        for module, names in ROWS
        for name in re.findall(r"`(\w+)`", names)
    }
    used = set()
    for folder in (EXAMPLES, _programs()):
        for text in folder:
            for module, names in re.findall(
                r"^from (ovirt_rdma\.engine_sdk_tools[\w.]*) import (\(.*?\)|[^\n]*)",
                text,
                re.M | re.S,
            ):
                used |= {(module, name) for name in re.findall(r"\w+", names)}
    assert used - listed == set()


def test_examples_run_one_after_the_other(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    world = sample_world(hosts=2, domains=("data1",), addon=True)
    _dump(world, tmp_path / "dumps")
    here: dict[str, object] = {}
    with EngineDouble(world) as double:
        with no_waits(double, tmp_path):
            for text in EXAMPLES:
                exec(compile(text, str(PAGE), "exec"), here)
        assert double.strict_errors == []
    said = capsys.readouterr().out.splitlines()
    parts = said.index("host01 up")
    assert said[0] == "data1 active "
    assert "moving host02 to maintenance" in said[:parts]
    at = said.index("converted ")
    assert said[at : at + 3] == ["converted ", "ok", "reverted"]
    # In the double, hosts have no hooks of ours.
    checks = said[at + 3 : parts - 2]
    assert {line.partition(" ")[0] for line in checks} == {"host01", "host02"}
    assert said[parts - 2 : parts] == [
        "{'host01': 'loaded', 'host02': 'loaded'}",
        "storage is in ('cl1',)",
    ]
    assert {job.status for job in jobs_of(world).values()} == {"finished"}
    said = said[parts:]
    assert said[:3] == ["host01 up", "host02 up", "POST /hosts/123/activate <action/>"]
    assert "ok" in said
    assert "attaching data2 to dc1" in said
    assert said[-2].startswith("data1 setting the mount options")
    assert said[-1] == "cl1 ending the mark of cluster cl1"


@contextlib.contextmanager
def no_waits(double, folder: Path):
    """The environment of the page's reader, with hosts of the double."""
    clock, door = Clock(), DoubleDoor(double.world)

    def quick(settings):
        return Session(settings, clock=clock, sleep=clock.sleep)

    with (
        mock.patch.dict("os.environ", access(double)),
        mock.patch.object(automation, "Session", quick),
        mock.patch.object(automation, "default_key", lambda: "a key"),
        mock.patch.object(automation, "Access", lambda key: key),
        mock.patch.object(automation, "AnsibleHosts", lambda _: door),
        mock.patch.object(automation, "state_folder", lambda *_: folder / "states"),
    ):
        yield


def _programs() -> list[str]:
    return [path.read_text() for path in (PAGE.parents[1] / "examples").glob("*.py")]


def _dump(world, folder: Path) -> None:
    """Write the output of hosts to files, as docs/engine.md says."""
    folder.mkdir()
    for host in world.hosts.values():
        asked = Host(host.id, host.name, host.address, host.cluster)
        report = DoubleDoor(world).reports([asked])[host.name]
        facts = json.dumps(model.to_json_dict(report.facts))
        (folder / f"{host.name}.facts.json").write_text(facts)
        status = json.dumps(status_document(host))
        (folder / f"{host.name}.status.json").write_text(status)
        (folder / f"{host.name}.policy.yaml").write_text(host.policy_text or "")
