# SPDX-License-Identifier: GPL-2.0-or-later
"""Test hypervisors over real SSH, Ansible and ansible-runner, with the real command.

The hypervisors are sessions of an sshd on this machine, with their own policies
(lab/sshd.py).
"""

from __future__ import annotations

import os
import socket
import subprocess
import sysconfig
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from lab import sshd
from ovirt_rdma.engine_sdk_tools.hosts.ansible import Access, AnsibleHosts
from ovirt_rdma.engine_sdk_tools.model import Host
from ovirt_rdma.host.paths import POLICY_JSON, POLICY_YAML
from ovirt_rdma.host.policy.load import PolicyFiles
from ovirt_rdma.host.policy.model import Policy
from ovirt_rdma.host.policy.model import digest as digest_of

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0, reason="an sshd with a namespace of its own needs root"
)

SYSTEM = "/usr/sbin:/usr/bin:/sbin:/bin"
OURS = f"{sysconfig.get_path('scripts')}:{SYSTEM}"
RULE = """\
version: 1
nfs:
  rules:
    - server: nas.example.com
      path: /data
      transport: require-rdma
"""
OTHER_KEY = (
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBlO9k2T9OTp5xF8WmyGmq7cXbyCcGEZc3X5zC0b5nBB"
)


@dataclass(frozen=True)
class Site:
    """The key for the login and the sshds that all tests of a module share."""

    key: str
    start: Callable[[str], sshd.Sshd]

    def door(self, **more: object) -> AnsibleHosts:
        return AnsibleHosts(Access(key=self.key), **more)


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Iterator[Site]:
    from contextlib import ExitStack

    top = tmp_path_factory.mktemp("sshd")
    package = sshd.fetched()
    key, authorized = sshd.key_pair(top)
    with ExitStack() as stack:

        def start(search_path: str) -> sshd.Sshd:
            folder = top / str(len(list(top.iterdir())))
            run = sshd.running(package, folder, authorized, search_path)
            return stack.enter_context(run)

        yield Site(str(key), start)


@pytest.fixture(scope="module")
def prepared(site) -> sshd.Sshd:
    """A hypervisor with the add-on."""
    return site.start(OURS)


def host_of(there: sshd.Sshd, name: str = "hv1", **more: object) -> Host:
    words = {"public_key": there.host_key, "port": there.port, **more}
    return Host("1", name, "127.0.0.1", "c", **words)


@pytest.fixture(autouse=True)
def collection(tmp_path, monkeypatch):
    """Our collection, where a package has it."""
    folder = tmp_path / "ansible_collections/ovirt_rdma"
    folder.mkdir(parents=True)
    (folder / "host").symlink_to(Path(__file__).resolve().parents[2] / "host_deploy")
    monkeypatch.setenv("OVIRT_RDMA_COLLECTIONS", str(tmp_path))


def policy_there(there: sshd.Sshd) -> Path:
    return there.root / POLICY_YAML.lstrip("/")


def test_each_host_says_what_it_is_or_why_not(site, prepared):
    bare = site.start(SYSTEM)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        nobody = closed.getsockname()[1]
        hosts = [
            host_of(prepared, "by-key"),
            host_of(bare, "bare"),
            host_of(prepared, "other-key", public_key=OTHER_KEY),
            host_of(
                prepared,
                "fingerprint",
                public_key=None,
                fingerprint=f"SHA256:{'A' * 43}",
            ),
            host_of(prepared, "no-key", public_key=None),
            host_of(prepared, "nobody", port=nobody),
        ]
        done: list[str] = []
        reports = site.door().reports(hosts, done.append)
    assert list(reports) == [host.name for host in hosts]
    assert sorted(done) == sorted(reports)
    assert reports["by-key"].problem == ""
    assert reports["by-key"].facts.hostname == socket.gethostname()
    assert reports["by-key"].status["kind"] == "status"
    problems = {
        name: report.problem for name, report in reports.items() if report.problem
    }
    assert set(problems) == set(reports) - {"by-key"}
    assert problems["bare"] == "the command ovirt-rdma-host is missing on bare"
    changed = "does not present the host key that the engine knows"
    assert changed in problems["other-key"]
    assert "only a fingerprint" in problems["fingerprint"]
    assert "neither the engine nor known_hosts" in problems["no-key"]
    assert "cannot be reached by SSH" in problems["nobody"]
    assert "Connection refused" in problems["nobody"]


