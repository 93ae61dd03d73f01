# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ``domain create`` with hosts that fail to mount, and with a failed activation."""

from __future__ import annotations

import pytest
from engine_double.faults import AnswerLost, Status
from support.engine.domain_making import EXPORT, left, made, planned, with_add_on
from support.engine.engine_door import DoubleDoor

from ovirt_rdma.engine_sdk_tools.api.request import Listener
from ovirt_rdma.engine_sdk_tools.domains.create import (
    NOT_MOUNTED_LATER,
    MountEvents,
    create_domain,
    unverified_sentence,
)
from ovirt_rdma.engine_sdk_tools.job import RolledBack
from ovirt_rdma.host.errors import Problem

pytestmark = pytest.mark.engine


class When(Listener):
    """Calls ``act`` when a step or a note that contains ``words`` is reported."""

    def __init__(self, words, act):
        self._words, self._act = words, act
        self.notes = []

    def begin(self, step, subject=None):
        if self._words in step:
            self._act()

    def note(self, sentence):
        self.notes.append(sentence)
        if self._words in sentence:
            self._act()


class Busy(DoubleDoor):
    """``host03`` reports the mount only when it is asked for the ``asks``-th time."""

    def __init__(self, world, asks):
        super().__init__(world)
        self._asks = asks

    def reports(self, hosts, done=None):
        busy = self.world.host("host03")
        if EXPORT in busy.mounts or any(host.name == busy.name for host in hosts):
            self._asks -= 1
        mount = busy.mounts.pop(EXPORT, "rdma")
        if self._asks <= 0:
            busy.mounts[EXPORT] = mount
        return super().reports(hosts, done)


def no_events(double):
    """Let the engine refuse to show events to this user."""
    double.fail_next("GET", "^/events", Status(403), times=100)


def fails(double):
    """Let the new domain's activation fail."""

    def act():
        double.world.domain("new").activation_fails = True

    return act


def without_domains(double):
    """Take all domains out of the data center."""
    double.world.data_center("dc1").status = "uninitialized"
    for domain in double.world.domains.values():
        domain.data_center, domain.status, domain.master = None, "unattached", False


def statuses(double):
    return [host.status for host in double.world.hosts.values()]


@pytest.mark.engine_does("DOMAIN-01")
def test_a_host_that_the_events_name_takes_all_back(session, double):
    double.world.host("host03").rdma_ready = False

    with pytest.raises(RolledBack) as caught:
        made(session)

    said = [e.description for e in double.world.log.events if e.code == 996]
    assert caught.value.id == "domain-not-mounted"
    assert f"host03 could not mount {EXPORT}, according to" in str(caught.value)
    assert said[0] in str(caught.value)
    assert caught.value.fix == (
        f"on each host that is named: ovirt-rdma-host nfs check {EXPORT}"
    )
    assert left(double) == ([], [])
    assert double.world.export(EXPORT).domain is None
    # The host has stayed up and needs no activation.
    assert statuses(double) == ["up"] * 3
    assert not [s for s in double.changes() if s.path.endswith("/activate")]


def test_events_on_other_domains_are_not_of_this_one(session, double):
    log = double.world.log
    host = double.world.host("host02").id

    def others():
        log.record(
            188,
            "error",
            "Host host02 failed to connect to the Storage Domains new-old.",
            host=host,
        )
        log.record(
            188,
            "error",
            "Host host02 failed to connect to the Storage Domains data1.",
            host=host,
        )

    assert made(session, listener=When("attaching", others)).exit_code == 0


def test_events_from_before_are_not_of_this_one(session, double):
    host = double.world.host("host02").id
    said = "Host host02 failed to connect to the Storage Domains new."
    double.world.log.record(188, "error", said, host=host)

    assert made(session).exit_code == 0


