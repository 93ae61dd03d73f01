# SPDX-License-Identifier: GPL-2.0-or-later
"""One run of a script on many hosts, by ansible-runner, as a command.

Its folder is root's (or the operator's) alone and is gone afterwards; so are its
processes. No ANSIBLE_* variable and no ansible.cfg of the operator's takes part.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sysconfig
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, NamedTuple, Optional

from ovirt_rdma.host.errors import Problem

# Of folders in $TMPDIR.
_PREFIX = "ovirt-rdma-"
PLAYBOOKS = Path(__file__).parents[1] / "playbooks"
# ssh, of whose output so many bytes come through (ssh.sh). The packed answers of the
# largest host of bench/large_host.py have 20 kB, a policy 80 kB at most.
_SSH = PLAYBOOKS / "ssh.sh"
MOST_SENT = 1_000_000
# A longer result ansible-runner would drop (display_callback/callback/awx_display.py),
# by default one of 700,000 characters; they have the output twice, and a byte may be
# four characters.
_MOST_RESULT = 10 * MOST_SENT

# A killed process that the kernel holds is not waited for longer.
_MOST_LOOKS = 250
_BETWEEN_LOOKS_S = 0.02

OK = "ok"
FAILED = "failed"
UNREACHABLE = "unreachable"
_EVENTS = {
    "runner_on_ok": OK,
    "runner_on_failed": FAILED,
    "runner_on_unreachable": UNREACHABLE,
}
# What of our environment Ansible and ssh need.
_PASSED_ON = ("HOME", "USER", "LOGNAME", "SSH_AUTH_SOCK", "TMPDIR", "TZ")
_CONFIGURATION = """\
[defaults]
inventory = inventory
transport = ssh
nocows = True
retry_files_enabled = False
"""
# For Ansible to start, and for what it does besides.
_START_S = 60.0
# ansible-runner looks for a signal at least each second (pexpect_timeout below).
_STOPPING_S = 10.0


@dataclass(frozen=True)
class Order:
    """A run. ``script`` is for /bin/sh; ``inventory`` has its hosts, by alias.

    ``files`` are written beside the inventory, by name. ``limit_s`` is what a host may
    take, ``forks`` how many are asked at once.
    """

    script: str
    inventory: Mapping[str, Any]
    files: Mapping[str, str]
    forks: int = 20
    limit_s: float = 180.0

    @property
    def whole_limit_s(self) -> float:
        """The seconds after which the run is ended, hosts or not."""
        rounds = -(-len(self.inventory["all"]["hosts"]) // self.forks)
        return _START_S + rounds * (self.limit_s + 10)


class Happened(NamedTuple):
    """What a host did: OK with the script's stdout, else FAILED or UNREACHABLE with
    what Ansible says of it.
    """

    alias: str
    kind: str
    text: str


# What carries out an order: :func:`run_order`, or a test's double.
Run = Callable[[Order], Iterator[Happened]]


class AnsibleProblem(Problem):
    """Ansible could not be run at all."""


@contextlib.contextmanager
def private_folder() -> Iterator[str]:
    """Make a folder of mode 0700 that is deleted at the end. What runs of this user
    that were killed have left, folders and processes, goes first.

    A run at work holds a lock on its folder, which ends with its process, however that
    ends.
    """
    for left in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        _tidy_up(left)
    folder = tempfile.mkdtemp(prefix=_PREFIX)
    lock = -1
    try:
        lock = _locked(Path(folder))
        yield folder
    finally:
        _end_processes(Path(folder))
        shutil.rmtree(folder, ignore_errors=True)
        if lock >= 0:
            os.close(lock)


def _locked(folder: Path) -> int:
    """Return a descriptor with the lock of a folder of ours; -1 where another process
    has it, and where it is somebody else's.
    """
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


def _tidy_up(left: Path) -> None:
    # A run writes this once it has the lock; other folders with such a name have none.
    if not os.access(left / "ansible.cfg", os.F_OK) or (lock := _locked(left)) < 0:
        return
    try:
        _end_processes(left)
        shutil.rmtree(left, ignore_errors=True)
    finally:
        os.close(lock)


def run_order(
    order: Order, folder: str, path: Optional[str] = None
) -> Iterator[Happened]:
    """Carry out ``order`` in ``folder``, and yield what each host did as it is done.

    ``path`` is where commands are looked for. A host of which nothing comes did not
    answer in time. Raises AnsibleProblem where nothing could be run.
    """
    path = path or search_path()
    command = shutil.which("ansible-runner", path=path)
    if command is None or shutil.which("ansible-playbook", path=path) is None:
        missing = "ansible-playbook" if command else "ansible-runner"
        raise AnsibleProblem(
            "ansible-missing",
            f"{missing} is not on this machine, hosts cannot be asked",
            "install the packages ansible-core and ansible-runner (an engine has "
            "both), or use dumps: --facts-dir FOLDER",
        )
    top = Path(folder)
    _prepare(order, top)
    words = [command, "run", folder, "--json", "--forks", str(order.forks)]
    words += ["--project-dir", str(PLAYBOOKS), "--playbook", "ask_hosts.yml"]
    late = threading.Event()
    any_came = False
    other: list[str] = []
    # A signal may come between any two lines: what has begun by then is ended.
    process: Optional[subprocess.Popen[bytes]] = None
    end: Optional[threading.Timer] = None
    with (top / "messages").open("w+b") as messages:
        try:
            process = subprocess.Popen(
                words,
                env=_environment(top, path),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=messages,
                start_new_session=True,
            )
            end = threading.Timer(order.whole_limit_s, _too_late, (process, late, top))
            end.daemon = True
            end.start()
            for happened in _events(process, other):
                any_came = True
                yield happened
            status = process.wait()
        finally:
            if end is not None:
                end.cancel()
            if process is not None:
                _stop(process, top)
        if status and not any_came and not late.is_set():
            messages.seek(0)
            said = messages.read().decode("utf-8", "replace").splitlines()
            raise AnsibleProblem(
                "ansible-failed",
                f"ansible-runner ended with exit status {status}: {_last(said, other)}",
                "try it by hand: ansible-runner --version; ansible --version",
            )


def search_path() -> str:
    """Return where commands are looked for: PATH, then where our own command is."""
    # sudo and cron leave out /usr/sbin, or a virtual environment.
    folders = [os.environ.get("PATH", ""), sysconfig.get_path("scripts")]
    return ":".join([*filter(None, folders), "/usr/bin", "/bin", "/usr/sbin"])


def _prepare(order: Order, top: Path) -> None:
    for name in ("env", "inventory", "tmp"):
        (top / name).mkdir()
    script = top / "script.sh"
    settings = {"pexpect_timeout": 1, "job_timeout": int(order.whole_limit_s) + 30}
    variables = {"ovirt_rdma_script": str(script), "ovirt_rdma_limit_s": order.limit_s}
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


def _environment(top: Path, path: str) -> dict[str, str]:
    passed = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    # A copy that lost its mode is passed over: then there is no limit.
    bounded = {"ANSIBLE_SSH_EXECUTABLE": str(_SSH)} if os.access(_SSH, os.X_OK) else {}
    return {
        **passed,
        **bounded,
        "OVIRT_RDMA_MOST_SENT": str(MOST_SENT),
        "MAX_EVENT_RES": str(_MOST_RESULT),
        "PATH": path,
        "LC_ALL": "C.UTF-8",
        "ANSIBLE_CONFIG": str(top / "ansible.cfg"),
        "ANSIBLE_HOME": str(top / "home"),
        "ANSIBLE_LOCAL_TEMP": str(top / "tmp"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def _events(process: subprocess.Popen[bytes], other: list[str]) -> Iterator[Happened]:
    """Yield what hosts did; lines that are no event go to ``other``."""
    assert process.stdout is not None  # noqa: S101  (PIPE, above)
    for line in process.stdout:
        try:
            event = json.loads(line)
            kind = _EVENTS.get(event["event"])
            if kind is None:
                if event["event"] == "verbose":
                    other.append(str(event.get("stdout", "")))
                continue
            data = event["event_data"]
            result = data["res"]
            if kind == OK:
                text = result.get("stdout", "")
            else:
                # The script's own last words, where it had any.
                text = "\n".join(
                    str(result[key])
                    for key in ("msg", "stderr", "stdout")
                    if result.get(key)
                )
            yield Happened(str(data["host"]), kind, str(text))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            other.append(line.decode("utf-8", "replace"))


def _too_late(
    process: subprocess.Popen[bytes], late: threading.Event, top: Path
) -> None:
    late.set()
    _stop(process, top)


def _stop(process: subprocess.Popen[bytes], top: Path) -> None:
    """End ansible-runner, and what of its run is left: ssh outlives a task's limit,
    and Ansible its runner, in sessions of their own.
    """
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_STOPPING_S)
    _end_processes(top)
    process.kill()
    process.wait()


def _end_processes(top: Path) -> None:
    """Kill the processes of a run, until none is found twice: one may have been started
    meanwhile, and while a program is being loaded it has no environment.
    """
    looks_without = 0
    for _ in range(_MOST_LOOKS):
        found = _processes_of(top)
        for pid in found:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        looks_without = 0 if found else looks_without + 1
        if looks_without == 2:
            return
        time.sleep(_BETWEEN_LOOKS_S)


def _processes_of(top: Path) -> list[int]:
    """Return the processes that have this run's environment."""
    ours = f"ANSIBLE_CONFIG={top / 'ansible.cfg'}".encode()
    found = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if ours in environ.read_bytes().split(b"\0"):
                found.append(int(environ.parent.name))
    return found


def _last(*texts: list[str]) -> str:
    for text in texts:
        lines = [line.strip() for line in text if line.strip()]
        if lines:
            return lines[-1]
    return "it said nothing"
