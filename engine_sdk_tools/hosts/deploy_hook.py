# SPDX-License-Identifier: GPL-2.0-or-later
"""Put our block into the engine's post-tasks file, and take it out again; check the
file with the engine's Ansible, as its user; read the settings of the role.

The engine includes one file of tasks at the end of each installation of a host
(AnsibleConstants.java:34-38, ovirt-host-deploy.yml:32-41), and it belongs to the
administrator. We add a block between two marked lines and never change another byte;
what is added or removed is computed by pure functions. Mode, owner, access control list
and SELinux label stay as they are, and a symbolic link stays a link. A second run at
the same time gets exit code 75.

The check is the real ``ansible-playbook --syntax-check`` on a play that takes the tasks
in as the engine's playbook does (ovirt-host-deploy.yml:39-41), with its roles and
settings; no task is carried out. Plugins are loaded, also from the home of the engine's
user, so root runs it as that user.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import pwd
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Optional

import yaml

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
from ovirt_rdma.host.system.files import (
    PUBLIC_MODE,
    fix_for,
    sync_change,
    write_atomically,
)
from ovirt_rdma.host.system.lock import LockHeld
from ovirt_rdma.host.system.safe_file import read_file, read_file_of_others

# Where the package ovirt-rdma-engine installs the collection of the role.
COLLECTION = "/usr/share/ansible/collections/ansible_collections/ovirt_rdma/host"
# Variables of the role, for all hosts of this engine.
SETTINGS = "/etc/ovirt-rdma/host-deploy.yml"
# The block in a file, compared with what this version would write.
MISSING, INSTALLED, OUTDATED = "missing", "installed", "outdated"

# A carriage return alone ends a line of YAML too (YAML 1.1, 5.4).
_LINE = rb"(?:^|(?<=\r))"
_MARK = re.compile(_LINE + rb"( *)# (BEGIN|END) ovirt-rdma\b(.*\n?)", re.MULTILINE)
# The first dash has the indentation of the tasks; it may be behind a byte order mark.
_DASH = re.compile(_LINE + rb"(?:\xef\xbb\xbf)?( *)-(?=\s|$)", re.MULTILINE)
_START_OF_FILE = b"---\n"
# In the first mark, if the file did not exist before.
_NEW = " in a new file"
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


class Found(NamedTuple):
    """Our block: its state, begin and end; ``is_new``: there was no file before."""

    state: str
    start: int = 0
    end: int = 0
    is_new: bool = False


def tasks_of(collection: str = COLLECTION) -> str:
    """Return the tasks without marks and indentation; ``collection`` has no quotes or
    backslashes.
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
    start, end = marks[0].start(), marks[1].end()
    is_new = marks[0][3].startswith(_NEW.encode())
    ours = _block(column, collection, is_new=is_new)
    # An editor may have changed the line breaks.
    same = content[start:end].splitlines() == ours.splitlines()
    return Found(INSTALLED if same else OUTDATED, start, end, is_new)


def installed(content: Optional[bytes], collection: str = COLLECTION) -> bytes:
    """Return ``content`` with the block of this version, in place of another; None is
    for a missing file. Raises PostTasksProblem if it is no list of tasks.
    """
    if content is None:
        return _START_OF_FILE + _block(b"", collection, is_new=True)
    found = find(content, collection)
    if found.state == INSTALLED:
        return content
    block = _block(_indent(content), collection, is_new=found.is_new)
    if found.state == OUTDATED:
        return content[: found.start] + block + content[found.end :]
    theirs, merged = _events(content), content + block
    every: list[tuple[Any, ...]] = []
    if not content or content.endswith((b"\n", b"\r")):
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


def removed(content: bytes) -> Optional[bytes]:
    """Return ``content`` without the block, None if nothing but ours is in the file and
    it did not exist before. Raises PostTasksProblem.
    """
    found = find(content)
    rest = content[: found.start] + content[found.end :]
    return None if found.is_new and rest == _START_OF_FILE else rest


def _block(indent: bytes, collection: str, *, is_new: bool) -> bytes:
    first = f"# BEGIN ovirt-rdma{_NEW if is_new else ''} ({_NOTE})"
    lines = (first, *tasks_of(collection).splitlines(), "# END ovirt-rdma")
    return b"".join(indent + line.encode() + b"\n" for line in lines)