def test_a_policy_is_put_there_read_back_and_taken_away(site, prepared):
    door, host = site.door(), host_of(prepared)
    first = door.push_policy([host], "version: 1\n")["hv1"]
    assert (first.problem, first.file_digest) == ("", first.digest)
    second = door.push_policy([host], RULE)["hv1"]
    assert second.problem == ""
    assert second.digest != first.digest
    drop_ins = {"50-data1.yaml": RULE.replace("/data", "/data1")}
    third = door.push_policy([host], PolicyFiles(RULE, drop_ins))["hv1"]
    assert (third.problem, third.file_digest) == ("", second.digest)
    assert third.digest != second.digest
    assert door.reports([host])["hv1"].drop_ins == drop_ins
    fourth = door.push_policy([host], PolicyFiles(RULE, {}))["hv1"]
    assert (fourth.problem, fourth.digest) == ("", second.digest)
    folder = policy_there(prepared).parent / "policy.d"
    assert list(folder.iterdir()) == []
    folder.rmdir()

    report = door.reports([host])["hv1"]
    assert report.policy_text == RULE
    assert report.policy_digest == second.digest
    assert policy_there(prepared).stat().st_mode & 0o777 == 0o644

    gone = door.push_policy([host], None)["hv1"]
    assert gone.problem == ""
    assert gone.digest == digest_of(Policy())
    assert list(policy_there(prepared).parent.iterdir()) == []


def test_what_the_host_refuses_leaves_its_policy(site):
    there = site.start(OURS)
    door, host = site.door(), host_of(there)
    before = door.push_policy([host], RULE)["hv1"].digest
    broken = door.push_policy([host], "version: 1\nnfs: 3\n")["hv1"]
    invalid = "on hv1: the policy is invalid: line 2: nfs: must be a mapping"
    assert broken.problem.startswith(invalid)
    assert door.reports([host])["hv1"].policy_digest == before

    # The folder of the loaded policy has no space for it.
    store = there.root / POLICY_JSON.lstrip("/")
    store.unlink()
    store.mkdir()
    failed = door.push_policy([host], "version: 1\n")["hv1"]
    assert "the policy cannot be stored" in failed.problem
    assert f"the earlier {POLICY_YAML} was restored" in failed.problem
    assert policy_there(there).read_text() == RULE
    assert list(policy_there(there).parent.iterdir()) == [policy_there(there)]


def test_a_key_that_the_host_does_not_take(prepared, tmp_path):
    key, _ = sshd.key_pair(tmp_path)
    report = AnsibleHosts(Access(key=str(key))).reports([host_of(prepared)])["hv1"]
    assert report.problem == "hv1 does not accept the SSH key"


def test_the_operators_inventory_changes_the_way_but_not_the_check(
    site, prepared, tmp_path
):
    inventory = tmp_path / "hosts.ini"
    inventory.write_text(
        "[all:vars]\n"
        "ansible_host_key_checking=false\n"
        "ansible_ssh_common_args='-o StrictHostKeyChecking=no'\n"
        "[hypervisors]\n"
        f"hv1 ansible_port={prepared.port}\n"
        f"hv2 ansible_port={prepared.port}\n"
    )
    door = AnsibleHosts(Access(key=site.key, inventory=str(inventory)))
    reports = door.reports(
        [
            host_of(prepared, port=9),
            host_of(prepared, "hv2", port=9, public_key=OTHER_KEY),
        ]
    )
    assert reports["hv1"].problem == ""
    assert reports["hv1"].facts is not None
    assert "does not present the host key" in reports["hv2"].problem


@pytest.mark.faults
def test_a_host_that_hangs_is_given_up_and_leaves_nothing(site, prepared, tmp_path):
    command = tmp_path / "ovirt-rdma-host"
    command.write_text("#!/bin/sh\nexec sleep 654\n")
    command.chmod(0o755)
    hanging = site.start(f"{tmp_path}:{SYSTEM}")
    reports = site.door(host_limit_s=30).reports(
        [host_of(hanging, "hanging"), host_of(prepared)]
    )
    assert reports["hanging"].problem == "hanging did not answer in time"
    assert reports["hv1"].problem == ""
    left = subprocess.run(
        ["pgrep", "-f", f"ssh .*Port={hanging.port} "], capture_output=True, check=False
    )
    assert left.stdout == b""
