# SPDX-License-Identifier: GPL-2.0-or-later
"""The role over SSH with the real Ansible; ssh is a double that runs commands here."""

from __future__ import annotations

import os
import sys

import pytest
from support.engine.host_deploy import make_collection

from ovirt_rdma.engine_sdk_tools.hosts.ansible import AnsibleHosts
from ovirt_rdma.engine_sdk_tools.model import Host

pytestmark = [pytest.mark.engine, pytest.mark.hypervisor]

SSH = """#!/bin/sh
for last; do :; done
case $* in
*192.0.2.3*) echo "ssh: connect to host: No route to host" >&2; exit 255 ;;
esac
exec /bin/sh -c "$last"
"""
# Its first task is done here, before any connection, as that of the true role.
ROLE = """\
- name: "ovirt-rdma: check the settings"
  ansible.builtin.validate_argument_spec:
    argument_spec: {}
- name: "ovirt-rdma: install the package"
  ansible.builtin.command: echo installed
  changed_when: true
- name: "ovirt-rdma: place the policy"
  ansible.builtin.fail:
    msg: "the policy has\\n a mistake"
  when: ansible_host == '192.0.2.2'
- name: "ovirt-rdma: attention: [WARNING] {{ ansible_host }}"
  ansible.builtin.debug:
    msg: "{{ ansible_host }} is warm"
- name: "ovirt-rdma: host is prepared (ovirt-rdma 9, policy {{ ansible_host }})"
  ansible.builtin.debug:
    msg: "ovirt-rdma: host is prepared (ovirt-rdma 9, policy {{ ansible_host }})"
"""


def test_each_host_has_its_own_result(tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/ssh").write_text(SSH)
    (tmp_path / "bin/ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setenv("OVIRT_RDMA_COLLECTIONS", str(tmp_path))
    make_collection(tmp_path, ROLE)
    hosts = [Host(str(n), f"hv{n}", f"192.0.2.{n}", "c") for n in (1, 2, 3, 5)]
    odd = Host("4", "hv4", "-oProxyCommand=x", "c")
    variables = {"ansible_python_interpreter": sys.executable}
    found = AnsibleHosts().prepare([*hosts, odd], variables)
    for number in (1, 5):
        result, address = found[f"hv{number}"], f"192.0.2.{number}"
        assert result.problem == ""
        # Ansible puts the variables of one host into the names of all.
        assert (
            result.sentinel
            == f"ovirt-rdma: host is prepared (ovirt-rdma 9, policy {address})"
        )
        assert result.warnings == (f"{address} is warm",)
    policy = "ovirt-rdma: place the policy: the policy has a mistake"
    assert (found["hv2"].problem, found["hv2"].sentinel) == (policy, "")
    assert "cannot be reached by SSH" in found["hv3"].problem
    assert "neither a name nor an IP address" in found["hv4"].problem