def _indent(content: bytes) -> bytes:
    dash = _DASH.search(content)
    return dash[1] if dash else b""


def _events(content: bytes) -> list[tuple[Any, ...]]:
    """Return what the tasks consist of, without the list itself. Not as values: tags
    need no constructor then, and with aliases, a small file has values without end.
    """
    # As Ansible: libyaml accepts a few files that the parser in Python refuses.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        text = content.decode("utf-8-sig")
        yaml.compose(text, Loader=loader)  # raises for a second document
        events = [
            (type(one).__name__, *(getattr(one, name, None) for name in _PARTS))
            for one in yaml.parse(text, Loader=loader)
        ]
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise PostTasksProblem(
            "post-tasks-not-yaml", f"it is not valid YAML: {_why(error)}", _CORRECT
        ) from None
    return events[3:-3]


_PARTS = ("anchor", "tag", "implicit", "value")
_CORRECT = (
    "correct it; until then the engine reports no failure, and ignores this file and "
    "what follows"
)


def _why(error: Exception) -> str:
    """Return why a file cannot be read as YAML, with the line if that is known."""
    mark = getattr(error, "problem_mark", None)
    where = f"line {mark.line + 1}: " if mark else ""
    reason = getattr(error, "problem", None) or getattr(error, "strerror", None)
    return f"{where}{reason or str(error).splitlines()[0]}"


# AnsibleConstants.RUNNER_SERVICE_PROJECT_PATH
PROJECT = "/usr/share/ovirt-engine/ansible-runner-service-project/project"
_CHECKING_S = 120.0
_MOST_SHOWN = 600
# Of ansible-core before and since 2.19.
_ERROR = r"ERROR! |\[ERROR\]: "
# import_tasks reads the file now, include_tasks only during the run.
_TASK = {"import_tasks": "tasks/post_tasks.yml"}
_PLAY = [{"hosts": "all", "remote_user": "root", "tasks": [_TASK]}]


def _engine_user() -> Optional[pwd.struct_passwd]:
    """Return the engine's user; None if there is none, or we are not root."""
    with contextlib.suppress(KeyError):
        return pwd.getpwnam(ENGINE_USER) if os.geteuid() == 0 else None
    return None


def _as(user: Optional[pwd.struct_passwd]) -> dict[str, Any]:
    """Return what makes root run a command as ``user``."""
    if user is None:
        return {}
    groups = os.getgrouplist(user.pw_name, user.pw_gid)
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": groups}


def user_without_access(path: Path) -> str:
    """Return the name of the engine's user if it cannot read ``path``, else "". That is
    also so if there is no such file, or if only root can try it.
    """
    user = _engine_user()
    if user is not None and path.exists():
        try:
            run_command(["test", "-r", str(path)], **_as(user))
        except CommandFailed:
            return user.pw_name
    return ""


def check_syntax(content: bytes, beside: Path, project: str = PROJECT) -> None:
    """Let ansible-playbook read ``content`` as the engine does, with other tasks
    ``beside`` it. Raises PostTasksProblem with Ansible's reason, and if there is no
    Ansible.
    """
    program = shutil.which("ansible-playbook", path=search_path())
    if program is None:
        raise _no_ansible(
            "ansible-playbook is not installed, so nothing can be checked"
        )
    words = [program, "--syntax-check", "-i", "host.example.com,", "play.yml"]
    user = _engine_user()
    with private_folder() as name:
        folder = Path(name)
        _write_play(folder, content, beside, Path(project))
        if user is not None:
            _give(folder, user)
        environment = _environment(folder, user)
        try:
            run_command(words, _CHECKING_S, cwd=folder, env=environment, **_as(user))
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
            reason = " ".join(re.split(_ERROR, said, maxsplit=1)[-1].split())
            raise PostTasksProblem(
                "post-tasks-syntax",
                "ansible-playbook --syntax-check refuses it: "
                f"{reason[:_MOST_SHOWN] or 'it printed nothing'}",
                _CORRECT,
            ) from None


