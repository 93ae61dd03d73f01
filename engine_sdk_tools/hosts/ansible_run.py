# SPDX-License-Identifier: GPL-2.0-or-later
"""Run a playbook on many hosts with the command ansible-runner, and find our Ansible
collection on this machine, as the engine finds it.

Only the user of the command can read the folder of the run. Folder and processes are
removed at the end. The operator's ANSIBLE_* variables and ansible.cfg have no effect.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pwd
import select
import shutil
import signal
import stat
import subprocess
import sysconfig
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, NamedTuple, Optional

from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.system.commands import MOST_BYTES

# The user of ovirt-engine.service, which runs Ansible.
ENGINE_USER = "ovirt"
_COLLECTION = "ansible_collections/ovirt_rdma/host"
_SYSTEM = "/usr/share/ansible/collections"
# More folders, by colon; for tests and developers.
_MORE = "OVIRT_RDMA_COLLECTIONS"


def collection_paths() -> list[Path]:
    """Return the folders in which the engine's user finds collections (the default of
    ansible-core's COLLECTIONS_PATHS; the engine sets no other).
    """
    more = [Path(path) for path in os.environ.get(_MORE, "").split(":") if path]
    try:
        home = Path(pwd.getpwnam(ENGINE_USER).pw_dir)
        more.append(home / ".ansible/collections")
    except KeyError:
        pass
    return [*more, Path(_SYSTEM)]


def collection_folder() -> Optional[Path]:
    """Return the folder of our collection, None if there is none."""
    return _first(collection_paths())


def trusted_collections() -> list[Path]:
    """Return the folders of :func:`collection_paths` from which this user may run
    something: the engine's user must not become root through what root runs. Raises
    Problem if our collection is in none of them.
    """
    paths = [path for path in collection_paths() if is_trusted(path)]
    found = collection_folder()
    if found is None:
        raise Problem(
            "collection-missing",
            "the collection ovirt_rdma.host is not installed on this machine",
            "dnf install ovirt-rdma-engine",
        )
    if _first(paths) is None:
        raise Problem(
            "collection-not-trusted",
            f"the collection in {found} is not used, because others can change it, "
            "and this user would run what they have written",
            f"install it below {_SYSTEM}: dnf install ovirt-rdma-engine",
        )
    return paths


def _first(paths: Iterable[Path]) -> Optional[Path]:
    folders = (path / _COLLECTION for path in paths)
    return next(filter(is_folder, folders), None)


def is_folder(path: Path) -> bool:
    """Whether ``path`` is a folder that this user can look at."""
    # Path.is_dir raises for a folder of others, and for a long name.
    return os.path.isdir(path)  # noqa: PTH112


def is_trusted(path: Path) -> bool:
    """Whether only root and this user can change the folder or file ``path``, and can
    put another one there: by owner and mode of it and of what leads to it.
    """
    try:
        absolute = path.absolute()  # fails if the current folder is removed
        absolute.stat()  # fails for a link to itself, or to nothing
        for each in [*reversed(absolute.parents), absolute]:
            status = each.lstat()
            if status.st_uid not in (0, os.geteuid()):
                return False
            if stat.S_ISLNK(status.st_mode):
                rest = absolute.relative_to(each)
                return is_trusted(each.parent / each.readlink() / rest)
            # In a sticky folder nobody replaces what another user has made.
            sticky = each != absolute and status.st_mode & stat.S_ISVTX
            if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not sticky:
                return False
    except OSError:
        return False
    return True


# Of folders in $TMPDIR: the prefix of their names, and what is in each.
_PREFIX = "ovirt-rdma-"
_MARK, _INSIDE = ".run-of-ovirt-rdma", "run"
PLAYBOOKS = Path(__file__).parents[1] / "playbooks"
# ssh.sh limits the output of ssh to this many bytes. The packed answers of the largest
# host of bench/large_host.py have 20 kB, a policy has at most 80 kB.
_SSH = PLAYBOOKS / "ssh.sh"
MOST_SENT = 1_000_000
# ansible-runner drops longer results (display_callback/callback/awx_display.py); its
# default is 700,000 characters. A result has the output twice, and a byte may become
# four characters.
_MOST_RESULT = 10 * MOST_SENT

# Of what Ansible says beside the events, these lines and bytes are kept for the reason.
_LAST_LINES, _LAST_BYTES = 100, 64 << 10
_PIPE_BYTES = 64 << 10  # what Linux keeps in a pipe (pipe(7))

# Do not wait longer for a killed process that is blocked in the kernel.
_MOST_LOOKS = 250
_BETWEEN_LOOKS_S = 0.02

OK = "ok"
FAILED = "failed"
UNREACHABLE = "unreachable"
# The whole run was over its limit, and was ended.
LATE = "late"
_EVENTS = {
    "runner_on_ok": OK,
    "runner_on_failed": FAILED,
    "runner_on_unreachable": UNREACHABLE,
}
# The variables of our environment that Ansible and ssh need.
_PASSED_ON = ("HOME", "USER", "LOGNAME", "SSH_AUTH_SOCK", "TMPDIR", "TZ")
_CONFIGURATION = """\
[defaults]
inventory = inventory
transport = ssh
nocows = True
retry_files_enabled = False
[ssh_connection]
# Modules go through ssh alone: sshd may have no sftp.
pipelining = True
transfer_method = piped
"""
# For the start of Ansible, and its other work.
_START_S = 60.0
# ansible-runner checks for a signal every second (pexpect_timeout below).
_STOPPING_S = 10.0


@dataclass(frozen=True)
class AnsibleRun:
    """A run: ``script`` for /bin/sh, ``inventory`` by alias, ``files`` by name for its
    folder. ``limit_s`` is the timeout of one host in seconds, ``forks`` how many run in
    parallel. ``playbook`` is one of ours, with ``variables``, and ``collections`` to
    search.
    """

    script: str
    inventory: Mapping[str, Any]
    files: Mapping[str, str]
    forks: int = 20
    limit_s: float = 180.0
    playbook: str = "ask_hosts.yml"
    variables: Mapping[str, Any] = field(default_factory=dict)
    collections: tuple[str, ...] = ()

    @property
    def whole_limit_s(self) -> float:
        """The timeout of the whole run, in seconds."""
        rounds = -(-len(self.inventory["all"]["hosts"]) // self.forks)
        return _START_S + rounds * (self.limit_s + 10)


class HostOutcome(NamedTuple):
    """The result of a task on a host: OK with its stdout, FAILED or UNREACHABLE with a
    message; or LATE. ``result`` is all of it, ``action`` the module; ``ignored`` by the
    play.
    """

    alias: str
    kind: str
    text: str
    result: Mapping[str, Any] = MappingProxyType({})
    task: str = ""
    action: str = ""
    ignored: bool = False

    @classmethod
    def of(cls, event: Mapping[str, Any]) -> Optional[HostOutcome]:
        """Return an event's outcome, None without. Raises KeyError, TypeError."""
        kind = _EVENTS.get(event["event"])
        if kind is None:
            return None
        data = event["event_data"]
        result = dict(data["res"])
        # With the output of script or module, if there is any.
        keys = ("msg", "stderr", "stdout", "module_stdout", "module_stderr")
        texts = [str(result[key]) for key in keys if result.get(key)]
        return cls(
            str(data["host"]),
            kind,
            str(result.get("stdout", "")) if kind == OK else "\n".join(texts),
            result,
            str(data.get("task") or ""),
            str(data.get("task_action") or ""),
            data.get("ignore_errors") is True,
        )