def test_events_need_no_correlation_id(session, double):
    """The engine writes both events without one."""
    log, host = double.world.log, double.world.host("host02")
    why = f"VDSM said of the connection {EXPORT}: no route to host"
    who = f"Host {host.name} failed to connect to the Storage Domains data1, new."

    def fails():
        log.record(996, "error", "VDSM said of the connection nfs9:/x: broken pipe")
        log.record(996, "error", why)
        log.record(188, "error", who, host=host.id)

    with pytest.raises(RolledBack, match="host02 could not mount") as caught:
        made(session, listener=When("attaching", fails))

    # The oldest comes first.
    assert f"{why}\n{who}" in str(caught.value)
    assert "broken pipe" not in str(caught.value)


def test_a_host_that_tells_and_is_named_is_not_waited_for(session, double, clock):
    door = with_add_on(double)

    def breaks():
        double.world.host("host03").rdma_ready = False

    with pytest.raises(RolledBack) as caught:
        made(session, door, listener=When("attaching", breaks))

    assert str(caught.value).count("host03 could not mount") == 1
    assert "did not mount" not in str(caught.value)
    assert sum(clock.slept) < 60


def test_a_host_that_tells_and_has_it_all_the_same_is_good(session, double):
    """The engine connects twice: the second attempt may succeed."""
    log, host = double.world.log, double.world.host("host02")
    said = f"Host {host.name} failed to connect to the Storage Domains new."
    door = with_add_on(double)

    result = made(
        session,
        door,
        listener=When(
            "attaching", lambda: log.record(188, "error", said, host=host.id)
        ),
    )

    assert [one.transport for one in result.hosts] == ["rdma"] * 3


def test_a_host_that_goes_down_with_it_comes_up_again(session, double):
    double.world.kind.add("DOMAIN-01")
    double.world.host("host03").rdma_ready = False

    with pytest.raises(RolledBack) as caught:
        made(session)

    assert f"host03 could not mount {EXPORT} and became non-op" in str(caught.value)
    assert "according to the engine's events" not in str(caught.value)
    assert "activating host03 again" in str(caught.value)
    assert left(double) == ([], [])
    double.world.settle()
    assert statuses(double) == ["up"] * 3


def test_hosts_go_down_with_the_first_domain_of_a_data_center(session, double):
    without_domains(double)
    double.world.host("host03").rdma_ready = False

    with pytest.raises(Problem) as caught:
        made(session)

    assert f"host03 could not mount {EXPORT} and became non-op" in str(caught.value)


def test_a_host_that_tells_that_it_has_not_mounted_it_takes_all_back(
    session, double, clock
):
    door = Busy(double.world, asks=1000)
    with_add_on(double)
    no_events(double)
    plan = planned(session, door)

    with pytest.raises(RolledBack) as caught:
        create_domain(session, door, plan, Listener())

    assert caught.value.id == "domain-not-mounted"
    assert f"host03 did not mount {EXPORT}, although new is" in str(caught.value)
    assert left(double) == ([], [])
    # The host was given time.
    assert sum(clock.slept) >= 60


@pytest.mark.parametrize("asks", [2, 4])
def test_a_host_that_is_slow_is_asked_again(session, double, asks):
    with_add_on(double)
    # The check before the run asks once.
    door = Busy(double.world, asks=1 + asks)

    result = made(session, door)

    assert [one.transport for one in result.hosts] == ["rdma"] * 3
    assert left(double) == (["new"], [EXPORT])


def test_a_host_that_somebody_takes_away_meanwhile_is_no_failure(session, double):
    door = with_add_on(double)
    host = double.world.host("host03")

    def away():
        host.status = "maintenance"
        host.mounts.clear()

    result = made(session, door, listener=When("proving", away))

    assert left(double) == (["new"], [EXPORT])
    assert "host03 is in maintenance" in result.hosts[2].cell.sentence


def test_hosts_that_nobody_can_ask_are_not_verified(session, double):
    """There is no event, and the engine itself detects it only after minutes."""
    result = made(session)

    assert result.exit_code == 0
    assert result.not_verified == ("host01", "host02", "host03")
    assert (
        unverified_sentence(result.hosts)
        == f"not verified on host01, host02, host03: {NOT_MOUNTED_LATER}"
    )
    assert "StorageDomainFailureTimeoutInMinutes" in NOT_MOUNTED_LATER


