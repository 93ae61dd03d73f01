# SPDX-License-Identifier: GPL-2.0-or-later
"""Make the command lines of fio, perftest and iperf3, and parse what they print. Pure.

fio(1) and its JSON: fio 3.x, stat.c (show_thread_status_json, add_ddir_status_json).

perftest and iperf3 measure the link to another host. The operator starts the servers on
the other host (:data:`SERVERS`). Outputs: perftest src/perftest_parameters.h
(RESULT_FMT_G, REPORT_FMT_JSON), iperf3 3.x with -J.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from dataclasses import dataclass
from typing import Any, Callable, NamedTuple, Optional

from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.export import RDMA, TCP, nfs_check
from ovirt_rdma.host.system.json_codec import UnreadableJson, json_value
from ovirt_rdma.storage.benchmark.model import (
    RANDOM_READ,
    RANDOM_WRITE,
    SEQUENTIAL_READ,
    SEQUENTIAL_WRITE,
    Load,
)

FIO = "fio"
# fio 3.2 (2017) has bw_bytes; those before 3.0 have `clat`, in microseconds.
_OLDEST = (3, 2)
_VERSION = re.compile(r"fio-([0-9]{1,4})\.([0-9]{1,4})")
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
_PERCENTILE = "99.9"
INSTALL = "install it: dnf install fio fio-engine-libaio"
_ENDED = "fio did not end as it should"


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


def engine(version: str, engines: str) -> Engine:
    """Return what to use, from the output of ``fio --version`` and ``fio --enghelp``.

    Raises Problem if this fio is too old.
    """
    match = _VERSION.search(version)
    if not match or (int(match[1]), int(match[2])) < _OLDEST:
        raise Problem(
            "bench-fio-old",
            f"fio is {version.strip()[:40]!r}; bench needs fio 3.2 or later",
            "install a later fio",
        )
    known = {line.strip() for line in engines.splitlines()}
    name = next((one for one in _ENGINES if one in known), _ENGINES[-1])
    return Engine(f"{match[1]}.{match[2]}", name)


def arguments(
    load: Load, file: str, size: int, seconds: int, fio: Engine
) -> tuple[str, ...]:
    """Return the command for one load on ``file`` of ``size`` bytes, for ``seconds``.

    Direct I/O: what the page cache of this host has is not read from the server.
    """
    return (
        *_common(load.name, file, size, fio),
        f"--bs={load.block_bytes}",
        f"--rw={_WORDS[load.name]}",
        *_depth(load.depth, fio),
        "--time_based",
        f"--runtime={seconds}",
        *(["--end_fsync=1"] if load.name in _WRITES else []),
    )


def layout_arguments(file: str, size: int, fio: Engine) -> tuple[str, ...]:
    """Return the command that writes ``file`` once, in full."""
    return (
        *_common("layout", file, size, fio),
        "--bs=1048576",
        "--rw=write",
        "--ioengine=psync",
        "--end_fsync=1",
    )


def _common(name: str, file: str, size: int, fio: Engine) -> tuple[str, ...]:
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
        f"--percentile_list={_PERCENTILE}",
        "--output-format=json",
    )


def _depth(depth: int, fio: Engine) -> tuple[str, ...]:
    if fio.name == "psync":
        return "--ioengine=psync", "--thread", f"--numjobs={depth}"
    return f"--ioengine={fio.name}", f"--iodepth={depth}"


def check(output: str) -> dict[str, Any]:
    """Return the job in fio's JSON; warnings may precede it.

    Raises Problem if fio reports an error, or the output is not complete.
    """
    job = _job(output)
    failed = _number(job, "error")
    if failed:
        raise failure(int(failed))
    return job


def check_layout(output: str, size: int) -> None:
    """Check that fio wrote ``size`` bytes, by its JSON; raises as :func:`check`."""
    side = check(output).get("write")
    written = _number(side, "io_bytes") if isinstance(side, dict) else None
    if written is None or written < size:
        raise incomplete(f"it wrote {written or 0:.0f} of {size} bytes of the file")


def parse(output: str, load: Load) -> FioResult:
    """Return the result of ``load`` in fio's JSON; raises as :func:`check`."""
    job = check(output)
    writes = load.name in _WRITES
    side = job.get("write" if writes else "read")
    if not isinstance(side, dict):
        raise incomplete("its JSON has no result")
    rate, operations = _number(side, "bw_bytes"), _number(side, "iops")
    latency = side.get("clat_ns")
    found = latency.get("percentile") if isinstance(latency, dict) else None
    if rate is None or operations is None or not isinstance(found, dict):
        raise incomplete("its JSON has no rate or no latencies")
    # As "99.900000".
    percentiles = {key.rstrip("0").rstrip("."): found[key] for key in found}
    longest_ns = _number(percentiles, _PERCENTILE)
    if not rate or longest_ns is None:
        raise incomplete("nothing was read or written")
    return FioResult(rate, operations, round(longest_ns / 1000, 1))