def _no_ansible(why: str) -> PostTasksProblem:
    fix = "install the package ansible-core (an engine has it)"
    return PostTasksProblem("ansible-missing", why, fix)


def _write_play(folder: Path, content: bytes, beside: Path, project: Path) -> None:
    tasks = folder / "tasks"
    tasks.mkdir()
    try:
        others = list(beside.iterdir())
    except OSError as error:
        raise PostTasksProblem(
            "post-tasks-not-accessible",
            f"cannot read the folder {beside}: {error.strerror or error}",
            fix_for(error, beside / "post_tasks.yml"),
        ) from None
    for other in others:
        if other.name != "post_tasks.yml":
            (tasks / other.name).symlink_to(other.absolute())
    (tasks / "post_tasks.yml").write_bytes(content)
    (folder / "play.yml").write_text(json.dumps(_PLAY), encoding="utf-8")
    for part in ("roles", "filter_plugins", "library"):
        if is_folder(project / part):
            (folder / part).symlink_to(project / part)
    with contextlib.suppress(OSError):
        (folder / "ansible.cfg").write_bytes(read_file(project / "ansible.cfg"))


def _give(folder: Path, user: pwd.struct_passwd) -> None:
    """Give ``folder`` to ``user``, with all that is in it, and let its groups enter the
    folder above, which stays ours.
    """
    for each in (*folder.rglob("*"), folder):
        os.chown(each, user.pw_uid, user.pw_gid, follow_symlinks=False)
    os.chown(folder.parent, -1, user.pw_gid)
    folder.parent.chmod(0o710)


def _environment(folder: Path, user: Optional[pwd.struct_passwd]) -> dict[str, str]:
    collections = collection_paths()
    # ansible-core's DEFAULT_ROLES_PATH.
    roles = [Path("/usr/share/ansible/roles"), Path("/etc/ansible/roles")]
    if user is not None:
        roles.insert(0, Path(user.pw_dir) / ".ansible/roles")
    else:
        # We must not execute what the engine's user, or others, may have written.
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


_MOST_BYTES = 1_000_000


class SettingsProblem(Problem):
    """The settings of the host preparation are invalid."""


def read_settings(
    path: str = SETTINGS, collection: Optional[Path] = None
) -> dict[str, Any]:
    """Return the variables in the file ``path``; none if it is missing or empty. With
    ``collection``, names that its role does not know are refused; its first task checks
    values. Raises SettingsProblem.
    """
    try:
        values = yaml.safe_load(read_file(path, _MOST_BYTES))
    except FileNotFoundError:
        return {}
    except (OSError, yaml.YAMLError, ValueError, RecursionError) as error:
        raise _invalid(path, _why(error)) from None
    if values is None:
        return {}
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise _invalid(path, "it is not a list of lines 'NAME: VALUE'")
    known = _known(collection)
    unknown = sorted(name for name in values if known and name not in known)
    if unknown:
        raise _invalid(path, f"the role has no variable {', '.join(unknown)}")
    return values


def _known(collection: Optional[Path]) -> set[str]:
    """Return the names of the role's variables; none if they cannot be read."""
    if collection is None:
        return set()
    specs = str(collection / "roles/prepare/meta/argument_specs.yml")
    try:
        # The engine's user may write there, and this may be root.
        text = read_file_of_others(str(collection), specs, _MOST_BYTES)
        return set(dict(yaml.safe_load(text)["argument_specs"]["main"]["options"]))
    except (OSError, yaml.YAMLError, RecursionError, KeyError, TypeError, ValueError):
        return set()


def _invalid(path: str, reason: str) -> SettingsProblem:
    return SettingsProblem(
        "host-deploy-settings-invalid",
        f"{path} is invalid: {reason}",
        "correct it; docs/host-deploy.md lists the variables",
    )


# A variable of the engine's host-deploy (InstallVdsInternalCommand.java:286-334).
_CLUSTER = re.compile(r"\{\{\s*host_deploy_cluster_name\s*\}\}")


def policy_of_engine(path: str = POLICY_YAML) -> dict[str, Any]:
    """Return the variable that sends this machine's policy, if there is one."""
    return {"ovirt_rdma_policy_file": path} if os.access(path, os.F_OK) else {}


