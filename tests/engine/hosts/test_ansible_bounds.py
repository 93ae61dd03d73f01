# SPDX-License-Identifier: GPL-2.0-or-later
"""Limit the output of hosts: ssh.sh, and real Ansible with a double of ssh."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest
from support.engine.hostile_answers import told
from support.engine.told_hosts import FACTS, status

from ovirt_rdma.engine_sdk_tools.hosts import ansible_run
from ovirt_rdma.engine_sdk_tools.hosts.ansible import AnsibleHosts
from ovirt_rdma.engine_sdk_tools.hosts.ansible_run import MOST_SENT, search_path
from ovirt_rdma.engine_sdk_tools.model import Host
from ovirt_rdma.host.facts import model

pytestmark = pytest.mark.hypervisor

SSH = ansible_run.PLAYBOOKS / "ssh.sh"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBlO9k2T9OTp5xF8WmyGmq7cXbyCcGEZc3X5zC0b5nBB"
ANSIBLE = all(
    shutil.which(name, path=search_path())
    for name in ("ansible-playbook", "ansible-runner")
)


def fake_ssh(folder, body):
    """Put an ssh on PATH that runs ``body`` and then exits with status 7."""
    file = folder / "ssh"
    file.write_text(f"#!/bin/sh\n{body}\nexit 7\n")
    file.chmod(0o755)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}


@pytest.mark.parametrize(
    ("body", "out", "err"),
    [
        ("echo out; echo err >&2", b"out\n", b"err\n"),
        ("cat", b"asked", b""),
        ("echo $#-$2", b"2-two words\n", b""),
        ("head -c 3000000 /dev/zero", bytes(1000), b""),
        ("head -c 3000000 /dev/zero >&2", b"", bytes(65536)),
    ],
    # Short ones: pytest exports a test's name, and a variable has at most 128 kB.
    ids=["both ways", "stdin", "words", "endless stdout", "endless stderr"],
)
def test_ssh_is_as_it_was_but_for_what_is_too_much(tmp_path, body, out, err):
    environment = {**fake_ssh(tmp_path, body), "OVIRT_RDMA_MOST_SENT": "1000"}
    done = subprocess.run(
        [str(SSH), "-x", "two words"],
        check=False,
        capture_output=True,
        input=b"asked",
        env=environment,
    )
    assert (done.returncode, done.stdout, done.stderr) == (7, out, err)


def test_ssh_that_is_ended_by_a_signal_is_no_success(tmp_path):
    environment = {**fake_ssh(tmp_path, "kill -9 $$"), "OVIRT_RDMA_MOST_SENT": "9"}
    assert subprocess.run([str(SSH)], check=False, env=environment).returncode == 137


@pytest.mark.skipif(not ANSIBLE, reason="Ansible is not here")
def test_a_host_that_sends_200_mb_costs_no_more_than_it_may(tmp_path, monkeypatch):
    good = model.to_json_dict(model.load(FACTS / "rxe-one-mount.json"))
    # ansible-runner's own limit is 700,000 characters, with all output in it twice.
    answer = told(good, status("version: 1\n"), "version: 1\n")
    (tmp_path / "good").write_text("banner\n" * 100_000 + answer)
    environment = fake_ssh(
        tmp_path,
        f"""case $* in
*192.0.2.66*) head -c 200000000 /dev/zero | tr '\\0' x; exit 0 ;;
*192.0.2.67*) head -c 200000000 /dev/zero | tr '\\0' x >&2; exit 255 ;;
*192.0.2.1*) cat {tmp_path}/good; exit 0 ;;
esac""",
    )
    monkeypatch.setenv("PATH", environment["PATH"])
    hosts = [
        Host(name, name, f"192.0.2.{last}", "c", public_key=KEY)
        for name, last in (("hv1", 1), ("bad", 66), ("worse", 67), ("hv2", 1))
    ]
    sent = []

    def run(order, folder):
        for happened in ansible_run.run_order(order, folder):
            sent.append(len(happened.text))
            yield happened

    found = AnsibleHosts(run=run).reports(hosts)
    assert max(sent) <= MOST_SENT
    for name in ("hv1", "hv2"):
        assert (found[name].problem, found[name].policy_text) == ("", "version: 1\n")
    assert found["bad"].problem.startswith("bad ")
    assert "1 MB" in found["bad"].problem
    assert found["worse"].facts is None
    assert len(found["worse"].problem) < 1000


def test_a_copy_of_ssh_sh_that_lost_its_mode_is_passed_over(tmp_path, monkeypatch):
    copy = tmp_path / "ssh.sh"
    copy.write_text(SSH.read_text())
    monkeypatch.setattr(ansible_run, "_SSH", copy)
    order = ansible_run.AnsibleRun("", {}, {})
    assert "ANSIBLE_SSH_EXECUTABLE" not in ansible_run._environment(
        order, tmp_path, "/bin"
    )
    copy.chmod(0o755)
    assert "ANSIBLE_SSH_EXECUTABLE" in ansible_run._environment(order, tmp_path, "/bin")
