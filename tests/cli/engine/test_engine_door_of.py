# SPDX-License-Identifier: GPL-2.0-or-later
"""The arguments of a verb select the host access."""

from __future__ import annotations

from argparse import Namespace
from contextlib import ExitStack

import pytest

from ovirt_rdma.cli.engine import session
from ovirt_rdma.cli.engine.session import access_of
from ovirt_rdma.cli.output import Output
from ovirt_rdma.cli.parser import Context
from ovirt_rdma.engine_sdk_tools.hosts import ansible
from ovirt_rdma.engine_sdk_tools.hosts.report import DumpFolder
from ovirt_rdma.host.errors import UsageProblem

pytestmark = pytest.mark.hypervisor


@pytest.fixture
def files(tmp_path, monkeypatch):
    """The engine's key, a key of the operator, and an inventory; Ansible is not run."""
    for name in ("engine", "mine", "hosts.ini"):
        (tmp_path / name).write_text("")
    monkeypatch.setattr(session, "AnsibleHosts", lambda way: way)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def way(monkeypatch, *, on_engine, **said):
    monkeypatch.setattr(ansible, "ENGINE_KEY", "engine" if on_engine else "absent")
    none = dict.fromkeys(("facts_dir", "inventory", "ssh_key", "ssh_user"))
    options = Namespace(**{**none, **said})
    return access_of(options, Context(Output(), ExitStack()))


@pytest.mark.parametrize(
    ("on_engine", "said", "user", "key", "theirs"),
    [
        (True, {}, "root", "engine", None),
        (True, {"ssh_key": "mine"}, "root", "mine", None),
        (True, {"inventory": "hosts.ini"}, "root", "engine", "hosts.ini"),
        (False, {"ssh_key": "mine", "ssh_user": "adm"}, "adm", "mine", None),
        (False, {"ssh_user": "adm"}, "adm", None, None),
        (False, {"inventory": "hosts.ini"}, "root", None, "hosts.ini"),
    ],
)
def test_over_ssh(files, monkeypatch, on_engine, said, user, key, theirs):
    access = way(monkeypatch, on_engine=on_engine, **said)
    assert (access.user, access.key, access.inventory) == (user, key, theirs)


def test_nobody_is_asked_where_there_is_no_way(files, monkeypatch):
    assert way(monkeypatch, on_engine=False) is None


@pytest.mark.parametrize("on_engine", [True, False])
def test_a_folder_comes_before_the_engines_key(files, monkeypatch, on_engine):
    door = way(monkeypatch, on_engine=on_engine, facts_dir=str(files))
    assert isinstance(door, DumpFolder)


def test_a_folder_and_ssh_contradict_each_other(files, monkeypatch):
    with pytest.raises(UsageProblem, match="--facts-dir"):
        way(monkeypatch, on_engine=False, facts_dir=".", ssh_key="mine")
