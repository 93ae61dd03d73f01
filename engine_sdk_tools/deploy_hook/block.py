# SPDX-License-Identifier: GPL-2.0-or-later
"""Put our block into the engine's post-tasks file, and take it out again, which is
pure; and check that file with the engine's Ansible, as its user.

The engine includes one file of tasks at the end of each installation of a host
(AnsibleConstants.java:34-38, ovirt-host-deploy.yml:32-41), and it belongs to the
administrator. We add a block between two marked lines and never change another byte.
The first line records what a removal needs: the checksum of the block, whether a line
break had to be added before it, and whether the file was ours from the start.

The check is the real ``ansible-playbook --syntax-check`` on a play that takes the tasks
in as the engine's playbook does (ovirt-host-deploy.yml:39-41), with its roles, settings
and variables; no task is carried out. Plugins are loaded, also from the home of the
engine's user, so root runs it as that user.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pwd
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional

from ovirt_rdma.engine_sdk_tools.hosts.ansible_run import (
    ENGINE_USER,
    collection_folder,
    collection_paths,
    is_folder,
    is_trusted,
    private_folder,
    search_path,
)
from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.paths import POLICY_YAML
from ovirt_rdma.host.system.commands import (
    CommandFailed,
    CommandTimeout,
    TooMuchOutput,
    run_command,
)
from ovirt_rdma.host.system.lazy import LazyModule
from ovirt_rdma.host.system.safe_file import read_file

if TYPE_CHECKING:
    import yaml
else:
    yaml = LazyModule("yaml")

# Where the package ovirt-rdma-engine installs the collection of the role.
COLLECTION = "/usr/share/ansible/collections/ansible_collections/ovirt_rdma/host"
# Variables of the role, for all hosts of this engine.
SETTINGS = "/etc/ovirt-rdma/host-deploy.yml"
# What the file states, compared with what this version would write.
MISSING, INSTALLED, OUTDATED, EDITED = "missing", "installed", "outdated", "edited"
STATES = (MISSING, INSTALLED, OUTDATED, EDITED)

_BEGIN = "# BEGIN ovirt-rdma"
_END = "# END ovirt-rdma"
# A carriage return alone ends a line of YAML too (YAML 1.1, 5.4).
_MARK = re.compile(rb"(?:^|(?<=\r))[ ]*# (BEGIN|END) ovirt-rdma\b.*$", re.MULTILINE)
_FIRST = re.compile(
    r"[ ]*# BEGIN ovirt-rdma (?P<flags>[a-z ]*)\(sha256:(?P<digest>[0-9a-f]{64}); .*"
)
# The file did not exist; a line break was added before the block.
_NEW, _BREAK = "new", "break"
_START_OF_FILE = b"---\n"
_NOTE = "made by 'ovirt-rdma deploy-hook'; see docs/host-deploy.md"

# Why it is written so:
# - A role that is missing ends the playbook with an event "error", which the engine
#   ignores: it would report the host as installed, and the tasks after the block would
#   not run (AnsibleRunnerClient.java:57-77). The test "directory" looks on the engine.
# - A failed task ends the installation of the host, in a block with rescue too, unless
#   it has ignore_errors (AnsibleRunnerClient.java:158-167). With ovirt_rdma_on_failure
#   "report", each task of the role has it. The role's arguments would be checked by a
#   task without it: rolespec_validate.
# - No "debug" by its short name: the engine's formatter fails on most of its output
#   (RunnerJsonNode.java:268-281).
# - A name with [ERROR] is an event of that severity (AnsibleExecutor.java:35-36).
# - vdsmd may restart: the engine itself has just restarted it, for the same reason.
# - What include_vars reads has precedence over vars of a block, but not over those of
#   an include_role.
# - The settings are looked at before, not in the result of include_vars:
#   ansible-core 2.14 evaluates all templates in it where one word of it is asked for;
#   a variable that is not defined would end the installation at the next condition.
_TASKS = """\
- name: "ovirt-rdma: look at the settings of the host preparation"
  vars:
    ovirt_rdma_file: "{{ lookup('ansible.builtin.file', '@SETTINGS@') | from_yaml }}"
  ansible.builtin.assert:
    that:
      - ovirt_rdma_file | default({}, true) is mapping
      - ovirt_rdma_file | default({}, true)
        | reject('match', 'ovirt_rdma_') | list == []
      - (ovirt_rdma_file | default({}, true)).ovirt_rdma_on_failure | default('report')
        in ['report', 'fail']
    quiet: true
  when: "'@SETTINGS@' is exists"
  register: ovirt_rdma_settings
  ignore_errors: true