def is_by_cluster(variables: Mapping[str, Any]) -> bool:
    """Whether the name of the policy file has the engine's variable for the cluster."""
    file = variables.get("ovirt_rdma_policy_file")
    return not variables.get("ovirt_rdma_policy") and bool(_CLUSTER.search(str(file)))


def of_cluster(variables: Mapping[str, Any], cluster: str) -> dict[str, Any]:
    """Return the ``variables`` for the hosts of the cluster with this name."""
    named = _CLUSTER.sub(lambda _: cluster, str(variables["ovirt_rdma_policy_file"]))
    return {**variables, "ovirt_rdma_policy_file": named}


def policy_of(variables: Mapping[str, Any]) -> Optional[Policy]:
    """Return the policy that the role's ``variables`` give to hosts; None: they keep
    theirs. Raises PolicyProblem, and SettingsProblem for a template or another type.
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
        if given and not isinstance(given, str):
            raise _invalid(SETTINGS, "ovirt_rdma_policy_file is not a file's name")
        return load_policy_file(given, alone=True).policy if given else None
    text = inline if isinstance(inline, str) else yaml.safe_dump(inline)
    return parse_policy(text, f"ovirt_rdma_policy of {SETTINGS}").policy


# Read and replace the engine's post-tasks file: atomic, locked, with a backup.

# AnsibleConstants.HOST_DEPLOY_POST_TASKS_FILE_PATH
POST_TASKS = "/etc/ovirt-engine/ansible/ovirt-host-deploy-post-tasks.yml"


class PostTasksFile:
    """The file at ``path``, maybe missing or a link, in the engine's folder. Raises
    PostTasksProblem if that is missing, or if the path is no regular file.
    """

    def __init__(self, path: str) -> None:
        self.named = Path(path)
        self.path = Path(os.path.realpath(path))
        self.backup = self.path.with_name(f"{self.path.name}.before-ovirt-rdma")
        try:
            odd = self.path.exists() and not self.path.is_file()
        except OSError as error:
            raise self._failed("read", error) from None
        # A link to /dev/null too: it would be replaced.
        if odd:
            raise PostTasksProblem(
                "post-tasks-no-file",
                f"{path} is not a regular file",
                "replace it by a file of tasks, or remove it",
            )
        if not is_folder(self.path.parent):
            raise PostTasksProblem(
                "post-tasks-no-engine",
                f"there is no folder {self.named.parent}: this is not an engine "
                "machine",
                "run this as root on the machine of the engine, or give --file",
            )

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Let no other run change the file. Raises LockHeld, PostTasksProblem."""
        try:
            descriptor = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise self._failed("open its folder", error) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        except BlockingIOError:
            raise LockHeld(
                "post-tasks-locked",
                f"another run of ovirt-rdma is changing {self.named}",
                "wait until it has ended, then run this command again",
            ) from None
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
        """Write ``after`` in place of ``before``, what :meth:`read` returned (None: no
        file), which is kept as the backup. Nothing is written if an editor was faster.
        Raises PostTasksProblem; then it is unchanged, unless the sentence says
        otherwise.
        """
        if self.read() != before:
            raise PostTasksProblem(
                "post-tasks-changed-meanwhile",
                f"{self.named} was changed by somebody else in this moment",
                "run the command again",
            )
        like = None if before is None else self.path
        try:
            if before is not None:
                write_atomically(self.backup, before, PUBLIC_MODE, like=like)
            if after is not None:
                write_atomically(self.path, after, PUBLIC_MODE, like=like)
            else:
                self.path.unlink(missing_ok=True)
                sync_change(self.path.parent)
        except OSError as error:
            raise self._failed("write", error) from error

    def _failed(self, doing: str, error: OSError) -> PostTasksProblem:
        fix = fix_for(error, self.path)
        if error.errno == errno.EFBIG:
            fix = "move the tasks to files of their own, and include them"
        return PostTasksProblem(
            "post-tasks-not-accessible",
            f"cannot {doing} {self.named}: {error.strerror or error}",
            fix,
        )


def block_problem() -> Optional[Problem]:
    """Return why a reinstall would not run the role; known on the engine only."""
    if not is_folder(Path(POST_TASKS).parent):
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
