# SPDX-License-Identifier: GPL-2.0-or-later
"""Each step that begins in the progress of a verb ends there, whatever happens."""

from __future__ import annotations

import shlex
from collections import Counter

import pytest
from engine_double import EngineDouble, sample_world
from engine_double.faults import AnswerLost, Conflict
from support.engine.engine_command_line import run_engine
from support.engine.engine_door import DoubleDoor
from support.engine.told_hosts import rules

from ovirt_rdma.cli.engine import session as cli_session
from ovirt_rdma.engine_sdk_tools.api.session import Session
from ovirt_rdma.engine_sdk_tools.conversion.model import StateFolder

pytestmark = pytest.mark.engine

POLICY = rules("prefer-rdma", "/exports/data1")
# Each verb, and what is done before it.
VERBS = {
    "network create lan --datacenter dc1 --mtu 2044": (),
    "network attach lan --hosts '*' --nic-match ib0 --addresses 10.20.0.11/24": (
        "network create lan --datacenter dc1 --mtu 2044",
    ),
    "domain create new --export nfs2.example.com:/exports/new --datacenter dc1": (),
    "policy push policy.yaml --hosts '*'": (),
    "domain convert data1 --to rdma --rolling": (),
    "domain revert data1": ("domain convert data1 --to rdma --rolling",),
    "domain heal": (),
    "hosts prepare --by reinstall --again": (),
    "hosts prepare --by ssh --again": (),
}
FAULTS = {"refused": Conflict(), "lost": AnswerLost(), "interrupted": None}


class Site:
    """A double; ``at`` is the number of the change with the fault ``what``."""

    def __init__(self, capsys, double):
        self._capsys, self.double = capsys, double
        self.door = DoubleDoor(double.world)
        self.number, self.at, self.what = 0, None, None
        self._spring, double.traps.spring = double.traps.spring, self._sprung

    def run(self, words):
        words = (*shlex.split(words), "-y", "-o", "json")
        return run_engine(self._capsys, self.double, self.door, *words)

    def _sprung(self, method, path):
        if method != "GET" and not path.startswith(("/jobs", "/events", "/ovirt")):
            self.number += 1
            if self.number - 1 == self.at:
                return self.what
        return self._spring(method, path)


@pytest.fixture
def in_folder(tmp_path, monkeypatch):
    (tmp_path / "policy.yaml").write_text(POLICY)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("words", VERBS)
def test_each_step_ends(capsys, in_folder, tmp_path, monkeypatch, words, fault):
    number = 0
    while _step_of(capsys, tmp_path / str(number), monkeypatch, words, fault, number):
        number += 1


def _step_of(capsys, folder, monkeypatch, words, fault, number):
    """Run the verb with the fault at one of its changes; return whether it had one."""
    world = sample_world(hosts=2, domains=("data1",), addon=True)
    if "heal" in words:
        for host in world.hosts.values():
            host.policy_text = POLICY
    monkeypatch.setattr(cli_session, "conversion_states", lambda: StateFolder(folder))
    with EngineDouble(world) as double, monkeypatch.context() as patched:
        site = Site(capsys, double)
        for before in VERBS[words]:
            assert site.run(before).code == 0
        site.number, site.at, site.what = 0, number, FAULTS[fault]
        if fault == "interrupted":
            acts = iter(range(1000))
            for where, name in (
                (Session, "perform"),
                (Session, "wait_until"),
                (DoubleDoor, "push_policy"),
                (DoubleDoor, "prepare"),
            ):
                interrupted = _interrupted_at(number, acts, getattr(where, name))
                patched.setattr(where, name, interrupted)
        done = site.run(words)
        steps = Counter()
        for one in done.events:
            sign = {"begin": 1, "end": -1}.get(one["event"], 0)
            steps[one.get("step"), one.get("host")] += sign
        assert set(steps.values()) <= {0}, (number, done)
        assert double.strict_errors == []
    return done.code == 130 or (fault != "interrupted" and site.number > number)


def _interrupted_at(number, acts, act):
    """Return ``act``, interrupted if it is that of this number."""

    def acted(self, *words, **more):
        if next(acts) == number:
            raise KeyboardInterrupt
        return act(self, *words, **more)

    return acted
