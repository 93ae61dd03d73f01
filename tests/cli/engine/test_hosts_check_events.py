# SPDX-License-Identifier: GPL-2.0-or-later
"""``hosts check --events`` tells the engine which hosts have a failed check."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone

import pytest
from engine_double import EngineDouble, sample_world
from engine_double.faults import Status
from engine_double.hosts import our_hooks
from support.engine.engine_command_line import run_engine
from support.engine.engine_door import DoubleDoor
from support.storage.sample_paths import GONE, HALF

from ovirt_rdma.cli.engine import hosts as hosts_verbs
from ovirt_rdma.cli.engine import session
from ovirt_rdma.engine_sdk_tools.fleet import check
from ovirt_rdma.engine_sdk_tools.fleet.check import failures
from ovirt_rdma.engine_sdk_tools.model import FAIL, OK, WARN, Axis, Cell, Matrix
from ovirt_rdma.host.system.json_codec import plain
from ovirt_rdma.storage.paths.state import PathsState

pytestmark = pytest.mark.hypervisor

UNSUPPORTED = "ovirt-rdma does not support this VDSM: NFSConnection has no connect()"
NOON = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)


class Today(datetime):
    """A clock that tests set."""

    at = NOON

    @classmethod
    def now(cls, tz=None):
        return cls.at


@pytest.fixture
def site(capsys, tmp_path, monkeypatch):
    """Two hosts on which all checks pass, and a function that runs the check."""
    monkeypatch.setattr(session, "POLICY_YAML", str(tmp_path / "none.yaml"))
    monkeypatch.setattr(hosts_verbs, "datetime", Today)
    monkeypatch.setattr(Today, "at", NOON)
    world = sample_world(hosts=2, addon=True)
    for host in world.hosts.values():
        host.policy_text = "version: 1\n"
        host.hooks = our_hooks()
    with EngineDouble(world) as double:

        def call(*words):
            way = DoubleDoor(world)
            way.paths = call.paths
            return run_engine(capsys, double, way, "hosts", "check", *words)

        call.world, call.double, call.paths = world, double, {}
        yield call
        assert double.strict_errors == []


def events(site):
    """Return the severity, host and text of our events."""
    return [
        (one.severity, site.world.hosts[one.host].name, one.description)
        for one in site.world.log.events
        if one.origin == "ovirt-rdma"
    ]


def refuse_vdsm(site, name="host02"):
    """Let the launcher of a host have started stock vdsmd."""
    site.world.host(name).stock_because = UNSUPPORTED


def test_a_vdsm_that_is_not_supported_is_an_event(site):
    refuse_vdsm(site)
    result = site("--events")
    assert result.code == 3
    assert UNSUPPORTED in result.out
    assert "note: the engine has a new event about host02" in result.err
    ((severity, host, text),) = events(site)
    assert (severity, host) == ("error", "host02")
    assert text.startswith("ovirt-rdma: checks of host02 failed: running: the launcher")
    assert UNSUPPORTED in text


def test_without_the_option_there_is_none(site):
    refuse_vdsm(site)
    assert site().code == 3
    assert events(site) == []
    assert not any(seen.changes for seen in site.double.requests)


def test_a_good_host_has_no_event(site):
    result = site("--events")
    assert (result.code, events(site)) == (0, [])


def test_the_same_failure_is_told_once_a_day(site, monkeypatch):
    refuse_vdsm(site)
    assert site("--events").code == 3
    again = site("--events")
    assert (again.code, again.err) == (3, "")
    assert len(events(site)) == 1
    monkeypatch.setattr(Today, "at", NOON.replace(day=2))
    site("--events")
    assert len(events(site)) == 2


def test_another_failure_and_each_host_have_an_event_of_their_own(site):
    for name in ("host01", "host02"):
        refuse_vdsm(site, name)
    site("--events")
    assert [host for _, host, _ in events(site)] == ["host01", "host02"]
    site.world.host("host02").hooks = []
    site("--events")
    assert [host for _, host, _ in events(site)] == ["host01", "host02", "host02"]


def test_an_engine_that_refuses_the_event_does_not_hide_the_table(site):
    refuse_vdsm(site)
    site.double.fail_next("POST", "^/events", Status(403))
    result = site("--events")
    assert result.code == 1
    assert UNSUPPORTED in result.out
    assert "note: " in result.err


def test_what_the_engine_sees_itself_is_no_event():
    cells = (
        Cell(FAIL, "down", "the host is down", source="engine"),
        Cell(FAIL, "no", "not enabled", "enable it"),
        Cell(WARN, "2 warn", "two"),
        Cell(OK, "ok"),
    )
    matrix = Matrix(
        "hosts",
        (Axis("hv1", "7"),),
        tuple(map(Axis, ("status", "enabled", "rules", "policy"))),
        (cells,),
    )
    (found,) = failures(matrix)
    assert (found.host, found.name, found.checks) == ("7", "hv1", ("enabled",))
    assert found.text == "enabled: not enabled (fix: enable it)"


def test_a_long_text_of_a_host_is_cut():
    cell = Cell(FAIL, "no", "x" * 100_000)
    matrix = Matrix("hosts", (Axis("hv1", "7"),), (Axis("running"),), ((cell,),))
    assert len(failures(matrix)[0].text) == check._LONGEST


def test_a_path_that_is_down_is_a_warning(site):
    site.paths["host02"] = plain(PathsState(0, 0, (HALF,)))
    result = site("--events")
    assert result.code == 0
    ((severity, host, text),) = events(site)
    assert (severity, host) == ("warning", "host02")
    assert text.startswith("ovirt-rdma: checks of host02 warn: paths: nas1: 10.98.0.1")
    site("--events")
    assert len(events(site)) == 1
    # Worse than before, on the same day.
    cut = replace(HALF, paths=(GONE, replace(GONE, address="10.99.0.1")))
    site.paths["host02"] = plain(PathsState(0, 0, (cut,)))
    assert site("--events").code == 3
    assert [severity for severity, *_ in events(site)] == ["warning", "error"]