class AnsibleProblem(Problem):
    """Ansible could not be run."""


@contextlib.contextmanager
def private_folder() -> Iterator[str]:
    """Make a folder of mode 0700 that is deleted at the end, with the processes whose
    ANSIBLE_CONFIG is in it. First, remove folders and processes that killed runs of
    this user have left.

    The folder above it is locked as long as the process lives, and gets its mark after
    the lock and loses it last. So one with the mark and without a lock is of a run that
    was killed; any other is left alone.
    """
    for left in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        # Path.is_file raises as Path.is_dir, and others may link what they like.
        marked = os.path.isfile(left / _MARK)  # noqa: PTH113
        if marked and (lock := _locked(left)) >= 0:
            _remove(left, lock)
    top = Path(tempfile.mkdtemp(prefix=_PREFIX))
    lock = -1
    try:
        lock = _locked(top)
        if lock >= 0:
            (top / _MARK).touch()
        folder = top / _INSIDE
        folder.mkdir(mode=0o700)
        yield str(folder)
    finally:
        _remove(top, lock)


def _locked(folder: Path) -> int:
    """Lock a folder of ours; return its descriptor, -1 if others have or own it."""
    descriptor = -1
    with contextlib.suppress(OSError):
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
        descriptor = os.open(folder, flags)
        if os.fstat(descriptor).st_uid == os.geteuid():
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
    if descriptor >= 0:
        os.close(descriptor)
    return -1


