# SPDX-License-Identifier: GPL-2.0-or-later
"""Define the state of the daemon as data, and keep it in /run/ovirt-rdma/daemon.json.

The daemon writes the file at each turn of its loop; ``daemon status`` reads it. A file
whose process has ended says nothing. Times are in seconds after boot, which setting the
clock does not change.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Optional, Union

from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.paths import DAEMON_JSON, under
from ovirt_rdma.host.system.files import not_written, write_atomically
from ovirt_rdma.host.system.json_codec import Records, plain
from ovirt_rdma.host.system.json_document import (
    Envelope,
    WrongRecord,
    read_json,
)
from ovirt_rdma.host.system.safe_file import read_file
from ovirt_rdma.host.system.tree import seconds_after_boot, start_of

# The last run of a task: it cannot be ended; it raised an error, or was ended at its
# deadline; it found a problem; all is well.
HANGS, FAILED, PROBLEM, OK = "hangs", "failed", "problem", "ok"
# There was no run yet; the policy does not want the task.
WAITS, OFF = "waits", "off"
# Problems first, as they are shown.
STATES = (HANGS, FAILED, PROBLEM, WAITS, OK, OFF)
BAD = (HANGS, FAILED, PROBLEM)

DAEMON = Envelope("daemon-state")
_records = Records("the daemon's state")
_FILE_MODE = 0o644


@dataclass(frozen=True)
class TaskState:
    """A task of the daemon.

    - ``state``: one of STATES; ``sentence``: the result of the last run, or why there
      is none
    - ``problems``: sentences about what is wrong
    - ``began_s``: when the last run began; None if there was none
    - ``took_s``: how long it took; None while it is running
    - ``due_s``: when the next one is due; None: with another policy only
    """

    name: str
    state: str = WAITS
    sentence: str = ""
    problems: tuple[str, ...] = ()
    began_s: Optional[float] = None
    took_s: Optional[float] = None
    due_s: Optional[float] = None


@dataclass(frozen=True)
class DaemonState:
    """The daemon: its process with its start in clock ticks after boot, the digest of
    the policy that it follows (None: there is none), what is wrong with the policy's
    file, and its tasks.
    """

    pid: int
    start: int
    policy: Optional[str]
    policy_problem: str
    tasks: tuple[TaskState, ...]

    @property
    def worst_first(self) -> list[TaskState]:
        """The tasks, problems first."""
        return sorted(self.tasks, key=lambda task: STATES.index(task.state))


def seconds_since_start() -> float:
    """Return the age of this process: systemd counts from there."""
    started = start_of(os.getpid()) or 0
    return seconds_after_boot() - started / os.sysconf("SC_CLK_TCK")


def write_daemon(root: Union[str, Path], state: DaemonState) -> None:
    """Write the state below ``root``. Raises Problem if that is not possible."""
    path = under(root, DAEMON_JSON)
    try:
        if not path.parent.is_dir():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.parent.chmod(0o755)
        write_atomically(path, DAEMON.text(plain(state)).encode("ascii"), _FILE_MODE)
    except OSError as error:
        raise not_written(error, path) from error


def read_daemon(root: Union[str, Path] = "/") -> Optional[DaemonState]:
    """Return the state below ``root``; None if the daemon is not running. Raises
    Problem if the file cannot be used.
    """
    path = under(root, DAEMON_JSON)
    if not path.exists():
        return None
    try:
        state = _records.read(DaemonState, DAEMON.content(read_json(path, read_file)))
    except WrongRecord as error:
        raise Problem(
            "daemon-state-invalid",
            f"{path}: {error}",
            "systemctl restart ovirt-rdmad.service",
        ) from error
    return state if start_of(state.pid) == state.start else None
