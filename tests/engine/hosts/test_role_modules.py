# SPDX-License-Identifier: GPL-2.0-or-later
"""Test what the role's modules say, without Ansible.

tests/lab/test_role_lab.py runs them.
"""

from __future__ import annotations

import subprocess
import sys
from unittest import mock

import pytest
from support.engine.drop_in_folders import COMMAND, FOLDERS, POLICY, host_takes
from support.engine.policy_module import _OURS, PLUGINS, load


@pytest.fixture
def policy():
    pytest.importorskip("ansible.module_utils.basic")
    with mock.patch.dict(sys.modules):
        load(PLUGINS / "module_utils" / "host_command.py", _OURS)
        yield load(PLUGINS / "modules" / "policy.py", "policy_module")


class Module:
    """AnsibleModule in check mode, with the real command; nothing is changed."""

    check_mode, _diff = True, False

    def __init__(self, policy, content):
        self.params = {"path": str(policy), "content": content, "src": None}
        self.tmpdir = str(policy.parents[1])

    def get_bin_path(self, name, opt_dirs=()):
        return name

    def run_command(self, argv, **_):
        # timeout(1) is before it.
        words = [*COMMAND, *argv[argv.index("ovirt-rdma-host") + 1 :]]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("folder", FOLDERS)
def test_check_mode_finds_what_the_host_finds(policy, tmp_path, folder):
    """B7 of the third review: it read other names than the host does."""
    file = tmp_path / "etc/policy.yaml"
    (file.parent / "policy.d").mkdir(parents=True)
    FOLDERS[folder](file.parent / "policy.d")
    file.write_text(POLICY)
    try:
        changed = policy._place_and_load(Module(file, "# new\n" + POLICY))["changed"]
    except policy.Failed as failed:
        changed = False
        assert "50-a" in failed.what or "a.yaml" in failed.what
    assert changed is host_takes(file)
