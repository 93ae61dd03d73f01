# SPDX-License-Identifier: GPL-2.0-or-later
"""Logins, logouts and rescans, on a host whose kernel is a fake."""

import contextlib
import errno
import os
import threading
import time
from dataclasses import replace

import pytest
from support.fakes.fake_block import GUID, FakeBlock
from support.fakes.fake_root import FakeRoot

from ovirt_rdma.host.block import sessions as srp_module
from ovirt_rdma.host.block.logins import Login
from ovirt_rdma.host.block.read import BlockReader
from ovirt_rdma.host.block.sessions import Srp, write_in_child
from ovirt_rdma.host.policy.block import SrpTarget
from ovirt_rdma.host.system.commands import CommandFailed
from ovirt_rdma.host.system.tree import FileTree

OTHER = "0002c90300fb1299"


def target(guid=GUID, **keys):
    return SrpTarget(1, "array", GUID, guid, dest="10.0.0.1:5555", **keys)


@pytest.fixture
def fake(tmp_path):
    fake = FakeBlock(FakeRoot(tmp_path))
    fake.local_port("srp-rxe0-1")
    fake.targets = {GUID: [2048]}
    return fake


@pytest.fixture
def srp(fake):
    return Srp(fake.root.path, fake.run, fake.write)


def sessions(fake):
    return BlockReader(FileTree(fake.root.path)).facts().sessions


def test_a_login_makes_a_session_with_the_timeouts_of_the_target(fake, srp):
    wanted = target(fast_io_fail_tmo=5, dev_loss_tmo="off")
    (outcome,) = srp.log_in([Login(wanted, "rxe0", 1)], 5)
    assert (outcome.made, outcome.problem, outcome.notes) == (True, None, ())
    (session,) = sessions(fake)
    assert session.timeouts == (5, "off", 10)
    # The second time nothing is written.
    before = list(fake.written)
    (outcome,) = srp.log_in([Login(wanted, "rxe0", 1, session)], 5)
    assert (outcome.made, outcome.problem) == (False, None)
    assert fake.written == before


def test_a_module_that_is_not_there_fails_new_logins_only(fake, srp):
    (known,) = srp.log_in([Login(target(), "rxe0", 1)], 5)

    def missing(argv):
        raise CommandFailed("no such module")

    srp._run = missing
    wanted = [known, Login(target(OTHER), "rxe0", 1)]
    first, second = srp.log_in(wanted, 5)
    assert (first.problem, second.problem.id) == (None, "srp-module-not-loaded")
    # Where all is logged in it is not asked for.
    srp._run = None
    assert srp.log_in([known], 5)[0].problem is None


def test_a_login_that_srp_daemon_made_meanwhile_counts(fake, srp):
    fake.session("srp-rxe0-1", {"id_ext": GUID, "ioc_guid": GUID})
    (outcome,) = srp.log_in([Login(target(), "rxe0", 1)], 5)
    assert (outcome.made, outcome.problem) == (False, None)


@pytest.mark.parametrize("keys", [{}, {"initiator_ext": "0" * 15 + "2"}])
def test_a_session_of_another_target_is_not_taken_for_its_own(fake, srp, keys):
    """The kernel compares id_ext, ioc_guid and initiator_ext only (srp_conn_unique)."""
    first = Login(target(), "rxe0", 1)
    second = Login(
        SrpTarget(2, "b", GUID, GUID, dest="10.0.0.2:5555", fast_io_fail_tmo=5, **keys),
        "rxe0",
        1,
    )
    made, other = srp.log_in([first, second], 5)
    assert made.made
    if keys:
        assert (other.made, other.problem) == (True, None)
        assert other.session.host != made.session.host
        return
    assert other.problem.id == "srp-login-not-unique"
    assert "initiator_ext" in other.problem
    (session,) = sessions(fake)
    assert session.timeouts[0] == 15
    # Alone, with the other target logged in before.
    (other,) = srp.log_in([second], 5, others=[replace(first, session=session)])
    assert other.problem.id == "srp-login-not-unique"