def _remove(top: Path, lock: int) -> None:
    _end_processes(top / _INSIDE)
    shutil.rmtree(top / _INSIDE, ignore_errors=True)
    shutil.rmtree(top, ignore_errors=True)
    if lock >= 0:
        os.close(lock)


def run_order(
    order: AnsibleRun, folder: str, path: Optional[str] = None
) -> Iterator[HostOutcome]:
    """Carry out ``order`` in ``folder``, and yield results of tasks as they come; after
    the timeout, one of the kind LATE for each host, with the seconds, ``after_s``.
    Raises AnsibleProblem if Ansible could not be run.
    """
    path = path or search_path()
    found = {}
    # The command needs both; an engine has them.
    for name, package in (("runner", "ansible-runner"), ("playbook", "ansible-core")):
        found[name] = shutil.which(f"ansible-{name}", path=path)
        if found[name] is None:
            raise AnsibleProblem(
                "ansible-missing",
                f"ansible-{name} is not installed on this machine; hosts cannot be "
                "asked",
                f"install the package {package} (an engine has it), or use dumps with "
                "--facts-dir",
            )
    runner = str(found["runner"])
    arguments = [runner, "run", folder, "--json", "--forks", str(order.forks)]
    arguments += ["--project-dir", str(PLAYBOOKS), "--playbook", order.playbook]
    top = Path(folder)
    _prepare(order, top)
    late = threading.Event()

    def too_late(process: subprocess.Popen[bytes]) -> None:
        late.set()
        _stop(process, top)

    any_result = False
    other: deque[str] = deque(maxlen=_LAST_LINES)
    # A signal may arrive between any two lines: stop what has been started by then.
    process: Optional[subprocess.Popen[bytes]] = None
    end: Optional[threading.Timer] = None
    with (top / "messages").open("w+b") as messages:
        try:
            process = subprocess.Popen(
                arguments,
                env=_environment(order, top, path),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=messages,
                bufsize=0,
                start_new_session=True,
            )
            end = threading.Timer(order.whole_limit_s, too_late, (process,))
            end.daemon = True
            end.start()
            for outcome in _outcomes(process, other):
                any_result = True
                yield outcome
            status = process.wait()
        finally:
            if end is not None:
                end.cancel()
            if process is not None:
                _stop(process, top)
        if late.is_set():
            after = {"after_s": order.whole_limit_s}
            for alias in order.inventory["all"]["hosts"]:
                yield HostOutcome(alias, LATE, "no answer", after)
        elif status and not any_result:
            messages.seek(max(0, messages.seek(0, os.SEEK_END) - _LAST_BYTES))
            lines = messages.read().decode("utf-8", "replace").splitlines()
            raise AnsibleProblem(
                "ansible-failed",
                f"{Path(arguments[0]).name} failed with exit status {status}: "
                f"{_last(lines, other)}",
                "try it by hand: ansible --version; ansible-runner --version",
            )


def search_path() -> str:
    """Return the search path for commands: PATH, then the folder of our own command."""
    # sudo and cron omit /usr/sbin, or a virtual environment.
    folders = [os.environ.get("PATH", ""), sysconfig.get_path("scripts")]
    return ":".join([*filter(None, folders), "/usr/bin", "/bin", "/usr/sbin"])


