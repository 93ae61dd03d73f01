# SPDX-License-Identifier: GPL-2.0-or-later
"""Tests with whole plans of whole hosts: applied, killed at every point, undone."""

from __future__ import annotations

from functools import partial

import pytest
from support.golden.golden_hosts import DATA, HOSTS
from support.host.effects_host import MemoryJournal, Told, applied, recover, revert
from support.host.memory_host import FakeHost, Killed, Points

from ovirt_rdma.host.changes.journal import JournalProblem, Ledger
from ovirt_rdma.host.changes.plan import gate
from ovirt_rdma.host.facts import model
from ovirt_rdma.host.policy.load import load_policy_file
from ovirt_rdma.host.rules.registry import decide

pytestmark = pytest.mark.hypervisor

_DECIDED = {}


def _case(name):
    if name not in _DECIDED:
        facts = model.load(DATA / name / "facts.json")
        policy = load_policy_file(DATA / name / "policy.yaml").policy
        steps = gate(decide(facts, policy).steps, allow_link_down=True).steps
        _DECIDED[name] = facts, policy, steps
    return _DECIDED[name]


def _recovered(host, journal):
    """Start the next process, which nobody kills."""
    host.points = journal.points = Points()
    found = recover(host, journal, host.now(), Told())
    effects, data = host.effects, journal.data
    assert recover(host, journal, host.now(), Told()) is None
    assert (host.effects, journal.data) == (effects, data)
    return found


@pytest.fixture(params=[name for name in HOSTS if _case(name)[2]])
def name(request):
    return request.param


def _start(name):
    facts, policy, steps = _case(name)
    group_mtu = 10236 if name == "hfi1" else 4092  # Omni-Path has larger ones
    return FakeHost(facts, group_mtu), MemoryJournal(), steps, policy


def test_a_plan_is_done_and_then_nothing_is_left_to_do(name):
    host, journal, steps, policy = _start(name)
    result = applied(host, journal, steps)
    assert (result.outcome, result.run) == ("done", 1)
    assert result.done == tuple(step.id for step in steps)
    again = [s for s in decide(host.facts, policy).steps if not s.refused]
    data = journal.data
    assert [s.id for s in again if s.effect != "reboot"] == []
    assert applied(host, journal, again).run is None
    assert journal.data == data


def test_revert_leaves_what_was_there(name):
    host, journal, steps, _ = _start(name)
    before = host.settings()
    applied(host, journal, steps)
    result = revert(host, journal, host.facts, Told(), allow_link_down=True)
    assert (result.outcome, result.left) == ("done", ())
    assert host.settings() == before
    assert journal.ledger().applied == ()
    assert revert(host, journal, host.facts, Told()).run is None


def _killed(last, host, journal, work):
    """Whether ``work`` is killed at its point number ``last``."""
    host.points = journal.points = Points(last)
    try:
        work()
    except Killed:
        return True
    return False


def _killed_again(host, journal):
    """Kill each following process at a later point than the one before."""
    last = 1
    while _killed(last, host, journal, lambda: recover(host, journal, 0, Told())):
        last += 3


def _kill_at_each_point(name, prepare, work, check):
    """Start again for each point at which ``work`` can be killed, until it ends."""
    points = 0
    while True:
        points += 1
        host, journal, steps, _ = _start(name)
        known = prepare(host, journal, steps)
        if not _killed(points, host, journal, partial(work, host, journal, steps)):
            return points
        if points % 3 == 0:
            _killed_again(host, journal)
        _recovered(host, journal)
        check(host, journal, known)


def _as_it_was(host, journal, steps):
    return host.settings()


def test_killed_at_any_point_of_apply_all_is_as_before_or_as_after(name):
    host, journal, steps, _ = _start(name)
    applied(host, journal, steps)
    after = host.settings()

    def check(host, journal, before):
        runs = journal.ledger().runs
        done = bool(runs) and runs[-1].outcome == "done"
        assert host.settings() == (after if done else before)
        assert journal.ledger().interrupted is None

    points = _kill_at_each_point(name, _as_it_was, applied, check)
    assert points > 4 * len(steps)


def test_killed_at_any_point_of_a_rollback_all_is_as_before(name):
    """Also while the rollback runs, and while its rollback runs."""

    def work(host, journal, steps):
        still = [step.id for step in steps]
        applied(host, journal, steps, verify=lambda: still)

    def check(host, journal, before):
        assert host.settings() == before or journal.ledger().runs[-1].outcome == "done"

    _kill_at_each_point(name, _as_it_was, work, check)


def test_killed_at_any_point_of_revert_all_is_as_before(name):
    before = _start(name)[0].settings()

    def prepare(host, journal, steps):
        applied(host, journal, steps)
        return host.settings()

    def work(host, journal, steps):
        revert(host, journal, host.facts, Told(), allow_link_down=True)

    def check(host, journal, done):
        begun = len(journal.ledger().runs) == 2
        assert host.settings() == (before if begun else done)

    _kill_at_each_point(name, prepare, work, check)


def test_a_disk_that_is_full_at_any_record_leaves_all_as_before(name):
    host, journal, steps, _ = _start(name)
    before = host.settings()
    applied(host, journal, steps)
    for full_at in range(2, journal.writes + 1):
        host, journal, steps, _ = _start(name)
        journal.full_at = full_at
        result = applied(host, journal, steps)
        assert result.outcome == "rolled back"
        assert result.sentence.count("No space left") == 2  # the reason, the journal
        assert host.settings() == before
        journal.full_at = None
        _recovered(host, journal)
        assert host.settings() == before


def test_a_disk_that_is_full_for_a_moment_leaves_all_as_before(name):
    """In the run or its rollback: the next run checks again what was not recorded."""
    host, journal, steps, _ = _start(name)
    if all(step.effect == "reboot" for step in steps):
        return
    before = host.settings()
    still = [step.id for step in steps]
    applied(host, journal, steps, verify=lambda: still)
    for full_at in range(2, journal.writes + 1):
        host, journal, steps, _ = _start(name)
        journal.full_at, journal.full_once = full_at, True
        result = applied(host, journal, steps, verify=lambda: still)
        assert result.outcome == "rolled back"
        _recovered(host, journal)
        assert host.settings() == before
        assert journal.ledger().applied == ()


def test_a_disk_that_is_full_from_the_start_keeps_all_from_being_done(name):
    host, journal, steps, _ = _start(name)
    journal.full_at = 1
    with pytest.raises(JournalProblem, match="No space left"):
        applied(host, journal, steps)
    assert (host.effects, journal.data) == (0, Ledger())