def test_a_session_that_the_kernel_still_removes_is_no_other_targets(fake, srp):
    """It is in the list of srp_conn_unique() for a moment after sysfs has lost it."""
    fake.session("srp-rxe0-1", {"id_ext": GUID, "ioc_guid": GUID})
    write = fake.write

    def removed(path, text, timeout_s):
        number = write(path, text, timeout_s)
        fake.remove(0)
        return number

    srp._write = removed
    (outcome,) = srp.log_in([Login(target(), "rxe0", 1)], 5)
    assert outcome.problem.id == "srp-session-gone"
    assert "still removing" in outcome.problem


def test_a_session_with_another_gid_is_that_of_another_target(fake, srp):
    gid, far = "fe800000000000000002c90300fb1231", "fe800000000000000002c90300fb1232"
    fake.session("srp-rxe0-1", {"id_ext": GUID, "ioc_guid": GUID, "dgid": far})
    wanted = SrpTarget(1, "a", GUID, GUID, gid, "0x7fff", GUID)
    (outcome,) = srp.log_in([Login(wanted, "rxe0", 1)], 5)
    assert outcome.problem.id == "srp-login-not-unique"
    (outcome,) = srp.log_in([Login(replace(wanted, dgid=far), "rxe0", 1)], 5)
    assert (outcome.made, outcome.problem) == (False, None)


def test_a_refused_login_has_the_reason_of_this_attempt(fake, srp):
    line = "scsi host3: ib_srp: SRP LOGIN REJECTED, reason 0x0001000"
    fake.log.append(f"{line}1")

    def refused(path, text, timeout_s):
        fake.log.append(f"{line}6")
        return errno.ECONNRESET

    srp._write = refused
    (outcome,) = srp.log_in([Login(target(), "rxe0", 1)], 5)
    assert outcome.problem.id == "srp-login-refused"
    assert "0x00010006" in outcome.problem


def test_a_log_without_a_new_line_explains_nothing(fake, srp):
    fake.log.append("scsi host3: ib_srp: SRP LOGIN REJECTED, reason 0x00010006")
    (outcome,) = srp.log_in([Login(target(OTHER), "rxe0", 1)], 5)
    assert "no reason" in outcome.problem


def test_a_port_that_ib_srp_does_not_offer(fake, srp):
    (outcome,) = srp.log_in([Login(target(), "rxe0", 2)], 5)
    assert outcome.problem.id == "srp-local-port-missing"


def test_local_ports_log_in_at_the_same_time_and_one_port_in_turn(fake, srp):
    fake.local_port("srp-rxe1-1")
    running, most, waited = [], [], set()
    # The first login of each port waits for the other port's.
    together = threading.Barrier(2, timeout=60)

    def slow(path, text, timeout_s):
        port = path.parent.name
        running.append(port)
        most.append(tuple(running))
        if port not in waited:
            waited.add(port)
            together.wait()
        running.remove(port)
        return errno.ETIME

    srp._write = slow
    logins = [
        Login(target(), "rxe0", 1),
        Login(target(OTHER), "rxe0", 1),
        Login(target(), "rxe1", 1),
    ]
    outcomes = srp.log_in(logins, 0.2)
    assert [one.problem.id for one in outcomes] == ["srp-target-silent"] * 3
    assert all(names.count("srp-rxe0-1") <= 1 for names in most)


def test_after_the_end_a_session_that_is_there_still_gets_its_timeouts(fake, srp):
    first = Login(target(), "rxe0", 1)
    (made,) = srp.log_in([first], 5)
    known = Login(target(fast_io_fail_tmo=5), "rxe0", 1, made.session)
    second = Login(target(OTHER), "rxe0", 1)
    there, missing = srp.log_in([known, second], 5, end=time.monotonic())
    assert (there.problem, missing.problem.id) == (None, "srp-login-not-tried")
    assert (there.session, missing.session) == (made.session, None)
    (session,) = sessions(fake)
    assert session.timeouts[0] == 5


def test_a_timeout_that_the_kernel_refuses_is_a_note(fake, srp, monkeypatch):
    monkeypatch.setattr(srp_module, "_written", lambda path, text: "Invalid argument")
    wanted = target(fast_io_fail_tmo=5)
    (outcome,) = srp.log_in([Login(wanted, "rxe0", 1)], 5)
    assert (outcome.made, [note.id for note in outcome.notes]) == (
        True,
        ["srp-timeout-not-set"],
    )


