# SPDX-License-Identifier: GPL-2.0-or-later
"""Logins to iSER targets and logouts, with open-iscsi's database as a fake."""

import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.fakes.fake_iscsiadm import FakeIscsiadm
from support.fakes.fake_root import FakeRoot
from support.host import vdsm_iscsi

from ovirt_rdma.host.block import sessions as sessions_module
from ovirt_rdma.host.block.logins import iser_logins
from ovirt_rdma.host.block.read import BlockReader
from ovirt_rdma.host.block.sessions import Iser
from ovirt_rdma.host.policy.block import IserTarget
from ovirt_rdma.host.policy.texts import INTERFACE
from ovirt_rdma.host.system.commands import CommandFailed, CommandTimeout, NotInstalled
from ovirt_rdma.host.system.tree import FileTree

IQN, OTHER = "iqn.2003-01.org.example:a", "iqn.2003-01.org.example:b"
PORTAL = "10.0.0.1:3260"


def target(iqn=IQN, interface=INTERFACE, portal=PORTAL):
    return IserTarget(1, "array", portal, iqn, interface)


@pytest.fixture
def fake(tmp_path):
    fake = FakeIscsiadm(FakeRoot(tmp_path))
    fake.portals = {PORTAL: [IQN]}
    return fake


def log_in(fake, *targets, run=None, timeout_s=20, end=None):
    iser = Iser(fake.root.path, run or fake.run)
    return iser.log_in(iser_logins(targets, sessions(fake)), timeout_s, end)


def sessions(fake):
    return BlockReader(FileTree(fake.root.path)).facts().sessions


def test_a_login_makes_the_record_and_the_session(fake):
    (outcome,) = log_in(fake, target())
    assert (outcome.made, outcome.problem) == (True, None)
    (session,) = sessions(fake)
    assert (session.iqn, session.portal, session.interface) == (IQN, PORTAL, INTERFACE)
    assert fake.interfaces[INTERFACE] == "iser"
    # iscsi.service would log in at boot, before the network is there.
    record = fake.records[(IQN, PORTAL, "1", INTERFACE)]
    assert record["node.startup"] == "manual"
    attempts = int(record["node.session.initial_login_retry_max"])
    assert attempts * int(record["node.conn[0].timeo.login_timeout"]) <= 20


def test_a_session_that_is_there_is_not_touched(fake):
    fake.session(3, IQN, PORTAL, INTERFACE)
    (outcome,) = log_in(fake, target())
    assert (outcome.made, outcome.problem, fake.ran) == (False, None, [])


def test_a_session_that_vdsm_made_meanwhile_counts(fake):
    def run(argv, timeout_s):
        if argv[-1] == "-l":
            fake.session(3, IQN, PORTAL, INTERFACE)
        return fake.run(argv, timeout_s)

    (outcome,) = log_in(fake, target(), run=run)
    assert (outcome.made, outcome.problem) == (False, None)


def test_records_of_others_stay_as_they_are(fake):
    mine = {"node.startup": "automatic", "node.session.auth.password": "secret"}
    fake.interfaces[INTERFACE] = "iser"
    fake.records[(IQN, PORTAL, "1", INTERFACE)] = dict(mine)
    fake.records[(OTHER, PORTAL, "7", "default")] = {}
    log_in(fake, target())
    fake.portals[PORTAL] = []
    log_in(fake, target(OTHER))  # refused
    assert fake.records[(IQN, PORTAL, "1", INTERFACE)] == mine
    assert (OTHER, PORTAL, "7", "default") in fake.records


@pytest.mark.parametrize("interface", ["default", "iser"])
def test_a_connect_of_the_engine_leaves_record_and_session(fake, interface):
    """As tests/lab/test_real_iscsiadm.py with the real iscsiadm."""
    log_in(fake, target(), target(interface="rdma0"))
    records = {key: dict(value) for key, value in fake.records.items()}
    assert len(records) == 2
    vdsm_iscsi.connect(fake.run, IQN, PORTAL, interface)
    vdsm_iscsi.disconnect(fake.run, IQN, PORTAL, interface)
    assert fake.records == records
    ours = {one.interface for one in sessions(fake)} - {interface}
    assert ours == {INTERFACE, "rdma0"}


@pytest.mark.parametrize("interface", [INTERFACE, "default"])
def test_a_record_that_ours_would_replace_is_refused_and_stays(fake, interface):
    old = {(IQN, PORTAL, None, interface): {"node.session.auth.password": "secret"}}
    fake.records.update(old)
    (outcome,) = log_in(fake, target())
    assert outcome.problem.id == "iser-record-without-tag"
    assert f"-I {interface} -o delete" in outcome.problem
    assert fake.records == old


def test_an_interface_record_is_made_for_rdma(fake):
    log_in(fake, target(interface="rdma0"))
    assert fake.interfaces["rdma0"] == "iser"
    assert sessions(fake)[0].interface == "rdma0"


