# SPDX-License-Identifier: GPL-2.0-or-later
"""Logins at boot (ovirt-rdma-block.service), and the task ``block`` of the daemon."""

from __future__ import annotations

import errno
import threading
import time
from dataclasses import replace

import pytest
from support.fakes.fake_block import GUID, FakeBlock
from support.fakes.fake_hosts import soft_roce
from support.fakes.fake_runner import FakeRunner
from support.host.daemon_task import TaskRuns

from ovirt_rdma.host.block import sessions as sessions_module
from ovirt_rdma.host.block import sessions as srp_module
from ovirt_rdma.host.block.logins import findings
from ovirt_rdma.host.block.sessions import BlockSessions, Srp, leaving_sessions
from ovirt_rdma.host.collect.collector import HostReader
from ovirt_rdma.host.daemon.loop import Result
from ovirt_rdma.host.daemon.tasks import BOOT_S, BlockLogins, log_in_at_boot
from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.paths import BLOCK_SESSIONS_JSON, POLICY_JSON, under
from ovirt_rdma.host.policy.block import BlockPolicy
from ovirt_rdma.host.policy.load import load_policy_file
from ovirt_rdma.host.policy.model import Policy
from ovirt_rdma.host.policy.store import store
from ovirt_rdma.host.system.lock import one_run

POLICY = f"""\
version: 1
block:
  srp:
    - {{name: array, id_ext: {GUID}, ioc_guid: {GUID}, dest: 10.0.0.1:5555}}
"""
RESCAN = POLICY + "  rescan_interval: 300\n"


class Stop:
    """Moves the clock; ends after ``most`` waits."""

    def __init__(self, site, most):
        self.site, self.most, self.waits = site, most, []

    def wait(self, seconds, files=()):
        self.site.now += seconds
        self.waits.append(seconds)
        return len(self.waits) >= self.most


class Site:
    def __init__(self, root, monkeypatch):
        self.root, self.now, self.told = root, 1000.0, []
        self.ready: list[float] = []
        self.is_ready = threading.Event()
        self.fake = fake = FakeBlock(root)
        fake.local_port("srp-rxe0-1")
        fake.targets = {GUID: [2048]}
        tools = FakeRunner()
        tools.program("modprobe", lambda argv: "")
        tools.program("dmesg", lambda argv: "")
        monkeypatch.setattr(
            sessions_module, "HostReader", lambda top: HostReader(top, root.runner)
        )
        monkeypatch.setattr(
            sessions_module, "Srp", lambda top, _: Srp(top, tools, fake.write)
        )

    def follow(self, text):
        file = self.root.path / "policy.yaml"
        file.write_text(text)
        policy = load_policy_file(file).policy
        self.block = policy.block
        store(policy, "policy.yaml", under(self.root.path, POLICY_JSON))

    def be_ready(self):
        self.ready.append(self.now)
        self.is_ready.set()

    def boot(self, most=100, age_s=0.0):
        stop = Stop(self, most)
        log_in_at_boot(
            str(self.root.path),
            self.told.append,
            self.be_ready,
            stop,
            clock=lambda: self.now,
            age_s=age_s,
        )
        return stop.waits

    def task(self):
        return BlockLogins(str(self.root.path), lambda: self.now)

    def runs(self, until):
        """Run the task from now ``until`` then; return when it ran."""
        runs = TaskRuns(self.task(), self.root.path, self.told)
        times = []
        while self.now < until:
            times.append(self.now)
            self.now += runs.run().next_s
        return times


@pytest.fixture
def site(tmp_path, monkeypatch):
    return Site(soft_roce(tmp_path), monkeypatch)


def test_it_logs_in_lets_vdsmd_start_and_ends(site):
    site.follow(POLICY)
    assert site.boot() == []
    assert site.ready == [1000.0]
    assert site.told == ["srp 'array' by rxe0/1: logged in"]
    # The daemon has nothing left to do but to look.
    times = site.runs(until=2000)
    assert [after - before for before, after in zip(times, times[1:])] == [60.0] * 16
    assert (len(site.told), len(site.fake.written)) == (1, 1)


def test_without_targets_it_ends_at_once(site):
    site.follow("version: 1\n")
    assert (site.boot(), site.ready, site.told) == ([], [1000.0], [])
    assert site.runs(until=10_000) == [1000.0]
    task = BlockLogins("/")
    assert task.interval(Policy()) is None
    assert task.interval(Policy(block=BlockPolicy(rescan_interval=60)))


