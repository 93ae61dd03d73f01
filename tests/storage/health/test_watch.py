# SPDX-License-Identifier: GPL-2.0-or-later
"""Test what the task ``health`` writes, and what it tells the journal."""

from __future__ import annotations

import json
import pickle
import stat
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.host.daemon_task import TaskRuns

from ovirt_rdma.host.daemon.loop import due_after
from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.paths import HEALTH_JSON, POLICY_JSON, under
from ovirt_rdma.host.policy.model import NfsPolicy, Policy
from ovirt_rdma.host.policy.store import store
from ovirt_rdma.storage.health.look import AGAIN_S, HealthWatch
from ovirt_rdma.storage.health.signs import ALONE_S, LISTENER_S, PROBE_S
from ovirt_rdma.storage.health.state import (
    DEAD,
    OK,
    PATH,
    SERVER,
    SLOW,
    STALLED,
    UNKNOWN,
    HealthState,
    MountHealth,
    read_state,
    remove_state,
    write_state,
)

GOOD = MountHealth("nas1:/a", "/mnt/a", "rdma", "4.2", OK, sentence="answered")
LATE = replace(
    GOOD, state=SLOW, cause=SERVER, reason="slow", sentence="late", fix="threads"
)
HUNG = replace(
    GOOD, state=STALLED, cause=SERVER, certain=False, sentence="silent", fix="start it"
)
GONE = replace(HUNG, state=DEAD, cause=PATH, certain=True, sentence="no link", fix="")


@dataclass
class FakeLooker:
    """Returns prepared looks, one after the other."""

    looks: list[tuple[MountHealth, ...]]
    now: Callable[[], float]
    problems: tuple[str, ...] = ()

    def look(self, policy):
        return self.state(self.looks.pop(0))

    def state(self, mounts):
        return HealthState(self.now(), self.now(), 0.0, mounts, self.problems)


class Watched:
    def __init__(self, root, interval=10):
        self.root, self.now = root, 1000.0
        self.looker = FakeLooker([], lambda: self.now)
        self.watch = HealthWatch(str(root), self.looker)
        self.runs = TaskRuns(self.watch, root)
        self.notes = self.runs.said
        self.follow(interval)

    def follow(self, interval):
        self.interval = interval
        policy = Policy(nfs=NfsPolicy((), interval))
        store(policy, "test", under(self.root, POLICY_JSON))

    def look(self, *mounts):
        self.looker.looks.append(mounts)
        self.now += 10.0
        return self.run()

    def run(self):
        """Run the task; return the seconds until the next time."""
        began = self.now
        result = self.runs.run()
        return due_after(result, self.interval, began, self.now) - self.now

    @property
    def state(self):
        return read_state(self.root, now_s=self.now)


@pytest.fixture
def watched(tmp_path):
    return Watched(tmp_path)


def test_what_is_sound_is_written_and_not_told(watched):
    assert watched.look(GOOD) == 10.0
    state = watched.state
    assert (state.taken_at, state.taken_s, state.interval_s) == (1010.0, 1010.0, 10.0)
    assert state.mounts == (replace(GOOD, since=1010.0),)
    watched.look(GOOD)
    assert watched.state.mounts[0].since == 1010.0
    assert watched.notes == []


def test_a_change_is_told_once_and_so_is_its_end(watched):
    for mount in (GOOD, HUNG, HUNG, GONE, GOOD, GOOD):
        watched.look(mount)
    assert watched.notes == [
        "nas1:/a is stalled (cause, probably: server): silent; fix: start it",
        "nas1:/a is dead (cause: path): no link",
        "nas1:/a is ok again, after 10 s (dead)",
    ]


def test_since_is_when_the_state_began(watched):
    for mount in (GOOD, HUNG, HUNG):
        watched.look(mount)
    assert watched.state.mounts[0].since == 1020.0


def test_one_late_answer_is_no_change(watched):
    # After a late one the next look is sooner.
    for mount, next_s in ((GOOD, 10.0), (LATE, AGAIN_S), (GOOD, 10.0), (LATE, AGAIN_S)):
        assert watched.look(mount) == next_s
        (shown,) = watched.state.mounts
        assert (shown.state, shown.cause, shown.reason, shown.fix) == (OK, None, "", "")
    assert (shown.certain, shown.sentence) == (True, "late once: late")
    assert watched.notes == []
    assert watched.look(LATE) == 10.0
    assert watched.state.mounts[0].state == SLOW
    assert watched.notes == ["nas1:/a is slow (cause: server): late; fix: threads"]


@pytest.mark.parametrize(
    ("mount", "took"),
    # The longest question, and both ways to ask a silent server at the same time.
    [(HUNG, PROBE_S + ALONE_S + LISTENER_S), (LATE, 0.9)],
)
@pytest.mark.parametrize("after", [0.0, 0.1, 5.0, 9.9])
def test_a_fault_is_reported_within_15_s(watched, mount, took, after):
    """With an interval of 10 s, whenever the fault comes after a question."""
    broken = 1000.0 + after

    def look(policy):
        is_broken = watched.now > broken
        watched.now += took if is_broken else 0.05
        return watched.looker.state((mount if is_broken else GOOD,))

    watched.looker.look = look
    while not watched.notes:
        watched.now += watched.run()
        assert watched.now < broken + 60
    assert watched.state.taken_s - broken <= 15.0
    assert watched.state.mounts[0].state == mount.state