def _prepare(order: AnsibleRun, top: Path) -> None:
    for name in ("env", "inventory", "tmp"):
        (top / name).mkdir()
    script = top / "script.sh"
    settings = {"pexpect_timeout": 1, "job_timeout": int(order.whole_limit_s) + 30}
    variables = {
        "ovirt_rdma_script": str(script),
        "ovirt_rdma_limit_s": order.limit_s,
        **order.variables,
    }
    contents = {
        "script.sh": order.script,
        "ansible.cfg": _CONFIGURATION,
        "env/settings": json.dumps(settings),
        "env/extravars": json.dumps(variables),
        "inventory/hosts.json": json.dumps(order.inventory),
        **order.files,
    }
    for name, content in contents.items():
        (top / name).write_text(content, encoding="utf-8")


def _environment(order: AnsibleRun, top: Path, path: str) -> dict[str, str]:
    passed = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    # If a copy has lost its execute permission, use plain ssh, without the limit.
    bounded = {"ANSIBLE_SSH_EXECUTABLE": str(_SSH)} if os.access(_SSH, os.X_OK) else {}
    return {
        **passed,
        **bounded,
        "OVIRT_RDMA_MOST_SENT": str(MOST_SENT),
        "MAX_EVENT_RES": str(_MOST_RESULT),
        "PATH": path,
        "LC_ALL": "C.UTF-8",
        "ANSIBLE_CONFIG": str(top / "ansible.cfg"),
        "ANSIBLE_COLLECTIONS_PATH": ":".join(order.collections) or str(top / "home"),
        "ANSIBLE_HOME": str(top / "home"),
        "ANSIBLE_LOCAL_TEMP": str(top / "tmp"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def _outcomes(
    process: subprocess.Popen[bytes], other: deque[str]
) -> Iterator[HostOutcome]:
    """Yield the results of hosts; lines that are no events go to ``other``."""
    assert process.stdout is not None  # noqa: S101  (PIPE, above)
    for line in _lines(process.stdout):
        try:
            event = json.loads(line)
            outcome = HostOutcome.of(event)
            if event["event"] in ("verbose", "error"):
                other.append(str(event.get("stdout", ""))[-_LAST_BYTES:])
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            other.append(line[-_LAST_BYTES:].decode("utf-8", "replace"))
        else:
            if outcome is not None:
                yield outcome


def _lines(pipe: IO[bytes]) -> Iterator[bytearray]:
    """Yield the lines of an unbuffered pipe; a longer one than MOST_BYTES in parts.

    It waits a second at a time: a signal that comes just before a read blocks is
    handled only when the read returns.
    """
    rest = bytearray()
    # Not select(2): a program that calls us may have more than 1024 files open.
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    while True:
        if not poll.poll(1000):
            continue
        data = pipe.read(_PIPE_BYTES)
        begun, *lines = data.split(b"\n")
        rest += begun
        for line in lines:
            yield rest
            rest = bytearray(line)
        if not data or len(rest) > MOST_BYTES:
            yield rest
            rest = bytearray()
        if not data:
            return


def _stop(process: subprocess.Popen[bytes], top: Path) -> None:
    """Stop ansible-runner and the other processes of its run: ssh survives the timeout
    of a task, and Ansible survives the runner, in sessions of their own.
    """
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_STOPPING_S)
    _end_processes(top)
    process.kill()
    process.wait()


def _end_processes(top: Path) -> None:
    """Kill the processes of a run, until none is found twice in a row: a new one may
    start in between, and a program that is being loaded has no environment yet.
    """
    looks_without = 0
    for _ in range(_MOST_LOOKS):
        pids = _processes_of(top)
        for pid in pids:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        looks_without = 0 if pids else looks_without + 1
        if looks_without == 2:
            return
        time.sleep(_BETWEEN_LOOKS_S)


def _processes_of(top: Path) -> list[int]:
    """Return the processes that have this run's environment."""
    ours = f"ANSIBLE_CONFIG={top / 'ansible.cfg'}".encode()
    pids = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if ours in environ.read_bytes().split(b"\0"):
                pids.append(int(environ.parent.name))
    return pids


def _last(*texts: Iterable[str]) -> str:
    for text in texts:
        lines = [line.strip() for line in text if line.strip()]
        if lines:
            return lines[-1].rstrip(": ")  # Ansible announces what is not there
    return "it printed nothing"