@pytest.mark.parametrize("mode", ["iface", "node"])
@pytest.mark.parametrize("operation", ["new", "update"])
def test_a_record_that_is_half_made_is_removed(fake, mode, operation):
    """iscsi.service would log in by it at boot, and another login would refuse it."""

    def slow(argv, timeout_s):
        answer = fake.run(argv, timeout_s)
        if argv[2:3] == (mode,) and operation in argv:
            raise CommandTimeout("no answer within 15 s")
        return answer

    (outcome,) = log_in(fake, target(interface="rdma0"), run=slow)
    assert outcome.problem.id == "iser-record-failed"
    assert fake.records == {}
    assert ("rdma0" in fake.interfaces) == (mode == "node")
    assert log_in(fake, target(interface="rdma0"))[0].made


def test_no_login_is_begun_after_the_end(fake):
    """At boot, vdsmd waits for all of them a minute."""
    fake.session(3, IQN, PORTAL, INTERFACE)
    targets = [target(), target(OTHER)]
    first, second = log_in(fake, *targets, end=time.monotonic())
    assert (first.problem, second.problem.id) == (None, "iser-login-not-tried")
    assert not any("node" in command for command in fake.ran)
    # The deadline has passed when the records are made.
    ends = iter((False, True))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sessions_module, "_is_late", lambda end: next(ends))
        (late,) = log_in(fake, target(OTHER), end=time.monotonic())
    assert late.problem.id == "iser-login-not-tried"
    assert not any(command.endswith("-l") for command in fake.ran)


def test_an_interface_record_of_another_transport_is_refused(fake):
    fake.interfaces["rdma0"] = "tcp"
    (outcome,) = log_in(fake, target(interface="rdma0"))
    assert outcome.problem.id == "iser-record-other-transport"
    assert fake.interfaces["rdma0"] == "tcp"
    assert not fake.records


def test_an_unknown_target_is_refused_with_the_way_to_those_of_the_portal(fake):
    (outcome,) = log_in(fake, target(OTHER))
    assert outcome.problem.id == "iser-login-refused"
    assert f"-t st -p {PORTAL} -I {INTERFACE} -o nonpersistent" in outcome.problem


@pytest.mark.parametrize(
    ("status", "id"),
    [
        (4, "iser-target-silent"),
        (8, "iser-target-silent"),
        (19, "iser-login-refused"),
        (20, "iscsid-unavailable"),
        (24, "iser-login-not-authorized"),
        (9, "iser-login-failed"),
    ],
)
def test_a_failed_login_has_its_reason(fake, status, id):
    fake.errors[IQN] = status
    (outcome,) = log_in(fake, target())
    assert (outcome.made, outcome.problem.id) == (False, id)


def test_silent_targets_are_tried_at_the_same_time(fake):
    together = threading.Barrier(4, timeout=60)

    def run(argv, timeout_s):
        if argv[-1] != "-l":
            return fake.run(argv, timeout_s)
        assert timeout_s < 15
        together.wait()
        raise CommandTimeout("no answer")

    targets = [target(f"{IQN}{number}") for number in range(4)]
    outcomes = log_in(fake, *targets, run=run, timeout_s=0.3)
    assert {one.problem.id for one in outcomes} == {"iser-target-silent"}


@pytest.mark.parametrize(
    ("program", "error", "id"),
    [
        ("iscsiadm", NotInstalled("no such file"), "iscsiadm-missing"),
        ("iscsiadm", CommandFailed("no", 6), "iser-record-failed"),
        ("modprobe", CommandFailed("no such module"), "iser-module-not-loaded"),
    ],
)
def test_what_is_missing_on_the_host_is_named(fake, program, error, id):
    def run(argv, timeout_s):
        if argv[0] == program:
            raise error
        return fake.run(argv, timeout_s)

    (outcome,) = log_in(fake, target(), run=run)
    assert outcome.problem.id == id


@given(st.text(st.characters(codec="utf-8"), max_size=60))
@example("iser,tcp\n,\n, ,\n")
@example("iser  tcp,\n\udcff")
def test_a_text_of_iscsiadm_ends_no_run(text):
    """Whatever it prints is a matter of that login."""
    with TemporaryDirectory() as folder:
        fake = FakeIscsiadm(FakeRoot(Path(folder)))
        fake.portals = {PORTAL: [IQN]}

        def run(argv, timeout_s):
            mode = argv[2] if argv[0] == "iscsiadm" else ""
            answer = fake.run(argv, timeout_s)
            return text if mode in {"iface", "node"} else answer

        for outcome in log_in(fake, target(), target(OTHER), run=run):
            assert outcome.made or outcome.problem


def test_a_logout_ends_that_session_and_keeps_the_record(fake):
    log_in(fake, target())
    fake.session(3, IQN, PORTAL, "rdma0")
    iser = Iser(fake.root.path, fake.run)
    (own,) = [one for one in sessions(fake) if one.interface == INTERFACE]
    assert iser.log_out(own) is None
    assert [one.interface for one in sessions(fake)] == ["rdma0"]
    assert (IQN, PORTAL, "1", INTERFACE) in fake.records
    # It is gone already.
    assert iser.log_out(own) is None


def test_a_logout_that_fails_is_told(fake):
    log_in(fake, target())

    def run(argv, timeout_s):
        raise CommandFailed("iscsiadm: could not logout", 10)

    (own,) = sessions(fake)
    assert Iser(fake.root.path, run).log_out(own).id == "iser-logout-failed"
