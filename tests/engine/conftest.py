# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import pytest
from engine_command_line import Clock
from engine_double import EngineDouble, sample_world
from engine_sessions import open_session


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