def test_a_logout_waits_until_the_session_is_gone(fake, srp, monkeypatch):
    fake.session("srp-rxe0-1", {"id_ext": GUID, "ioc_guid": GUID})
    (session,) = sessions(fake)
    monkeypatch.setattr(srp_module, "_GONE_S", 0.3)
    assert srp.log_out(session).id == "srp-logout-failed"
    deleted = fake.root.path / "sys/class/srp_remote_ports/port-0:1/delete"
    assert deleted.read_text().startswith("1")

    def removed(path, text):
        fake.remove(0)
        return ""

    monkeypatch.setattr(srp_module, "_written", removed)
    assert srp.log_out(session) is None
    assert sessions(fake) == ()


def test_a_rescan_reaches_the_host_and_each_lun(fake, srp):
    fake.session("srp-rxe0-1", {"id_ext": GUID, "ioc_guid": GUID})
    (session,) = sessions(fake)
    assert srp.rescan([session]) == []
    top = fake.root.path
    assert (top / "sys/class/scsi_host/host0/scan").read_text().startswith("- - -")
    assert (top / "sys/class/block/sda/device/rescan").read_text().startswith("1")


def test_a_scan_that_waits_for_its_target_ends_in_time(fake, srp, monkeypatch):
    """It has the lock of the host."""
    fake.session("srp-rxe0-1", {"id_ext": GUID, "ioc_guid": GUID})
    fake.session("srp-rxe0-1", {"id_ext": OTHER, "ioc_guid": OTHER})
    now, written = [0.0], []
    over = threading.Event()

    def silent(path, text, timeout_s):
        written.append(str(path.relative_to(fake.root.path)))
        if "host0" not in written[-1]:
            over.set()
            return 0
        over.wait(60)  # the other one is scanned meanwhile
        now[0] += timeout_s
        return errno.ETIME

    monkeypatch.setattr(srp_module.time, "monotonic", lambda: now[0])
    srp._write = silent
    (failed,) = srp.rescan(sessions(fake))
    assert failed.id == "rescan-failed"
    assert "was not rescanned within 60 s" in failed
    assert now[0] == 60.0
    assert "sys/class/scsi_host/host1/scan" in written
    assert "sys/class/block/sda/device/rescan" not in written


def test_multipath_learns_a_new_size(fake):
    fake.session("srp-rxe0-1", {"id_ext": GUID, "ioc_guid": GUID})
    fake.mapped(0, "lun0", "mpath-36001", "sda")
    (session,) = sessions(fake)
    calls = []

    def write(path, text, timeout_s):
        fake.root.write("/sys/class/block/sda/size", "4096")
        return 0

    assert Srp(fake.root.path, calls.append, write).rescan([session]) == []
    assert calls == [("multipathd", "resize", "map", "lun0")]
    assert Srp(fake.root.path, calls.append, fake.write).rescan(sessions(fake)) == []
    assert len(calls) == 1


class TestTheChild:
    """The process that writes one login."""

    def test_it_writes(self, tmp_path):
        path = tmp_path / "add_target"
        path.write_text("")
        assert write_in_child(path, "id_ext=1", 5) == 0
        assert path.read_text() == "id_ext=1"

    def test_it_returns_the_kernels_error(self, tmp_path):
        assert write_in_child(tmp_path / "absent", "x", 5) == errno.ENOENT
        assert write_in_child(tmp_path, "x", 5) == errno.EISDIR

    def test_it_is_killed_at_the_deadline(self, tmp_path, monkeypatch):
        """A pipe that nobody reads keeps it waiting, as a silent target does."""
        monkeypatch.setattr(srp_module, "_STARTUP_S", 0.2)
        path = tmp_path / "pipe"
        os.mkfifo(path)
        assert write_in_child(path, "x", 0.3) == errno.ETIME

    def test_its_start_is_not_part_of_the_timeout(self, tmp_path, monkeypatch):
        """The write waits, because the pipe is full."""
        monkeypatch.setattr(srp_module, "_STARTUP_S", 60.0)
        path = tmp_path / "pipe"
        os.mkfifo(path)
        ours = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(ours, bytes(4096))
        assert write_in_child(path, "x", 0.2) == errno.ETIME
        os.close(ours)