def test_without_a_policy_vdsmd_starts(site):
    assert (site.boot(), site.ready, site.told) == ([], [1000.0], [])
    site.root.write(POLICY_JSON, "{")
    assert (site.boot(), len(site.ready), len(site.told)) == ([], 2, 1)


def test_it_does_not_end_while_vdsmd_is_being_let_go(site, monkeypatch):
    """The deadline comes during the last login: the unit ends after it is ready."""
    begun = threading.Event()

    def slow():
        begun.set()
        time.sleep(0.3)
        site.ready.append(site.now)

    def targets(block):
        begun.wait(10)
        return []

    monkeypatch.setattr(site, "be_ready", slow)
    monkeypatch.setattr(BlockPolicy, "targets", property(targets))
    site.boot(age_s=BOOT_S)
    assert site.ready == [1000.0]


def tries(site):
    """Return the times of all attempts to log in, as they come."""
    times, write = [], site.fake.write

    def timed(path, text, timeout_s):
        times.append(site.now)
        return write(path, text, timeout_s)

    site.fake.write = timed
    return times


def gone(site):
    """Let the target not answer."""
    site.fake.targets = {}
    site.fake.errors[GUID] = errno.EHOSTUNREACH
    site.follow(POLICY)


def test_a_target_that_comes_within_the_minute_is_waited_for(site):
    gone(site)
    write = site.fake.write

    def later(path, text, timeout_s):
        if site.now >= 1010:
            site.fake.targets = {GUID: [2048]}
        return write(path, text, timeout_s)

    site.fake.write = later
    site.boot()
    assert 1010 <= site.ready[0] < 1015


MISSING = "srp 'array' by rxe0/1: the target does not answer"


def test_vdsmd_starts_without_a_target_that_is_gone(site):
    gone(site)
    site.boot()
    (ready,) = site.ready
    assert ready <= 1000 + BOOT_S
    assert site.told == [MISSING]


def test_later_it_is_tried_less_and_less_often_until_it_is_there(site):
    gone(site)
    times = tries(site)
    site.runs(until=4000)
    waits = [after - before for before, after in zip(times, times[1:])]
    assert waits[:6] == [30.0, 60.0, 120.0, 240.0, 480.0, 600.0]
    assert site.told == [MISSING]
    # Another policy begins from the start.
    times.clear()
    start = site.now
    site.runs(until=start + 31)
    assert times == [start, start + 30.0]
    site.fake.targets = {GUID: [2048]}
    site.fake.errors.clear()
    site.runs(until=site.now + 1)
    assert site.told[-1] == "srp 'array' by rxe0/1: logged in"


def test_a_session_that_the_kernel_removed_is_made_again(site):
    """rport_dev_loss_timedout() of scsi_transport_srp.c, after dev_loss_tmo."""
    site.follow(POLICY)
    task = TaskRuns(site.task(), site.root.path, site.told)
    assert task.run().sentence == "targets: all are logged in"
    site.fake.remove(0)
    gone(site)
    site.now += 60
    result = task.run()
    assert result.sentence == "targets: 1 of 1 are not logged in"
    assert result.problems == (MISSING,)
    site.fake.targets = {GUID: [2048]}
    site.now += result.next_s
    assert task.run() == Result("targets: all are logged in", (), 60.0)
    assert site.told.count("srp 'array' by rxe0/1: logged in") == 2


TWO = POLICY + (
    f"    - {{name: other, id_ext: {GUID}, ioc_guid: {GUID}, dest: 10.0.0.1:5556, "
    "initiator_ext: 0000000000000002, fast_io_fail_tmo: 5}\n"
)


@pytest.mark.parametrize("known", [True, False])
def test_of_two_paths_by_one_port_the_lost_one_comes_back(site, known):
    """The kernel does not show which one is there; numbers of hosts are used again."""
    site.follow(TWO)
    task = TaskRuns(site.task(), site.root.path, site.told)
    assert task.run().sentence == "targets: all are logged in"
    if not known:  # as if srp_daemon had made them
        site.root.path.joinpath(BLOCK_SESSIONS_JSON[1:]).unlink()
    site.fake.remove(0)
    site.fake.reuse_numbers()
    site.now += 60
    for _ in range(3):
        site.now += 60
        assert task.run() == Result("targets: all are logged in", (), 60.0)
    assert site.told.count("srp 'array' by rxe0/1: logged in") == 2
    assert site.told.count("srp 'other' by rxe0/1: logged in") == 1
    # Without the record, the other one is tried too, once.
    assert len(site.fake.written) == (3 if known else 4)
    facts = BlockSessions(str(site.root.path)).facts()
    assert {one.host: one.timeouts[0] for one in facts.sessions} == {0: 15, 1: 5}