def test_from_silence_to_late_is_a_change_at_once(watched):
    watched.look(HUNG)
    watched.look(LATE)
    assert watched.state.mounts[0].state == SLOW


def test_a_mount_that_is_gone_is_forgotten(watched):
    watched.look(GOOD, replace(HUNG, mountpoint="/mnt/b"))
    watched.look(GOOD)
    assert [mount.mountpoint for mount in watched.state.mounts] == ["/mnt/a"]


def test_without_an_interval_nobody_is_asked_and_there_is_no_state(watched):
    watched.look(HUNG)
    watched.follow(None)
    assert watched.watch.interval(Policy()) is None
    assert watched.runs.run().sentence == "the policy has no health_interval"
    assert not under(watched.root, HEALTH_JSON).exists()
    watched.follow(20)
    assert watched.look(HUNG) == 20.0


def test_what_cannot_be_read_is_told_once_and_is_in_the_state(watched):
    watched.looker.problems = ("/proc/x cannot be read",)
    watched.look(GOOD)
    watched.look(GOOD)
    assert watched.notes == ["/proc/x cannot be read"]
    assert watched.state.problems == ("/proc/x cannot be read",)


def test_the_state_is_removed_at_the_end(watched):
    watched.look(GOOD)
    watched.watch.end()
    assert not under(watched.root, HEALTH_JSON).exists()


def test_after_a_look_that_fails_nobody_sees_the_last_state(watched, monkeypatch):
    watched.look(GOOD)
    with monkeypatch.context() as patch:
        patch.setattr(watched.looker, "look", lambda policy: 1 / 0)
        for _ in range(2):
            assert watched.run() == 10.0
            assert watched.state is None
    watched.look(GOOD)
    assert watched.state.worst == OK
    (failure,) = watched.notes
    assert failure.startswith("failed: ZeroDivisionError: division by zero (")


def test_what_a_look_knows_can_go_to_the_process_of_the_next_one(tmp_path):
    watch = HealthWatch(str(tmp_path))
    sent = pickle.dumps({name: getattr(watch, name) for name in watch.carried})
    assert pickle.loads(sent).keys() == set(watch.carried)


# Test the file by which others learn of the mounts' health.


MOUNT = MountHealth(
    "nas1:/export/vm",
    "/rhev/data-center/mnt/nas1:_export_vm",
    "rdma",
    "4.2",
    STALLED,
    SERVER,
    False,
    "server-silent",
    "nas1 does not answer",
    "start it",
    ("no answer within 2 s",),
    1700000000.5,
    None,
)
STATE = HealthState(1700000030.0, 500.0, 10.0, (MOUNT,), ("/proc/x cannot be read",))


def test_what_was_written_is_read_back(tmp_path):
    write_state(tmp_path, STATE)
    path = under(tmp_path, HEALTH_JSON)
    assert read_state(tmp_path, now_s=505.0) == STATE
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert [child.name for child in path.parent.iterdir()] == ["health.json"]
    document = json.loads(path.read_text())
    assert (document["schema_version"], document["kind"]) == (1, "health")


@pytest.mark.parametrize(
    ("now_s", "said"),
    [
        (500.0, ""),
        # Two intervals of 10 s, and a look that takes 15 s.
        (535.0, ""),
        (536.0, f"{HEALTH_JSON} is stale, so the health is unknown"),
        # The host has booted since: its clock since boot is behind.
        (20.0, f"{HEALTH_JSON} is stale, so the health is unknown"),
    ],
)
def test_an_old_file_says_nothing(tmp_path, now_s, said):
    write_state(tmp_path, STATE)
    problems = []
    state = read_state(tmp_path, problems, now_s)
    assert (state is None, problems) == (bool(said), [said] if said else [])


def test_without_the_unit_there_is_no_state(tmp_path):
    problems = []
    assert read_state(tmp_path, problems) is None
    write_state(tmp_path, STATE)
    remove_state(tmp_path)
    remove_state(tmp_path)
    assert read_state(tmp_path, problems) is None
    assert problems == []


def test_a_file_that_cannot_be_written_is_a_problem(tmp_path):
    (tmp_path / "run").write_text("no folder")
    with pytest.raises(Problem, match=r"health\.json"):
        write_state(tmp_path, STATE)


@given(st.binary(max_size=200))
def test_any_bytes_are_one_sentence(tmp_path_factory, data):
    root = tmp_path_factory.mktemp("root")
    path = under(root, HEALTH_JSON)
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    problems = []
    assert read_state(root, problems) is None
    assert len(problems) == 1
    assert problems[0].startswith(f"{HEALTH_JSON} is invalid and is ignored: ")


@pytest.mark.parametrize(
    ("states", "worst"),
    [
        ([], OK),
        ([OK, OK], OK),
        ([OK, UNKNOWN], UNKNOWN),
        ([UNKNOWN, SLOW], SLOW),
        ([SLOW, STALLED, OK], STALLED),
        ([DEAD, STALLED], DEAD),
    ],
)
def test_the_worst_mount_counts(states, worst):
    mounts = tuple(MountHealth(f"s:/{s}", f"/{s}", "rdma", "3", s) for s in states)
    assert HealthState(0.0, 0.0, 0.0, mounts).worst == worst
