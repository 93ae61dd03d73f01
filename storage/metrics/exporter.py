# SPDX-License-Identifier: GPL-2.0-or-later
"""Read a host's metrics, and write them for the textfile collector of node_exporter.

The sets of labels are bounded: at most MOST_MOUNTS mounts, MOST_TRANSPORTS transports
and MOST_PORTS ports, the operations of NAMED_OPERATIONS and the counters of
host/facts/statistics. What is left out is said in a sentence.

Only files are read, and no server is asked: nothing here waits for a mount.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Callable, NamedTuple, Optional, TypeVar, Union

from ovirt_rdma.host.collect.collector import HostReader
from ovirt_rdma.host.collect.statistics import read_statistics
from ovirt_rdma.host.daemon.loop import Result, Task, Turn
from ovirt_rdma.host.daemon.versions import Versions, read_versions
from ovirt_rdma.host.enablement.state import marker_mode
from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.facts.model import UNKNOWN
from ovirt_rdma.host.facts.statistics import (
    CONGESTION,
    ERRORS,
    MountStatistics,
    OperationStatistics,
    PortCounters,
    SunrpcTransport,
    of_kind,
)
from ovirt_rdma.host.paths import METRICS_JSON, POLICY_JSON, under
from ovirt_rdma.host.policy import store
from ovirt_rdma.host.policy.model import Policy
from ovirt_rdma.host.policy.store import InForce
from ovirt_rdma.host.system.files import write_atomically
from ovirt_rdma.host.system.json_codec import Records, json_value, plain
from ovirt_rdma.host.system.tree import FileTree
from ovirt_rdma.storage.health.state import STATES, HealthState, read_state
from ovirt_rdma.storage.metrics.families import (
    NAMED,
    NAMED_OPERATIONS,
    OTHER,
    PORT_COUNTERS,
)
from ovirt_rdma.storage.mounts import (
    DEGRADED,
    NOT_COVERED,
    OK,
    UNNAMED,
    UNPROVEN,
    MountReview,
    review_all,
)

Number = Union[int, float]
_T = TypeVar("_T")

MOST_MOUNTS = 200
MOST_TRANSPORTS = 400
MOST_PORTS = 128

_VERDICTS = (OK, DEGRADED, UNPROVEN, NOT_COVERED, UNNAMED)
NFS_3 = "3"
ACTIVE = "ACTIVE"


class Row(NamedTuple):
    """Values of one subject by the names of metrics in NAMED: ``labels`` are the values
    of the labels of all of them, in their order.
    """

    labels: tuple[str, ...]
    values: Mapping[str, Number]


def _limited(
    found: Sequence[_T], most: int, what: str, left_out: list[str]
) -> Sequence[_T]:
    if len(found) > most:
        left_out.append(
            f"this host has {len(found)} {what}, and the metrics have the first {most}"
        )
    return found[:most]


def _known(
    prefix: str, number_of: Callable[[str], Optional[Number]]
) -> dict[str, Number]:
    """Return the metrics whose names begin so, of numbers that are known by name."""
    found = {}
    for name, family in NAMED.items():
        if family.value and name.startswith(prefix):
            number = number_of(family.value)
            if number is not None:
                found[name] = family.of(number)
    return found


def _mount(mount: MountStatistics) -> Iterator[Row]:
    labels = (mount.source, mount.mountpoint)
    numbers = {**mount._asdict(), **(mount.bytes._asdict() if mount.bytes else {})}
    known = _known("mount_", numbers.get)
    known["mount_connections"] = len(mount.transports)
    known["mount_connections_requested"] = mount.nconnect or 1
    yield Row(labels, known)
    for number, transport in enumerate(mount.transports):
        of_connection = (*labels, str(number), transport.protocol)
        counters = dict(transport.counters)
        yield Row(of_connection, _known("connection_", counters.get))
    # The named operations also if they were not used yet, so that a first request is an
    # increase; and the sum of all others.
    used = {operation.name: operation for operation in mount.operations}
    for name in NAMED_OPERATIONS:
        if name != "OPEN" or mount.version != NFS_3:  # NFS 3 has no OPEN
            one = used.pop(name, None)
            yield _operation((*labels, name), [one] if one else [])
    yield _operation((*labels, OTHER), [*used.values()])


def _operation(labels: tuple[str, ...], counted: list[OperationStatistics]) -> Row:
    def total(name: str) -> Optional[int]:
        numbers = [getattr(operation, name) for operation in counted]
        # Old kernels count no errors.
        return None if None in numbers else sum(numbers)

    return Row(labels, _known("operation_", total))


def _verdict(review: MountReview) -> Iterator[Row]:
    mount, rule = review.mount, review.match.rule if review.match else None
    labels = (mount.source, mount.mountpoint)
    about = (
        mount.version or "",
        mount.address or "",
        review.proof.transport or UNPROVEN,
        rule.transport if rule else "",
        rule.title if rule else "",
    )
    yield Row((*labels, *about), {"mount_info": 1})
    for verdict in _VERDICTS:
        is_it = int(verdict == review.verdict)
        yield Row((*labels, verdict.replace(" ", "_")), {"mount_verdict": is_it})
    if review.verdict == DEGRADED and review.since is not None:
        since = datetime.fromisoformat(review.since.replace("Z", "+00:00"))
        made_at = int(since.timestamp())
        yield Row(labels, {"mount_degraded_since_timestamp_seconds": made_at})


def _health(health: HealthState, shown: Collection[str]) -> Iterator[Row]:
    yield Row((), {"health_last_look_timestamp_seconds": health.taken_at})
    for mount in health.mounts:
        if mount.mountpoint not in shown:
            continue
        labels = (mount.export, mount.mountpoint)
        for state in STATES:
            yield Row((*labels, state), {"mount_health": int(state == mount.state)})
        if mount.cause is not None:
            yield Row((*labels, mount.cause), {"mount_health_cause": 1})
        yield Row(labels, _known("mount_health_", vars(mount).get))


def _transport(transport: SunrpcTransport) -> Row:
    labels = (
        transport.switch,
        transport.name,
        transport.protocol,
        transport.destination or "",
    )
    values = {"transport_connected": int(transport.connected)}
    known = _known("transport_", lambda name: getattr(transport, name))
    return Row(labels, {**values, **known})


def _port(port: PortCounters, state: str, was_active: bool) -> Iterator[Row]:
    labels = (port.device, str(port.port))
    values = _known("port_", port.get)
    if state:
        values["port_active"] = int(state == ACTIVE)
        values["port_was_active"] = int(was_active)
    yield Row(labels, values)
    for name, counters in (
        ("port_errors_total", ERRORS),
        ("port_congestion_total", of_kind(CONGESTION)),
    ):
        for counter in counters:
            value = port.get(counter)
            if value is not None:
                yield Row((*labels, counter), {name: value})


def _policy(policy: InForce) -> Iterator[Row]:
    if policy.stored is not None or policy.problem is not None:
        yield Row((), {"policy_usable": int(policy.problem is None)})
    if policy.stored is not None:
        loaded = datetime.fromisoformat(policy.stored.loaded_at).timestamp()
        yield Row((), {"policy_loaded_timestamp_seconds": loaded})
        yield Row((policy.stored.digest,), {"policy_info": 1})


def _versions(versions: Versions) -> Iterator[Row]:
    yield Row((versions.add_on or UNKNOWN, versions.kernel or UNKNOWN), {"info": 1})
    for unit, loaded in versions.services:
        if loaded is not None:
            yield Row((unit, loaded.version or UNKNOWN), {"loaded_info": 1})
            if loaded.restart_needed is not None:
                yield Row((unit,), {"restart_needed": int(loaded.restart_needed)})


_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def render(rows: Iterable[Row]) -> str:
    """Return ``rows`` in Prometheus' text format 0.0.4: each metric once, with HELP and
    TYPE, in the order of FAMILIES. Metrics without a value are left out. The text is
    valid UTF-8.

    The format: prometheus.io/docs/instrumenting/exposition_formats. Tests give it to
    promtool and to node_exporter.
    """
    lines: dict[str, list[str]] = {}
    for row in rows:
        for name, value in row.values.items():
            family = NAMED[name]
            line = f"{family.name}{_labels(family.labels, row.labels)} {value!r}\n"
            lines.setdefault(family.name, []).append(line)
    return "".join(
        f"# HELP {family.name} {family.help}\n# TYPE {family.name} {family.kind}\n"
        + "".join(lines[family.name])
        for family in NAMED.values()
        if family.name in lines
    )


def _labels(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    pairs = (f'{name}="{_escaped(value)}"' for name, value in zip(names, values))
    return f"{{{','.join(pairs)}}}" if names else ""


def _escaped(value: str) -> str:
    r"""Return the value of a label; a byte that is not UTF-8 is written as ``\xff``."""
    if not value.isascii():
        data = value.encode("utf-8", "surrogateescape")
        value = data.decode("utf-8", "backslashreplace")
    return value.translate(_ESCAPES)


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
    problems, left_out = [*statistics.problems], list[str]()
    in_force = store.in_force(under(root, POLICY_JSON))
    if in_force.problem is not None:
        problems.append(f"{in_force.problem.one_line}; {in_force.consequence}")
    policy = in_force.stored.policy if in_force.stored else Policy()
    facts = HostReader(root).mount_facts(problems, cm_ids=False)
    # Whom a mount shares its connection with is no metric.
    reviews = review_all(facts, policy, sharing=False)
    health = read_state(root, problems)
    versions = read_versions(root, problems, whole=False)
    took_s = time.monotonic() - started
    mounts = _limited(statistics.mounts, MOST_MOUNTS, "mounts", left_out)
    shown = {mount.mountpoint for mount in mounts}
    rows = [row for mount in mounts for row in _mount(mount)]
    for review in reviews:
        if review.mount.mountpoint in shown:
            rows += _verdict(review)
    rows += _health(health, shown) if health else []
    found = statistics.transports or ()
    transports = _limited(found, MOST_TRANSPORTS, "transports", left_out)
    rows += map(_transport, transports)
    active = {*_last(tree).active}
    for port in _limited(statistics.ports, MOST_PORTS, "ports", left_out):
        place, state = f"{port.device}/{port.port}", _state(tree, port)
        active |= {place} if state == ACTIVE else set()
        rows += _port(port, state, place in active)
    rows += _policy(in_force)
    rows += _versions(versions)
    problems = list(dict.fromkeys(problems))
    own = {
        "exporter_last_run_timestamp_seconds": round(time.time(), 3),
        "exporter_run_seconds": round(took_s, 6),
        "exporter_problems": len(problems) + len(left_out),
        "exporter_mounts_left_out": len(statistics.mounts) - len(mounts),
    }
    rows.append(Row((), own))
    problems += left_out
    return Metrics(rows, policy.host.metrics_folder, problems, sorted(active))


def _state(tree: FileTree, port: PortCounters) -> str:
    """Return ``ACTIVE`` for ``4: ACTIVE``; "" if there is no such port."""
    text = tree.text(f"{_DEVICES}/{port.device}/ports/{port.port}/state")
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
