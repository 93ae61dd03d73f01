# SPDX-License-Identifier: GPL-2.0-or-later
"""Interrupt enable and disable of mode vdsmd at every step, and run them again."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from support.fakes.fake_enablement import (
    RELOAD,
    START,
    STOP,
    Host,
    killed_at_step,
    rdma_rule,
    run_until,
)

from ovirt_rdma.host.paths import (
    DAEMON_FILE,
    DROPIN_DIRECTORY,
    DROPIN_LINK,
    DROPIN_SOURCE,
    ENABLED,
    FOLDER_NOTE,
    under,
)
from ovirt_rdma.host.services.enablement import ABSENT, OURS, read_state, read_status

pytestmark = pytest.mark.hypervisor

# The number of steps that it takes on a fresh host.
RUNS = [("enable", 5), ("disable", 6)]
CASES = [
    pytest.param(verb, done, id=f"{verb}-{done}")
    for verb, steps in RUNS
    for done in range(steps)
]


class Interrupted(Exception):
    pass


def make_host(root: Path) -> Host:
    host = Host(root)
    host.load(rdma_rule())
    host.write(DAEMON_FILE, "packaged\n")
    return host


def prepare(host: Host, verb: str) -> None:
    """Bring the host to the state before the run."""
    if verb == "disable":
        host.enable()
    host.commands.clear()


def check_between(host: Host) -> None:
    """vdsmd starts as stock or through a complete launcher; status names the rest."""
    state = read_state(host.root)
    assert state.link in {ABSENT, OURS}
    link = under(host.root, DROPIN_LINK)
    if link.is_symlink():
        assert str(link.readlink()) == DROPIN_SOURCE
    status = read_status(host.root)
    advice = [
        advice for advice in status.advice if "was interrupted" in advice.sentence
    ]
    marked = state.marker == OURS
    linked = state.link == OURS
    assert len(advice) == (marked != linked)
    assert (status.mode is not None) == (marked and linked)


@pytest.fixture
def wanted(tmp_path_factory):
    """The trees of a host that was never enabled, and of one after enable."""
    host = make_host(tmp_path_factory.mktemp("undisturbed"))
    never = host.tree()
    host.enable()
    return without_dates(never), without_dates(host.tree())


def without_dates(tree):
    """The tree without policy.json, which has the time when it was loaded."""
    return {path: what for path, what in tree.items() if "policy.json" not in path}


@pytest.mark.parametrize("verb, steps", RUNS)
def test_the_steps_are_all_tried(tmp_path, verb, steps):
    host = make_host(tmp_path)
    prepare(host, verb)
    assert len(getattr(host, verb)().steps) == steps


@pytest.mark.parametrize("verb, done", CASES)
@pytest.mark.parametrize("then", ["enable", "disable"])
def test_an_exception(tmp_path, wanted, verb, done, then):
    host = make_host(tmp_path)
    prepare(host, verb)

    def end():
        raise Interrupted

    with pytest.raises(Interrupted):
        run_until(getattr(host, verb), done, end)
    check_between(host)
    complete(host, then, wanted)


@pytest.mark.parametrize("verb, done", CASES)
@pytest.mark.parametrize("then", ["enable", "disable"])
def test_a_process_that_is_killed(tmp_path, wanted, verb, done, then):
    host = make_host(tmp_path)
    prepare(host, verb)
    assert killed_at_step(getattr(host, verb), done)
    check_between(host)
    complete(host, then, wanted)


def complete(host: Host, then: str, wanted) -> None:
    """Run ``then``: it completes the work, and systemd has read its units."""
    never, enabled = wanted
    before = without_dates(host.tree())
    host.commands.clear()
    if then == "enable":
        host.enable()
        assert without_dates(host.tree()) == enabled
        assert host.daemon[1] == "active"
        assert not host.enable().steps
    else:
        host.disable()
        assert without_dates(host.tree()) == never
        assert not host.disable().steps
    after = without_dates(host.tree())
    note = FOLDER_NOTE.lstrip("/")
    for tree in (before, after):
        tree.pop(note, None)  # systemd does not care for it
    if after != before:
        last = START if then == "enable" else STOP
        assert host.commands in ([RELOAD], [RELOAD, last])


def kill_at_change(number: int) -> None:
    """Kill this process instead of a change of a file, after ``number`` of them."""
    calls = []

    def counted(real):
        def called(*words, **more):
            if len(calls) == number:
                os.kill(os.getpid(), signal.SIGKILL)
            calls.append(words)
            return real(*words, **more)

        return called

    for name in ("mkdir", "chmod", "symlink_to", "replace"):
        setattr(Path, name, counted(getattr(Path, name)))


@pytest.mark.parametrize("then", ["enable", "disable"])
@pytest.mark.parametrize("there", [True, False], ids=["folder", "no-folder"])
@pytest.mark.parametrize("umask", [0o022, 0o077], ids=["umask-022", "umask-077"])
def test_a_kill_within_a_step(tmp_path_factory, umask, there, then):
    """Killed before each change of a file; an existing folder needs fewer of them."""

    def fresh():
        host = make_host(tmp_path_factory.mktemp("host"))
        if there:
            under(host.root, DROPIN_DIRECTORY).mkdir()
        return host

    undisturbed = fresh()
    never = without_dates(undisturbed.tree())
    undisturbed.enable()
    enabled = without_dates(undisturbed.tree())
    number, killed = -1, True
    while killed:
        number += 1
        host = fresh()
        child = os.fork()
        if child == 0:
            os.umask(umask)
            kill_at_change(number)
            host.enable()
            os._exit(0)
        killed = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        if then == "enable":
            host.enable()
            assert without_dates(host.tree()) == enabled
            assert not host.enable().steps
        host.disable()
        assert without_dates(host.tree()) == never
        assert not host.disable().steps
    # The folder of the lock and its mode; ours, and the note of it; link and marker.
    assert number == (6 if there else 8)


@pytest.mark.parametrize("verb", ["enable", "disable"])
def test_only_names_of_ours_are_swept(tmp_path, verb):
    host = make_host(tmp_path)
    folder = Path(ENABLED).parent
    kept = [
        f"{folder}/.enabled.swp",
        f"{folder}/.enabled.abcd1234",
        f"{folder}/enabled.abcd1234",
        "/etc/systemd/system/.vdsmd.service.d.other/x",
    ]
    swept = f"{folder}/.enabled.abcd_123.ovirt-rdma"
    for path in (*kept, swept):
        host.write(path, "")
    link = f"{folder}/.enabled.abcdefgh.ovirt-rdma"
    host.link(link, "/nowhere")
    getattr(host, verb)()
    assert all(under(tmp_path, path).exists() for path in kept)
    assert under(tmp_path, link).is_symlink()
    assert not under(tmp_path, swept).exists()
