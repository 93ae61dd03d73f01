# SPDX-License-Identifier: GPL-2.0-or-later
"""Tests when the task ``partitions`` acts, waits and reports.

test_follow_partitions.py tests its changes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from support.golden import golden_mlx4 as mlx4
from support.host.daemon_task import TaskRuns

from ovirt_rdma.host.daemon import partitions
from ovirt_rdma.host.daemon.partitions import Outcome
from ovirt_rdma.host.daemon.tasks import FollowPartitions
from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.paths import POLICY_JSON
from ovirt_rdma.host.policy.model import HostPolicy, InterfaceRule, Policy
from ovirt_rdma.host.policy.store import store
from ovirt_rdma.host.system.files import FOLLOW_PARTITIONS, own_text
from ovirt_rdma.host.system.lock import LockHeld

pytestmark = pytest.mark.hypervisor

KEYS = ("0xffff", "0x8001", "0x8003")
FAILED = Outcome(("ib0.8005 could not be made: no",))


@dataclass
class Stage:
    """A host with ib0, ib0.8001 and ib0.8003, whose P_Key table is ``table``.

    Stores the arguments of ``bring``, and its answer: an Outcome, or a Problem to
    raise.
    """

    host: object
    asked: list = field(default_factory=list)
    answer: object = Outcome()
    said: list = field(default_factory=list)
    recovers: object = None
    recovered: bool = False

    def table(self, *keys):
        self.host.fabric_port("mlx4_0", 1, 5, 1, keys, table_size=8)

    def policy(self, interval=30, partitions="follow"):
        rule = InterfaceRule(
            1, "interface 1", link_layer="infiniband", partitions=partitions
        )
        policy = Policy(host=HostPolicy((rule,), partitions_interval=interval))
        store(policy, "p.yaml", self.host.path / POLICY_JSON.lstrip("/"))
        self.host.write(FOLLOW_PARTITIONS, own_text(["partitions: follow"]))

    def follower(self, *keys):
        if keys:
            self.table(*keys)
        task = FollowPartitions(self.host.path, self.host.runner)
        return TaskRuns(task, self.host.path, self.said)

    def take(self):
        """Return the calls and the sentences since the last call."""
        taken = (self.asked[:], self.said[:])
        del self.asked[:], self.said[:]
        return taken


@pytest.fixture
def stage(tmp_path, monkeypatch):
    host = mlx4.partitions(tmp_path)
    found = Stage(host)
    found.table(*KEYS)
    found.policy()

    class Scripted:
        def __init__(self, root, run, effects, policy, *, listener, stop):
            assert (root, run) == (host.path, host.runner)
            assert policy.policy.host.follows_partitions

        def recover_own(self):
            assert not found.recovered, "once is enough"
            if found.recovers:
                raise found.recovers
            found.recovered = True

        def bring(self, seen):
            assert found.recovered
            found.asked.append((seen.missing, seen.gone))
            if isinstance(found.answer, Problem):
                raise found.answer
            return found.answer

    monkeypatch.setattr(partitions, "ChildrenRun", Scripted)
    return found


def looks(follower, number):
    return [follower.run() for _ in range(number)]


def test_nothing_is_done_where_nothing_differs(stage):
    looks(stage.follower(), 3)
    assert stage.take() == ([], [])
    assert stage.host.runner.ran == []


def test_a_partition_that_appears_is_acted_on_at_once(stage):
    follower = stage.follower()
    follower.run()
    stage.table(*KEYS, "0x8005")
    follower.run()
    assert stage.take() == ([(("ib0.8005",), ())], [])


def test_one_that_disappears_is_acted_on_at_the_second_look(stage):
    follower = stage.follower("0xffff", "0x8001")
    follower.run()
    assert stage.take() == ([], [])
    stage.table(*KEYS)
    follower.run()
    stage.table("0xffff", "0x8001")
    follower.run()
    assert stage.take() == ([], [])
    follower.run()
    assert stage.take() == ([((), ("ib0.8003",))], [])


def test_a_table_with_an_entry_that_cannot_be_read_takes_nothing_away(stage):
    follower = stage.follower()
    stage.host.write("/sys/class/infiniband/mlx4_0/ports/1/pkeys/2", "what?")
    looks(follower, 3)
    assert stage.take() == ([], [])


def test_what_fails_is_tried_less_and_less_often_and_told_once(stage):
    follower = stage.follower(*KEYS, "0x8005")
    stage.answer = FAILED
    tried = []
    for look in range(80):
        follower.run()
        if stage.take()[0]:
            tried.append(look)
    # After 1, 2, 4, ... polls, and in the end every ten minutes.
    assert tried == [0, 1, 3, 7, 15, 31, 52, 73]


def test_a_new_difference_does_not_wait(stage):
    follower = stage.follower(*KEYS, "0x8005")
    stage.answer = FAILED
    follower.run()
    assert stage.take() == ([(("ib0.8005",), ())], [FAILED.sentences[0]])
    follower.run()
    assert stage.take() == ([(("ib0.8005",), ())], [])
    stage.table(*KEYS, "0x8005", "0x8006")
    follower.run()
    assert stage.take() == ([(("ib0.8005", "ib0.8006"), ())], [])


def test_another_reason_is_told(stage):
    follower = stage.follower(*KEYS, "0x8005")
    for sentence in ("one", "one", "two"):
        stage.answer = Outcome((sentence,))
        looks(follower, 30)
    assert stage.take()[1] == ["one", "two"]


def test_what_came_right_and_fails_again_is_told_again(stage):
    follower = stage.follower()
    stage.answer = FAILED
    for keys in ((*KEYS, "0x8005"), KEYS, (*KEYS, "0x8005")):
        stage.table(*keys)
        follower.run()
    assert stage.take()[1] == [FAILED.sentences[0]] * 2


@pytest.mark.parametrize(
    "answer",
    [Outcome(("run 3 awaits confirmation",), waits=True), LockHeld("some-id", "held")],
)
def test_while_another_run_is_at_work_each_look_asks(stage, answer):
    follower = stage.follower(*KEYS, "0x8005")
    stage.answer = answer
    looks(follower, 9)
    asked, said = stage.take()
    assert len(asked) == 9
    assert said == list(getattr(answer, "sentences", ()))
    stage.answer = Outcome()
    follower.run()
    assert len(stage.take()[0]) == 1


def test_a_journal_that_cannot_be_used_is_told_once(stage):
    follower = stage.follower(*KEYS, "0x8005")
    stage.answer = Problem("some-id", "the journal is damaged\nin two lines")
    looks(follower, 8)
    asked, said = stage.take()
    assert (len(asked), said) == (4, ["the journal is damaged; in two lines"])


@pytest.mark.parametrize(
    ("recovers", "told"),
    [
        (Problem("some-id", "the journal is damaged"), ["the journal is damaged"]),
        (LockHeld("some-id", "held"), []),
    ],
)
def test_nothing_is_done_before_what_was_killed_is_taken_back(stage, recovers, told):
    follower = stage.follower(*KEYS, "0x8005")
    stage.recovers = recovers
    looks(follower, 3)
    assert stage.take() == ([], told)
    stage.recovers = None
    looks(follower, 2)
    assert len(stage.take()[0]) == 2


def test_the_policy_in_force_is_followed(stage):
    follower = stage.follower(*KEYS, "0x8005")
    stage.policy(partitions=None)
    for policy in (lambda: None, (stage.host.path / POLICY_JSON.lstrip("/")).unlink):
        policy()
        assert [result.sentence for result in looks(follower, 2)] == [
            "the policy has no partitions: follow"
        ] * 2
        assert stage.take() == ([], [])
    stage.policy(interval=5)
    follower.run()
    assert stage.take()[0]


def test_the_interval_is_that_of_the_policy(stage):
    task = stage.follower().task
    rule = InterfaceRule(1, "a", partitions="follow")
    follows = Policy(host=HostPolicy((rule,), partitions_interval=60))
    assert (task.interval(follows), task.interval(Policy())) == (60, None)


def test_before_apply_and_after_revert_nothing_is_done(stage):
    follower = stage.follower(*KEYS, "0x8005")
    (stage.host.path / FOLLOW_PARTITIONS.lstrip("/")).unlink()
    assert "IPOIB-PKEY-02 is not applied" in follower.run().sentence
    (stage.host.path / FOLLOW_PARTITIONS.lstrip("/")).symlink_to("/etc/passwd")
    follower.run()
    assert stage.take() == ([], [])


def test_a_broken_policy_is_not_acted_on_though_it_has_a_copy(stage):
    """Its copy counts only for what reads."""
    follower = stage.follower(*KEYS, "0x8005")
    stage.host.write(POLICY_JSON, "{")
    looks(follower, 3)
    assert stage.take() == ([], [])
    stage.policy()
    follower.run()
    assert len(stage.take()[0]) == 1


def test_a_host_without_rdma_is_no_failure(tmp_path, stage):
    host = mlx4.connectx_2_on_el9(tmp_path / "other")
    follower = TaskRuns(FollowPartitions(host.path, host.runner), host.path)
    looks(follower, 2)
    assert follower.said == []
