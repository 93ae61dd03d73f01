# SPDX-License-Identifier: GPL-2.0-or-later
"""enable and disable interrupted at every step, in both modes, and run again."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from host_fake_enablement import RELOAD, Host, policy_of, rdma_rule

from ovirt_rdma.host import enablement
from ovirt_rdma.host.enablement_state import read_state
from ovirt_rdma.host.enablement_status import read_status
from ovirt_rdma.host.nfsmount_conf_file import ABSENT, OURS
from ovirt_rdma.host.paths import (
    DROPIN_DIRECTORY,
    DROPIN_LINK,
    DROPIN_SOURCE,
    ENABLED,
    FOLDER_NOTE,
    NFSMOUNT_DIRECTORY,
    NFSMOUNT_FILE,
    under,
)

# (verb, mode) with the number of steps that it takes on a fresh host.
RUNS = [
    ("enable", "vdsmd", 4),
    ("disable", "vdsmd", 5),
    ("enable", "nfsmount", 3),
    ("disable", "nfsmount", 4),
]
CASES = [
    pytest.param(verb, mode, done, id=f"{verb}-{mode}-{done}")
    for verb, mode, steps in RUNS
    for done in range(steps)
]


class Interrupted(Exception):
    pass


def make_host(root: Path) -> Host:
    host = Host(root)
    host.load(rdma_rule())
    return host


def prepare(host: Host, verb: str, mode: str) -> None:
    """Bring the host to where the run begins."""
    if verb == "disable":
        host.enable(mode)
    host.commands.clear()


def run_until(host: Host, verb: str, mode: str, done: int, end) -> None:
    """Run, and call ``end`` in place of the step after ``done`` ones."""
    carry_out = enablement._carry_out_step
    steps = []

    def interrupted(step, *rest):
        if len(steps) == done:
            end()
        steps.append(step.id)
        carry_out(step, *rest)

    enablement._carry_out_step = interrupted
    try:
        host.enable(mode) if verb == "enable" else host.disable()
    finally:
        enablement._carry_out_step = carry_out


def check_between(host: Host) -> None:
    """Stock VDSM, or a whole launcher, starts; mount.nfs reads all or nothing; status
    says what is half done.
    """
    state = read_state(host.root)
    assert state.link in {ABSENT, OURS}
    assert state.conf.state in {ABSENT, OURS}
    link = under(host.root, DROPIN_LINK)
    if link.is_symlink():
        assert str(link.readlink()) == DROPIN_SOURCE
    status = read_status(host.root, run=host.run)
    said = [advice for advice in status.advice if "was interrupted" in advice.sentence]
    marked = state.marker == OURS
    there = OURS in {state.link, state.conf.state}
    assert len(said) == (marked != there)
    assert (status.enabled.mode is not None) == (marked and there)


@pytest.fixture
def wanted(tmp_path_factory):
    """The trees of a host never enabled, and enabled without any trouble."""

    def trees(mode):
        host = make_host(tmp_path_factory.mktemp("undisturbed"))
        never = host.tree()
        host.enable(mode)
        return without_dates(never), without_dates(host.tree())

    return trees


def without_dates(tree):
    """The tree but for policy.json, which says when it was loaded."""
    return {path: what for path, what in tree.items() if "policy.json" not in path}


@pytest.mark.parametrize("verb, mode, steps", RUNS)
def test_the_steps_are_all_tried(tmp_path, verb, mode, steps):
    host = make_host(tmp_path)
    prepare(host, verb, mode)
    result = host.enable(mode) if verb == "enable" else host.disable()
    assert len(result.steps) == steps


@pytest.mark.parametrize("verb, mode, done", CASES)
@pytest.mark.parametrize("then", ["enable", "disable"])
def test_an_exception(tmp_path, wanted, verb, mode, done, then):
    host = make_host(tmp_path)
    prepare(host, verb, mode)

    def end():
        raise Interrupted

    with pytest.raises(Interrupted):
        run_until(host, verb, mode, done, end)
    check_between(host)
    complete(host, mode, then, wanted)


@pytest.mark.parametrize("verb, mode, done", CASES)
@pytest.mark.parametrize("then", ["enable", "disable"])
def test_a_process_that_is_killed(tmp_path, wanted, verb, mode, done, then):
    host = make_host(tmp_path)
    prepare(host, verb, mode)
    child = os.fork()
    if child == 0:
        run_until(host, verb, mode, done, lambda: os.kill(os.getpid(), signal.SIGKILL))
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL
    check_between(host)
    complete(host, mode, then, wanted)


def complete(host: Host, mode: str, then: str, wanted) -> None:
    """Run ``then``: as if nothing had happened, systemd knows, and that is all."""
    never, enabled = wanted(mode)
    before = without_dates(host.tree())
    host.commands.clear()
    if then == "enable":
        host.enable(mode)
        assert without_dates(host.tree()) == enabled
        assert not host.enable(mode).changed
    else:
        host.disable()
        assert without_dates(host.tree()) == never
        assert not host.disable().changed
    after = without_dates(host.tree())
    note = FOLDER_NOTE.lstrip("/")
    for tree in (before, after):
        tree.pop(note, None)  # systemd does not care for it
    if mode == "vdsmd" and after != before:
        assert host.commands == [RELOAD]


@pytest.mark.parametrize(
    "mode, folder", [("vdsmd", DROPIN_DIRECTORY), ("nfsmount", NFSMOUNT_DIRECTORY)]
)
def test_a_folder_that_was_being_made(tmp_path, wanted, mode, folder):
    """Killed between making a folder and moving it to its place."""
    host = make_host(tmp_path)
    place = under(tmp_path, folder)
    host.write(
        f"{place.parent}/.{place.name}.ovirt-rdma/x".removeprefix(str(tmp_path)), ""
    )
    host.enable(mode)
    _, enabled = wanted(mode)
    assert without_dates(host.tree()) == enabled


def kill_at_rename(number: int) -> None:
    """Kill this process in place of the rename, or replace, after ``number`` ones."""
    calls = []

    def counted(real):
        def called(*words):
            if len(calls) == number:
                os.kill(os.getpid(), signal.SIGKILL)
            calls.append(words)
            return real(*words)

        return called

    Path.rename = counted(Path.rename)
    Path.replace = counted(Path.replace)


@pytest.mark.parametrize("then", ["enable", "disable"])
@pytest.mark.parametrize("there", [True, False], ids=["folder", "no-folder"])
@pytest.mark.parametrize(
    "mode, renames", [("vdsmd", 3), ("nfsmount", 4)], ids=["vdsmd", "nfsmount"]
)
def test_a_kill_within_a_step(tmp_path_factory, mode, renames, there, then):
    """Killed before each rename; a folder that is there takes fewer of them."""
    folder = DROPIN_DIRECTORY if mode == "vdsmd" else NFSMOUNT_DIRECTORY

    def fresh():
        host = make_host(tmp_path_factory.mktemp("host"))
        if there:
            under(host.root, folder).mkdir()
        return host

    undisturbed = fresh()
    never = without_dates(undisturbed.tree())
    undisturbed.enable(mode)
    enabled = without_dates(undisturbed.tree())
    kills = renames - 2 if there else renames
    for number in range(kills + 1):
        host = fresh()
        child = os.fork()
        if child == 0:
            kill_at_rename(number)
            host.enable(mode)
            os._exit(0)
        killed = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        assert killed == (number < kills)
        if then == "enable":
            host.enable(mode)
            assert without_dates(host.tree()) == enabled
            assert not host.enable(mode).changed
        host.disable()
        assert without_dates(host.tree()) == never
        assert not host.disable().changed


@pytest.mark.parametrize("verb", ["enable", "disable"])
def test_only_names_of_ours_are_swept(tmp_path, verb):
    host = make_host(tmp_path)
    kept = [
        f"{NFSMOUNT_DIRECTORY}/.50-ovirt-rdma.conf.swp",
        f"{NFSMOUNT_DIRECTORY}/.50-ovirt-rdma.conf.abcd1234",
        f"{NFSMOUNT_DIRECTORY}/50-ovirt-rdma.conf.abcd1234",
        "/etc/.nfsmount.conf.d.other/x",
    ]
    swept = [
        f"{NFSMOUNT_DIRECTORY}/.{Path(NFSMOUNT_FILE).name}.abcd_123.ovirt-rdma",
        f"{ENABLED.replace('enabled', '.enabled')}.abcd_123.ovirt-rdma",
        "/etc/.nfsmount.conf.d.ovirt-rdma/50-ovirt-rdma.conf",
        "/etc/systemd/system/.vdsmd.service.d.ovirt-rdma/50-ovirt-rdma.conf",
    ]
    for path in (*kept, *swept):
        host.write(path, "")
    link = f"{NFSMOUNT_DIRECTORY}/.50-ovirt-rdma.conf.abcdefgh.ovirt-rdma"
    host.link(link, "/nowhere")
    result = host.enable() if verb == "enable" else host.disable()
    done = [step.target for step in result.steps if step.id == "remove-left-over"]
    assert len(done) == len(swept)
    assert all(under(tmp_path, path).exists() for path in kept)
    assert under(tmp_path, link).is_symlink()
    assert not any(under(tmp_path, path).exists() for path in swept)
    assert not any(under(tmp_path, path).exists() for path in done)


def test_a_policy_load_that_is_killed(tmp_path, wanted):
    """Its half-made file is gone after disable, and so is the folder around it."""
    host = make_host(tmp_path)
    host.enable("nfsmount")
    new = enablement.file_for(policy_of(rdma_rule(path="/new")), host.root, host.run)
    child = os.fork()
    if child == 0:
        kill_at_rename(0)
        enablement.write_file(new, host.root, host.run)
        os._exit(0)
    os.waitpid(child, 0)
    assert len(list(under(host.root, NFSMOUNT_DIRECTORY).iterdir())) == 2
    host.disable()
    assert without_dates(host.tree()) == wanted("nfsmount")[0]
