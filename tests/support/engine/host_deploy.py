# SPDX-License-Identifier: GPL-2.0-or-later
"""Run a post-tasks file with the real ansible-runner, and read its events as the engine
does (host_deploy_events).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from ovirt_rdma.engine_sdk_tools.hosts.ansible_run import search_path
from support.engine.host_deploy_events import Deployed, deployed, job_events

# As in ovirt-host-deploy.yml:32-41; the host is this machine.
PLAYBOOK = [
    {
        "hosts": "all",
        "gather_facts": False,
        "tasks": [
            {
                "name": "Check if post tasks file exists",
                "ansible.builtin.stat": {"path": "{{ host_deploy_post_tasks }}"},
                "delegate_to": "localhost",
                "register": "stat_post_tasks",
            },
            {
                "name": "Executing post tasks defined by user",
                "ansible.builtin.include_tasks": "{{ host_deploy_post_tasks }}",
                "when": "stat_post_tasks.stat.exists",
            },
        ],
    }
]
# A stand-in for the role, with its interface: each task reports in its name.
ROLE = """\
- name: "ovirt-rdma: install the package"
  ansible.builtin.command: "/bin/{{ 'false' if fails | default(false) else 'true' }}"
  register: ovirt_rdma_package_result
  changed_when: false
  ignore_errors: "{{ ovirt_rdma_on_failure == 'report' }}"
- name: "ovirt-rdma: attention: [WARNING] the policy is {{ ovirt_rdma_policy_file }}"
  ansible.builtin.assert: {that: true, quiet: true}
- name: "ovirt-rdma: host is not prepared: [ERROR] the package is missing"
  ansible.builtin.assert: {that: true, quiet: true}
  when: ovirt_rdma_package_result is failed
- name: "ovirt-rdma: host is prepared (ovirt-rdma 0.9, policy sha256:1)"
  ansible.builtin.assert: {that: true, quiet: true}
  when: ovirt_rdma_package_result is not failed
"""


# The folder of another Ansible with ansible-runner, for example that of EL9.
_OTHER = os.environ.get("OVIRT_RDMA_TEST_ANSIBLE", "")


def make_collection(top: Path, role: str = ROLE) -> Path:
    """Make the collection with ``role`` below ``top``; return its folder."""
    folder = top / "ansible_collections/ovirt_rdma/host"
    tasks = folder / "roles/prepare/tasks"
    tasks.mkdir(parents=True)
    (tasks / "main.yml").write_text(role)
    return folder


def deploy(top: Path, post_tasks: bytes, **variables: Any) -> Deployed:
    """Run ``post_tasks`` as the engine does; the collection is below ``top``."""
    private = top / "run"
    for part in ("project", "env", "inventory"):
        (private / part).mkdir(parents=True)
    file = top / "post_tasks.yml"
    file.write_bytes(post_tasks)
    (private / "project/ovirt-host-deploy.yml").write_text(json.dumps(PLAYBOOK))
    values = {"host_deploy_post_tasks": str(file), **variables}
    (private / "env/extravars").write_text(json.dumps(values))
    host = "ansible_connection=local ansible_python_interpreter=" + sys.executable
    (private / "inventory/hosts").write_text(f"host1 {host}\n")
    subprocess.run(
        ["ansible-runner", "run", str(private), "-p", "ovirt-host-deploy.yml", "-q"],
        check=False,
        capture_output=True,
        env={
            **{name: os.environ[name] for name in ("HOME",) if name in os.environ},
            "PATH": ":".join(filter(None, [_OTHER, search_path()])),
            "LC_ALL": "C.UTF-8",
            "ANSIBLE_COLLECTIONS_PATH": str(top),
            "ANSIBLE_LOCALHOST_WARNING": "False",
        },
        timeout=300,
    )
    return deployed(job_events(private / "artifacts"))
