# SPDX-License-Identifier: GPL-2.0-or-later
"""Plan a benchmark, and carry it out: mount, run fio, and read counters. ``verdict``
says what it means. fio prints JSON: fio(1), and fio 3.x (stat.c,
show_thread_status_json, add_ddir_status_json).

RDMA and TCP are mounted in turns, never side by side: two mounts of one server and
version share a connection (:mod:`ovirt_rdma.storage.mounts`). Each repeat changes
which one is first, so that a server that warms up favours neither.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Callable, NamedTuple, Optional

from ovirt_rdma.host.collect.statistics import read_statistics
from ovirt_rdma.host.errors import Problem, Refused
from ovirt_rdma.host.export import RDMA, TCP, Export, MountOptions, option_string
from ovirt_rdma.host.facts.model import Facts, NfsMount
from ovirt_rdma.host.policy.model import NfsRule
from ovirt_rdma.host.system.commands import CommandFailed, NotInstalled
from ovirt_rdma.host.system.json_codec import UnreadableJson, json_value
from ovirt_rdma.host.system.tree import FileTree
from ovirt_rdma.storage.benchmark import verdict
from ovirt_rdma.storage.benchmark.model import (
    DEPTH,
    RANDOM_READ,
    RANDOM_WRITE,
    SEQUENTIAL_READ,
    SEQUENTIAL_WRITE,
    Benchmark,
    Job,
    Load,
    NetworkPath,
    Sample,
    Setting,
)
from ovirt_rdma.storage.benchmark.scratch import (
    Run,
    Scratch,
    failure,
    incomplete,
    last_line,
    missing,
)
from ovirt_rdma.storage.mounts import conflict_clause, conflicting_mounts
from ovirt_rdma.storage.readiness import NOT_READY, Readiness
from ovirt_rdma.storage.transport import rdma_options, tcp_options

MIB = 1 << 20
LOADS = (
    Load(SEQUENTIAL_WRITE, MIB, DEPTH),
    Load(SEQUENTIAL_READ, MIB, DEPTH),
    Load(RANDOM_READ, 4096, 1),
    Load(RANDOM_READ, 4096, DEPTH),
    Load(RANDOM_WRITE, 4096, DEPTH),
)
# Mounting, unmounting, and what fio needs to start and end, in seconds.
_MOUNT_S, _START_S = 2.0, 1.0
# The first write of the file is counted as if the server wrote this much in a second.
_SLOW_SERVER = 50 * MIB
# A file system that is almost full is slow, and others need space too.
_KEPT_FREE = 0.05


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
    (written,) = _numbers(output, ("write", "io_bytes"))
    if written < size:
        raise incomplete(f"it wrote {written:.0f} of {size} bytes of the file")


def parse(output: str, load: Load) -> FioResult:
    """Return the result of ``load`` in fio's JSON; warnings may precede it.

    Raises Problem if fio reports an error, or the output is not complete.
    """
    side = "write" if load.name in _WRITES else "read"
    longest = (side, "clat_ns", "percentile", "99.900000")
    rate, operations, longest_ns = _numbers(
        output, (side, "bw_bytes"), (side, "iops"), longest
    )
    if not rate:
        raise incomplete("nothing was read or written")
    return FioResult(rate, operations, round(longest_ns / 1000, 1))


def _numbers(output: str, *places: tuple[str, ...]) -> list[float]:
    """Return the numbers at these places of the job in fio's JSON."""
    start = output.find("{")
    if start < 0:
        raise incomplete(last_line(output))
    found: list[float] = []
    try:
        value: Any = json_value(output[start:].encode("utf-8", "surrogateescape"))
        job = value["jobs"][0]
        failed = int(job["error"])
        for place in () if failed else places:
            value = job
            for key in place:
                value = value[key]
            found.append(float(value))
        if min(found, default=0) < 0:
            raise ValueError
    except UnreadableJson as error:
        raise incomplete(f"its output: {error}") from None
    except (KeyError, IndexError, TypeError, ValueError, OverflowError):
        raise incomplete("its JSON has no job with all numbers") from None
    if failed:
        raise failure(failed)
    return found