- name: "ovirt-rdma: read the settings of the host preparation"
  ansible.builtin.include_vars:
    file: @SETTINGS@
  when:
    - "'@SETTINGS@' is exists"
    - ovirt_rdma_settings is not failed
  ignore_errors: true
- vars:
    ovirt_rdma_on_failure: report
    ovirt_rdma_restart_vdsmd: true
    ovirt_rdma_policy_file: "{{ '@POLICY@' if '@POLICY@' is exists else '' }}"
  block:
    - name: "ovirt-rdma: prepare the host"
      ansible.builtin.include_role:
        name: ovirt_rdma.host.prepare
        rolespec_validate: false
      when:
        - ovirt_rdma_settings is not failed
        - "'@COLLECTION@/roles/prepare/tasks' is directory"
- name: "ovirt-rdma: host is not prepared: [ERROR] @SETTINGS@ is invalid; fix: on the
    engine, ovirt-rdma deploy-hook status"
  ansible.builtin.assert:
    that: true
    quiet: true
  when: ovirt_rdma_settings is failed
- name: "ovirt-rdma: host is not prepared: [ERROR] the role is not on the engine"
  ansible.builtin.assert:
    that: true
    quiet: true
  when: "'@COLLECTION@/roles/prepare/tasks' is not directory"
