# SPDX-License-Identifier: GPL-2.0-or-later
"""Put our block into the engine's post-tasks file, and take it out again; check the
file with the engine's Ansible, as its user; read the settings of the role.

The engine includes one file of tasks at the end of each installation of a host
(AnsibleConstants.java:34-38, ovirt-host-deploy.yml:32-41), and it belongs to the
administrator. We add a block between two marked lines and never change another byte;
what is added or removed is computed by pure functions. The first line records what a
removal needs: the checksum of the block, whether a line break had to be added before
it, and whether the file was ours from the start. Mode, owner, access control list and
SELinux label stay as they are, and a symbolic link stays a link. A second run at the
same time gets exit code 75.

The check is the real ``ansible-playbook --syntax-check`` on a play that takes the tasks
in as the engine's playbook does (ovirt-host-deploy.yml:39-41), with its roles, settings
and variables; no task is carried out. Plugins are loaded, also from the home of the
engine's user, so root runs it as that user.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import pwd
import re
import shlex
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
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
from ovirt_rdma.engine_sdk_tools.model import ChecksFailed
from ovirt_rdma.host.errors import Problem, Sentence
from ovirt_rdma.host.paths import POLICY_YAML
from ovirt_rdma.host.policy.load import load_policy_file, parse_policy
from ovirt_rdma.host.policy.model import Policy
from ovirt_rdma.host.system.commands import (
    CommandFailed,
    CommandTimeout,
    TooMuchOutput,
    run_command,
)
from ovirt_rdma.host.system.files import fix_for, remove_unfinished, sync_directory
from ovirt_rdma.host.system.lazy import LazyModule
from ovirt_rdma.host.system.lock import LockHeld
from ovirt_rdma.host.system.safe_file import read_file, read_file_of_others

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

# A carriage return alone ends a line of YAML too (YAML 1.1, 5.4).
_LINE = rb"(?:^|(?<=\r))"
_MARK = re.compile(_LINE + rb"( *)# (BEGIN|END) ovirt-rdma\b.*$", re.MULTILINE)
_FIRST = re.compile(
    r"( *)# BEGIN ovirt-rdma (?P<flags>[a-z ]*)\(sha256:(?P<digest>[0-9a-f]{64}); .*"
)
# The first dash has the indentation of the tasks; it may be behind a byte order mark.
_DASH = re.compile(_LINE + rb"(?:\xef\xbb\xbf)?( *)-(?=\s|$)", re.MULTILINE)
_END_OF_LIST = re.compile(_LINE + rb"\.\.\.(?=\s|$)", re.MULTILINE)
# The file did not exist; a line break was added before the block.
_NEW, _BREAK = "new", "break"
_START_OF_FILE = b"---\n"
_NOTE = "made by 'ovirt-rdma deploy-hook'; see docs/host-deploy.md"
_CORRECT = (
    "correct it; until then the engine reports no failure, and ignores this file and "
    "what follows"
)

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
    """Our block in a file: its state, its place in bytes, its ``indent`` and ``flags``.

    A removal takes away ``before`` bytes before it: an added line break.
    """

    state: str
    start: int = 0
    end: int = 0
    before: int = 0
    indent: str = ""
    flags: tuple[str, ...] = ()


def tasks_of(collection: str = COLLECTION) -> str:
    """Return the tasks of the block, without its marks and without indentation.

    ``collection`` is the folder of our collection, without quotes or backslashes.
    """
    tasks = _TASKS.replace("@SETTINGS@", SETTINGS).replace("@POLICY@", POLICY_YAML)
    return tasks.replace("@COLLECTION@", collection)


def find(content: bytes, collection: str = COLLECTION) -> Found:
    """Return the block in ``content``. Raises PostTasksProblem for incomplete marks."""
    # A text in a task can have such a line, further to the right than the tasks.
    column = _indent(content)
    marks = [mark for mark in _MARK.finditer(content) if mark[1] == column]
    if not marks:
        return Found(MISSING)
    if [mark[2] for mark in marks] != [b"BEGIN", b"END"]:
        places = ", ".join(str(content.count(b"\n", 0, m.start()) + 1) for m in marks)
        raise PostTasksProblem(
            "post-tasks-marks-incomplete",
            "the marks of ovirt-rdma's block are incomplete, or it is there twice "
            f"(lines {places})",
            "remove these lines and what belongs to them with an editor",
        )
    start, line_end = marks[0].start(), content.find(b"\n", marks[1].end())
    end = len(content) if line_end < 0 else line_end + 1
    lines = content[start:end].decode("utf-8", "replace").splitlines()
    indent = column.decode()
    first = _FIRST.fullmatch(lines[0])
    flags = tuple(first["flags"].split()) if first else ()
    inside = "".join(f"{line}\n" for line in lines[1:-1])
    # If somebody has added tasks after the block, the line break is theirs.
    added = _line_break(content) if _BREAK in flags and end == len(content) else b""
    before = len(added) if content[:start].endswith(added) else 0
    if first is None or _digest(inside) != first["digest"]:
        state = EDITED
    elif inside == _indented(tasks_of(collection), indent):
        state = INSTALLED
    else:
        state = OUTDATED
    return Found(state, start, end, before, indent, flags)


def installed(
    content: Optional[bytes], collection: str = COLLECTION, *, force: bool = False
) -> bytes:
    """Return ``content`` with the block of this version; None is for a missing file.

    A block that is there is replaced in its place; one that was edited only with
    ``force``. Raises PostTasksProblem if ``content`` is no list of tasks to which a
    block can be added.
    """
    if content is None:
        return _START_OF_FILE + _block("", b"\n", collection, _NEW)
    found = find(content, collection)
    if found.state == INSTALLED:
        return content
    if found.state == EDITED and not force:
        raise _edited("replaces it")
    line_break = _line_break(content)
    if found.state != MISSING:
        block = _block(found.indent, line_break, collection, *found.flags)
        return content[: found.start] + block + content[found.end :]
    theirs = _events(content)
    mark = _END_OF_LIST.search(content)
    head = content[: mark.start()] if mark else content
    broken = bool(head) and not head.endswith((b"\n", b"\r"))
    indent = _indent(content).decode()
    block = _block(indent, line_break, collection, *[_BREAK] * broken)
    merged = head + line_break * broken + block + content[len(head) :]
    every: list[tuple[Any, ...]] = []
    with contextlib.suppress(PostTasksProblem):
        every = _events(merged)
    if every != theirs + _events(tasks_of(collection).encode()):
        raise PostTasksProblem(
            "post-tasks-no-list",
            "it is not a list of tasks to whose end a block can be added without a "
            "change of what they mean",
            "make it a list of tasks: each begins with '- name:', and the last line "
            "ends with a line break",
        )
    return merged


def removed(content: bytes, *, force: bool = False) -> Optional[bytes]:
    """Return ``content`` without the block, None if nothing but ours is in the file and
    it did not exist before.

    An edited block is removed only with ``force``. Raises PostTasksProblem.
    """
    found = find(content)
    if found.state == EDITED and not force:
        raise _edited("removes it")
    rest = content[: found.start - found.before] + content[found.end :]
    return None if _NEW in found.flags and rest == _START_OF_FILE else rest


def _block(indent: str, line_break: bytes, collection: str, *flags: str) -> bytes:
    inside = _indented(tasks_of(collection), indent)
    flag = "".join(f"{word} " for word in flags)
    first = f"# BEGIN ovirt-rdma {flag}(sha256:{_digest(inside)}; {_NOTE})"
    block = f"{indent}{first}\n{inside}{indent}# END ovirt-rdma\n".encode()
    return block.replace(b"\n", line_break)


def _indent(content: bytes) -> bytes:
    dash = _DASH.search(content)
    return dash[1] if dash else b""


def _line_break(content: bytes) -> bytes:
    """Return the line break of the file's first line."""
    return b"\r\n" if re.match(rb"[^\n]*\r\n", content) else b"\n"