def test_a_host_that_does_not_answer_is_not_verified(session, double):
    door = with_add_on(double)
    double.world.host("host02").reachable = False

    result = made(session, door)

    assert result.exit_code == 0
    assert result.not_verified == ("host02",)
    assert [one.mounted for one in result.hosts] == [True, None, True]


def test_events_that_cannot_be_read_are_said(session, double):
    no_events(double)
    listener = When("nothing", lambda: None)

    result = made(session, listener=listener)

    assert result.exit_code == 0
    assert "events on failed mounts are unknown: reading the ev" in listener.notes[0]


def test_a_domain_that_is_there_and_missing_on_a_host_is_not_taken_back(
    session, double
):
    door = with_add_on(double)
    made(session, door)
    double.world.host("host03").mounts.pop(EXPORT)

    result = made(session, door)

    assert (result.made, result.exit_code) == (False, 5)
    assert left(double) == (["new"], [EXPORT])


def test_mount_errors_come_from_the_events(session, double):
    double.world.export(EXPORT).answers = False
    double.world.export(EXPORT).rdma = False

    with pytest.raises(Problem) as caught:
        made(session)

    said = [e.description for e in double.world.log.events if e.code == 996]
    assert said[0] in str(caught.value)
    assert left(double) == ([], [])


@pytest.mark.engine_does("ATTACH-01")
def test_an_activation_that_failed_is_taken_back_at_once(session, double, clock):
    with pytest.raises(RolledBack) as caught:
        made(session, listener=When("attaching", fails(double)))

    assert caught.value.id == "domain-not-active"
    assert "it is in maintenance" in str(caught.value)
    # The engine's own reason.
    failed = [e for e in double.world.log.events if e.code == 967]
    assert failed[0].description in str(caught.value)
    assert left(double) == ([], [])
    assert sum(clock.slept) < 60


def test_so_is_that_of_the_first_domain_of_a_data_center(session, double, clock):
    """The first domain is the master, and stays inactive."""
    without_domains(double)

    with pytest.raises(RolledBack) as caught:
        made(session, listener=When("attaching", fails(double)))

    assert caught.value.id == "domain-not-active"
    assert "it is inactive" in str(caught.value)
    assert left(double) == ([], [])
    assert sum(clock.slept) < 60


@pytest.mark.parametrize("later", ["active", "maintenance"])
def test_without_an_answer_maintenance_may_still_pass(
    session, double, clock, monkeypatch, later
):
    """The engine also shows it between attaching and activating."""
    double.fail_next("POST", "/datacenters/.*/storagedomains$", AnswerLost())

    def between():
        domain = double.world.domain("new")
        double.world.transitions.stop(domain.id)
        domain.status = "maintenance"

    def sleep(seconds):
        clock.sleep(seconds)
        if sum(clock.slept) > 10:
            double.world.domain("new").status = later

    monkeypatch.setattr(session, "sleep", sleep)
    listener = When("may have made the change all the same", between)

    if later == "active":
        assert made(session, listener=listener).made
        return
    with pytest.raises(RolledBack, match="it is in maintenance"):
        made(session, listener=listener)
    assert sum(clock.slept) < 300


@pytest.mark.parametrize("name", ["Storage", "Domains", "Host", "host02"])
def test_a_domain_that_is_called_as_a_word_of_the_message(double, session, name):
    """The message has such words for failures with any domain."""
    log, host = double.world.log, double.world.host("host02").id
    events = MountEvents(session, name, "nas:/exports/new")
    said = "Host host02 failed to connect to the Storage Domains"
    log.record(188, "error", f"{said} data1.", host=host)
    assert events.failed_hosts() == {}
    log.record(188, "error", f"{said} data1,{name}.", host=host)
    assert events.failed_hosts() == {host: "host02"}


