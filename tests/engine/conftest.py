# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import pytest
from engine_double import EngineDouble, behaviours, sample_world
from support.engine.engine_command_line import Clock, open_session

from ovirt_rdma.engine_sdk_tools.hosts import ansible


def pytest_generate_tests(metafunc):
    """Also run each test of an engine's behaviour on a double without it, where it must
    fail.
    """
    marker = metafunc.definition.get_closest_marker("engine_does")
    if marker is None:
        return
    must_fail = pytest.mark.xfail(
        strict=True, raises=(AssertionError, pytest.fail.Exception)
    )
    kinder = [
        pytest.param(one, id=f"kinder-{one}", marks=must_fail) for one in marker.args
    ]
    metafunc.parametrize(
        "made_kinder", [pytest.param("", id="as-it-is"), *kinder], indirect=True
    )


@pytest.fixture(autouse=True)
def made_kinder(request, monkeypatch):
    """Return the id of a behaviour that the doubles of this test lack, "" for none."""
    one = getattr(request, "param", "")
    if one:
        assert one in behaviours.BEHAVIOURS
        monkeypatch.setattr(behaviours, "left_out", {one})
    return one


@pytest.fixture(autouse=True)
def nothing_of_this_machine(monkeypatch, tmp_path):
    """Hide the settings and states of this user, and the key of an engine here."""
    monkeypatch.setattr(ansible, "ENGINE_KEY", str(tmp_path / "no-key"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def double():
    """Yield an engine with three hosts; check that it got no unknown request."""
    with EngineDouble(sample_world(hosts=3)) as made:
        yield made
        assert made.strict_errors == []


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def session(double, clock):
    """Yield a session whose waits take no time."""
    with open_session(double, clock) as made:
        yield made
