# SPDX-License-Identifier: GPL-2.0-or-later
"""Hypervisors over real SSH for the role, and runs of it as the engine makes them.

A hypervisor is a session of an sshd on this machine with its own /etc, /var/lib and
/run (lab/sshd.py). ``ovirt-rdma-host`` is the real command below a fake root, whose
hardware a test chooses. dnf is a double.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable

import yaml
from support.engine import host_deploy_events

from lab import sshd

TOP = Path(__file__).resolve().parents[2]
SYSTEM = "/usr/sbin:/usr/bin:/sbin:/bin"
COMMAND = f"{sysconfig.get_path('scripts')}/ovirt-rdma-host"
# Names the folder of another Ansible, with ansible-runner: that of EL9 is 2.14.
ANSIBLE = "OVIRT_RDMA_TEST_ANSIBLE"
PREPARE = "ovirt-rdma: prepare the host"

# The settings of the engine's ansible.cfg.
_CONFIG = """\
[defaults]
host_key_checking = False
retry_files_enabled = False
stdout_callback = debug
nocolor = 1
forks = 20
[ssh_connection]
ssh_args = -C -o ControlMaster=auto -o ControlPersist=20m
control_path = {controls}/%%h-%%p-%%r
pipelining = True
"""
# The engine's playbook includes the file of the post-tasks, and that the role.
_PLAYBOOK = """\
- hosts: all
  remote_user: root
  gather_facts: false
  tasks:
    - name: Executing post tasks defined by user
      include_tasks: post-tasks.yml
"""
_POST_TASKS = f"""\
- name: "{PREPARE}"
  ansible.builtin.include_role:
    name: ovirt_rdma.host.prepare
    rolespec_validate: false
"""
# A double of ansible.legacy.dnf, which is found beside the playbook. Texts and keys are
# those of ansible-core 2.16's modules/dnf.py, lines 787, 1034 and 1120.
_DNF = """\
#!/usr/bin/python
from ansible.module_utils.basic import AnsibleModule


def main():
    module = AnsibleModule(
        dict(
            name=dict(type="list", elements="str"),
            state=dict(type="str"),
            disable_gpg_check=dict(type="bool"),
        ),
        supports_check_mode=True,
    )
    wanted = open("/etc/dnf-has").read().split()
    installed = open("/etc/dnf-installed").read().split()
    if module.params["state"] == "absent":
        old = [name for name in module.params["name"] if name in installed]
        if not module.check_mode:
            kept = [name for name in installed if name not in old]
            open("/etc/dnf-installed", "w").write(" ".join(kept) + " ")
        module.exit_json(
            changed=bool(old),
            msg="" if old else "Nothing to do",
            results=["Removed: %s" % name for name in old],
            rc=0,
        )
    for name in module.params["name"]:
        if name not in wanted:
            module.fail_json(
                msg="Failed to install some of the specified packages",
                failures=["No package %s available." % name],
                results=[],
                rc=1,
            )
    new = [name for name in module.params["name"] if name not in installed]
    if not module.check_mode:
        open("/etc/dnf-installed", "a").write(" ".join(new) + " ")
    module.exit_json(
        changed=bool(new),
        msg="" if new else "Nothing to do",
        results=["Installed: %s" % name for name in new],
        rc=0,
    )


if __name__ == "__main__":
    main()
"""


@dataclass
class Hypervisor:
    """One host: its sshd, the root and the folder of its command, its variables."""

    name: str
    there: sshd.Sshd
    root: Path
    programs: Path
    variables: dict[str, Any] = field(default_factory=dict)

    @property
    def policy(self) -> Path:
        return self.there.root / "etc/ovirt-rdma/policy.yaml"

    def status(self) -> dict[str, Any]:
        """Return what ``status -o json`` prints."""
        argv = [COMMAND, "status", "-o", "json", "--root", str(self.root)]
        return json.loads(subprocess.run(argv, capture_output=True, check=False).stdout)


@dataclass(frozen=True)
class Run:
    """A run of the playbook: exit code, text, and ansible-runner's events."""

    code: int
    text: str
    events: list[dict[str, Any]]

    def of(self, host: Hypervisor) -> host_deploy_events.Deployed:
        """Return what the engine makes of the events of this host."""
        return host_deploy_events.deployed(
            host_deploy_events.of_host(self.events, host.name)
        )

    def ours(self, host: Hypervisor) -> list[tuple[str, str]]:
        """Return the engine's events of the role: severity and text, without prefix."""
        return [
            (severity, text.removeprefix("ovirt-rdma: "))
            for severity, text in self.of(host).events
            if text.startswith("ovirt-rdma: ") and text != PREPARE
        ]

    def last(self, host: Hypervisor) -> tuple[str, str]:
        """Return the severity of the last event of the role, and its message.

        In a run on several hosts a task's name has the variables of one of them, so the
        message is that of the task's result.
        """
        severity, text = self.ours(host)[-1]
        task = [
            event["event_data"]["res"].get("msg", "")
            for event in host_deploy_events.of_host(self.events, host.name)
            if event["event"] == "runner_on_ok"
        ]
        return severity, f"{text.partition(':')[0].partition(' (')[0]}: {task[-1]}"

    def results(self, host: Hypervisor, kind: str) -> dict[str, dict[str, Any]]:
        """Return the results of a host's tasks, by task: runner_on_ok or _failed."""
        return {
            event["event_data"]["task"].removeprefix("ovirt-rdma: "): event[
                "event_data"
            ]["res"]
            for event in host_deploy_events.of_host(self.events, host.name)
            if event["event"] == kind
        }

    def changed(self, host: Hypervisor) -> list[str]:
        """Return the tasks that changed the host."""
        done = self.results(host, "runner_on_ok")
        return [task for task, result in done.items() if result.get("changed")]


