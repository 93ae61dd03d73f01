# SPDX-License-Identifier: GPL-2.0-or-later
"""Read a host's metrics, and write them for the textfile collector of node_exporter.

Only files are read, and no server is asked: nothing here waits for a mount.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Optional

from ovirt_rdma.host.collect.collector import HostReader
from ovirt_rdma.host.collect.statistics import read_statistics
from ovirt_rdma.host.daemon.loop import Result, Task, Turn
from ovirt_rdma.host.daemon.versions import read_versions
from ovirt_rdma.host.enablement.state import marker_mode
from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.paths import METRICS_JSON, POLICY_JSON, under
from ovirt_rdma.host.policy import store
from ovirt_rdma.host.policy.model import Policy
from ovirt_rdma.host.system.files import write_atomically
from ovirt_rdma.host.system.json_codec import Records, json_value, plain
from ovirt_rdma.host.system.tree import FileTree
from ovirt_rdma.storage.health.state import read_state
from ovirt_rdma.storage.metrics.families import PORT_COUNTERS
from ovirt_rdma.storage.metrics.rows import (
    ACTIVE,
    MOST_PORTS,
    Reading,
    Row,
    render,
    rows_of,
)
from ovirt_rdma.storage.mounts import review_all

EXPORT_S = 15.0
# The collector reads files that end in .prom (node_exporter, collector/textfile.go).
FILE = "ovirt_rdma.prom"
# Read by the user of node_exporter.
_FILE_MODE = 0o644
_DRAFT, _DRAFT_END = ".ovirt_rdma.", ".draft"
_DEVICES = "/sys/class/infiniband"


class Metrics(NamedTuple):
    """The metrics of one run; ``folder``: where the policy wants them, None: nowhere;
    ``problems`` says what could not be read, ``active`` are the ports that have been
    ACTIVE since the boot, as ``DEVICE/PORT``.
    """

    rows: list[Row]
    folder: Optional[str]
    problems: list[str]
    active: list[str]


def read_metrics(root: str = "/") -> Metrics:
    """Return the metrics of the host below ``root``. Asks no tool; never raises."""
    started = time.monotonic()
    tree = FileTree(root)
    statistics = read_statistics(tree, counters=PORT_COUNTERS)
    problems = [*statistics.problems]
    in_force = store.in_force(under(root, POLICY_JSON))
    if in_force.problem is not None:
        problems.append(f"{in_force.problem.one_line}; {in_force.consequence}")
    policy = in_force.stored.policy if in_force.stored else Policy()
    facts = HostReader(root).mount_facts(problems, cm_ids=False)
    # Whom a mount shares its connection with is no metric.
    reviews = review_all(facts, policy, sharing=False)
    health = read_state(root, problems)
    states = {
        (port.device, port.port): word
        for port in statistics.ports[:MOST_PORTS]
        for word in [_state(tree, port.device, port.port)]
        if word
    }
    active = {f"{name}/{n}" for (name, n), word in states.items() if word == ACTIVE}
    active.update(_last(tree).active)
    reading = Reading(
        statistics,
        port_states=states,
        were_active=active,
        reviews=reviews,
        policy=in_force,
        health=health,
        versions=read_versions(root, problems, whole=False),
        now=time.time(),
        took_s=time.monotonic() - started,
        problems=problems,
    )
    rows, left_out = rows_of(reading)
    problems = [*dict.fromkeys(problems), *left_out]
    return Metrics(rows, policy.host.metrics_folder, problems, sorted(active))


def _state(tree: FileTree, device: str, port: int) -> str:
    """Return ``ACTIVE`` for ``4: ACTIVE``; "" if there is no such port."""
    text = tree.text(f"{_DEVICES}/{device}/ports/{port}/state")
    return (text or "").rpartition(":")[2].strip()


def write_metrics(folder: str, text: str) -> None:
    """Write FILE in ``folder``, as a whole: node_exporter sees the old text or the new.

    Nothing is synced to disk: the next run writes it again. Raises Problem if the
    folder is missing or cannot be written to.
    """
    draft = f"{_DRAFT}{os.getpid()}{_DRAFT_END}"
    try:
        with _opened(folder) as place:
            _remove_left_over(place)
            descriptor = os.open(
                draft,
                os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW,
                0o600,
                dir_fd=place,
            )
            try:
                with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
                    os.fchmod(descriptor, _FILE_MODE)
                    stream.write(text)
                os.replace(draft, FILE, src_dir_fd=place, dst_dir_fd=place)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(draft, dir_fd=place)
                raise
    except FileNotFoundError as error:
        raise Problem(
            "metrics-folder-missing",
            f"{folder}, the folder for the metrics, does not exist",
            "install node_exporter, or name the folder that its option "
            "--collector.textfile.directory has",
        ) from error
    except OSError as error:
        raise Problem(
            "metrics-not-written",
            f"{folder}/{FILE} cannot be written: {error.strerror}",
            f"run this command as root, and check {folder}, which must be no link",
        ) from error


@contextlib.contextmanager
def _opened(folder: str) -> Iterator[int]:
    """Yield a descriptor of a folder. It may belong to node_exporter's user, and that
    above it too: no link is followed, and all is done in what was opened.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _remove_left_over(place: int) -> None:
    """Remove drafts of runs that were killed."""
    for name in os.listdir(place):
        pid = name[len(_DRAFT) : -len(_DRAFT_END)]
        if name != f"{_DRAFT}{pid}{_DRAFT_END}" or not pid.isdecimal():
            continue
        if not os.path.lexists(f"/proc/{pid}"):
            os.unlink(name, dir_fd=place)


