# SPDX-License-Identifier: GPL-2.0-or-later
"""The next run, of any user, removes files that killed writes have left."""

from __future__ import annotations

from uuid import UUID

import pytest

from ovirt_rdma.cli.engine import session
from ovirt_rdma.cli.output import Output
from ovirt_rdma.engine_sdk_tools.conversion.model import StateFolder
from ovirt_rdma.host.changes.journal import Journal, Ledger
from ovirt_rdma.host.paths import JOURNAL, POLICY_JSON, under
from ovirt_rdma.host.system import files
from ovirt_rdma.host.system.files import write_atomically
from ovirt_rdma.storage.mounts import DegradedMarks


class Killed(BaseException):
    pass


@pytest.fixture
def killed_write(monkeypatch):
    """A write that ends before its rename, and removes nothing."""

    def write(path):
        path.parent.mkdir(parents=True, exist_ok=True)

        def killed(*_):
            raise Killed

        with monkeypatch.context() as patch:
            patch.setattr(files.os, "fsync", killed)
            patch.setattr(type(path), "unlink", killed)
            with pytest.raises(Killed):
                write_atomically(path, b"password = secret", 0o600)
        (rest,) = set(path.parent.iterdir()) - set(path.parent.glob("[!.]*"))
        return rest

    return write


def test_of_the_policy_with_the_next_load_of_the_same(host, killed_write):
    policy = host.root / "p.yaml"
    policy.write_text("version: 1\n")
    host("policy", "load", str(policy))
    rest = killed_write(under(host.root, POLICY_JSON))
    result = host("policy", "load", str(policy), "-o", "json")
    assert not result.document["changed"]
    assert not rest.exists()


def test_of_the_journal_with_the_next_record(tmp_path, killed_write):
    rest = killed_write(under(tmp_path, JOURNAL))
    Journal(tmp_path).write(Ledger())
    assert not rest.exists()


def test_of_vdsmds_marks_with_the_next_vdsmd(tmp_path, killed_write):
    rest = killed_write(tmp_path / "degraded.json")
    DegradedMarks(tmp_path / "degraded.json").drop("/mnt/a")
    assert not rest.exists()


def test_of_a_conversions_state_with_the_next_run(tmp_path, killed_write):
    rest = killed_write(tmp_path / "convert-1.json")
    with StateFolder(tmp_path).only_run(str(UUID(int=1))):
        assert not rest.exists()


@pytest.mark.parametrize("named", [True, False])
def test_of_the_settings_with_the_password_with_the_next_reading(
    tmp_path, monkeypatch, killed_write, named
):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    path = tmp_path / ("mine.conf" if named else "ovirt-rdma.conf")
    rest = killed_write(path)
    path.write_text("[ovirt-rdma]\n")
    assert session.read_ini(str(path) if named else None, Output())
    assert not rest.exists()
