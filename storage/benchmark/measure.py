# SPDX-License-Identifier: GPL-2.0-or-later
"""Plan a benchmark, and carry it out: mount, run fio and the tools of the link, and
read counters. ``verdict`` says what it means.

RDMA and TCP are mounted in turns, never side by side: two mounts of one server and
version share a connection (:mod:`ovirt_rdma.storage.mounts`). Each repeat changes
which one is first, so that a server that warms up favours neither.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Callable, Optional

from ovirt_rdma.host.collect.statistics import read_statistics
from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.exit_code import ExitCode
from ovirt_rdma.host.export import (
    RDMA,
    TCP,
    Export,
    MountOptions,
    option_string,
)
from ovirt_rdma.host.facts.model import Facts, NfsMount
from ovirt_rdma.host.policy.model import NfsRule
from ovirt_rdma.host.system.commands import CommandFailed, NotInstalled, run_command
from ovirt_rdma.host.system.tree import FileTree
from ovirt_rdma.storage.benchmark import tools, verdict
from ovirt_rdma.storage.benchmark.model import (
    DEPTH,
    RANDOM_READ,
    RANDOM_WRITE,
    SEQUENTIAL_READ,
    SEQUENTIAL_WRITE,
    Benchmark,
    Job,
    LinkResult,
    Load,
    NetworkPath,
    Setting,
)
from ovirt_rdma.storage.benchmark.scratch import Run, Scratch
from ovirt_rdma.storage.mounts import conflict_clause, conflicting_mounts
from ovirt_rdma.storage.readiness import NOT_READY, Readiness
from ovirt_rdma.storage.transport import rdma_options, tcp_options

MIB = 1 << 20
_BLOCK = 4096
# Slots of a connection: RPCRDMA_DEF_SLOT_TABLE (include/linux/sunrpc/xprtrdma.h).
DEFAULT_SLOTS = 128
# Mounting, unmounting, and what fio needs to start and end, in seconds.
_MOUNT_S, _START_S = 2.0, 1.0
# The first write of the file is counted as if the server wrote this much in a second.
_SLOW_SERVER = 50 * MIB
# A file system that is almost full is slow, and others need space too.
_KEPT_FREE = 0.05


@dataclass(frozen=True)
class Request:
    """What to measure.

    seconds: of each run of fio; size: of the file, in bytes
    """

    versions: Sequence[str] = ("4.2",)
    nconnect: Sequence[int] = (1,)
    repeats: int = 3
    seconds: int = 3
    size: int = 256 * MIB


@dataclass(frozen=True)
class Turn:
    """One mount, and what fio does in it."""

    setting: Setting
    repeat: int
    loads: tuple[Load, ...]


def turns(request: Request, slots: Optional[int]) -> tuple[Turn, ...]:
    """Return the mounts in their order.

    ``slots`` is the number of slots of an RDMA connection: one load has twice as many
    requests under way.
    """
    loads = _loads(slots or DEFAULT_SLOTS)
    return tuple(
        Turn(Setting(transport, version, nconnect), repeat, loads)
        for repeat in range(1, request.repeats + 1)
        for version in request.versions
        for nconnect in request.nconnect
        for transport in ((RDMA, TCP) if repeat % 2 else (TCP, RDMA))
    )


def _loads(slots: int) -> tuple[Load, ...]:
    above = min(2 * slots, 1024)
    depths = sorted({1, DEPTH, above})
    return (
        Load(SEQUENTIAL_WRITE, MIB, DEPTH),
        Load(SEQUENTIAL_READ, MIB, DEPTH),
        *(Load(RANDOM_READ, _BLOCK, depth) for depth in depths),
        Load(RANDOM_WRITE, _BLOCK, DEPTH),
    )


def duration_s(request: Request, planned: Sequence[Turn]) -> float:
    """Return about how long the plan takes, in seconds."""
    runs = sum(len(turn.loads) for turn in planned)
    first = request.size / _SLOW_SERVER
    return len(planned) * _MOUNT_S + runs * (request.seconds + _START_S) + first


def check_space(size: int, free: int, total: int, export: str) -> None:
    """Raise Problem unless the file system of ``export`` has space for the file; all
    in bytes.
    """
    needed = size + int(total * _KEPT_FREE)
    if free < needed:
        raise NoSpace(
            "bench-no-space",
            f"{export} has {free // MIB} MiB free, and bench needs {needed // MIB} "
            f"MiB: {size // MIB} MiB for its file, and a twentieth is kept free",
            "give --size-mib a smaller number, or free space on the server",
        )


class NoSpace(Problem):
    """Nothing was written."""

    exit_code = ExitCode.REFUSED


# After a server that has ended, the next one may be starting.
_STARTING_TRIES = 5
# A tool of the link starts, connects, measures, and prints.
_LINK_S = tools.SECONDS + 20.0


class IsDomain(Problem):
    """The export is a storage domain; nothing was written."""

    exit_code = ExitCode.REFUSED


@dataclass(frozen=True)
class Server:
    """What is known about the server before the first mount.

    rule: the policy's rule for the export, or one with the defaults
    addresses: those to mount, the first for RDMA; ``readiness`` is about that one
    """

    export: Export
    rule: NfsRule
    addresses: tuple[str, ...]
    readiness: Readiness

    def options(self, setting: Setting) -> str:
        """Return the mount options: the product's own, as VDSM would get them."""
        ipv6 = any(":" in address for address in self.addresses[:1])
        none = MountOptions.parse("")
        make = rdma_options if setting.transport == RDMA else tcp_options
        extra = MountOptions.parse(make(self.rule, none, ipv6)).without("nconnect")
        if setting.nconnect > 1:
            extra = extra.merged(MountOptions.parse(f"nconnect={setting.nconnect}"))
        return option_string(setting.version, str(extra))