class Export(Task):
    """Writes the metrics of the host below ``root`` into the folder of its policy.

    If the policy has no folder, or another one now, the file that was written before is
    removed.
    """

    name = "metrics"
    # A device whose firmware hangs can delay the read of its counters.
    deadline_s = 30.0
    # node_exporter would show the file of the boot before.
    is_early = True
    off = "the policy has no metrics_folder"

    def __init__(self, root: str) -> None:
        self._root = root

    def interval(self, policy: Policy) -> Optional[float]:
        """As :meth:`Task.interval`."""
        return None if policy.host.metrics_folder is None else EXPORT_S

    def run(self, turn: Turn) -> Result:
        """Write the metrics. Raises Problem as :func:`write_metrics`."""
        return export(self._root)

    def end(self) -> None:
        """As :meth:`Task.end`: node_exporter would show the last values for ever."""
        tree = FileTree(self._root)
        folder = _last(tree).file
        if folder and marker_mode(Path(self._root)) is None:
            _remove(tree, folder)


def export(root: str) -> Result:
    """Write the metrics of the host below ``root`` into the folder of its policy, or
    remove the file that was written before. Raises Problem as :func:`write_metrics`.
    """
    tree = FileTree(root)
    before, metrics = _last(tree), read_metrics(root)
    folder = metrics.folder
    result = Result(Export.off)
    if folder is not None:
        write_metrics(tree.below(folder), render(metrics.rows))
        result = Result(f"{folder}/{FILE} is written", tuple(metrics.problems))
    if before.file and before.file != folder:
        _remove(tree, before.file)
    after = _Last(folder, tuple(metrics.active))
    if after != before:
        content = json.dumps(plain(after)).encode("ascii")
        with contextlib.suppress(OSError):
            write_atomically(under(root, METRICS_JSON), content, _FILE_MODE)
    return result


def _remove(tree: FileTree, folder: str) -> None:
    with contextlib.suppress(OSError), _opened(tree.below(folder)) as place:
        os.unlink(FILE, dir_fd=place)


@dataclass(frozen=True)
class _Last:
    """What the run before left: where its file is, and the ports that had been ACTIVE
    since the boot. /run is empty after a boot.
    """

    file: Optional[str] = None
    active: tuple[str, ...] = ()


def _last(tree: FileTree) -> _Last:
    with contextlib.suppress(ValueError):
        data = tree.data(METRICS_JSON)
        if data is not None:
            return Records("the last run").read(_Last, json_value(data))
    return _Last()
