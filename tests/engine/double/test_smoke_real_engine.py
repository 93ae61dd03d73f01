# SPDX-License-Identifier: GPL-2.0-or-later
"""Run every verb against a real engine, and check that everything is removed again.

    . the variables of engine_smoke/site.py
    .venv/bin/pytest -rs -k real_engine tests/engine

The same run is tested with the double.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from engine_double import Conflict, EngineDouble, sample_world
from engine_double.jobs import jobs_of
from engine_smoke.acts import ACTS
from engine_smoke.run import CLEAN_UP, DONE, FAILED, SKIPPED, remove_what_is_left, smoke
from engine_smoke.site import (
    NO_ENGINE,
    PREFIX,
    NotAllowed,
    Notes,
    OtherRun,
    Wishes,
    from_environment,
)
from support.engine.engine_door import DoubleDoor, serve_hosts

pytestmark = pytest.mark.hypervisor

EXPORT = "nfs9.example.com:/exports/empty"
TESTS = Path(__file__).parents[2]


def program(environment, *words):
    """Start the smoke run as a process of its own."""
    path = os.pathsep.join([str(TESTS), *(one for one in sys.path if one)])
    return subprocess.Popen(
        [sys.executable, "-m", "engine_smoke", *words],
        env={**os.environ, **environment, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


# -- against a real engine


@pytest.fixture(scope="module")
def real_outcomes():
    """Run once against the engine of OVIRT_RDMA_TEST_URL; return outcomes by act."""
    try:
        from_environment(os.environ)
    except NotAllowed as reason:
        pytest.skip(str(reason))
    run = program({})
    out, err = run.communicate()
    assert out, err
    found = [json.loads(line) for line in out.splitlines()]
    return {one["act"]: one for one in found}


@pytest.mark.parametrize("act", [*ACTS, CLEAN_UP])
def test_on_a_real_engine(act, real_outcomes):
    one = real_outcomes[act]
    if one["outcome"] == SKIPPED:
        pytest.skip(one["why"])
    assert one["outcome"] == DONE, one["why"]


@pytest.mark.parametrize("lacking", ["URL", "ALLOW_CHANGES"])
def test_without_both_words_no_engine_is_touched(lacking):
    given = {"URL": "http://127.0.0.1:1", "ALLOW_CHANGES": "1", lacking: ""}
    environment = {f"OVIRT_RDMA_TEST_{word}": text for word, text in given.items()}
    with pytest.raises(NotAllowed, match=NO_ENGINE):
        from_environment(environment)


# -- against the double


@dataclass
class Pretended:
    """The double in place of a real engine."""

    double: EngineDouble
    folder: Path

    def wishes(self, **more):
        user, password = next(iter(self.double.world.passwords.items()))
        words = {"export": EXPORT, "rdma": True, "nic": "ib0", **more}
        return Wishes(self.double.url, self.folder / "notes", user, password, **words)

    def run(self, door=None, **more):
        found = {}
        smoke(self.wishes(**more), lambda one: found.update({one.act: one}), door, True)
        return found

    def program(self, *words):
        """Start the run as a process, which asks the hosts of this double."""
        wishes = self.wishes()
        given = {
            "URL": wishes.url,
            "ALLOW_CHANGES": "1",
            "USERNAME": wishes.username,
            "PASSWORD": wishes.password,
            "EXPORT": wishes.export,
            "RDMA": "1",
            "NIC": wishes.nic,
            "HOSTS": "double",
            "NOTES": str(wishes.notes),
        }
        named = {f"OVIRT_RDMA_TEST_{word}": text for word, text in given.items()}
        return program(named, *words)

    def signal_at(self, method, path, number):
        """Start the program and send it a signal after the engine has carried out its
        request, before the answer. Return its exit code and stderr.
        """
        sent = []

        def look(seen):
            meant = seen.method == method and re.search(path, seen.path)
            if meant and not sent:
                sent.append(seen)
                run.send_signal(number)
                if number == signal.SIGKILL:
                    run.wait(60)

        self.double.on_change = look
        run = self.program()
        _, err = run.communicate(timeout=300)
        self.double.on_change = None
        assert sent, err
        return run.returncode, err

    def left(self):
        """Return the state that shows whether something is left."""
        world = self.double.world
        world.settle()
        return (
            {n.name for n in world.networks.values()},
            {c.id: sorted(c.networks) for c in world.clusters.values()},
            {(d.name, d.status) for d in world.domains.values()},
            {row.export: row.mount_options for row in world.connections.values()},
            {h.name: (h.status, dict(h.mounts)) for h in world.hosts.values()},
            {h.name: (h.policy_text, len(h.attachments)) for h in world.hosts.values()},
            {j.description for j in jobs_of(world).values() if j.status == "started"},
        )


@pytest.fixture
def pretended(tmp_path):
    with EngineDouble(sample_world(hosts=2, addon=True)) as double:
        serve_hosts(double, DoubleDoor(double.world))
        yield Pretended(double, tmp_path)
        assert double.strict_errors == []


@pytest.mark.engine
def test_the_run_does_every_verb_and_leaves_nothing(pretended):
    before = pretended.left()
    policy = pretended.folder / "policy.yaml"
    # The hosts' own policy, so that a push leaves nothing.
    policy.write_text("version: 1\n", encoding="utf-8")
    for host in pretended.double.world.hosts.values():
        host.policy_text = policy.read_text(encoding="utf-8")
    before = pretended.left()
    door = DoubleDoor(pretended.double.world)
    found = pretended.run(door, hosts="ssh", policy=str(policy))
    assert {name: one.why for name, one in found.items() if one.outcome != DONE} == {}
    assert list(found) == [*ACTS, CLEAN_UP]
    assert pretended.left() == before


# One changing request of each act, during which the signal is sent.
MOMENTS = {
    "a network in no cluster yet": ("POST", "^/networks$"),
    "one host has the network": ("POST", "/setupnetworks$"),
    "a connection without a domain": ("POST", "^/storageconnections$"),
    "a domain of no data center": ("POST", "^/storagedomains$"),
    "a domain on its way to maintenance": ("POST", "^/datacenters/.*/deactivate$"),
    "a connection with other options": ("PUT", "^/storageconnections/"),
    "a host on its way to maintenance": ("POST", "^/hosts/.*/deactivate$"),
    "a host that comes up": ("POST", "^/hosts/.*/activate$"),
}


@pytest.mark.engine
@pytest.mark.parametrize("moment", MOMENTS)
def test_what_a_killed_run_left_the_next_start_removes(moment, pretended):
    before = pretended.left()
    code, _ = pretended.signal_at(*MOMENTS[moment], signal.SIGKILL)
    assert code == -signal.SIGKILL
    pretended.double.world.settle()
    assert pretended.left() != before
    next_one = pretended.program("clean-up")
    _, err = next_one.communicate(timeout=120)
    assert (next_one.returncode, err) == (0, "")
    assert pretended.left() == before


@pytest.mark.engine
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_cleans_up_at_once(number, pretended):
    before = pretended.left()
    code, err = pretended.signal_at("POST", "^/storagedomains$", number)
    assert (code, err) == (130, "")
    assert pretended.left() == before


def test_without_its_notes_a_name_with_our_prefix_is_removed_too(pretended):
    before = pretended.left()
    world = pretended.double.world
    network = next(iter(world.networks.values()))
    network = type(network)("n1", f"{PREFIX}abc", network.data_center, vm=False)
    world.networks["n1"] = network
    remove_what_is_left(pretended.wishes(), fast=True)
    assert pretended.left() == before


def test_hosts_that_were_up_come_up_again(pretended):
    before = pretended.left()
    host = pretended.double.world.host("host02")
    notes = Notes(pretended.folder / "notes")
    notes.will_make("conversion", f"{PREFIX}abc", up=["host01", "host02"])
    notes.close()
    host.status = "maintenance"
    host.mounts.clear()
    remove_what_is_left(pretended.wishes(), fast=True)
    assert pretended.left() == before


@pytest.mark.engine
def test_what_cannot_be_removed_is_said_and_stays_noted(pretended):
    refusal = Conflict("Cannot remove Network.")
    pretended.double.fail_next("DELETE", "^/networks/", refusal)
    found = pretended.run(export=None, nic=None)
    assert found[CLEAN_UP].outcome == FAILED
    assert "Cannot remove Network" in found[CLEAN_UP].why
    noted = (pretended.folder / "notes/made.jsonl").read_text(encoding="utf-8")
    assert PREFIX in noted
    remove_what_is_left(pretended.wishes(), fast=True)
    assert not any(
        n.name.startswith(PREFIX) for n in pretended.double.world.networks.values()
    )


def test_two_runs_at_once_are_refused(pretended):
    notes = Notes(pretended.folder / "notes")
    with pytest.raises(OtherRun, match="another smoke run"):
        pretended.run()
    notes.close()
