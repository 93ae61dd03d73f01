# SPDX-License-Identifier: GPL-2.0-or-later
"""Run what the package's scripts run; tests/rpm runs the scripts."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest
import yaml

from ovirt_rdma.host.paths import (
    DROPIN_LINK,
    DROPIN_SOURCE,
    ENABLED,
    JOURNAL,
    LAUNCHER,
    POLICY_COPY,
    POLICY_JSON,
    POLICY_YAML,
    STOCK_VDSMD,
    under,
)
from ovirt_rdma.host.policy import model
from ovirt_rdma.host.services import package_scripts
from ovirt_rdma.host.system.lock import one_run
from ovirt_rdma.storage.benchmark.scratch import LOCK

pytestmark = pytest.mark.hypervisor

PACKAGED = Path(__file__).parents[3] / "rpm/policy.yaml"


@pytest.fixture
def installed(ready):
    """A host with VDSM and the files of the package."""
    for path in (LAUNCHER, DROPIN_SOURCE, STOCK_VDSMD):
        file = under(ready.root, path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("packaged\n")
    under(ready.root, "/etc/systemd/system").mkdir(parents=True, exist_ok=True)
    policy = under(ready.root, POLICY_YAML)
    policy.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(PACKAGED, policy)
    return ready


def test_a_complete_host_is_told_nothing(installed):
    result = installed("unit", "installed")
    assert (result.code, result.out, result.err) == (0, "", "")


def test_without_vdsm(installed):
    under(installed.root, STOCK_VDSMD).unlink()
    result = installed("unit", "installed")
    assert result.code == 0
    sentence, fix = result.err.splitlines()
    assert sentence.startswith("ovirt-rdma-host: VDSM is not installed on this host")
    assert fix.startswith("fix: add the host to the engine")


@pytest.mark.parametrize("text", [None, "version: 2\n", "a: [\n", b"\xff"])
def test_with_a_policy_that_cannot_be_used(installed, text):
    policy = under(installed.root, POLICY_YAML)
    policy.unlink()
    if text is not None:
        policy.write_bytes(text.encode() if isinstance(text, str) else text)
    result = installed("unit", "installed")
    assert result.code == 0
    sentence, fix = result.err.splitlines()
    assert "the policy is invalid and was not loaded: " in sentence
    assert fix == f"fix: correct {policy}, then: ovirt-rdma-host policy check"


def test_erased_disables_and_removes_what_nobody_needs(installed):
    assert installed("enable").code == 0
    folder = under(installed.root, JOURNAL).parent
    (folder / "engine").mkdir()
    result = installed("unit", "erased")
    assert (result.code, result.out, result.err) == (0, "", "")
    for path in (ENABLED, DROPIN_LINK, POLICY_JSON, POLICY_COPY):
        assert not under(installed.root, path).exists()
    # The states of conversions belong to ovirt-rdma.
    assert [path.name for path in folder.iterdir()] == ["engine"]


@pytest.mark.parametrize("number", [errno.EBUSY, errno.EROFS, errno.EPERM])
def test_a_file_that_cannot_be_removed_is_one_sentence(installed, monkeypatch, number):
    """Something may be mounted on it; the package is erased all the same."""
    assert installed("enable").code == 0
    assert installed("policy", "load").code == 0
    busy = under(installed.root, POLICY_JSON)
    real = Path.unlink

    def unlink(path, *words, **more):
        if path == busy:
            raise OSError(number, os.strerror(number), str(path))
        real(path, *words, **more)

    monkeypatch.setattr(Path, "unlink", unlink)
    result = installed("unit", "erased")
    assert result.code == 0
    sentence, fix = result.err.splitlines()
    reason = os.strerror(number)
    assert sentence == f"ovirt-rdma-host: not removed: {busy} ({reason})"
    assert fix.startswith("fix: remove it by hand")
    assert [path.name for path in busy.parent.iterdir()] == [busy.name]
    assert not under(installed.root, ENABLED).exists()


def test_a_folder_that_cannot_be_listed_is_one_sentence(installed, monkeypatch):
    folder = under(installed.root, JOURNAL).parent
    real = os.scandir

    def scandir(path):
        if str(path) == str(folder):
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return real(path)

    monkeypatch.setattr(package_scripts.os, "scandir", scandir)
    result = installed("unit", "erased")
    assert result.code == 0
    assert f"not removed: {folder} ({os.strerror(errno.EIO)})" in result.err


def test_a_lock_of_bench_that_stays_is_one_sentence(installed, monkeypatch):
    lock = under(installed.root, LOCK)
    lock.parent.mkdir(parents=True)
    real = Path.unlink

    def unlink(path, *words, **more):
        if path == lock:
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), str(path))
        real(path, *words, **more)

    monkeypatch.setattr(Path, "unlink", unlink)
    result = installed("unit", "erased")
    assert (result.code, len(result.err.splitlines())) == (0, 2)
    assert str(lock) in result.err


def test_erased_keeps_what_revert_needs(installed):
    assert installed("apply").code == 0
    result = installed("unit", "erased")
    assert result.code == 0
    sentence, fix = result.err.splitlines()
    assert sentence.startswith(
        "ovirt-rdma-host: these steps stay applied, and the journal is kept: MODOPT-02"
    )
    assert fix == (
        "fix: to undo them, install the package again, run ovirt-rdma-host revert, and "
        "remove the package then"
    )
    for path in (JOURNAL, POLICY_JSON):
        assert under(installed.root, path).exists()
    assert installed("revert").code == 0
    assert installed("unit", "erased").err == ""
    assert not under(installed.root, JOURNAL).exists()


def test_erased_reports_an_unconfirmed_run(installed):
    assert installed("apply", "--confirm-timeout", "60").code == 0
    result = installed("unit", "erased")
    assert "(run 1 is not confirmed, and will not be rolled back now)" in result.err


def test_erased_keeps_a_damaged_journal(installed):
    installed("apply")
    under(installed.root, JOURNAL).write_text("{\n")
    result = installed("unit", "erased")
    assert result.code == 0
    sentence, fix = result.err.splitlines()
    assert f"{under(installed.root, JOURNAL)}: it is not JSON" in sentence
    assert fix.startswith("fix: ")
    assert under(installed.root, JOURNAL).read_text() == "{\n"


def test_erased_gives_up_while_another_run_works(installed, monkeypatch):
    monkeypatch.setattr(package_scripts, "_WAIT_S", 0.1)
    installed("enable")
    with one_run(installed.root, by="apply"):
        result = installed("unit", "erased")
    assert result.code == 75
    assert under(installed.root, ENABLED).exists()


def test_a_file_of_others_in_the_place_of_the_marker_stays(installed):
    under(installed.root, ENABLED).write_text("theirs")
    assert installed("unit", "erased").code == 4
    assert under(installed.root, ENABLED).read_text() == "theirs"


@pytest.mark.parametrize(
    ("verb", "codes"), [("recover", "75"), ("unconfirmed", "75"), ("erased", "4 75")]
)
def test_the_help_has_each_exit_code(installed, verb, codes):
    _, _, said = installed("unit", verb, "--help").out.partition("exit codes: ")
    assert {"0", "1", *codes.split()} <= set(said.partition("\n\n")[0].split())


def test_the_packaged_policy_shows_every_key():
    """Empty as it is; with the comments taken off, it has each key."""
    text = PACKAGED.read_text()
    assert yaml.safe_load(text) == {"version": 1}
    _, _, example = text.partition("\n---\n")
    lines = [
        line[2:] if line.startswith("# ") else "" if line == "#" else line
        for line in example.splitlines()
    ]
    found = yaml.safe_load("\n".join(lines))
    from ovirt_rdma.host.policy.load import parse_policy

    parse_policy("\n".join(lines), "policy.yaml")
    nfs, host = found["nfs"], found["host"]
    keys = set(nfs["defaults"]).union(*nfs["rules"])
    assert keys == set(model.RULE.rows)
    assert set(host) == set(model.HOST.rows)
    assert set().union(*host["interfaces"]) == set(model.INTERFACE.rows)
    matches = set().union(*(rule["match"] for rule in host["interfaces"]))
    assert matches == set(model.MATCH.rows)