def test_a_number_of_a_host_that_is_used_again_says_nothing_of_the_former_one(site):
    """Both sessions end, and the other target answers first."""
    site.follow(TWO)
    task = TaskRuns(site.task(), site.root.path, site.told)
    task.run()
    write = site.fake.write

    def without_array(path, text, timeout_s):
        is_array = "initiator_ext" not in text
        return errno.ECONNRESET if is_array else write(path, text, timeout_s)

    for host in (0, 1):
        site.fake.remove(host)
    site.fake.reuse_numbers()
    site.fake.write = without_array
    site.now += 600
    assert task.run().sentence == "targets: 1 of 2 are not logged in"
    sessions = BlockSessions(str(site.root.path))
    logins = sessions.logins(site.block, sessions.facts())
    hosts = {one.target.name: one.session and one.session.host for one in logins}
    assert hosts == {"array": None, "other": 0}
    site.fake.write = write
    site.now += 600
    assert task.run() == Result("targets: all are logged in", (), 60.0)


def test_another_initiator_ext_gets_the_number_of_the_host_before(site):
    site.follow(POLICY)
    task = TaskRuns(site.task(), site.root.path, site.told)
    task.run()
    site.fake.remove(0)
    site.fake.reuse_numbers()
    site.follow(POLICY.replace("dest:", "initiator_ext: 0000000000000002, dest:"))
    site.now += 600
    assert task.run() == Result("targets: all are logged in", (), 60.0)


@pytest.mark.parametrize(("name", "stays"), [("array", 1), ("other", 0)])
def test_of_two_paths_by_one_port_one_stays_logged_out(site, name, stays):
    site.follow(TWO)
    task = TaskRuns(site.task(), site.root.path, site.told)
    task.run()
    log_out(site, name)
    for _ in range(2):
        site.now += 600
        out = f"targets: 1 of 2 are not logged in (block logout: {name})"
        assert task.run().sentence == out
    assert len(site.fake.written) == 2
    sessions = BlockSessions(str(site.root.path))
    facts = sessions.facts()
    assert [one.host for one in facts.sessions] == [stays]
    logins = sessions.logins(site.block, facts)
    assert [one.target.name for one in logins if not one.session] == [name]
    (missing,) = findings(logins, replace(facts, sessions=()))
    assert f"'{name}' by rxe0/1 is not logged in" in missing


def test_a_target_that_is_gone_does_not_hide_the_other_path(site):
    """It is tried less and less often, and the other one not at all."""
    site.follow(TWO)
    task = TaskRuns(site.task(), site.root.path, site.told)
    task.run()
    site.fake.remove(0)
    gone(site)
    site.follow(TWO)
    for _ in range(3):
        site.now += 600
        result = task.run()
        assert result.sentence == "targets: 1 of 2 are not logged in"
        assert result.problems == (MISSING,)
    assert sum("initiator_ext" in text for _, text in site.fake.written) == 1


def test_a_port_that_has_a_link_again_waits_for_no_retry(site, monkeypatch):
    site.follow(POLICY)
    task = TaskRuns(site.task(), site.root.path, site.told)
    task.run()
    site.fake.remove(0)
    logins = BlockSessions.logins

    def down(self, block, facts):
        why = Sentence("srp-port-down", "rxe0/1 is DOWN")
        return [replace(one, problem=why) for one in logins(self, block, facts)]

    with monkeypatch.context() as patched:
        patched.setattr(BlockSessions, "logins", down)
        until = site.now + 3600
        while site.now < until:
            site.now += task.run().next_s
    assert task.run().sentence == "targets: all are logged in"


def test_a_session_that_is_down_is_soon_scanned_again(site, monkeypatch):
    site.follow(RESCAN.replace(": 300", ": 86400"))
    task = TaskRuns(site.task(), site.root.path, site.told)
    site.now += task.run().next_s
    failed = [Sentence("rescan-failed", "array is blocked, and not rescanned")]
    monkeypatch.setattr(BlockSessions, "rescan", lambda self, _: failed)
    site.now += 86400
    assert task.run().problems == (str(failed[0]),)
    failed.clear()
    site.now += 600
    assert task.run().problems == ()


