# SPDX-License-Identifier: GPL-2.0-or-later
"""Make the command lines of fio, and parse what it prints: fio(1), and the JSON of
fio 3.x (stat.c, show_thread_status_json, add_ddir_status_json).
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Callable, NamedTuple, Optional

from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.export import nfs_check
from ovirt_rdma.host.system.commands import CommandFailed, NotInstalled
from ovirt_rdma.host.system.json_codec import UnreadableJson, json_value
from ovirt_rdma.storage.benchmark.model import (
    RANDOM_READ,
    RANDOM_WRITE,
    SEQUENTIAL_READ,
    SEQUENTIAL_WRITE,
    Load,
)

Run = Callable[[Sequence[str], float], str]
"""Runs an argument vector for at most that many seconds, as run_command does."""

FIO = "fio"
_ASK_S = 30.0
_VERSION = re.compile(r"fio-([0-9]{1,4}\.[0-9]{1,4})")
# The best first. EL packages libaio's engine separately (fio-engine-libaio); psync is
# always there, and has as many threads as requests. Not posixaio: glibc carries out the
# requests of one file one after the other (rt/aio_misc.c), whatever the depth.
_ENGINES = ("libaio", "psync")
_WORDS = {
    SEQUENTIAL_READ: "read",
    SEQUENTIAL_WRITE: "write",
    RANDOM_READ: "randread",
    RANDOM_WRITE: "randwrite",
}
_WRITES = (SEQUENTIAL_WRITE, RANDOM_WRITE)
_SILENT = "it printed nothing"


@dataclass(frozen=True)
class Engine:
    """fio as it is installed: version as ``3.33``, and the I/O engine to use."""

    version: str
    name: str


class FioResult(NamedTuple):
    """The result of one run: rates per second, and the time within which 999 of 1000
    requests were done, in microseconds.
    """

    bytes_per_s: float
    operations_per_s: float
    p99_9_us: float


def engine(run: Run) -> Engine:
    """Return the fio of this host. Raises Problem without one."""
    try:
        version = run([FIO, "--version"], _ASK_S)
        engines = run([FIO, "--enghelp"], _ASK_S)
    except NotInstalled as error:
        raise missing(str(error)) from None
    except CommandFailed as error:
        raise incomplete(str(error)) from None
    found = _VERSION.search(version)
    known = {line.strip() for line in engines.splitlines()}
    name = next((one for one in _ENGINES if one in known), _ENGINES[-1])
    return Engine(found[1] if found else "unknown", name)


def arguments(
    load: Load, file: str, size: int, seconds: int, fio: Engine
) -> tuple[str, ...]:
    """Return the command for one load on ``file`` of ``size`` bytes, for ``seconds``.

    Direct I/O: what the page cache of this host has is not read from the server.
    """
    depth = [f"--iodepth={load.depth}"]
    if fio.name == "psync":
        depth = ["--thread", f"--numjobs={load.depth}"]
    return (
        *_common(load.name, file, size),
        f"--bs={load.block_bytes}",
        f"--rw={_WORDS[load.name]}",
        f"--ioengine={fio.name}",
        *depth,
        "--time_based",
        f"--runtime={seconds}",
        *(["--end_fsync=1"] if load.name in _WRITES else []),
    )


def layout_arguments(file: str, size: int) -> tuple[str, ...]:
    """Return the command that writes ``file`` once, in full."""
    how = ("--bs=1048576", "--rw=write", "--ioengine=psync", "--end_fsync=1")
    return (*_common("layout", file, size), *how)


def _common(name: str, file: str, size: int) -> tuple[str, ...]:
    return (
        FIO,
        f"--name={name}",
        f"--filename={file}",
        f"--size={size}",
        "--direct=1",
        "--fallocate=none",
        "--allow_file_create=0",
        "--group_reporting",
        "--eta=never",
        "--percentile_list=99.9",
        "--output-format=json",
    )


def check_layout(output: str, size: int) -> None:
    """Check that fio wrote ``size`` bytes, by its JSON; raises as :func:`parse`."""
    written = _number(_job(output), "write", "io_bytes")
    if written is None or written < size:
        raise incomplete(f"it wrote {written or 0:.0f} of {size} bytes of the file")


def parse(output: str, load: Load) -> FioResult:
    """Return the result of ``load`` in fio's JSON; warnings may precede it.

    Raises Problem if fio reports an error, or the output is not complete.
    """
    job = _job(output)
    side = "write" if load.name in _WRITES else "read"
    rate, operations = (_number(job, side, key) for key in ("bw_bytes", "iops"))
    longest_ns = _number(job, side, "clat_ns", "percentile", "99.900000")
    if rate == 0:
        raise incomplete("nothing was read or written")
    if rate is None or operations is None or longest_ns is None:
        raise incomplete("its JSON has no rate or no latencies")
    return FioResult(rate, operations, round(longest_ns / 1000, 1))


def _job(output: str) -> dict[str, Any]:
    start = output.find("{")
    if start < 0:
        raise incomplete(_last_line(output))
    try:
        value = json_value(output[start:].encode("utf-8", "surrogateescape"))
    except UnreadableJson as error:
        raise incomplete(f"its output: {error}") from None
    jobs = value.get("jobs") if isinstance(value, dict) else None
    if not isinstance(jobs, list) or not jobs or not isinstance(jobs[0], dict):
        raise incomplete("its JSON has no job")
    failed = _number(jobs[0], "error")
    if failed:
        raise failure(int(failed))
    return jobs[0]


def _number(value: Any, *keys: str) -> Optional[float]:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0:
        return float(value)
    return None


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else _SILENT


_SLOW = "the server did not answer in time: look whether it is up"
_FIXES = {
    errno.ENOSPC: "the file system of the server is full: free space there",
    errno.EDQUOT: "the quota of the server is used up: raise it",
    errno.EROFS: "the server exports it read-only: export it read-write",
    errno.EACCES: "the server refuses root: export it with no_root_squash, or to a "
    "folder that its anonymous user may write to",
    errno.EIO: _SLOW,
    errno.ETIMEDOUT: _SLOW,
    errno.ESTALE: "the server no longer knows the file: it was exported again",
}


def failure(number: int) -> Problem:
    """Return an error in the export, an errno, as a Problem."""
    try:
        reason = os.strerror(number)
    except (ValueError, OverflowError):
        reason = f"error {number}"
    return Problem(
        "bench-fio-failed",
        f"the export cannot be measured: {reason}",
        _FIXES.get(number, "look at the logs of this host and of the server"),
    )


def failed_with(text: str) -> Problem:
    """Return a Problem for the stderr of a fio that failed before it measured."""
    known = (number for number in _FIXES if os.strerror(number) in text)
    number = next(known, None)
    return failure(number) if number else incomplete(_last_line(text))


def incomplete(why: str) -> Problem:
    """Return a Problem for a fio that was killed, or printed something else."""
    return Problem(
        "bench-fio-incomplete",
        f"fio did not end as it should: {why[:200]}",
        "look whether something killed it (journalctl -k), then run bench again",
    )


def missing(why: str) -> Problem:
    """Return a Problem for a fio that is not installed, or does not start."""
    return Problem(
        "bench-fio-missing",
        f"fio cannot be run: {why}",
        "install it: dnf install fio fio-engine-libaio",
    )


def too_slow(seconds: float, export: str) -> Problem:
    """Return a Problem for a fio that had to be ended after ``seconds``."""
    return Problem(
        "bench-too-slow",
        f"fio was still running after {seconds:g} s: the server answers too slowly to "
        "be measured, or no longer",
        f"look at the server and the way to it: {nfs_check(export)}",
    )