@dataclass(frozen=True)
class Request:
    """What to measure.

    seconds: of each run of fio; size: of the file, in bytes
    """

    version: str = "4.2"
    nconnect: int = 1
    repeats: int = 3
    seconds: int = 3
    size: int = 256 * MIB

    def turns(self) -> tuple[tuple[int, Setting], ...]:
        """Return the mounts in their order, each with the number of its repeat."""
        return tuple(
            (repeat, Setting(transport, self.version, self.nconnect))
            for repeat in range(1, self.repeats + 1)
            for transport in ((RDMA, TCP) if repeat % 2 else (TCP, RDMA))
        )

    def duration_s(self) -> float:
        """Return about how long it takes, in seconds."""
        each = _MOUNT_S + len(LOADS) * (self.seconds + _START_S)
        return len(self.turns()) * each + self.size / _SLOW_SERVER


@dataclass
class Measuring:
    """Measures an export on this host.

    rule: the policy's rule for the export, or one with the defaults
    addresses: the server's, the first for RDMA; ``readiness`` is about that one
    nfs_mounts: reads the mounts of the host as they are now
    counters: reads the moment before and after each run
    progress: gets a text for people before each
    """

    export: Export
    rule: NfsRule
    addresses: Sequence[str]
    readiness: Readiness
    facts: Facts
    engine: Engine
    scratch: Scratch
    nfs_mounts: Callable[[], Sequence[NfsMount]]
    counters: Callable[[], verdict.Moment]
    progress: Callable[[str], None]
    skipped: list[str] = field(default_factory=list)

    def run(self, request: Request, *, yes_write: bool) -> Benchmark:
        """Mount the export in turns, measure each mount, and return the result.

        A setting that cannot be mounted is skipped, with a sentence. Raises Problem if
        fio fails, if the export is a storage domain and not ``yes_write``, or if
        nothing could be mounted.
        """
        self.skipped = []
        if not yes_write:
            self._refuse_domain_in_use()
        path = None
        if self.addresses:
            path = verdict.path_to(self.facts, self.addresses[0])
        no_rdma = self.readiness.verdict == NOT_READY
        if no_rdma:
            self.skipped.append(f"RDMA was not measured: {self.readiness.reason}")
        left_out: set[Setting] = set()
        planned = request.turns()
        jobs: list[Job] = []
        with self.scratch.only_run():
            made = False
            for number, (repeat, setting) in enumerate(planned, 1):
                if setting in left_out or (no_rdma and setting.transport == RDMA):
                    continue
                title = f"mount {number} of {len(planned)}: {setting}"
                self.progress(title)
                why = self._mounted(setting)
                if why:
                    left_out.add(setting)
                    again = " again" if any(j.setting == setting for j in jobs) else ""
                    self.skipped.append(f"{setting} was not measured{again}: {why}")
                    continue
                if not made:
                    self._prepare(request.size, yes_write=yes_write)
                    made = True
                else:
                    self.scratch.hold()
                for load in LOADS:
                    self.progress(f"{title}: {load}")
                    result, sample = self._measured(load, request, path)
                    jobs.append(Job(setting, load, repeat, *result, sample))
        if not jobs:
            raise Problem("bench-nothing-mounted", "; ".join(self.skipped))
        return Benchmark(
            taken_at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            hostname=self.facts.hostname,
            kernel=self.facts.kernel_release,
            export=str(self.export),
            fio=self.engine.version,
            path=path,
            slots=self.facts.rdma_slots,
            jobs=tuple(jobs),
            skipped=tuple(dict.fromkeys(self.skipped)),
        )

    def options(self, setting: Setting) -> str:
        """Return the mount options: the product's own, as VDSM would get them."""
        ipv6 = any(":" in address for address in self.addresses[:1])
        make = rdma_options if setting.transport == RDMA else tcp_options
        text = make(self.rule, MountOptions.parse(""), ipv6)
        extra = MountOptions.parse(text).without("nconnect", "max_connect")
        if setting.nconnect > 1:
            extra = extra.merged(MountOptions.parse(f"nconnect={setting.nconnect}"))
        return option_string(setting.version, str(extra))

    def _mounted(self, setting: Setting) -> Optional[str]:
        """Mount ``setting`` in place of the one before, with a connection of its own;
        return why that was not possible, or None.

        vdsmd may mount at any time: what was free at the start may not be now.
        """
        # What is mounted stays if it can: only_run removes the scratch folder by it.
        why = self._conflict(setting)
        if why:
            return why
        self.scratch.unmount()
        over_rdma = setting.transport == RDMA
        try:
            self.scratch.mount(
                str(self.export), self.options(setting), over_rdma=over_rdma
            )
        except Problem as problem:
            return problem.one_line
        return self._conflict(setting)

    def _conflict(self, setting: Setting) -> Optional[str]:
        """Return why a mount would share the connection of another; None if not."""
        # Another path: here the mounts of the export itself count too, but not ours.
        export = Export(self.export.server, f"{self.export.path}/.bench")
        own = str(self.scratch.mountpoint)
        blocking = conflicting_mounts(
            [one for one in self.nfs_mounts() if one.mountpoint != own],
            export,
            self.addresses,
            setting.version,
            setting.transport,
        )
        if blocking is None:
            return None
        return (
            f"{conflict_clause(blocking.mounts)}, and a second mount of the server "
            "would use that connection"
        )

    def _refuse_domain_in_use(self) -> None:
        export = self.export
        for mount in self.nfs_mounts():
            if export.same_as(Export.maybe(mount.source)):
                raise _is_domain(f"{export} is in use: mounted at {mount.mountpoint}")

    def _prepare(self, size: int, *, yes_write: bool) -> None:
        """Check the mounted export, make the scratch folder, write the file."""
        domain = self.scratch.domain()
        if domain and not yes_write:
            raise _is_domain(f"{self.export} has the storage domain {domain}")
        free, total = self.scratch.free_space()
        needed = size + int(total * _KEPT_FREE)
        if free < needed:
            raise Refused(
                "bench-no-space",
                f"{self.export} has {free // MIB} MiB free, and bench needs "
                f"{needed // MIB} MiB: {size // MIB} MiB for its file, and a twentieth "
                "is kept free",
                "give --size-mib a smaller number, or free space on the server",
            )
        self.scratch.make(size)
        self.progress(f"writing the file of {size // MIB} MiB")
        # 1 MiB/s is the slowest server that is waited for.
        layout = layout_arguments(self.scratch.file, size)
        check_layout(self.scratch.fio(layout, size / MIB), size)
        self.scratch.check_written(size)

    def _measured(
        self, load: Load, request: Request, path: Optional[NetworkPath]
    ) -> tuple[FioResult, Sample]:
        command = arguments(
            load, self.scratch.file, request.size, request.seconds, self.engine
        )
        before = self.counters()
        output = self.scratch.fio(command, request.seconds)
        after = self.counters()
        place = str(self.scratch.mountpoint)
        sample = verdict.sample_between(before, after, place, path)
        return parse(output, load), sample


def _is_domain(sentence: str) -> Refused:
    return Refused(
        "bench-storage-domain",
        f"{sentence}; bench writes into a scratch folder and loads the server",
        "measure another export of the server, or allow it with --yes-write",
    )


def read_counters(root: str) -> verdict.Moment:
    """Return the counters of the host below ``root`` now."""
    tree = FileTree(root)
    names = ("/proc/stat", "/proc/net/snmp", "/proc/net/netstat")
    texts = [tree.text(name) or "" for name in names]
    return verdict.Moment.of(read_statistics(tree), *texts)
