# SPDX-License-Identifier: GPL-2.0-or-later
"""Test what the role's modules say, without Ansible.

tests/lab/test_role_lab.py runs them.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

PLUGINS = Path(__file__).parents[3] / "host_deploy" / "plugins"
PACKAGE = "ansible_collections.ovirt_rdma.host.plugins.module_utils"


def load(path, name):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def policy(monkeypatch):
    pytest.importorskip("ansible.module_utils.basic")
    name = f"{PACKAGE}.host_command"
    command = load(PLUGINS / "module_utils" / "host_command.py", name)
    monkeypatch.setitem(sys.modules, name, command)
    return load(PLUGINS / "modules" / "policy.py", "policy_module")


@pytest.mark.parametrize(
    ("place", "shown"),
    [
        ({"file": "/tmp/x/policy.d/50-a.yaml"}, "policy.d/50-a.yaml: line 3: nfs: odd"),
        ({"file": "/tmp/x/policy.yaml"}, "line 3: nfs: odd"),
        ({}, "line 3: nfs: odd"),
    ],
)
def test_a_mistake_in_a_drop_in_names_it(policy, place, shown):
    one = {"line": 3, "key": "nfs", "sentence": "odd", **place}
    assert policy._remark(one) == shown
