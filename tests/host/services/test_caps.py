# SPDX-License-Identifier: GPL-2.0-or-later
"""Tests of the file for the hook after_get_caps: when it exists, and its text."""

from __future__ import annotations

import json

import pytest
from support.fakes.fake_enablement import Host, rdma_rule

from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.paths import CAPS_JSON, ENABLED, POLICY_COPY, POLICY_JSON, under
from ovirt_rdma.host.services.capabilities import write_caps


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path)


def caps(host):
    path = under(host.root, CAPS_JSON)
    return json.loads(path.read_text()) if path.exists() else None


WANTED = {"schema_version": 1, "additionalFeatures": ["NFS_RDMA"]}


def test_mode_vdsmd_and_a_policy(host):
    host.load(rdma_rule())
    assert not write_caps(host.root)
    host.enable()
    assert write_caps(host.root)
    assert caps(host) == WANTED
    path = under(host.root, CAPS_JSON)
    assert path.stat().st_mode & 0o777 == 0o644
    assert path.parent.stat().st_mode & 0o777 == 0o755
    inode = path.stat().st_ino
    assert not write_caps(host.root)
    assert path.stat().st_ino == inode
    host.disable()
    assert write_caps(host.root)
    assert caps(host) is None


def test_mode_host_says_nothing_of_nfs(host):
    host.load(rdma_rule())
    host.enable("host")
    assert not write_caps(host.root)
    assert caps(host) is None


def test_no_policy_or_one_that_cannot_be_used(host):
    host.enable()
    assert not write_caps(host.root)
    host.load(rdma_rule())
    assert write_caps(host.root)
    host.write(POLICY_JSON, "{")  # its copy counts
    assert not write_caps(host.root)
    host.write(POLICY_COPY, "{")
    assert write_caps(host.root)
    assert caps(host) is None


def test_a_marker_that_is_not_ours(host):
    host.load(rdma_rule())
    host.write(ENABLED, "mode: vdsmd\n")
    assert not write_caps(host.root)


@pytest.mark.parametrize("text, mode", [("{", 0o644), (None, 0o600), ("", 0o666)])
def test_a_file_that_is_not_right_is_put_right(host, text, mode):
    host.load(rdma_rule())
    host.enable()
    write_caps(host.root)
    path = under(host.root, CAPS_JSON)
    if text is not None:
        path.write_text(text)
    path.chmod(mode)
    assert write_caps(host.root)
    assert caps(host) == WANTED
    assert path.stat().st_mode & 0o777 == 0o644


def test_a_dangling_link_is_replaced_or_removed(host):
    path = under(host.root, CAPS_JSON)
    path.parent.mkdir(parents=True)
    path.symlink_to("/nonexistent")
    assert write_caps(host.root)
    assert not path.is_symlink()
    path.symlink_to("/nonexistent")
    host.load(rdma_rule())
    host.enable()
    assert write_caps(host.root)
    assert not path.is_symlink()
    assert caps(host) == WANTED


def test_a_folder_in_its_place_is_a_sentence(host):
    under(host.root, CAPS_JSON).mkdir(parents=True)
    with pytest.raises(Problem) as caught:
        write_caps(host.root)
    assert caught.value.id == "file-not-written"
    assert "caps.json" in str(caught.value)
