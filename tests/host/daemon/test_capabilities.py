# SPDX-License-Identifier: GPL-2.0-or-later
"""Check the files for the hook after_get_caps and for Ansible: when, and their text."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.fakes.fake_enablement import Host, rdma_rule
from support.fakes.fake_hosts import connectx3_ib
from support.host.daemon_task import TaskRuns

from ovirt_rdma.host.collect.collector import HostReader
from ovirt_rdma.host.daemon.tasks import Capabilities
from ovirt_rdma.host.facts.uses import content_of
from ovirt_rdma.host.paths import (
    CAPS_JSON,
    ENABLED,
    INTERFACES_JSON,
    POLICY_COPY,
    POLICY_JSON,
    under,
)


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path)


def write(host, run=None):
    """Run the task; return what is wrong."""
    runs = TaskRuns(Capabilities(host.root, run), host.root)
    runs.run()
    return runs.said


def caps(host):
    path = under(host.root, CAPS_JSON)
    return json.loads(path.read_text()) if path.exists() else None


WANTED = {
    "schema_version": 1,
    "kind": "capabilities",
    "additionalFeatures": ["NFS_RDMA"],
}


def test_mode_vdsmd_and_a_policy(host):
    host.load(rdma_rule())
    write(host)
    host.enable()
    write(host)
    assert caps(host) == WANTED
    path = under(host.root, CAPS_JSON)
    assert path.stat().st_mode & 0o777 == 0o644
    assert path.parent.stat().st_mode & 0o777 == 0o755
    inode = path.stat().st_ino
    write(host)
    assert path.stat().st_ino == inode
    host.disable()
    write(host)
    assert caps(host) is None


def test_mode_host_says_nothing_of_nfs(host):
    host.load(rdma_rule())
    host.enable("host")
    write(host)
    assert caps(host) is None


def test_no_policy_or_one_that_cannot_be_used(host):
    host.enable()
    write(host)
    host.load(rdma_rule())
    write(host)
    host.write(POLICY_JSON, "{")  # its copy counts
    write(host)
    host.write(POLICY_COPY, "{")
    write(host)
    assert caps(host) is None


def test_a_marker_that_is_not_ours(host):
    host.load(rdma_rule())
    host.write(ENABLED, "mode: vdsmd\n")
    write(host)


@pytest.mark.parametrize("text, mode", [("{", 0o644), (None, 0o600), ("", 0o666)])
def test_a_file_that_is_not_right_is_put_right(host, text, mode):
    host.load(rdma_rule())
    host.enable()
    write(host)
    path = under(host.root, CAPS_JSON)
    if text is not None:
        path.write_text(text)
    path.chmod(mode)
    write(host)
    assert caps(host) == WANTED
    assert path.stat().st_mode & 0o777 == 0o644


def test_a_dangling_link_is_replaced_or_removed(host):
    path = under(host.root, CAPS_JSON)
    path.parent.mkdir(parents=True)
    path.symlink_to("/nonexistent")
    write(host)
    assert not path.is_symlink()
    path.symlink_to("/nonexistent")
    host.load(rdma_rule())
    host.enable()
    write(host)
    assert not path.is_symlink()
    assert caps(host) == WANTED


def test_a_folder_in_its_place_is_a_sentence(host):
    under(host.root, CAPS_JSON).mkdir(parents=True)
    (said,) = write(host)
    assert "caps.json" in said


# -- the interfaces, for Ansible


@pytest.fixture
def fabric(tmp_path):
    """A host with an HCA; its root is that of ``host``."""
    return connectx3_ib(tmp_path)


def interfaces(host):
    path = under(host.root, INTERFACES_JSON)
    return json.loads(path.read_text()) if path.exists() else None


@pytest.mark.parametrize("mode", ["host", "vdsmd"])
def test_the_interfaces_are_there_while_the_host_is_enabled(host, fabric, mode):
    run = fabric.runner
    write(host, run)
    host.enable(mode)
    write(host, run)
    found = interfaces(host)
    assert list(found) == ["schema_version", "kind", "interfaces"]
    facts = HostReader(host.root, run).facts()
    assert found["interfaces"] == content_of(facts)["interfaces"]
    assert [i["device"] for i in found["interfaces"] if i["name"] == "ib0"] == [
        "mlx4_0"
    ]
    path = under(host.root, INTERFACES_JSON)
    assert path.stat().st_mode & 0o777 == 0o644
    inode = path.stat().st_ino
    write(host, run)
    assert path.stat().st_ino == inode
    host.disable()
    write(host, run)
    assert interfaces(host) is None


def test_a_storage_network_has_its_role_also_behind_a_router(host, fabric):
    fabric.nfs_mount("10.9.9.9:/data", "/rhev/x", "tcp", address="10.9.9.9")
    fabric.route("10.9.9.9", "ib1", "10.0.0.2")
    host.enable("host")
    write(host, fabric.runner)
    found = {i["name"]: i["roles"] for i in interfaces(host)["interfaces"]}
    assert (found["ib0"], found["ib1"]) == ([], ["storage"])


SETUP = """
import sys
from ansible.module_utils import basic
basic._ANSIBLE_ARGS = sys.argv[1].encode()
basic._ANSIBLE_PROFILE = "legacy"  # since ansible-core 2.19
from ansible.modules import setup
setup.main()
"""


def gathered(folder):
    """Return what Ansible's own module ``setup`` says of the facts in ``folder``."""
    subset = ["!all", "!min", "local"]
    arguments = {"fact_path": str(folder), "gather_subset": subset}
    text = json.dumps({"ANSIBLE_MODULE_ARGS": arguments})
    argv = [sys.executable, "-c", SETUP, text]
    done = subprocess.run(argv, capture_output=True, check=True, timeout=300)
    return json.loads(done.stdout)


def test_ansible_gathers_it_without_a_warning(host, fabric):
    pytest.importorskip("ansible.modules.setup")
    host.enable("host")
    fact(host.root)
    result = gathered(host.root)
    assert result["ansible_facts"]["ansible_local"] == {"ovirt_rdma": {}}
    assert "warnings" not in result
    write(host, fabric.runner)
    result = gathered(host.root)
    assert result["ansible_facts"]["ansible_local"] == {"ovirt_rdma": interfaces(host)}
    assert "warnings" not in result


FACT = Path(__file__).parents[3] / "host/ansible/ovirt_rdma.fact"


def fact(root):
    """Return what the program of Ansible's facts prints below ``root``."""
    program = root / "ovirt_rdma.fact"
    program.write_text(FACT.read_text().replace("file=/run", f"file={root}/run"))
    program.chmod(0o755)
    done = subprocess.run([program], capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")
    return json.loads(done.stdout)


def test_the_program_for_ansible_prints_it_or_an_empty_object(host, fabric):
    assert FACT.stat().st_mode & 0o777 == 0o755
    assert fact(host.root) == {}
    host.enable("host")
    write(host, fabric.runner)
    assert fact(host.root) == interfaces(host)
    path = under(host.root, INTERFACES_JSON)
    path.write_text("")
    assert fact(host.root) == {}
    path.unlink()
    os.mkfifo(path)  # never read
    assert fact(host.root) == {}
    path.unlink()
    path.mkdir()
    assert fact(host.root) == {}
