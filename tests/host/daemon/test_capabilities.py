# SPDX-License-Identifier: GPL-2.0-or-later
"""Check the file for the hook after_get_caps, and the program for Ansible's facts."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from support.fakes.fake_enablement import Host, rdma_rule
from support.host.daemon_task import TaskRuns

from ovirt_rdma.host.daemon.tasks import Capabilities
from ovirt_rdma.host.paths import CAPS_JSON, ENABLED, POLICY_COPY, POLICY_JSON, under


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


FACT = Path(__file__).parents[3] / "host/ansible/ovirt_rdma.fact"
COMMAND = "/usr/bin/ovirt-rdma-host facts --interfaces -o json"


def fact(root, command):
    """Return what the program of Ansible's facts prints below ``root``, where
    ``command`` is run in place of ours.
    """
    text = FACT.read_text()
    assert text.count(COMMAND) == text.count("/etc/ovirt-rdma/enabled") == 1
    text = text.replace("/etc/", f"{root}/etc/").replace("-k 2 10", "-k 0.2 0.5")
    program = root / "ovirt_rdma.fact"
    program.write_text(text.replace(COMMAND, f"sh -c {shlex.quote(command)}"))
    program.chmod(0o755)
    done = subprocess.run([program], capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    "command", ["echo no; exit 1", "exec sleep 60", "/nonexistent/ovirt-rdma-host"]
)
def test_the_program_for_ansible_prints_it_or_an_empty_object(host, command):
    assert FACT.stat().st_mode & 0o777 == 0o755
    assert fact(host.root, "echo true") == {}
    host.enable("host")
    assert fact(host.root, "echo true") is True
    assert fact(host.root, command) == {}


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


def test_ansible_gathers_it_without_a_warning(host):
    pytest.importorskip("ansible.modules.setup")
    for expected in ({}, {"interfaces": []}):
        fact(host.root, f"echo {shlex.quote(json.dumps(expected))}")
        result = gathered(host.root)
        assert result["ansible_facts"]["ansible_local"] == {"ovirt_rdma": expected}
        assert "warnings" not in result
        host.enable("host")
