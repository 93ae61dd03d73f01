# SPDX-License-Identifier: GPL-2.0-or-later
"""A file or folder that cannot be looked at is one sentence, whichever option names it.

Path.exists and its like raise for a name that is too long, and for a folder of others.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ovirt_rdma.cli.engine.main import main
from ovirt_rdma.cli.engine.session import own_policy, read_ini
from ovirt_rdma.cli.output import Output
from ovirt_rdma.engine_sdk_tools.conversion.model import (
    StateFile,
    StateFileProblem,
)
from ovirt_rdma.engine_sdk_tools.hosts import ansible_run, deploy_hook
from ovirt_rdma.host.errors import Problem

LONG = "x" * 300


@pytest.fixture
def private(tmp_path, monkeypatch):
    """A folder whose files only others may look at; for root too."""
    folder = tmp_path / "private"
    real = Path.stat

    def stat(path, **how):
        if folder in path.parents:
            raise PermissionError(13, os.strerror(13))
        return real(path, **how)

    monkeypatch.setattr(Path, "stat", stat)
    return folder


@pytest.mark.parametrize(
    "words",
    [
        ("report", "--facts-dir", ".", f"{LONG}.html"),
        ("report", "--facts-dir", ".", f"{LONG}/fabric.html"),
        ("report", "--facts-dir", ".", "file/fabric.html"),
        ("report", "--facts-dir", ".", "loop/fabric.html"),
        ("deploy-hook", "status", "--file", f"{LONG}/post.yml"),
        ("deploy-hook", "status", "--file", LONG),
        ("deploy-hook", "install", "--file", LONG),
        ("domain", "list", "--config", LONG),
        ("domain", "list", "--ca-file", LONG),
        ("domain", "list", "--password-file", LONG),
        ("domain", "verify", "--inventory", LONG),
        ("policy", "push", LONG),
        ("policy", "diff", LONG),
    ],
    ids=lambda words: " ".join(words).replace(LONG, "LONG"),
)
def test_an_odd_name_is_one_sentence(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    assert main(list(words)) != 0
    said = capsys.readouterr().err
    assert "this is a bug" not in said
    said = said.replace("Nothing was changed.\n", "")
    assert len(said.splitlines()) <= 2


@pytest.mark.parametrize("home", [LONG, "file", "loop"])
def test_a_home_that_is_none_has_no_settings(home, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / home))
    assert read_ini(None, Output()) is None


def test_a_policy_in_a_folder_of_others_is_not_taken_for_none(private, monkeypatch):
    monkeypatch.setattr(
        "ovirt_rdma.cli.engine.session.POLICY_YAML", str(private / "policy.yaml")
    )
    with pytest.raises(Problem) as caught:
        own_policy(None)
    assert str(private / "policy.yaml") in str(caught.value)


def test_a_state_in_a_folder_of_others_is_not_taken_for_none(private):
    with pytest.raises(StateFileProblem):
        StateFile(private / "convert-1f1a.json").read()


def test_a_collection_in_a_home_of_others_is_not_found(private, monkeypatch):
    monkeypatch.setattr(ansible_run, "collection_paths", lambda: [private])
    assert ansible_run.collection_folder() is None
    assert deploy_hook.policy_of_engine(str(private / "policy.yaml")) == {}
