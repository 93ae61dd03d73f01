# SPDX-License-Identifier: GPL-2.0-or-later
"""Run a post-tasks file with the real ansible-runner, and read its events as the engine
does (ovirt-engine 4.5.7).

``reported`` follows AnsibleRunnerClient.java:98-172 (which events count),
RunnerJsonNode.java:268-281 (debug) and AnsibleExecutor.java:109-136 (severities).
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ovirt_rdma.engine_sdk_tools.hosts.ansible_run import search_path

CODES = {"NORMAL": 559, "WARNING": 554, "ERROR": 553, "ALERT": 557}
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
  register: prepare_package_result
  changed_when: false
  ignore_errors: "{{ prepare_on_failure == 'report' }}"
- name: "ovirt-rdma: attention: [WARNING] the policy is {{ prepare_policy_file }}"
  ansible.builtin.assert: {that: true, quiet: true}
- name: "ovirt-rdma: host is not prepared: [ERROR] the package is missing"
  ansible.builtin.assert: {that: true, quiet: true}
  when: prepare_package_result is failed
- name: "ovirt-rdma: host is prepared (ovirt-rdma 0.9, policy sha256:1)"
  ansible.builtin.assert: {that: true, quiet: true}
  when: prepare_package_result is not failed
"""


# The folder of another Ansible with ansible-runner, for example that of EL9.
_OTHER = os.environ.get("OVIRT_RDMA_TEST_ANSIBLE", "")


@dataclass(frozen=True)
class Deployed:
    """What the engine makes of a run: events as (code, text), and whether the host is
    installed.
    """

    events: list[tuple[int, str]]
    installed: bool

    @property
    def texts(self) -> list[str]:
        return [text for _, text in self.events]


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
    (artifacts,) = (private / "artifacts").iterdir()
    files = sorted(
        (artifacts / "job_events").glob("[0-9]*.json"),
        key=lambda path: int(path.name.partition("-")[0]),
    )
    return reported([json.loads(path.read_text()) for path in files])


def reported(events: list[Mapping[str, Any]]) -> Deployed:
    """Return what the engine reports for the events of a run."""
    found: list[tuple[int, str]] = []
    for event in events:
        kind, data = event["event"], event.get("event_data") or {}
        if kind == "runner_on_unreachable":
            return Deployed(found, False)
        if kind == "runner_on_failed" and data.get("ignore_errors") is not True:
            return Deployed(found, False)
        if kind == "runner_on_ok":
            name = data.get("task") or ""
            if data.get("task_action") == "debug":
                try:
                    name = _debug(name, (event.get("stdout") or "").strip())
                except ValueError:  # the engine throws
                    return Deployed(found, False)
            found += _event(name)
    # Any other end is a success, also one by an event "error".
    return Deployed(found, True)


def _debug(name: str, output: str) -> str:
    output = output[: output.rindex('"')]
    if any(word in output for word in CODES):
        pattern = r"(?P<severity>\[(NORMAL|WARNING|ERROR|ALERT)\]) (?P<message>.*)"
        match = re.search(pattern, output)
        if match is None:
            raise ValueError(output)
        return f"{name}: {match['severity']} {match['message']}"
    match = re.search(r'"msg": "(?P<message>.*)', output)
    if match is None:
        raise ValueError(output)
    return f"{name}: debug msg: {match['message']}"


def _event(name: str) -> list[tuple[int, str]]:
    pattern = r"(?P<title>.*) \[(?P<severity>NORMAL|WARNING|ERROR|ALERT)\] (?P<text>.*)"
    match = re.search(pattern, name)
    code = CODES[match["severity"]] if match else 559
    text = f"{match['title']} {match['text']}" if match else name
    return [] if "debug msg:" in text else [(code, text)]