@dataclass
class Measuring:
    """Measures on this host.

    ``address`` is the server's, or without one the peer's, as ``peer_address``.
    ``nfs_mounts`` reads the mounts of the host as they are now; ``counters`` the moment
    before and after each run; ``progress`` gets a text for people before each.
    """

    facts: Facts
    address: Optional[str]
    scratch: Scratch
    nfs_mounts: Callable[[], Sequence[NfsMount]]
    counters: Callable[[], verdict.Moment]
    progress: Callable[[str], None]
    run: Run = run_command
    pause: Callable[[float], None] = time.sleep
    skipped: list[str] = field(default_factory=list)
    no_rdma: Optional[str] = None
    peer_address: Optional[str] = None

    def link(self, peer: str) -> tuple[LinkResult, ...]:
        """Measure the link to ``peer`` with each tool that is installed here, and has a
        server there.
        """
        return tuple(self._link(peer))

    def _link(self, peer: str) -> Iterator[LinkResult]:
        lacking = set()
        route = verdict.path_to(self.facts, self.peer_address or "")
        tries = 1
        for test in tools.TESTS:
            if test.tool in lacking:
                continue
            self.progress(f"{test.tool} to {peer}: {test.test}")
            try:
                rate = self._rate(test, peer, tries if test.server_ends else 1)
            except NotInstalled:
                lacking.add(test.tool)
                self.skipped.append(f"{test.tool} is not installed here")
            except CommandFailed as error:
                lacking.add(test.tool)
                why = tools.reason(error.stdout, error.stderr, str(error))
                self._no_result(test, peer, why)
            except tools.NotUnderstood as error:
                lacking.add(test.tool)
                self._no_result(test, peer, str(error))
            else:
                tries = _STARTING_TRIES if test.server_ends else tries
                yield LinkResult(
                    test.tool, test.test, test.transport, peer, rate, route.netdev
                )

    def _rate(self, test: tools.LinkTest, peer: str, tries: int) -> float:
        """Return the bytes per second; try again, a second later, while it fails."""
        while True:
            try:
                return test.parse(self.run(test.arguments(peer), _LINK_S))
            except CommandFailed:
                tries -= 1
                if not tries:
                    raise
            self.pause(1.0)

    def _no_result(self, test: tools.LinkTest, peer: str, why: str) -> None:
        self.skipped.append(
            f"{test.tool} has no result from {peer}: {why}; start {test.server!r} there"
        )

    def mounts(
        self,
        server: Server,
        request: Request,
        engine: tools.Engine,
        *,
        yes_write: bool,
    ) -> tuple[Job, ...]:
        """Mount ``server``'s export in turns, and measure each mount.

        A setting that cannot be mounted is skipped, with a sentence. Raises Problem if
        fio fails, if the export is a storage domain and not ``yes_write``, or if
        nothing could be mounted.
        """
        if not yes_write:
            self._refuse_domain_in_use(server.export)
        usable = dict.fromkeys(self._settings(server, request), True)
        planned = turns(request, verdict.slots_of(self.facts))
        jobs: list[Job] = []
        with self.scratch.only_run():
            made = False
            for number, turn in enumerate(planned, 1):
                if not usable.get(turn.setting):
                    continue
                self.progress(f"mount {number} of {len(planned)}: {turn.setting}")
                why = self._mounted(server, turn.setting)
                if why:
                    usable[turn.setting] = False
                    again = any(job.setting == turn.setting for job in jobs)
                    measured = "was not measured again" if again else "was not measured"
                    self.skipped.append(f"{turn.setting} {measured}: {why}")
                    continue
                if not made:
                    self._prepare(server, request, engine, yes_write=yes_write)
                    made = True
                else:
                    self.scratch.hold()
                jobs += self._jobs(turn, number, len(planned), request, engine)
        if not jobs:
            raise Problem("bench-nothing-mounted", "; ".join(self.skipped))
        return tuple(jobs)

    def _settings(self, server: Server, request: Request) -> Iterator[Setting]:
        for transport in (RDMA, TCP):
            if transport == RDMA and server.readiness.verdict == NOT_READY:
                self.no_rdma = server.readiness.reason
                self.skipped.append(f"RDMA was not measured: {self.no_rdma}")
                continue
            for version in request.versions:
                for nconnect in request.nconnect:
                    yield Setting(transport, version, nconnect)

    def _mounted(self, server: Server, setting: Setting) -> Optional[str]:
        """Mount ``setting`` in place of the one before, with a connection of its own;
        return why that was not possible, or None.

        vdsmd may mount at any time: what was free at the start may not be now.
        """
        # What is mounted stays if it can: only_run removes the scratch folder by it.
        why = self._conflict(server, setting)
        if why:
            return why
        self.scratch.unmount()
        try:
            self.scratch.mount(
                str(server.export),
                server.options(setting),
                over_rdma=setting.transport == RDMA,
            )
        except Problem as problem:
            return problem.one_line
        return self._conflict(server, setting)

    def _conflict(self, server: Server, setting: Setting) -> Optional[str]:
        """Return why a mount would share the connection of another; None if not."""
        # Another path: here the mounts of the export itself count too, but not ours.
        export = Export(server.export.server, f"{server.export.path}/.bench")
        own = str(self.scratch.mountpoint)
        blocking = conflicting_mounts(
            [one for one in self.nfs_mounts() if one.mountpoint != own],
            export,
            server.addresses,
            setting.version,
            setting.transport,
        )
        if blocking is None:
            return None
        return (
            f"{conflict_clause(blocking.mounts)}, and a second mount of the server "
            "would use that connection"
        )

    def _refuse_domain_in_use(self, export: Export) -> None:
        for mount in self.nfs_mounts():
            if export.same_as(Export.maybe(mount.source)):
                raise _is_domain(f"{export} is in use: mounted at {mount.mountpoint}")

    def _prepare(
        self,
        server: Server,
        request: Request,
        engine: tools.Engine,
        *,
        yes_write: bool,
    ) -> None:
        """Check the mounted export, make the scratch folder, write the file."""
        domain = self.scratch.domain()
        if domain and not yes_write:
            raise _is_domain(f"{server.export} has the storage domain {domain}")
        check_space(request.size, *self.scratch.free_space(), str(server.export))
        self.scratch.make(request.size)
        self.progress(f"writing the file of {request.size // MIB} MiB")
        layout = tools.layout_arguments(self.scratch.file, request.size, engine)
        # 1 MiB/s is the slowest server that is waited for.
        output = self.scratch.fio(layout, request.size / MIB)
        tools.check_layout(output, request.size)
        self.scratch.check_written(request.size)

    def _jobs(
        self,
        turn: Turn,
        number: int,
        count: int,
        request: Request,
        engine: tools.Engine,
    ) -> Iterator[Job]:
        path = self.path
        for load in turn.loads:
            self.progress(f"mount {number} of {count}: {turn.setting}: {load}")
            command = tools.arguments(
                load, self.scratch.file, request.size, request.seconds, engine
            )
            before = self.counters()
            output = self.scratch.fio(command, request.seconds)
            after = self.counters()
            sample = verdict.sample_between(
                before, after, str(self.scratch.mountpoint), path
            )
            yield Job(
                turn.setting, load, turn.repeat, *tools.parse(output, load), sample
            )

    @property
    def path(self) -> Optional[NetworkPath]:
        """How this host reaches the address."""
        return verdict.path_to(self.facts, self.address) if self.address else None


