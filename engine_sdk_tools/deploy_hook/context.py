# SPDX-License-Identifier: GPL-2.0-or-later
"""Check the post-tasks file in the context of the engine: its Ansible, its user.

The check is the real ``ansible-playbook --syntax-check`` on a play that takes the tasks
in as the engine's playbook does (ovirt-host-deploy.yml:39-41), with its roles, settings
and variables; no task is carried out. Plugins are loaded, also from the home of the
engine's user, so root runs it as that user.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from ovirt_rdma.engine_sdk_tools.deploy_hook.block import PostTasksProblem
from ovirt_rdma.engine_sdk_tools.hosts.ansible_run import (
    ENGINE_USER,
    collection_folder,
    collection_paths,
    is_folder,
    is_trusted,
    private_folder,
    search_path,
)
from ovirt_rdma.host.system.commands import (
    CommandFailed,
    CommandTimeout,
    TooMuchOutput,
    run_command,
)
from ovirt_rdma.host.system.safe_file import read_file

# AnsibleConstants.RUNNER_SERVICE_PROJECT_PATH and AnsibleCommandConfig.build
PROJECT = "/usr/share/ovirt-engine/ansible-runner-service-project/project"
PLAYBOOK = "ovirt-host-deploy.yml"
_CHECKING_S = 120.0
# Of ansible-core since 2.19, and before.
_PLACE = re.compile(r"post_tasks\.yml(?::|': line )(\d+)")

# What the engine passes to its playbook (InstallVdsInternalCommand.java:286-334), by
# name; tasks of others may use it where Ansible wants the value early.
_ENGINE_VARIABLES = (
    *("host_deploy_cluster_name", "host_deploy_cluster_switch_type"),
    *("host_deploy_cluster_version", "host_deploy_firewall_type"),
    *("host_deploy_gluster_enabled", "host_deploy_gluster_supported"),
    *("host_deploy_iptables_rules", "host_deploy_kdump_destination_address"),
    *("host_deploy_kdump_destination_port", "host_deploy_kdump_integration"),
    *("host_deploy_kdump_message_interval", "host_deploy_kernel_cmdline_new"),
    *("host_deploy_kernel_cmdline_old", "host_deploy_origin_type"),
    *("host_deploy_override_firewall", "host_deploy_ovn_central"),
    *("host_deploy_ovn_tunneling_interface", "host_deploy_post_tasks"),
    *("host_deploy_tuned_profile", "host_deploy_vdsm_encrypt_host_communication"),
    *("host_deploy_vdsm_min_version", "host_deploy_vdsm_port"),
    *("host_deploy_vdsm_ssl_ciphers", "host_deploy_virt_enabled"),
    *("host_deploy_vnc_tls", "hosted_engine_deploy_action", "hosted_engine_host_id"),
    *("hosted_engine_tmp_cfg_file", "ovirt_ca_cert", "ovirt_ca_key"),
    *("ovirt_engine_usr", "ovirt_organizationname", "ovirt_pki_dir"),
    *("ovirt_qemu_ca_cert", "ovirt_san", "ovirt_signcerttimeoutinseconds"),
    *("ovirt_vds_certificate_validity_in_days", "ovirt_vds_hostname"),
)
# import_tasks reads the file now, include_tasks only during the run.
_PLAY = [
    {
        "hosts": "all",
        "remote_user": "root",
        "tasks": [{"import_tasks": "tasks/post_tasks.yml"}],
    }
]


@dataclass(frozen=True)
class EngineMachine:
    """What is known of the engine on this machine.

    ``version`` is that of its package, None if unknown. ``runs_hook``: its playbook
    includes the post-tasks file; None if the playbook cannot be read. ``collection`` is
    the folder of our collection, as the engine's user finds it.
    """

    version: Optional[str]
    runs_hook: Optional[bool]
    collection: Optional[Path]

    @property
    def role(self) -> bool:
        """Whether the role is found."""
        folder = self.collection
        return folder is not None and is_folder(folder / "roles/prepare/tasks")


def engine_version() -> Optional[str]:
    """Return the version of the engine's package on this machine; None if there is
    none, or no rpm.
    """
    try:
        return run_command(["rpm", "-q", "--qf", "%{VERSION}", "ovirt-engine"]).strip()
    except CommandFailed:
        return None


def engine_machine(project: str = PROJECT) -> EngineMachine:
    """Return what is known of the engine here; nothing of it raises."""
    runs_hook: Optional[bool] = None
    try:
        text = read_file(Path(project) / PLAYBOOK)
        runs_hook = b"{{ host_deploy_post_tasks }}" in text
    except OSError:
        pass
    return EngineMachine(engine_version(), runs_hook, collection_folder())


def _role_paths() -> list[Path]:
    """Return ansible-core's DEFAULT_ROLES_PATH, for the engine's user."""
    shared = [Path("/usr/share/ansible/roles"), Path("/etc/ansible/roles")]
    user = _engine_user()
    return shared if user is None else [Path(user.pw_dir) / ".ansible/roles", *shared]


def _engine_user() -> Optional[pwd.struct_passwd]:
    try:
        return pwd.getpwnam(ENGINE_USER)
    except KeyError:
        return None


def _as(user: pwd.struct_passwd) -> dict[str, Any]:
    """Return what makes root run a command as ``user``."""
    groups = os.getgrouplist(user.pw_name, user.pw_gid)
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": groups}


def user_without_access(path: Path) -> str:
    """Return the name of the engine's user if it cannot read ``path``, else "". That is
    also so if there is no such file, or if only root can try it.
    """
    user = _engine_user()
    if user is not None and os.geteuid() == 0 and path.exists():
        try:
            run_command(["test", "-r", str(path)], **_as(user))
        except CommandFailed:
            return user.pw_name
    return ""


def check_syntax(content: bytes, beside: Path, project: str = PROJECT) -> None:
    """Let ansible-playbook read ``content`` as the engine does. ``beside`` is the
    folder of the file, in which its tasks find others.

    Raises PostTasksProblem with Ansible's reason, and if there is no Ansible here.
    """
    program = shutil.which("ansible-playbook", path=search_path())
    if program is None:
        raise PostTasksProblem(
            "ansible-missing",
            "ansible-playbook is not installed, so nothing can be checked",
            "install the package ansible-core (an engine has it)",
        )
    words = [program, "--syntax-check", "-i", "hosts", "-e", "@vars.json", "play.yml"]
    user = _engine_user()
    with private_folder() as name:
        folder = Path(name)
        _write_play(folder, content, beside, project)
        as_user: dict[str, Any] = {}
        if user is not None and os.geteuid() == 0:
            as_user = _as(user)
            _give(folder, user)
        try:
            environment = _environment(folder, user)
            run_command(words, _CHECKING_S, cwd=folder, env=environment, **as_user)
        except (CommandTimeout, TooMuchOutput) as failed:
            raise PostTasksProblem(
                "post-tasks-check-ended",
                f"ansible-playbook --syntax-check was ended: {failed}",
                "try it by hand",
            ) from None
        except CommandFailed as failed:
            if failed.returncode is None:
                raise PostTasksProblem(
                    "ansible-missing",
                    f"{program} cannot be run by the engine's user: {failed}",
                    "install the package ansible-core (an engine has it)",
                ) from None
            text = f"{failed.stderr}\n{failed.stdout}".replace(f"{folder}/", "")
            reason = _reason(text.replace("tasks/post_tasks", "post_tasks"))
            raise PostTasksProblem(
                "post-tasks-syntax",
                f"ansible-playbook --syntax-check refuses it: {reason}",
                "correct it; until then the engine reports no failure, and ignores "
                "this file and what follows",
            ) from None


def _write_play(folder: Path, content: bytes, beside: Path, project: str) -> None:
    values = {
        **dict.fromkeys(_ENGINE_VARIABLES, "value"),
        "ovirt_engine_usr": "/usr/share/ovirt-engine",
        "ovirt_pki_dir": "/etc/pki/ovirt-engine",
        "ansible_port": 22,
    }
    tasks = folder / "tasks"
    tasks.mkdir()
    for other in beside.iterdir():
        if other.name != "post_tasks.yml":
            (tasks / other.name).symlink_to(other.absolute())
    (tasks / "post_tasks.yml").write_bytes(content)
    (folder / "play.yml").write_text(json.dumps(_PLAY), encoding="utf-8")
    (folder / "vars.json").write_text(json.dumps(values), encoding="utf-8")
    (folder / "hosts").write_text("host.example.com ansible_port=22\n")
    top = Path(project)
    for part in ("roles", "filter_plugins", "library"):
        if is_folder(top / part):
            (folder / part).symlink_to(top / part)
    with contextlib.suppress(OSError):
        (folder / "ansible.cfg").write_bytes(read_file(top / "ansible.cfg"))


def _give(folder: Path, user: pwd.struct_passwd) -> None:
    """Give ``folder`` to ``user``, with all that is in it, and let its groups enter the
    folder above, which stays ours.
    """
    for each in (*folder.rglob("*"), folder):
        os.chown(each, user.pw_uid, user.pw_gid, follow_symlinks=False)
    os.chown(folder.parent, -1, user.pw_gid)
    folder.parent.chmod(0o710)


def _environment(folder: Path, user: Optional[pwd.struct_passwd]) -> dict[str, str]:
    collections, roles = collection_paths(), _role_paths()
    if user is None or os.geteuid() not in (0, user.pw_uid):
        # We are somebody else, who must not execute what that user may have written.
        collections = [path for path in collections if is_trusted(path)]
        roles = [path for path in roles if is_trusted(path)]
    return {
        "PATH": search_path(),
        "HOME": str(folder),
        "LC_ALL": "C.UTF-8",
        "ANSIBLE_CONFIG": str(folder / "ansible.cfg"),
        "ANSIBLE_COLLECTIONS_PATH": ":".join(map(str, collections)),
        "ANSIBLE_ROLES_PATH": ":".join(map(str, roles)),
        "ANSIBLE_LOCAL_TEMP": str(folder / "tmp"),
        "ANSIBLE_NOCOLOR": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def _reason(text: str) -> str:
    """Return Ansible's message; ``ERROR!`` is from before ansible-core 2.19."""
    lines = [line.strip() for line in text.splitlines()]
    for number, line in enumerate(lines):
        for mark in ("ERROR! ", "[ERROR]: "):
            if mark in line:
                message = line.partition(mark)[2]
                if "retrieve file contents" in message:
                    message = " ".join([message, *lines[number + 1 : number + 2]])
                place = _PLACE.search("\n".join(lines[number:]))
                return f"line {place[1]}: {message}" if place else message
    return next((line for line in lines if line), "it printed nothing")
