# SPDX-License-Identifier: GPL-2.0-or-later
"""One run at a time changes a host; what only reads is never kept waiting."""

from __future__ import annotations

import os
import signal
import threading

import pytest
from host_fake_enablement import Host, policy_of, rdma_rule

from ovirt_rdma.host.enablement import file_for
from ovirt_rdma.host.enablement_status import read_status
from ovirt_rdma.host.paths import RUN_LOCK, under
from ovirt_rdma.host.problem import Problem
from ovirt_rdma.host.run_lock import LockHeld, one_run


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path)


@pytest.mark.parametrize("mode", ["vdsmd", "nfsmount"])
@pytest.mark.parametrize("verb", ["enable", "disable"])
def test_a_second_run_is_turned_away_and_changes_nothing(host, verb, mode):
    if verb == "disable":
        host.enable(mode)
    before = host.tree()
    with one_run(host.root), pytest.raises(LockHeld) as caught:
        host.enable(mode) if verb == "enable" else host.disable()
    assert caught.value.exit_code == 75
    assert str(caught.value) == "another run of ovirt-rdma-host is changing this host"
    assert host.tree() == before
    assert (host.enable(mode) if verb == "enable" else host.disable()).changed


def test_what_reads_takes_no_lock(host):
    read_status(host.root, run=host.run)
    file_for(policy_of(rdma_rule()), host.root, host.run)
    assert not under(host.root, RUN_LOCK).exists()
    with one_run(host.root):
        read_status(host.root, run=host.run)


def test_it_waits_as_long_as_it_is_told_to(host):
    held, let_go = threading.Event(), threading.Event()

    def other():
        with one_run(host.root):
            held.set()
            let_go.wait(120)

    thread = threading.Thread(target=other)
    thread.start()
    assert held.wait(120)
    with pytest.raises(LockHeld), one_run(host.root, 0.2):
        pass
    threading.Timer(0.1, let_go.set).start()
    with one_run(host.root, 20):
        assert let_go.is_set()
    thread.join()


def test_a_killed_run_holds_nothing(host):
    child = os.fork()
    if child == 0:
        with one_run(host.root):
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert host.enable().changed


def test_nobody_but_root_can_hold_it(host):
    before = os.umask(0o077)
    try:
        host.enable()
    finally:
        os.umask(before)
    path = under(host.root, RUN_LOCK)
    assert path.stat().st_mode & 0o777 == 0o600
    # vdsmd has its marks of mounts in there.
    assert path.parent.stat().st_mode & 0o777 == 0o755


def test_a_lock_that_cannot_be_opened_is_a_sentence(host):
    host.link(RUN_LOCK, "/nowhere")
    with pytest.raises(Problem) as caught:
        host.enable()
    assert f"{under(host.root, RUN_LOCK)} cannot be opened: " in str(caught.value)
    assert caught.value.exit_code == 1