def _job(output: str) -> dict[str, Any]:
    start = output.find("{")
    if start < 0:
        raise incomplete(_last_line(output) or "it printed nothing")
    try:
        value = json_value(output[start:].encode("utf-8", "surrogateescape"))
    except UnreadableJson as error:
        raise incomplete(f"its output: {error}") from None
    jobs = value.get("jobs") if isinstance(value, dict) else None
    if not isinstance(jobs, list) or not jobs or not isinstance(jobs[0], dict):
        raise incomplete("its JSON has no job")
    return jobs[0]


def _number(values: dict[str, Any], key: str) -> Optional[float]:
    value = values.get(key)
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0:
        return float(value)
    return None


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


_FIXES = {
    errno.ENOSPC: "the file system of the server is full: free space there",
    errno.EDQUOT: "the quota of the server is used up: raise it",
    errno.EROFS: "the server exports it read-only: export it read-write",
    errno.EACCES: "the server refuses root: export it with no_root_squash, or to a "
    "folder that its anonymous user may write to",
    errno.EIO: "the server did not answer in time: look whether it is up",
    errno.ETIMEDOUT: "the server did not answer in time: look whether it is up",
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


def incomplete(why: str) -> Problem:
    """Return a Problem for a fio that was killed, or printed something else."""
    return Problem(
        "bench-fio-incomplete",
        f"{_ENDED}: {why[:200]}",
        "look whether something killed it (journalctl -k), then run bench again",
    )


def too_slow(seconds: float, export: str) -> Problem:
    """Return a Problem for a fio that had to be ended after ``seconds``."""
    return Problem(
        "bench-too-slow",
        f"fio was still running after {seconds:g} s: the server answers too slowly to "
        "be measured, or no longer",
        f"look at the server and the way to it: {nfs_check(export)}",
    )


def failed_with(text: str) -> Problem:
    """Return a Problem for the stderr of a fio that failed before it measured."""
    for number in _FIXES:
        if os.strerror(number) in text:
            return failure(number)
    return incomplete(_last_line(text) or "it printed nothing")


SECONDS = 3
# With -D, perftest leaves out a quarter of the time at each end, rounded down to whole
# seconds (perftest_parameters.c, margin).
_COUNTED_S = SECONDS - 2 * (SECONDS // 4)


class NotUnderstood(ValueError):
    """The output has no result; the text says why."""


@dataclass(frozen=True)
class LinkTest:
    """A test of a tool: ``test`` is ``read``, ``write`` or ``stream``.

    ``server`` is the command to start on the other host, which ends after one test if
    ``server_ends``; ``parse`` returns bytes per second or raises NotUnderstood.
    """

    tool: str
    test: str
    transport: str
    server: str
    options: tuple[str, ...]
    parse: Callable[[str], float]
    server_ends: bool = False

    def arguments(self, peer: str) -> tuple[str, ...]:
        """Return the command for the server ``peer``."""
        return (self.tool, *self.options, peer)


def perftest(text: str) -> float:
    """Return bytes per second from ``ib_read_bw --report_gbits``.

    Its JSON goes into a file, older versions have none, and with -S it is invalid; the
    table is the same in all of them. Where perftest cannot measure the rate of the
    processor's clock (a virtual machine), it prints 0 for each rate (get_clock.c,
    get_cpu_mhz). Then the rate is that of its messages in the time that it counts.
    """
    lines = iter(text.splitlines())
    heading = next((line for line in lines if "BW average" in line), None)
    if heading is None:
        raise NotUnderstood(_why(text))
    # Gb/sec, or Gb/s in 4.x; MiB/sec, or MB/sec (which is MiB too), without the option.
    unit = re.search(r"BW average\[(Gb|MiB|MB)/s(?:ec)?\]", heading)
    for line in lines:
        words = line.split()
        # bytes [sl] iterations peak average rate [CPU]: count from the heading.
        at = 3 + ("#sl" in heading)
        if len(words) > at and words[0].isascii() and words[0].isdigit():
            size, messages = _decimal(words[0]), _decimal(words[at - 2])
            value = _decimal(words[at])
            if value is not None and unit:
                factor = 1e9 / 8 if unit[1] == "Gb" else float(1 << 20)
                counted = (size or 0.0) * (messages or 0.0) / _COUNTED_S
                return _positive(value * factor or counted)
    raise NotUnderstood("its table has no average")


def iperf3(text: str) -> float:
    """Return the received bytes per second from ``iperf3 -J``."""
    try:
        whole = _object(text)
    except UnreadableJson as error:
        raise NotUnderstood(str(error)) from None
    if isinstance(whole.get("error"), str):
        raise NotUnderstood(_why(whole["error"]))
    end = whole.get("end")
    received = end.get("sum_received") if isinstance(end, dict) else None
    bits = received.get("bits_per_second") if isinstance(received, dict) else None
    if not isinstance(bits, (int, float)) or isinstance(bits, bool):
        raise NotUnderstood("its JSON has no end.sum_received")
    return _positive(bits / 8)


def _object(text: str) -> dict[str, Any]:
    """Return the JSON object in what iperf3 printed; empty if it is none."""
    start = max(text.find("{"), 0)
    value = json_value(text[start:].encode("utf-8", "surrogateescape"))
    return value if isinstance(value, dict) else {}


def _decimal(text: str) -> Optional[float]:
    return float(text) if re.fullmatch(r"[0-9]{1,15}(\.[0-9]{0,9})?", text) else None


def _positive(rate: float) -> float:
    if rate <= 0:
        raise NotUnderstood("nothing was received")
    return rate


# By getopt_long(3).
_OPTION = re.compile(r"(unrecognized|unknown|invalid) option", re.IGNORECASE)


def reason(stdout: str, stderr: str, otherwise: str) -> str:
    """Return why a tool failed, in one line of what it printed.

    An option that a version lacks is named first, and the usage comes after it
    (perftest 4.5, iperf3 3.12). Else the last line is the reason. iperf3 3.16 and later
    has it in its JSON alone, whose last line is a brace.
    """
    with contextlib.suppress(UnreadableJson):
        error = _object(stdout).get("error")
        if isinstance(error, str) and error.strip():
            return _why(error)
    for line in (*stderr.splitlines(), *stdout.splitlines()):
        if _OPTION.search(line):
            return line.strip()[:200]
    printed = next((text for text in (stderr, stdout) if text.strip()), otherwise)
    return _why(printed)


def _why(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "it printed nothing"


# -R: RDMA CM chooses the device by the route, as NFS does. -F: a processor whose
# frequency changes is a warning, not an error. -D: seconds.
_PERFTEST = ("-R", "-F", "--report_gbits", "-D", str(SECONDS))
_IPERF3 = ("-J", "-t", str(SECONDS), "-c")
TESTS = (
    LinkTest("ib_read_bw", "read", RDMA, "ib_read_bw -R", _PERFTEST, perftest, True),
    LinkTest("ib_write_bw", "write", RDMA, "ib_write_bw -R", _PERFTEST, perftest, True),
    LinkTest("iperf3", "stream", TCP, "iperf3 -s", _IPERF3, iperf3),
)
