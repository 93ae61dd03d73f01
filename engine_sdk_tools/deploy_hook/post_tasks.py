# SPDX-License-Identifier: GPL-2.0-or-later
"""Read and replace the engine's file of post-tasks, and the settings of the role.

Mode, owner, access control list and SELinux label stay as they are, and a symbolic link
stays a link. A second run at the same time gets exit code 75.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional

from ovirt_rdma.engine_sdk_tools.deploy_hook.block import (
    COLLECTION,
    INSTALLED,
    SETTINGS,
    PostTasksProblem,
    find,
)
from ovirt_rdma.engine_sdk_tools.hosts.ansible_run import collection_folder
from ovirt_rdma.engine_sdk_tools.model import ChecksFailed
from ovirt_rdma.host.errors import Problem, Sentence
from ovirt_rdma.host.paths import POLICY_YAML
from ovirt_rdma.host.policy.load import load_policy_file, parse_policy
from ovirt_rdma.host.policy.model import Policy
from ovirt_rdma.host.system.files import fix_for, remove_unfinished, sync_directory
from ovirt_rdma.host.system.lazy import LazyModule
from ovirt_rdma.host.system.lock import LockHeld
from ovirt_rdma.host.system.safe_file import read_file, read_file_of_others

if TYPE_CHECKING:
    import yaml
else:
    yaml = LazyModule("yaml")

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
    for name, value in values.items():
        if known and name not in known:
            raise _invalid(path, f"the role has no variable {name}")
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
                    shutil.copystat(self.path, name)
                    os.utime(name)
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