def _is_domain(sentence: str) -> IsDomain:
    return IsDomain(
        "bench-storage-domain",
        f"{sentence}; bench writes into a scratch folder and loads the server",
        "measure another export of the server, or allow it with --yes-write",
    )


def read_counters(root: str) -> verdict.Moment:
    """Return the counters of the host below ``root`` now."""
    tree = FileTree(root)
    netstat = tree.text("/proc/net/netstat") or ""
    return verdict.Moment(
        read_statistics(tree),
        verdict.cpu_times(tree.text("/proc/stat") or ""),
        verdict.tcp_resent(tree.text("/proc/net/snmp") or "", netstat),
        verdict.tcp_out_of_order(netstat),
    )


def result(
    measuring: Measuring,
    export: Optional[Export] = None,
    engine: Optional[tools.Engine] = None,
    link: Sequence[LinkResult] = (),
    jobs: Sequence[Job] = (),
) -> Benchmark:
    """Return what was measured as one document."""
    facts = measuring.facts
    return Benchmark(
        taken_at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        hostname=facts.hostname,
        kernel=facts.kernel_release,
        export=str(export) if export else None,
        fio=engine.version if engine else None,
        path=measuring.path,
        slots=verdict.slots_of(facts),
        link=tuple(link),
        jobs=tuple(jobs),
        skipped=tuple(dict.fromkeys(measuring.skipped)),
        no_rdma=measuring.no_rdma,
    )