class Site:
    """Starts hypervisors, and runs the role on them."""

    def __init__(
        self,
        folder: Path,
        start: Callable[[str], sshd.Sshd],
        key: str,
    ) -> None:
        self._folder, self._start, self._key = folder, start, key
        self._programs = Path(os.environ.get(ANSIBLE, sysconfig.get_path("scripts")))
        self._runs = 0
        # A control path of ssh has at most 108 characters.
        self._controls = folder / "c"
        self._controls.mkdir(exist_ok=True)

    def hypervisor(
        self,
        name: str,
        hardware: Callable[[Path], object],
        command: str | None = "",
        **variables: Any,
    ) -> Hypervisor:
        """Start a host; ``command`` replaces the real one, None means that it lacks."""
        root, programs = self._folder / f"{name}-root", self._folder / f"{name}-bin"
        programs.mkdir()
        hardware(root)
        for folder in ("etc/modprobe.d", "etc/ovirt-rdma", "etc/systemd/system"):
            (root / folder).mkdir(parents=True, exist_ok=True)
        install_host_files(root)
        if command is not None:
            script = command or f'exec {COMMAND} "$@" --root {shlex.quote(str(root))}'
            program = programs / "ovirt-rdma-host"
            program.write_text(f"#!/bin/sh\n{script}\n")
            program.chmod(0o755)
        there = self._start(f"{programs}:{SYSTEM}")
        (there.root / "etc/dnf-has").write_text("ovirt-rdma-host")
        installed = "" if command is None else "ovirt-rdma-host "
        (there.root / "etc/dnf-installed").write_text(installed)
        return Hypervisor(name, there, root, programs, variables)

    def run(self, *hosts: Hypervisor, words: tuple[str, ...] = (), **more: Any) -> Run:
        """Run the role as host-deploy does; ``more`` are variables for all hosts."""
        self._runs += 1
        folder = self._folder / f"run{self._runs}"
        project = folder / "project"
        (project / "library").mkdir(parents=True)
        (folder / "inventory").mkdir()
        (folder / "env").mkdir()
        (project / "ansible.cfg").write_text(_CONFIG.format(controls=self._controls))
        (project / "host-deploy.yml").write_text(_PLAYBOOK)
        (project / "post-tasks.yml").write_text(_POST_TASKS)
        (project / "library/dnf.py").write_text(_DNF)
        (folder / "env/extravars").write_text(json.dumps(more))
        inventory = {"all": {"hosts": {host.name: self._vars(host) for host in hosts}}}
        (folder / "inventory/hosts.yml").write_text(yaml.safe_dump(inventory))
        if words:
            (folder / "env/cmdline").write_text(shlex.join(words))
        done = subprocess.run(
            [
                *(str(self._programs / "ansible-runner"), "run", str(folder)),
                *("-p", "host-deploy.yml", "--artifact-dir", str(folder / "artifacts")),
            ],
            env={
                **os.environ,
                "PATH": f"{self._programs}:{os.environ['PATH']}",
                "HOME": str(self._folder),
                "ANSIBLE_COLLECTIONS_PATH": str(collections(self._folder)),
                "ANSIBLE_PYTHON_INTERPRETER": "/usr/bin/python3",
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        events = host_deploy_events.job_events(folder / "artifacts")
        return Run(done.returncode, done.stdout + done.stderr, events)

    def _vars(self, host: Hypervisor) -> dict[str, Any]:
        return {
            "ansible_host": "127.0.0.1",
            "ansible_port": host.there.port,
            "ansible_ssh_private_key_file": self._key,
            **host.variables,
        }


def collections(folder: Path) -> Path:
    """Return a folder of collections with ours, as the package installs it."""
    place = folder / "collections/ansible_collections/ovirt_rdma/host"
    if not place.exists():
        shutil.copytree(
            TOP / "host_deploy", place, ignore=shutil.ignore_patterns("__pycache__")
        )
    return folder / "collections"


def install_host_files(root: Path) -> None:
    """Put what the package installs, and a stock vdsmd, below ``root``."""
    argv = ["make", "-s", "-C", str(TOP), "install-host-files", f"DESTDIR={root}"]
    subprocess.run(argv, check=True, stdout=sys.stderr)
    unit = root / "usr/lib/systemd/system/vdsmd.service"
    unit.write_text("[Service]\nExecStart=/usr/share/vdsm/daemonAdapter vdsmd\n")