"""


class PostTasksProblem(Problem):
    """The post-tasks file cannot be used, and was not changed."""


@dataclass(frozen=True)
class Found:
    """Our block in a file: its state, and its place in bytes.

    ``before`` is what a removal takes away before the block: an added line break.
    ``new``: the file did not exist before the block was installed.
    """

    state: str
    start: int = 0
    end: int = 0
    before: int = 0
    new: bool = False


def tasks_of(collection: str = COLLECTION) -> str:
    """Return the tasks of the block, without its marks and without indentation.

    ``collection`` is the folder of our collection, without quotes or backslashes.
    """
    tasks = _TASKS.replace("@SETTINGS@", SETTINGS).replace("@POLICY@", POLICY_YAML)
    return tasks.replace("@COLLECTION@", collection)


def find(content: bytes, collection: str = COLLECTION) -> Found:
    """Return the block in ``content``. Raises PostTasksProblem for incomplete marks."""
    marks = _marks(content)
    if not marks:
        return Found(MISSING)
    kinds = [content[start:end].split()[1] for start, end in marks]
    if kinds != [b"BEGIN", b"END"]:
        places = ", ".join(str(content.count(b"\n", 0, at) + 1) for at, _ in marks)
        raise PostTasksProblem(
            "post-tasks-marks-incomplete",
            "the marks of ovirt-rdma's block are incomplete, or it is there twice "
            f"(lines {places})",
            "remove these lines and what belongs to them with an editor",
        )
    start, line_end = marks[0][0], content.find(b"\n", marks[1][1])
    end = len(content) if line_end < 0 else line_end + 1
    lines = content[start:end].decode("utf-8", "replace").splitlines()
    first = _FIRST.fullmatch(lines[0])
    flags = first["flags"].split() if first else []
    added = _line_break(content) if _BREAK in flags else b""
    before = len(added) if content[:start].endswith(added) else 0
    inside = "".join(f"{line}\n" for line in lines[1:-1])
    if first is None or _digest(inside) != first["digest"]:
        state = EDITED
    elif inside == _indented(tasks_of(collection), lines[0]):
        state = INSTALLED
    else:
        state = OUTDATED
    return Found(state, start, end, before, _NEW in flags)


def installed(
    content: Optional[bytes], collection: str = COLLECTION, *, force: bool = False
) -> bytes:
    """Return ``content`` with the block of this version; None is for a missing file.

    A block that is there is replaced in its place; one that was edited only with
    ``force``. Raises PostTasksProblem if ``content`` is no list of tasks to which a
    block can be added.
    """
    if content is None:
        return _START_OF_FILE + _block(0, b"\n", collection, _NEW)
    found = find(content, collection)
    if found.state == INSTALLED:
        return content
    if found.state == EDITED and not force:
        raise _edited("replaces it")
    foreign = _without(content, found)
    at, column = _place(foreign)
    line_break = _line_break(content)
    if found.state != MISSING:
        flags = [_NEW] * found.new + [_BREAK] * bool(found.before)
        block = _block(column, line_break, collection, *flags)
        merged = content[: found.start] + block + content[found.end :]
    else:
        head, tail = foreign[:at], foreign[at:]
        broken = bool(head) and not head.endswith((b"\n", b"\r"))
        block = _block(column, line_break, collection, *[_BREAK] * broken)
        merged = head + line_break * broken + block + tail
    _unchanged_in_meaning(foreign, merged, collection)
    return merged


def removed(content: bytes, *, force: bool = False) -> Optional[bytes]:
    """Return ``content`` without the block, None if nothing but ours is in the file and
    it did not exist before.

    An edited block is removed only with ``force``. Raises PostTasksProblem.
    """
    found = find(content)
    if found.state == MISSING:
        return content
    if found.state == EDITED and not force:
        raise _edited("removes it")
    rest = _without(content, found)
    return None if found.new and rest == _START_OF_FILE else rest


def foreign_part(content: bytes) -> bytes:
    """Return ``content`` without the block. Raises PostTasksProblem."""
    return _without(content, find(content))


def _place(content: bytes) -> tuple[int, int]:
    """Return where a block is added, in bytes: after the last task, before an explicit
    end; and the indentation of the file's tasks.
    """
    text = _text(content)
    root = _root(text)
    column = 0
    if root is not None:
        if not isinstance(root, yaml.SequenceNode):
            raise PostTasksProblem(
                "post-tasks-no-list",
                "it is not a list of tasks; the engine would fail on it",
                "make it a list of tasks: each begins with '- name:'",
            )
        if root.flow_style:
            raise PostTasksProblem(
                "post-tasks-flow-style",
                "its list is written in brackets, to which no block can be added",
                "write one task after the other, each beginning with '- name:'",
            )
        column = _column(text, root)
    end = _explicit_end(text)
    if end is None:
        return len(content), column
    # The text has no byte order mark.
    bom = 3 if content.startswith(b"\xef\xbb\xbf") else 0
    return bom + len(text[:end].encode()), column


def _block(column: int, line_break: bytes, collection: str, *flags: str) -> bytes:
    indent = " " * column
    inside = _indented(tasks_of(collection), indent)
    flag = "".join(f"{word} " for word in flags)
    first = f"{indent}{_BEGIN} {flag}(sha256:{_digest(inside)}; {_NOTE})\n"
    return f"{first}{inside}{indent}{_END}\n".encode().replace(b"\n", line_break)


def _indented(text: str, like: str) -> str:
    indent = like[: len(like) - len(like.lstrip(" "))]
    return "".join(f"{indent}{line}\n" for line in text.splitlines())


def _digest(inside: str) -> str:
    return hashlib.sha256(inside.encode()).hexdigest()


def _without(content: bytes, found: Found) -> bytes:
    # Somebody may have added tasks after the block: then the line break stays.
    before = 0 if content[found.end :] else found.before
    return content[: found.start - before] + content[found.end :]


def _marks(content: bytes) -> list[tuple[int, int]]:
    """Return the places of our marks: comments, not lines of a text in a task, which
    are further to the right than the tasks.
    """
    every = [(match.start(), match.end()) for match in _MARK.finditer(content)]
    if not every:
        return []
    try:
        text = _text(content)
        column = _column(text, _root(text))
    except PostTasksProblem:
        return every
    return [
        (start, end) for start, end in every if content[start:end].find(b"#") == column
    ]


def _line_break(content: bytes) -> bytes:
    """Return the line break of the file's first line."""
    first = content.split(b"\n", 1)
    return b"\r\n" if len(first) > 1 and first[0].endswith(b"\r") else b"\n"


