# SPDX-License-Identifier: GPL-2.0-or-later
"""Tests that a run is completed and verified, or rolled back; or says what is not."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import contextmanager
from dataclasses import replace

import pytest
from support.host.effects_host import (
    MemoryJournal,
    Told,
    applied,
    recover,
    revert,
    roll_back_unconfirmed,
)
from support.host.ipoib_host import OTHERS, host, netdev, policy, port, profile
from support.host.memory_host import FakeHost, Killed, Points
from support.problems import problem

from ovirt_rdma.host.changes.journal import Journal, JournalProblem, Ledger, Run
from ovirt_rdma.host.changes.kinds.kind import (
    EffectFailed,
    Reading,
)
from ovirt_rdma.host.changes.kinds.netdev import Sysfs
from ovirt_rdma.host.changes.plan import gate
from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.rules.base import LIVE, REBOOT, Change, Step
from ovirt_rdma.host.rules.registry import decide

pytestmark = pytest.mark.hypervisor

CONNECTED = policy(transport_mode="connected", mtu="auto", tso="auto")
MODE, MTU = "/sys/class/net/ib0/mode", "/sys/class/net/ib0/mtu"
FILE = "/etc/modprobe.d/ovirt-rdma.conf"
CHANGED = "value-changed-since-plan"


def fake(**parts):
    return FakeHost(host(netdev("ib0", 2044, tso="on"), **parts))


@pytest.fixture
def there():
    return fake()


@pytest.fixture
def before(there):
    return there.settings()


@pytest.fixture
def journal():
    return MemoryJournal()


def steps_of(there, wanted):
    return gate(decide(there.facts, wanted, OTHERS).steps, allow_link_down=True).steps


def step(*changes, rule="IPOIB-MTU-01", subject="ib0", effect=LIVE):
    words = ("sentence", "before", "after", effect, "reason", "undo")
    return Step(rule, subject, *words, changes)


def mtu(after, before=None, clamped=False):
    return Change("sysfs", MTU, before, after, clamped=clamped)


def test_the_listener_hears_of_each_step():
    there, journal, told = fake(), MemoryJournal(), Told()
    applied(there, journal, steps_of(there, CONNECTED), told)
    assert told.lines == ["doing IPOIB-MODE-01/ib0", "done IPOIB-MODE-01/ib0"]


def test_a_closed_pipe_stops_nothing(there, journal):
    class Closed(Told):
        def doing(self, *words):
            raise BrokenPipeError

        done = note = doing

    assert applied(there, journal, steps_of(there, CONNECTED), Closed()).run == 1


def test_nothing_to_do_begins_no_run(there, journal):
    result = applied(there, journal, ())
    assert (result.run, result.outcome, journal.data) == (None, "done", Ledger())


@pytest.mark.parametrize("forgotten", [("sysfs", "mode"), ("sysfs", "mtu")])
def test_a_value_that_does_not_stick_takes_all_back(forgotten, there, journal, before):
    there.forgets.add(forgotten)
    wanted = policy(transport_mode="connected", mtu=9000)
    result = applied(there, journal, steps_of(there, wanted))
    assert result.outcome == "rolled back"
    assert f": {forgotten[1]} of ib0 was set to " in result.sentence
    assert result.sentence.endswith("; all is as before")
    assert (there.settings(), result.done) == (before, ())
    assert journal.ledger().applied == ()
    assert journal.ledger().runs[-1].sentence == result.sentence


def test_a_value_that_cannot_be_read_back_takes_all_back(there, journal):
    """Also if the property should have no value: none was read."""
    there.files[FILE] = "text"
    read, answers = there.read, []

    def silent_once(act):
        answers.append(Reading(None, "the disk does not answer"))

    there.on_do = silent_once
    there.read = lambda *words: answers.pop() if answers else read(*words)
    removal = step(Change("file", FILE, "text", None), rule="MODOPT-02")
    result = applied(there, journal, [removal])
    assert result.outcome == "rolled back"
    assert result.sentence.startswith("MODOPT-02/ib0 ")
    assert ": the disk does not answer; " in result.sentence
    assert there.files == {FILE: "text"}


def test_a_smaller_mtu_is_as_good_where_the_group_decides():
    there, journal = FakeHost(host(netdev("ib0", 1500)), 2044), MemoryJournal()
    assert applied(there, journal, [step(mtu("4092", clamped=True))]).outcome == "done"
    assert journal.ledger().applied[0].found == ("2044",)
    assert revert(there, journal, there.facts, Told()).left == ()
    assert there.read(mtu("")).value == "1500"


def test_an_effect_that_fails_takes_all_back(there, journal, before):

    def fail(act):
        if act.changes[0].target == MTU:
            raise EffectFailed("some-id", "the kernel says EINVAL", "ask it")

    there.on_do = fail
    result = applied(there, journal, steps_of(there, CONNECTED))
    assert result.outcome == "rolled back"
    assert "IPOIB-MODE-01/ib0 failed: the kernel says EINVAL" in result.sentence
    assert there.settings() == before


def test_what_cannot_be_set_back_is_named_with_the_way_to_do_it(there, journal):
    there.forgets.add(("offload", "tx-tcp-segmentation"))
    there.on_undo = _refuse(MODE)
    steps = [
        step(Change("sysfs", MODE, "datagram", "connected"), rule="IPOIB-MODE-01"),
        step(Change("offload", "ib0", "on", "off", "tx-tcp-segmentation")),
    ]
    result = applied(there, journal, steps)
    assert result.outcome == "partly rolled back"
    assert "mode of ib0 (read-only)" in result.sentence
    (left,) = result.left
    assert (left.step, left.what, left.failed) == (
        "IPOIB-MODE-01/ib0",
        "mode of ib0",
        True,
    )
    assert (left.why.id, left.why) == ("some-id", "read-only")
    assert left.document()["id"] == "some-id"
    assert left.fix == f"echo datagram > {MODE}"
    # It is still applied, and a revert that works restores the value.
    assert [held.step for held in journal.ledger().applied] == ["IPOIB-MODE-01/ib0"]
    there.on_undo = lambda act: None
    assert revert(there, journal, there.facts, Told()).outcome == "done"
    assert there.facts.netdevs[0].ipoib.mode == "datagram"


def test_what_cannot_be_set_back_is_no_change_of_others_without_a_command_either(
    monkeypatch,
    there,
    journal,
):
    """No command restores the GUIDs of virtual functions, for example."""
    monkeypatch.setattr(Sysfs, "manual_fix", lambda *_: "")
    there.on_undo = _refuse(MTU)
    one = step(mtu("1500"))
    result = applied(there, journal, [one], verify=lambda: {one.id})
    assert result.outcome == "partly rolled back"
    assert result.sentence.endswith("not restored: mtu of ib0 (read-only)")
    assert [(left.failed, left.fix) for left in result.left] == [(True, "")]


def test_what_cannot_be_set_back_keeps_nothing_else_from_going_back(there, journal):
    there.on_undo = _refuse(MTU)
    tso = Change("offload", "ib0", "on", "off", "tx-tcp-segmentation")
    both = step(tso, mtu("1500"))
    result = applied(there, journal, [both], verify=lambda: {both.id})
    assert result.outcome == "partly rolled back"
    assert [left.what for left in result.left] == ["mtu of ib0"]
    assert there.read(tso).value == "on"


def _refuse(*targets):
    def refuse(act):
        if act.changes[0].target in targets:
            raise EffectFailed("some-id", "read-only")

    return refuse


def test_a_rollback_that_does_not_stick_is_no_rollback(there, journal):
    there.forgets_undo.add(("sysfs", "mtu"))
    result = applied(
        there, journal, [step(mtu("1500"))], verify=lambda: ["IPOIB-MTU-01/ib0"]
    )
    assert result.outcome == "partly rolled back"
    assert [left.why.id for left in result.left] == ["value-not-restored"]
    assert "mtu of ib0 was not restored to 2044: it is 1500" in result.sentence


def test_a_step_that_is_still_planned_takes_all_back(there, journal, before):
    steps = steps_of(there, CONNECTED)
    result = applied(there, journal, steps, verify=lambda: {steps[0].id})
    assert result.sentence == (
        "IPOIB-MODE-01/ib0 was done, and is still planned; all is as before"
    )
    assert there.settings() == before
    assert applied(there, journal, steps, verify=lambda: {"other"}).outcome == "done"


def test_some_steps_may_be_planned_again():
    for one in (
        step(mtu("1500", clamped=True)),
        step(Change("file", FILE, None, "x"), rule="MODOPT-02", effect=REBOOT),
    ):
        there, journal = fake(), MemoryJournal()
        assert applied(there, journal, [one], verify=lambda o=one: [o.id]).run == 1
        assert journal.ledger().runs[-1].outcome == "done"
    there, journal = fake(), MemoryJournal()
    one = step(mtu("1500"))
    assert applied(there, journal, [one], verify=lambda: [one.id]).outcome != "done"


def test_a_host_that_cannot_be_read_again_takes_all_back(there, journal, before):
    def unreadable():
        raise Problem("some-id", "the host cannot be read")

    result = applied(there, journal, [step(mtu("1500"))], verify=unreadable)
    assert result.sentence == "the host cannot be read; all is as before"
    assert there.settings() == before


def test_a_fault_of_ours_takes_all_back_and_is_not_hidden(there, journal, before):
    def faulty():
        raise KeyError("a fault")

    with pytest.raises(KeyError):
        applied(there, journal, [step(mtu("1500"))], verify=faulty)
    assert there.settings() == before
    assert journal.ledger().runs[-1].outcome == "rolled back"


@pytest.mark.parametrize(
    ("change", "id", "words"),
    [
        (mtu("1500", before="4092"), CHANGED, ["mtu of ib0 ", "was 4092, and is 2044"]),
        (
            replace(mtu("1500"), target="/etc/passwd"),
            "change-not-allowed",
            ["/etc/passwd"],
        ),
        (
            Change("file", FILE, "old", "new"),
            CHANGED,
            ["was a file of 1 line"],
        ),
        (
            Change("profile", "uuid-ib0", None, "9000", "infiniband.mtu"),
            CHANGED,
            ["infiniband.mtu of the profile uuid-ib0 ", "was none, and is 2044"],
        ),
    ],
)
def test_what_has_changed_since_the_plan_is_refused(change, id, words):
    there, journal = fake(profiles=[profile(mtu=2044)]), MemoryJournal()
    tso = Change("offload", "ib0", "on", "off", "tx-tcp-segmentation")
    first = step(tso, rule="IPOIB-TSO-02")
    with problem(id, *words) as caught:
        applied(there, journal, [first, step(change)])
    assert caught.value.exit_code == 4
    assert (there.effects, journal.data) == (0, Ledger())


def test_what_cannot_be_read_is_refused(there, journal):
    there.read = lambda *words: Reading(None, "nmcli does not answer")
    with problem("value-unreadable", "nmcli does not answer"):
        applied(there, journal, [step(mtu("1500"))])
    assert journal.data == Ledger()


def test_a_timer_that_cannot_be_set_keeps_all_from_being_done(there, journal):
    def no_timer(run):
        assert run == 1
        raise Problem("timer-not-set", "there is no systemd")

    with pytest.raises(Problem, match="there is no systemd"):
        applied(there, journal, [step(mtu("1500"))], on_begin=no_timer, confirm_by=9)
    assert there.effects == 0
    assert journal.ledger().runs[-1].outcome == "rolled back"
    assert applied(there, journal, [step(mtu("1500"))]).run == 2


# Signals.


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_asked_to_end_a_run_finishes_the_act_in_hand_and_takes_all_back(
    number, there, journal, before
):
    earlier = signal.getsignal(number)
    there.on_do = lambda act: os.kill(os.getpid(), number)
    result = applied(there, journal, steps_of(there, CONNECTED))
    assert result.outcome == "rolled back"
    assert result.sentence == f"{number.name} asked the run to end; all is as before"
    # Only the mode was set, but both are restored: a mode sets an MTU.
    assert there.effects == 3
    assert there.settings() == before
    assert signal.getsignal(number) is earlier


def test_asked_to_end_while_it_is_proved_takes_all_back(there, journal, before):

    def prove():
        os.kill(os.getpid(), signal.SIGTERM)
        return ()

    result = applied(there, journal, [step(mtu("1500"))], verify=prove)
    assert (result.outcome, there.settings()) == ("rolled back", before)


@contextmanager
def heard(number):
    """Return a list of the signals that were received. The default would end pytest,
    and Python itself ignores SIGPIPE.
    """
    came = []
    earlier = signal.signal(number, lambda *_: came.append(number))
    try:
        yield came
    finally:
        signal.signal(number, earlier)


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGPIPE])
def test_a_lost_terminal_stops_nothing(number, there, journal):
    there.on_do = lambda act: os.kill(os.getpid(), number)
    with heard(number) as came:
        assert applied(there, journal, steps_of(there, CONNECTED)).outcome == "done"
    assert came == []


def test_asked_to_end_a_revert_goes_on(there, journal, before):
    applied(there, journal, steps_of(there, CONNECTED))
    there.on_undo = lambda act: os.kill(os.getpid(), signal.SIGTERM)
    with heard(signal.SIGTERM) as came:
        assert revert(there, journal, there.facts, Told()).outcome == "done"
    assert came == []
    assert there.settings() == before


def test_asked_to_end_a_recovery_ends_when_all_is_as_before(there, journal, before):

    def cut(act):
        raise SystemExit

    there.on_do = cut
    with pytest.raises(SystemExit):
        applied(there, journal, [step(mtu("1500"))])
    there.put(mtu(""), "1500")  # it was written after all
    there.on_undo = lambda act: os.kill(os.getpid(), signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        recover(there, journal, 0, Told())
    assert there.settings() == before
    assert journal.ledger().interrupted is None


def test_a_run_in_another_thread_takes_no_signals():
    there, journal, results = fake(), MemoryJournal(), []
    work = threading.Thread(
        target=lambda: results.append(applied(there, journal, [step(mtu("1500"))]))
    )
    work.start()
    work.join()
    assert results[0].outcome == "done"


# Confirmation.


def _awaiting(confirm_by=1_800_000_000):
    there, journal = fake(), MemoryJournal()
    before = there.settings()
    applied(there, journal, [step(mtu("1500"))], confirm_by=confirm_by)
    return there, journal, before


def test_a_run_that_awaits_confirmation_keeps_others_from_beginning():
    there, journal, before = _awaiting()
    data = journal.data
    with problem("run-awaits-confirmation", "run 1 "):
        applied(there, journal, [step(mtu("1280"))])
    with problem("run-awaits-confirmation", "run 1 "):
        revert(there, journal, there.facts, Told(), only="IPOIB-MTU-01/ib0")
    assert recover(there, journal, there.now(), Told()) is None
    assert journal.data == data
    assert revert(there, journal, there.facts, Told()).outcome == "done"
    assert there.settings() == before
    assert roll_back_unconfirmed(there, journal, 1, Told()) is None
    assert applied(there, journal, [step(mtu("1280"))]).outcome == "done"


def test_unconfirmed_in_time_it_is_taken_back():
    there, journal, before = _awaiting()
    assert recover(there, journal, 1_799_999_999, Told()) is None
    result = recover(there, journal, 1_800_000_000, Told())
    assert result.sentence == "run 1 was not confirmed in time; all is as before"
    assert (result.outcome, there.settings()) == ("rolled back", before)
    assert journal.ledger().awaiting is None
    assert recover(there, journal, 1_800_000_000, Told()) is None


def test_the_timer_takes_it_back_and_only_that_run():
    there, journal, before = _awaiting()
    assert roll_back_unconfirmed(there, journal, 7, Told()) is None
    assert roll_back_unconfirmed(there, journal, 1, Told()).outcome == "rolled back"
    assert there.settings() == before
    assert roll_back_unconfirmed(there, journal, 1, Told()) is None


def test_what_the_timer_cannot_take_back_is_named_and_left_to_revert():
    there, journal, before = _awaiting()
    there.on_undo = _refuse(MTU)
    with problem("recovery-incomplete", "not restored: mtu of ib0 (") as caught:
        roll_back_unconfirmed(there, journal, 1, Told())
    assert caught.value.fix == f"echo 2044 > {MTU}"
    there.on_undo = lambda act: None
    assert recover(there, journal, there.now(), Told()) is None
    assert revert(there, journal, there.facts, Told()).outcome == "done"
    assert there.settings() == before


def test_taken_back_by_half_when_killed_the_rest_follows_in_any_case():
    """Also before the deadline of the confirmation: nobody wants half of the run."""
    tso = Change("offload", "ib0", None, "off", "tx-tcp-segmentation")
    steps = [step(mtu("1500")), step(tso, rule="IPOIB-TSO-02")]
    points, killed = 0, True
    while killed:
        points += 1
        there, journal = fake(), MemoryJournal()
        before = there.settings()
        applied(there, journal, steps, confirm_by=1_800_000_000)
        done = there.settings()
        there.points = journal.points = Points(points)
        try:
            roll_back_unconfirmed(there, journal, 1, Told())
            killed = False
        except Killed:
            pass
        there.points = journal.points = Points()
        recover(there, journal, 1_700_000_000, Told())
        assert there.settings() in (before, done)
        if there.settings() == done:
            assert journal.ledger().awaiting
            assert len(journal.ledger().applied) == 2
    assert points > 10


def test_confirmed_it_stays():
    there, journal, before = _awaiting()
    confirmed = replace(journal.ledger().run(1), confirmed="2026-11-21T10:00:00Z")
    journal.write(journal.ledger().with_run(confirmed))
    assert roll_back_unconfirmed(there, journal, 1, Told()) is None
    assert recover(there, journal, 1_900_000_000, Told()) is None
    assert there.settings() != before


def test_a_boot_takes_it_back():
    there, journal, before = _awaiting()
    there.boot = "boot-2"
    result = recover(there, journal, there.now(), Told())
    assert "was not confirmed before the host was booted" in result.sentence
    # Nothing had changed the kernel's value here, so it was still ours.
    assert there.settings() == before


def test_what_a_kill_left_set_and_nobody_can_restore_keeps_off_no_run(monkeypatch):
    there, journal, before = _awaiting()
    there.boot, told = "boot-2", Told()

    def restore():
        raise EffectFailed("sysfs-write-failed", "driver_override cannot be written")

    monkeypatch.setattr(there, "restore_meanwhile", restore)
    recover(there, journal, there.now(), told)
    assert there.settings() == before
    assert "warning: driver_override cannot be written" in told.lines


def test_an_open_run_that_cannot_be_noted_keeps_others_from_beginning(there, journal):
    journal.write(Ledger((Run(1, "apply", "at"),)))
    for work in (
        lambda: applied(there, journal, [step(mtu("1500"))]),
        lambda: revert(there, journal, there.facts, Told()),
    ):
        with problem("run-interrupted", "run 1 "):
            work()
    journal.full_at = 2
    assert "No space" in recover(there, journal, 0, Told()).sentence
    journal.full_at = None
    assert recover(there, journal, 0, Told()).outcome == "rolled back"


@pytest.mark.parametrize("text", ["{}\n", '{"kind":"journal","schema_version":7}\n'])
def test_a_damaged_journal_keeps_all_from_being_done(text, tmp_path):
    there, journal = fake(), Journal(tmp_path)
    journal.path.parent.mkdir(parents=True)
    journal.path.write_text(text)
    for work in (
        lambda: applied(there, journal, [step(mtu("1500"))]),
        lambda: revert(there, journal, there.facts, Told()),
        lambda: recover(there, journal, 0, Told()),
        lambda: roll_back_unconfirmed(there, journal, 1, Told()),
    ):
        with pytest.raises(JournalProblem):
            work()
    assert (there.effects, journal.path.read_text()) == (0, text)


def test_a_child_and_what_is_set_of_it_come_and_go():
    """Also if a later step fails after the child was made."""
    for profiles in ((), None):
        facts = host(
            netdev("ib0", 2044, tso="on"),
            ports=(port(pkeys=("0xffff", "0x8001")),),
            profiles=profiles,
        )
        there, journal = FakeHost(facts), MemoryJournal()
        before = there.settings()
        wanted = policy(transport_mode="connected", pkey_children=("0x8001",))
        steps = steps_of(there, wanted)
        still = steps[-1].id
        result = applied(there, journal, steps, verify=lambda s=still: [s])
        assert (result.outcome, result.left) == ("rolled back", ())
        assert there.settings() == before
        assert journal.ledger().applied == ()