def log_out(site, *names):
    """Do what ``block logout`` does."""
    sessions, block = BlockSessions(str(site.root.path)), site.block
    logins, facts = sessions.logins(block, sessions.facts()), sessions.facts()
    leaving, targets, _ = leaving_sessions(logins, facts, names or None)
    for one in leaving:
        site.fake.remove(one.host)
    assert sessions.log_out(leaving, block, targets) == {}


@pytest.mark.parametrize("names", [("array",), (GUID,), ()])
def test_a_logout_lasts_until_a_login_or_another_policy(site, names):
    site.follow(POLICY)
    runs = TaskRuns(site.task(), site.root.path, site.told)
    runs.run()
    log_out(site, *names)
    out = "targets: 1 of 1 are not logged in (block logout: array)"
    for _ in range(3):
        site.now += 600
        assert runs.run().sentence == out
    # A daemon that starts again knows it.
    runs = TaskRuns(site.task(), site.root.path, site.told)
    assert runs.run().sentence == out
    assert len(site.fake.written) == 1
    BlockSessions(str(site.root.path)).log_in(site.block, site.block.targets)
    site.fake.remove(1)
    site.now += 600
    assert runs.run().sentence == "targets: all are logged in"
    log_out(site, *names)
    site.follow(RESCAN)
    assert runs.run().sentence == "targets: all are logged in"
    # That ended it: the former policy does not bring it back.
    site.fake.remove(3)
    site.follow(POLICY)
    assert runs.run().sentence == "targets: all are logged in"


def test_a_boot_ends_a_logout(site):
    site.follow(POLICY)
    log_out(site, "array")
    site.boot()
    assert site.told == ["srp 'array' by rxe0/1: logged in"]
    site.fake.remove(0)
    site.runs(until=site.now + 1)
    assert len(site.fake.written) == 2


def test_a_process_that_is_old_already_waits_less(site):
    """systemd waits from the start of the process; loading Python is part of it."""
    gone(site)
    site.boot(age_s=BOOT_S - 10)
    assert site.ready[0] <= 1010


@pytest.mark.parametrize("age_s", [BOOT_S, BOOT_S + 100])
def test_a_blocked_login_does_not_hold_up_vdsmd(site, age_s):
    site.follow(POLICY)
    seen = []

    def blocked(path, text, timeout_s):
        seen.append(site.is_ready.wait(30))
        return errno.ETIME

    site.fake.write = blocked
    site.boot(age_s=age_s)
    assert seen == [True]
    assert site.ready == [1000.0]


def test_the_logins_of_an_attempt_have_the_minute_together(site, monkeypatch):
    """Twenty silent targets behind one port would take 20 times login_timeout."""
    name = "    - {{name: a{0}, id_ext: {0:016x}, ioc_guid: {0:016x}, dest: {1}}}"
    lines = [name.format(n, "10.0.0.1:5555") for n in range(1, 21)]
    site.follow("\n".join(["version: 1", "block:", "  srp:", *lines, ""]))
    written = []

    def silent(path, text, timeout_s):
        site.now += timeout_s
        written.append(text)
        return errno.ETIME

    site.fake.write = silent
    monkeypatch.setattr(srp_module.time, "monotonic", lambda: site.now)
    site.boot(most=1)
    timeout_s = BlockPolicy().login_timeout
    assert len(written) == -(-BOOT_S // timeout_s) < 20
    assert sum("not tried" in sentence for sentence in site.told) == 20 - len(written)


def test_new_luns_are_found_as_often_as_the_policy_says(site):
    site.follow(RESCAN)
    scans, write = [], site.fake.write

    def scan(path, text, timeout_s):
        if path.name == "scan":
            scans.append(site.now)
            site.fake.lun(0, 2, "sdx", 2048)
        return write(path, text, timeout_s)

    site.fake.write = scan
    site.runs(until=1601)
    assert scans == [1300.0, 1600.0]
    assert site.told[1:] == ["sdx is new: 1 MiB"]


def test_another_run_is_waited_for(site):
    site.follow(POLICY)
    with one_run(site.root.path):
        assert site.boot(most=3) == [2.0, 2.0, 2.0]
        assert site.runs(until=1007) == [1006.0]
    (held,) = site.told
    assert held.startswith("another run of ovirt-rdma-host is changing this host")