def _text(content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise PostTasksProblem(
            "post-tasks-not-utf8",
            f"it is not UTF-8 text (byte {error.start}); Ansible cannot read it",
            "convert it, for example with iconv(1)",
        ) from None


def _loader() -> Any:
    # As Ansible: libyaml accepts a few files that the parser in Python refuses.
    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _root(text: str) -> Optional[yaml.Node]:
    try:
        # Tags as !vault need no constructor here.
        root: Optional[yaml.Node] = yaml.compose(text, Loader=_loader())
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark else ""
        what = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise PostTasksProblem(
            "post-tasks-not-yaml",
            f"it is not valid YAML: {where}{what}",
            "correct it; until then the engine reports no failure, and ignores this "
            "file and what follows",
        ) from None
    null = isinstance(root, yaml.ScalarNode) and root.tag == "tag:yaml.org,2002:null"
    if null and root is not None and root.start_mark.index < root.end_mark.index:
        return root  # the word null
    return None if null else root


def _column(text: str, root: Optional[yaml.Node]) -> int:
    """Return the indentation of the tasks: of the first dash, as a tag or an anchor may
    precede the list.
    """
    if root is None:
        return 0
    if isinstance(root, yaml.SequenceNode) and not root.flow_style:
        for token in yaml.scan(text, Loader=_loader()):
            if isinstance(token, yaml.BlockSequenceStartToken):
                return int(token.start_mark.column)
    return int(root.start_mark.column)


def _explicit_end(text: str) -> Optional[int]:
    """Return the place of the mark ``...``, None if there is none."""
    for event in yaml.parse(text, Loader=_loader()):
        if isinstance(event, yaml.DocumentEndEvent) and event.explicit:
            mark: Any = event.start_mark
            return int(mark.index)
    return None


def _unchanged_in_meaning(foreign: bytes, merged: bytes, collection: str) -> None:
    """Raise PostTasksProblem if the tasks of others would not be what they were.

    A text at the end of a file without a line break, for example, would get one.
    """
    before, after = _events(foreign), []
    with contextlib.suppress(yaml.YAMLError):
        after = _events(merged)
    ours = _events(tasks_of(collection).encode())
    for at in range(len(before) + 1):
        if before[at:] == after[at + len(ours) :] and ours == after[at:][: len(ours)]:
            if after[:at] == before[:at]:
                return
            break
    raise PostTasksProblem(
        "post-tasks-would-change",
        "a block at its end would change the meaning of the tasks before it",
        "end it with a task, in a line of its own",
    )


def _events(content: bytes) -> list[tuple[Any, ...]]:
    """Return what the tasks consist of. Not as values: with aliases, a small file has
    values without end.
    """
    events = [
        (type(one).__name__, *(getattr(one, name, None) for name in _PARTS))
        for one in yaml.parse(_text(content), Loader=_loader())
    ]
    # Without the stream, the document, and the list itself.
    return events[3:-3]


_PARTS = ("anchor", "tag", "implicit", "value")


def _edited(does: str) -> PostTasksProblem:
    return PostTasksProblem(
        "post-tasks-block-edited",
        "the block of ovirt-rdma was edited, and is left as it is",
        f"see what was changed; --force {does}",
    )


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
