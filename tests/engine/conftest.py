# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import pytest
from engine_double import EngineDouble, behaviours, sample_world
from support.engine.engine_command_line import Clock
from support.engine.engine_sessions import open_session


def pytest_generate_tests(metafunc):
    """Run what shows a behaviour of the engine also on a double without it: to fail."""
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
    """The id of a behaviour that no double of this test has, "" for none."""
    one = getattr(request, "param", "")
    if one:
        assert one in behaviours.BEHAVIOURS
        monkeypatch.setattr(behaviours, "left_out", {one})
    return one


@pytest.fixture(autouse=True)
def no_settings_of_this_user(monkeypatch, tmp_path):
    """Keep from what this user has of settings and states."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def double():
    """An engine with three hosts; that nothing was asked of it that there is not."""
    with EngineDouble(sample_world(hosts=3)) as made:
        yield made
        assert made.strict_errors == []


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def session(double, clock):
    """A session whose waiting takes no time."""
    with open_session(double, clock) as made:
        yield made
