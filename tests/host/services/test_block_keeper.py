# SPDX-License-Identifier: GPL-2.0-or-later
"""ovirt-rdma-block.service from boot on: logins, their repetition, rescans."""

from __future__ import annotations

import errno
import socket
import threading

import pytest
from support.fakes.fake_block import GUID, FakeBlock
from support.fakes.fake_hosts import soft_roce
from support.fakes.fake_runner import FakeRunner

from ovirt_rdma.host.block import sessions as sessions_module
from ovirt_rdma.host.block import srp as srp_module
from ovirt_rdma.host.block.srp import Srp
from ovirt_rdma.host.collect.collector import HostReader
from ovirt_rdma.host.paths import POLICY_JSON, under
from ovirt_rdma.host.policy.block import BlockPolicy
from ovirt_rdma.host.policy.load import load_policy_file
from ovirt_rdma.host.policy.store import store
from ovirt_rdma.host.services.block_keeper import (
    BOOT_S,
    BlockKeeper,
    seconds_since_start,
    tell_systemd,
)
from ovirt_rdma.host.system.lock import one_run

POLICY = f"""\
version: 1
block:
  srp:
    - {{name: array, id_ext: {GUID}, ioc_guid: {GUID}, dest: 10.0.0.1:5555}}
"""
RESCAN = POLICY + "  rescan_interval: 300\n"


class Notes(list):
    note = list.append


class Stop:
    """Moves the clock; ends after ``most`` waits."""

    def __init__(self, site, most):
        self.site, self.most, self.waits = site, most, []

    def wait(self, seconds):
        self.site.now += seconds
        self.waits.append(seconds)
        return len(self.waits) >= self.most


class Site:
    def __init__(self, root, monkeypatch):
        self.root, self.now, self.told = root, 1000.0, Notes()
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
        store(policy, "policy.yaml", under(self.root.path, POLICY_JSON))

    def be_ready(self):
        self.ready.append(self.now)
        self.is_ready.set()

    def keep(self, most=4, age_s=0.0):
        keeper = BlockKeeper(
            str(self.root.path), self.told, self.be_ready, lambda: self.now, age_s
        )
        stop = Stop(self, most)
        keeper.keep(stop)
        return stop.waits


@pytest.fixture
def site(tmp_path, monkeypatch):
    return Site(soft_roce(tmp_path), monkeypatch)


def test_it_logs_in_lets_vdsmd_start_and_ends(site):
    site.follow(POLICY)
    assert site.keep() == []
    assert site.ready == [1000.0]
    assert site.told == ["srp 'array' by rxe0/1: logged in"]
    # After a restart of the unit, too.
    assert site.keep() == []
    assert len(site.told) == 1


def test_without_targets_it_ends_at_once(site):
    site.follow("version: 1\n")
    assert (site.keep(), site.ready, site.told) == ([], [1000.0], [])


def test_without_a_policy_vdsmd_starts(site):
    assert (site.keep(), site.ready, site.told) == ([], [1000.0], [])
    site.root.write(POLICY_JSON, "{")
    assert (site.keep(), len(site.ready), len(site.told)) == ([], 2, 1)


def test_a_target_that_comes_within_the_minute_is_waited_for(site):
    site.fake.targets = {}
    site.fake.errors[GUID] = errno.EHOSTUNREACH
    write = site.fake.write

    def later(path, text, timeout_s):
        if site.now >= 1010:
            site.fake.targets = {GUID: [2048]}
        return write(path, text, timeout_s)

    site.fake.write = later
    site.follow(POLICY)
    site.keep(most=100)
    assert 1010 <= site.ready[0] < 1015


def test_vdsmd_starts_without_a_target_that_is_gone(site):
    site.fake.targets = {}
    site.fake.errors[GUID] = errno.EHOSTUNREACH
    site.follow(POLICY)
    waits = site.keep(most=60)
    (ready,) = site.ready
    assert ready <= 1000 + BOOT_S
    assert site.told == ["srp 'array' by rxe0/1: the target does not answer"]
    # Later it is tried less and less often.
    assert waits[-1] == 60.0
    tried = len(site.fake.written)
    site.keep(most=1)
    assert 30 < tried < 45


def test_a_process_that_is_old_already_waits_less(site):
    """systemd waits from the start of the process; loading Python is part of it."""
    site.fake.targets = {}
    site.fake.errors[GUID] = errno.EHOSTUNREACH
    site.follow(POLICY)
    site.keep(most=60, age_s=BOOT_S - 10)
    assert site.ready[0] <= 1010


@pytest.mark.parametrize("age_s", [BOOT_S, BOOT_S + 100])
def test_a_blocked_login_does_not_hold_up_vdsmd(site, age_s):
    site.follow(POLICY)
    seen = []

    def blocked(path, text, timeout_s):
        seen.append(site.is_ready.wait(30))
        return errno.ETIME

    site.fake.write = blocked
    site.keep(most=1, age_s=age_s)
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
    site.keep(most=1)
    timeout_s = BlockPolicy().login_timeout
    assert len(written) == -(-BOOT_S // timeout_s) < 20
    assert sum("not tried" in sentence for sentence in site.told) == 20 - len(written)


def test_new_luns_are_found_as_often_as_the_policy_says(site, monkeypatch):
    site.follow(RESCAN)
    scans, written = [], srp_module._written

    def scan(path, text):
        if path.name == "scan":
            scans.append(site.now)
            site.fake.lun(0, 2, "sdx", 2048)
        return written(path, text)

    monkeypatch.setattr(srp_module, "_written", scan)
    site.keep(most=11)
    assert scans == [1300.0, 1600.0]
    assert site.told[1:] == ["sdx is new: 1 MiB"]


def test_another_run_is_waited_for(site):
    site.follow(POLICY)
    with one_run(site.root.path):
        assert site.keep(most=3) == [2.0, 2.0, 2.0]
    assert site.told == []


def test_the_age_of_a_process_counts():
    assert 0 < seconds_since_start() < 3600


def test_systemd_is_told(tmp_path, monkeypatch):
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(path)
        monkeypatch.setenv("NOTIFY_SOCKET", path)
        tell_systemd("READY=1")
        assert systemd.recv(64) == b"READY=1"
    monkeypatch.delenv("NOTIFY_SOCKET")
    tell_systemd("READY=1")