def _indented(text: str, indent: str) -> str:
    return "".join(f"{indent}{line}\n" for line in text.splitlines())


def _digest(inside: str) -> str:
    return hashlib.sha256(inside.encode()).hexdigest()


def _text(content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise PostTasksProblem(
            "post-tasks-not-utf8",
            f"it is not UTF-8 text (byte {error.start}); Ansible cannot read it",
            "convert it, for example with iconv(1)",
        ) from None


def _events(content: bytes) -> list[tuple[Any, ...]]:
    """Return what the tasks consist of, without the list itself. Not as values: tags
    need no constructor then, and with aliases, a small file has values without end.
    """
    text = _text(content)
    # As Ansible: libyaml accepts a few files that the parser in Python refuses.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        yaml.compose(text, Loader=loader)  # raises for a second document
        events = [
            (type(one).__name__, *(getattr(one, name, None) for name in _PARTS))
            for one in yaml.parse(text, Loader=loader)
        ]
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark else ""
        what = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise PostTasksProblem(
            "post-tasks-not-yaml",
            f"it is not valid YAML: {where}{what}",
            _CORRECT,
        ) from None
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
_ENGINE_VARIABLES = """
host_deploy_cluster_name host_deploy_cluster_switch_type host_deploy_cluster_version
host_deploy_firewall_type host_deploy_gluster_enabled host_deploy_gluster_supported
host_deploy_iptables_rules host_deploy_kdump_destination_address
host_deploy_kdump_destination_port host_deploy_kdump_integration
host_deploy_kdump_message_interval host_deploy_kernel_cmdline_new
host_deploy_kernel_cmdline_old host_deploy_origin_type host_deploy_override_firewall
host_deploy_ovn_central host_deploy_ovn_tunneling_interface host_deploy_post_tasks
host_deploy_tuned_profile host_deploy_vdsm_encrypt_host_communication
host_deploy_vdsm_min_version host_deploy_vdsm_port host_deploy_vdsm_ssl_ciphers
host_deploy_virt_enabled host_deploy_vnc_tls hosted_engine_deploy_action
hosted_engine_host_id hosted_engine_tmp_cfg_file ovirt_ca_cert ovirt_ca_key
ovirt_engine_usr ovirt_organizationname ovirt_pki_dir ovirt_qemu_ca_cert ovirt_san
ovirt_signcerttimeoutinseconds ovirt_vds_certificate_validity_in_days ovirt_vds_hostname
"""
# import_tasks reads the file now, include_tasks only during the run.
_TASK = {"import_tasks": "tasks/post_tasks.yml"}
_PLAY = [{"hosts": "all", "remote_user": "root", "tasks": [_TASK]}]


def engine_version() -> Optional[str]:
    """Return the version of the engine's package on this machine; None if there is
    none, or no rpm.
    """
    try:
        return run_command(["rpm", "-q", "--qf", "%{VERSION}", "ovirt-engine"]).strip()
    except CommandFailed:
        return None


def runs_hook(project: str = PROJECT) -> Optional[bool]:
    """Whether the engine's playbook includes the file; None if it cannot be read."""
    try:
        return b"{{ host_deploy_post_tasks }}" in read_file(Path(project) / PLAYBOOK)
    except OSError:
        return None


def _engine_user() -> Optional[pwd.struct_passwd]:
    try:
        return pwd.getpwnam(ENGINE_USER)
    except KeyError:
        return None


def _as(user: Optional[pwd.struct_passwd]) -> dict[str, Any]:
    """Return what makes root run a command as ``user``."""
    if user is None or os.geteuid() != 0:
        return {}
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
        raise _no_ansible(
            "ansible-playbook is not installed, so nothing can be checked"
        )
    words = [program, "--syntax-check", "-i", "hosts", "-e", "@vars.json", "play.yml"]
    user = _engine_user()
    with private_folder() as name:
        folder = Path(name)
        _write_play(folder, content, beside, project)
        as_user = _as(user)
        if user is not None and as_user:
            _give(folder, user)
        environment = _environment(folder, user)
        try:
            run_command(words, _CHECKING_S, cwd=folder, env=environment, **as_user)
        except (CommandTimeout, TooMuchOutput) as failed:
            raise PostTasksProblem(
                "post-tasks-check-ended",
                f"ansible-playbook --syntax-check was ended: {failed}",
                "try it by hand",
            ) from None
        except CommandFailed as failed:
            if failed.returncode is None:
                why = f"{program} cannot be run by the engine's user: {failed}"
                raise _no_ansible(why) from None
            said = f"{failed.stderr}\n{failed.stdout}".replace(f"{folder}/", "")
            raise PostTasksProblem(
                "post-tasks-syntax",
                f"ansible-playbook --syntax-check refuses it: {_reason(said)}",
                _CORRECT,
            ) from None


def _no_ansible(why: str) -> PostTasksProblem:
    fix = "install the package ansible-core (an engine has it)"
    return PostTasksProblem("ansible-missing", why, fix)


def _write_play(folder: Path, content: bytes, beside: Path, project: str) -> None:
    values = {
        **dict.fromkeys(_ENGINE_VARIABLES.split(), "value"),
        "ovirt_engine_usr": "/usr/share/ovirt-engine",
        "ovirt_pki_dir": "/etc/pki/ovirt-engine",
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
    # ansible-core's DEFAULT_ROLES_PATH.
    roles = [Path("/usr/share/ansible/roles"), Path("/etc/ansible/roles")]
    if user is not None:
        roles.insert(0, Path(user.pw_dir) / ".ansible/roles")
    collections = collection_paths()
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
    message = re.split(r"ERROR! |\[ERROR\]: ", text, maxsplit=1)[-1]
    place = _PLACE.search(message)
    where = f"line {place[1]}: " if place else ""
    lines = [line for line in map(str.strip, message.splitlines()) if line]
    # The second line names the file that cannot be read.
    shown = lines[: 1 + ("retrieve file contents" in message)]
    return where + (" ".join(shown) or "it printed nothing")


_MOST_BYTES = 1_000_000
_OTHER_FORM = (AttributeError, KeyError, TypeError, ValueError)
_KINDS = {
    "bool": "true or false",
    "int": "a number",
    "list": "a list",
    "str": "a text",
}
_TRUTH = ("yes", "on", "1", "true", "y", "t", "no", "off", "0", "false", "n", "f")


class SettingsProblem(Problem):
    """The settings of the host preparation are invalid."""


def read_settings(
    path: str = SETTINGS, collection: Optional[Path] = None
) -> dict[str, Any]:
    """Return the variables in the file ``path``; none if it is missing or empty.

    With ``collection``, the folder of our collection, unknown names and values that the
    role does not take are refused, too: the engine's run does not check them
    (rolespec_validate in the block). Raises SettingsProblem.
    """
    try:
        values = yaml.safe_load(read_file(path, _MOST_BYTES))
    except FileNotFoundError:
        return {}
    except (OSError, yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark else ""
        reason = getattr(error, "problem", None) or getattr(error, "strerror", None)
        reason = reason or str(error).splitlines()[0]
        raise _invalid(path, f"{where}{reason}") from None
    if values is None:
        return {}
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise _invalid(path, "it is not a list of lines 'NAME: VALUE'")
    known = _known(collection)
    unknown = sorted(name for name in values if known and name not in known)
    if unknown:
        raise _invalid(path, f"the role has no variable {', '.join(unknown)}")
    for name, value in values.items():
        wrong = _wrong(name, known.get(name, {}), value)
        if wrong:
            raise _invalid(path, f"{name} is {value!r}, and must be {wrong}")
    return values


# A variable of the engine's host-deploy (InstallVdsInternalCommand.java:286-334).
_CLUSTER = re.compile(r"\{\{\s*host_deploy_cluster_name\s*\}\}")


def policy_of_engine(path: str = POLICY_YAML) -> dict[str, Any]:
    """Return the variable that sends this machine's policy, if there is one."""
    return {"ovirt_rdma_policy_file": path} if os.access(path, os.F_OK) else {}


def is_by_cluster(variables: Mapping[str, Any]) -> bool:
    """Whether each cluster has a policy file of its own, named by the engine's variable
    for the cluster.
    """
    file = variables.get("ovirt_rdma_policy_file")
    return not variables.get("ovirt_rdma_policy") and bool(_CLUSTER.search(str(file)))


def of_cluster(variables: Mapping[str, Any], cluster: str) -> dict[str, Any]:
    """Return the ``variables`` for the hosts of the cluster with this name."""
    named = _CLUSTER.sub(lambda _: cluster, str(variables["ovirt_rdma_policy_file"]))
    return {**variables, "ovirt_rdma_policy_file": named}


def policy_of(variables: Mapping[str, Any]) -> Optional[Policy]:
    """Return the policy that the role's ``variables`` give to hosts; None: they keep
    theirs. Raises PolicyProblem, and SettingsProblem for a template.
    """
    inline = variables.get("ovirt_rdma_policy")
    given = inline or variables.get("ovirt_rdma_policy_file")
    if "{{" in str(given):
        raise SettingsProblem(
            "host-deploy-policy-template",
            f"the policy in {SETTINGS} is a template, which has a value only while the "
            "engine installs a host",
            "reinstall the hosts in the portal, or run the role with Ansible",
        )
    if not inline:
        return load_policy_file(given, alone=True).policy if given else None
    text = inline if isinstance(inline, str) else yaml.safe_dump(inline)
    return parse_policy(text, f"ovirt_rdma_policy of {SETTINGS}").policy


def _known(collection: Optional[Path]) -> dict[str, Any]:
    """Return the role's variables with their types; none if they cannot be read."""
    if collection is None:
        return {}
    specs = str(collection / "roles/prepare/meta/argument_specs.yml")
    try:
        # The engine's user may write there, and this may be root.
        text = read_file_of_others(str(collection), specs, _MOST_BYTES)
        options = yaml.safe_load(text)["argument_specs"]["main"]["options"]
        return {name: dict(spec) for name, spec in options.items()}
    except (OSError, yaml.YAMLError, RecursionError, *_OTHER_FORM):
        return {}


def _wrong(name: str, known: Mapping[str, Any], value: Any) -> str:
    """Return what the value of a variable must be; "" if it is that."""
    choices, kind = known.get("choices"), str(known.get("type"))
    if isinstance(value, str) and "{{" in value and name != "ovirt_rdma_on_failure":
        return ""  # a template; Ansible alone knows its value
    if isinstance(choices, list) and choices and value not in choices:
        return f"one of {', '.join(map(str, choices))}"
    # As ansible.module_utils.common.validation takes them, but for None.
    good = {
        "bool": isinstance(value, bool) or str(value).lower() in _TRUTH,
        "int": not isinstance(value, bool) and str(value).isdecimal(),
        "list": isinstance(value, (list, str)),
        "str": value is None or isinstance(value, (str, int, float)),
    }
    return "" if good.get(kind, True) else _KINDS[kind]


def _invalid(path: str, reason: str) -> SettingsProblem:
    return SettingsProblem(
        "host-deploy-settings-invalid",
        f"{path} is invalid: {reason}",
        "correct it; docs/host-deploy.md lists the variables",
    )


# Read and replace the engine's post-tasks file: atomic, locked, with a backup.

# AnsibleConstants.HOST_DEPLOY_POST_TASKS_FILE_PATH
POST_TASKS = "/etc/ovirt-engine/ansible/ovirt-host-deploy-post-tasks.yml"
BACKUP = ".before-ovirt-rdma"
_NEW_MODE = 0o644


class PostTasksFile:
    """The file at ``path``, which may be missing or a symbolic link.

    Its folder must exist: an engine has it. Raises PostTasksProblem if there is none,
    if the path is a link to nothing, or no regular file.
    """

    def __init__(self, path: str) -> None:
        self.named = Path(path)
        self.path = Path(os.path.realpath(path))
        try:
            there = self.path.exists()
            odd = there and not self.path.is_file()
            folder = self.path.parent.is_dir()
        except OSError as error:
            raise self._failed("read", error) from None
        # A link to /dev/null too: it would be replaced.
        if odd:
            raise PostTasksProblem(
                "post-tasks-no-file",
                f"{path} is not a regular file",
                "replace it by a file of tasks, or remove it",
            )
        if self.named.is_symlink() and not there:
            raise PostTasksProblem(
                "post-tasks-link-broken",
                f"{path} is a symbolic link to a file that does not exist",
                "remove the link, or restore its target",
            )
        if not folder:
            raise PostTasksProblem(
                "post-tasks-no-engine",
                f"there is no folder {self.named.parent}: this is not an engine "
                "machine",
                "run this on the machine of the engine, or give --file",
            )

    @property
    def backup(self) -> Path:
        """The path of the copy from before the last change."""
        return self.path.with_name(self.path.name + BACKUP)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Let no other run change the file. Raises LockHeld, PostTasksProblem."""
        try:
            descriptor = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise self._failed("open its folder", error) from error
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise LockHeld(
                    "post-tasks-locked",
                    f"another run of ovirt-rdma is changing {self.named}",
                    "wait until it has ended, then run this command again",
                ) from None
            remove_unfinished(self.path.parent)
            yield
        finally:
            os.close(descriptor)

    def read(self) -> Optional[bytes]:
        """Return the content, None if the file is missing. Raises PostTasksProblem."""
        try:
            return read_file(self.path, _MOST_BYTES)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._failed("read", error) from error

    def replace(self, before: Optional[bytes], after: Optional[bytes]) -> None:
        """Write ``after`` in place of ``before``, which is kept as the backup; None is
        for a missing file. Raises PostTasksProblem; then the file is unchanged, but for
        post-tasks-not-durable, which is raised after the change.

        ``before`` is what :meth:`read` returned: if the file is not so any more, an
        editor has changed it meanwhile, and nothing is written.
        """
        if self.read() != before:
            raise PostTasksProblem(
                "post-tasks-changed-meanwhile",
                f"{self.named} was changed by somebody else in this moment",
                "run the command again",
            )
        if before is not None and self.path.stat().st_nlink > 1:
            own = shlex.quote(str(self.path))
            raise PostTasksProblem(
                "post-tasks-hard-links",
                f"{self.named} has a second name (a hard link), which would keep the "
                "old content",
                f"make it a file of its own: cp --preserve=all {own} {own}.new; "
                f"mv {own}.new {own}",
            )
        try:
            if before is not None:
                self._write(self.backup, before)
            if after is None:
                self.path.unlink(missing_ok=True)
            else:
                self._write(self.path, after)
        except OSError as error:
            raise self._failed("write", error) from error
        try:
            sync_directory(self.path.parent)
        except OSError as error:
            raise PostTasksProblem(
                "post-tasks-not-durable",
                f"{self.named} was changed, but the earlier file may be back after a "
                f"power cut: {error.strerror or error}",
                fix_for(error, self.path),
            ) from error

    def _write(self, path: Path, content: bytes) -> None:
        """Replace ``path``, with mode, owner, label and access control list of the
        post-tasks file.
        """
        # The form of name that remove_unfinished knows.
        descriptor, name = tempfile.mkstemp(
            ".ovirt-rdma", f".{path.name}.", path.parent
        )
        try:
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(content)
                stream.flush()
                if self.path.exists():
                    status = self.path.stat()
                    os.fchown(descriptor, status.st_uid, status.st_gid)
                    # After the owner, because a change of owner clears bits.
                    os.fchmod(descriptor, stat.S_IMODE(status.st_mode))
                    # The label and the access control list. Not shutil.copystat, which
                    # would continue without one that is refused.
                    for each in _attributes(self.path):
                        os.setxattr(descriptor, each, os.getxattr(self.path, each))
                else:
                    os.fchmod(descriptor, _NEW_MODE)
                os.fsync(descriptor)
            Path(name).replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                Path(name).unlink()
            raise

    def _failed(self, doing: str, error: OSError) -> PostTasksProblem:
        fix = fix_for(error, self.path)
        if error.errno == errno.EFBIG:
            fix = "move the tasks to files of their own, and include them"
        return PostTasksProblem(
            "post-tasks-not-accessible",
            f"cannot {doing} {self.named}: {error.strerror or error}",
            fix,
        )


def _attributes(path: Path) -> list[str]:
    try:
        return os.listxattr(path)
    except OSError as error:
        if error.errno in (errno.ENOTSUP, errno.EPERM):
            return []
        raise


def block_problem() -> Optional[Problem]:
    """Return why a reinstall would not run the role, if this is the engine machine.
    Elsewhere, the canary shows it.
    """
    if not Path(POST_TASKS).parent.is_dir():
        return None
    try:
        content = PostTasksFile(POST_TASKS).read() or b""
        state = find(content, collection_name()).state
    except PostTasksProblem as problem:
        return problem
    if state == INSTALLED:
        return None
    why = (
        f"hosts have to be reinstalled, but the block in {POST_TASKS} is {state}: the "
        "engine would not prepare them"
    )
    return ChecksFailed(
        [Sentence("deploy-hook-not-installed", why)],
        "ovirt-rdma deploy-hook install; or, without maintenance: --by ssh",
    )


def collection_name() -> str:
    """Return the folder of our collection, that of the package if there is none."""
    return str(collection_folder() or COLLECTION)