def test_an_export_whose_name_goes_on_is_another_one(double, session):
    events = MountEvents(session, "new", "nas:/exports/new")
    log = double.world.log
    for path in ("new2", "new/sub", "new.old"):
        text = f"VDSM said of the connection nas:/exports/{path}: failed"
        log.record(996, "error", text)
    assert events.said() == ()
    log.record(996, "error", "VDSM said of the connection nas:/exports/new: failed")
    assert len(events.said()) == 1


def test_an_unreadable_engine_takes_no_active_domain_back(session, double):
    listener = When(
        "proving", lambda: double.fail_next("GET", "^/hosts$", Status(500), times=99)
    )

    result = made(session, with_add_on(double), listener=listener)

    assert double.world.domain("new").status == "active"
    assert [one.transport for one in result.hosts] == ["rdma"] * 3
    assert "the hosts' statuses are unknown" in "".join(listener.notes)


def test_without_reports_nothing_is_verified_then(session, double):
    def refuse():
        double.fail_next("GET", "^/hosts$", Status(500), times=99)

    result = made(session, listener=When("proving", refuse))

    assert result.not_verified == ("host01", "host02", "host03")
    assert (result.exit_code, left(double)) == (0, (["new"], [EXPORT]))


@pytest.mark.parametrize(
    ("asks", "not_verified"), [(0, ("host01", "host02", "host03")), (1, ("host03",))]
)
def test_hosts_that_can_no_longer_be_asked_take_no_active_domain_back(
    session, double, asks, not_verified
):
    """As soon as the proof begins, or when one is asked again."""
    with_add_on(double)
    door = Busy(double.world, asks=9)

    def reports(hosts, done=None):
        nonlocal asks
        asks -= 1
        if asks < 0:
            raise Problem("ansible-failed", "Ansible failed: no space is left")
        return Busy.reports(door, hosts, done)

    def broken():
        door.reports = reports

    listener = When("proving", broken)
    result = made(session, door, listener=listener)

    assert left(double) == (["new"], [EXPORT])
    assert result.exit_code == 0
    assert "Ansible failed: no space is left" in "".join(listener.notes)
    assert result.not_verified == not_verified


def test_an_unreadable_status_takes_no_active_domain_back(session, double):
    def refuse():
        double.fail_next("GET", "^/datacenters/.*/storagedomains/", Status(500))

    listener = When("activating", refuse)
    result = made(session, with_add_on(double), listener=listener)

    assert double.world.domain("new").status == "active"
    assert [one.transport for one in result.hosts] == ["rdma"] * 3
    assert "whether new is active is unknown" in "".join(listener.notes)
    assert (result.unread, result.exit_code) == (True, 5)


@pytest.mark.parametrize("unread", [False, True])
def test_a_host_without_the_mount_says_no_more_than_is_known(session, double, unread):
    """That it is active in the engine is said only if the engine has said it."""
    if unread:
        double.fail_next("GET", "^/datacenters/.*/storagedomains/", Status(500))
    door = with_add_on(double)
    door = Busy(door.world, asks=999)

    with pytest.raises(RolledBack) as caught:
        made(session, door)

    assert f"host03 did not mount {EXPORT}" in str(caught.value)
    assert ("although new is active" in str(caught.value)) != unread


@pytest.mark.parametrize("unreadable", [False, True])
def test_a_domain_that_may_have_a_disk_is_not_removed(session, double, unreadable):
    def disk_made():
        double.world.host("host03").rdma_ready = False
        double.world.domain("new").disks.append("vm1_disk")
        if unreadable:
            double.fail_next("GET", "/disks$", Status(500), times=99)

    with pytest.raises(Problem) as caught:
        made(session, listener=When("attaching", disk_made))

    assert left(double) == (["new"], [EXPORT])
    assert caught.value.exit_code == 1
    assert ("vm1_disk" in str(caught.value)) != unreadable
    assert "removing the domain new again" not in str(caught.value)
    assert "remove the domain new, and on the server the folder" in caught.value.fix
    assert "remove the storage connection" in caught.value.fix
