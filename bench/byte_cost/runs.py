# SPDX-License-Identifier: GPL-2.0-or-later
"""Count the cases in guests: hosts with an NFS server in memory, and mounts of it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from bench.byte_cost import counts
from bench.byte_cost.build import Programs, build
from bench.byte_cost.cases import (
    CONNECTED,
    ETHERNET,
    MIB,
    RXE,
    Case,
    Load,
    Mount,
    Transport,
)
from bench.byte_cost.counts import Executed
from lab import modules
from lab.guest import Guest
from lab.ib_pair import EXPORT_PATH, IbPair, ib_pair
from lab.infiniband import set_up
from lab.nfs_server import RDMA_PORT, NfsServer
from lab.problem import LabProblem
from lab.qemu import ALONE, Counted
from lab.topology import SOFT_ROCE, Topology
from ovirt_rdma.host.collect.statistics import parse_mount_statistics
from ovirt_rdma.host.facts.statistics import MountStatistics

_Hosts = Callable[[Counted], AbstractContextManager[tuple[Guest, "IbPair | None"]]]

REPEATS = 5
# Debian clears memory where it is allocated, kernels of EL9 do not by default.
_KERNEL = "init_on_alloc=0"
# Seconds of a load, with generous room for a busy machine.
_TIMEOUT_S = 900.0
_FILE = "/mnt/byte-cost"
# Both hosts share the processor. Whether a woken task of one interrupts the other's
# depends on how long each ran before (Linux 6.1, kernel/sched/fair.c,
# check_preempt_wakeup): a read of 64 KiB had 19 task switches in one run, 21 in the
# next, and 10 without that. And whether an operation frees a slab and allocates the
# next depends on how full the boot left the slabs (mm/slub.c, __slab_free): 2.5 or 5 kB
# were cleared more for a read of 1 MiB. So empty slabs are kept.
_STEADY = """
set -e
debug=/sys/kernel/debug
mountpoint -q $debug || mount -t debugfs debugfs $debug
echo NO_WAKEUP_PREEMPTION > $debug/sched/features
for file in /sys/kernel/slab/*/min_partial; do echo 1000 > $file; done
"""
_ETHERNET = ("10.96.0.1", "10.96.0.2")
_CONNECTED = "echo connected > /sys/class/net/{}/mode"
# A registration is a memory region for a part of a chunk: rpcrdma_encode_read_list()
# and its like in net/sunrpc/xprtrdma/rpc_rdma.c count each.
_REGISTRATIONS = ("read_chunk_count", "write_chunk_count", "reply_chunk_count")
# include/trace/events/rdma_core.h. The adapter's own driver does not write these; the
# completion queues of IPoIB are not among them.
_TRACED = """
set -e
trace=/sys/kernel/tracing
mountpoint -q $trace || mount -t tracefs tracefs $trace
echo 8192 > $trace/buffer_size_kb
echo > $trace/trace
echo 1 > $trace/events/rdma_core/cq_poll/enable
"$@"
echo 0 > $trace/events/rdma_core/cq_poll/enable
grep -o 'returned [0-9]*' $trace/trace || [ $? = 1 ]
"""


@dataclass(frozen=True)
class Row:
    """What an operation of ``case`` costs client, server and network together.

    ``hosts`` is what both hosts executed in the kernel, for each repeat, without what
    ``adapter`` did in the adapter's place. ``connections`` were really made.
    ``requests``, ``registrations`` and ``completions`` are for 1 MiB, and None where
    there are none.
    """

    case: Case
    hosts: tuple[Executed, ...]
    adapter: tuple[Executed, ...]
    connections: int
    requests: float
    registrations: float | None = None
    completions: float | None = None


def measured(cases: Sequence[Case]) -> Iterator[Row]:
    """Count ``cases``; those of a mount are to follow each other.

    Raises LabProblem and CommandFailed.
    """
    fabric = [case for case in cases if case.mount.transport is not RXE]
    soft = [case for case in cases if case.mount.transport is RXE]
    with tempfile.TemporaryDirectory() as folder:
        programs = build(Path(folder))
        hosts: tuple[tuple[list[Case], _Hosts], ...]
        hosts = ((fabric, _pair), (soft, _soft_roce))
        for number, (some, host) in enumerate(hosts):
            if some:
                file = Path(folder) / f"counts-{number}"
                file.touch()
                with host(Counted(programs.counter, file)) as (guest, pair):
                    guest.run(_STEADY, check=True)
                    yield from _all(_Site(guest, pair, programs, file), some)


@dataclass(frozen=True)
class _Site:
    guest: Guest
    pair: IbPair | None
    programs: Programs
    counts: Path

    def address(self, transport: Transport) -> str:
        """Return the server's address for ``transport``."""
        if self.pair is None:
            return Topology.address
        return _ETHERNET[0] if transport is ETHERNET else self.pair.address


@contextmanager
def _pair(counted: Counted) -> Iterator[tuple[Guest, IbPair | None]]:
    with ib_pair(
        guest=Guest("hypervisor", kernel_arguments=_KERNEL, counted=counted)
    ) as pair:
        guest = pair.hypervisor
        modules.load(guest, "veth")
        guest.run("ip link add veth0 type veth peer name veth1", check=True)
        pair.server.take("veth1")
        set_up(pair.server, "veth1", [f"{_ETHERNET[0]}/24"])
        set_up(guest, "veth0", [f"{_ETHERNET[1]}/24"])
        yield guest, pair


@contextmanager
def _soft_roce(counted: Counted) -> Iterator[tuple[Guest, IbPair | None]]:
    """Boot one host that mounts its own export: rdma_rxe of Linux 6.1 knows only the
    first network namespace (rxe_net.c, init_net).
    """
    guest = Guest("hypervisor", nics=[ALONE], kernel_arguments=_KERNEL, counted=counted)
    lab = Topology(guest, guest, NfsServer(guest), SOFT_ROCE)
    try:
        lab.start_server()
        yield guest, None
    finally:
        guest.kill()


def _all(site: _Site, cases: Sequence[Case]) -> Iterator[Row]:
    for mount, group in groupby(cases, lambda case: case.mount):
        _prepare(site, mount.transport)
        options = [
            f"vers={mount.version},proto={mount.transport.proto},nolock,retry=0",
            *([f"port={RDMA_PORT}"] if mount.transport.proto == "rdma" else []),
            *([f"nconnect={mount.nconnect}"] if mount.nconnect > 1 else []),
        ]
        export = f"{site.address(mount.transport)}:{EXPORT_PATH}"
        make = f"dd if=/dev/zero of={_FILE} bs=1M count=16 conv=fsync status=none"
        line = f"mount -t nfs -o {','.join(options)} {export} /mnt && {make}"
        site.guest.run(line, check=True, timeout=_TIMEOUT_S)
        for case in group:
            yield _row(site, case)
        site.guest.run("umount /mnt", check=True, timeout=_TIMEOUT_S)


def _prepare(site: _Site, transport: Transport) -> None:
    if transport is CONNECTED and site.pair is not None:
        pair = site.pair
        site.guest.run(_CONNECTED.format(pair.netdev), check=True)
        pair.server.run(_CONNECTED.format(pair.server_netdev), check=True)


def _row(site: _Site, case: Case) -> Row:
    before = _statistics(site.guest, case.mount)
    runs = _counted(site, case.load)
    after = _statistics(site.guest, case.mount)
    rounds = counts.FACTOR + REPEATS * (1 + counts.FACTOR)
    operations = case.load.operations * rounds
    mebibytes = operations * case.load.block / MIB
    adapter = case.mount.transport.adapter
    slopes = counts.slopes(runs, case.load.operations)
    others = [{*parts} - {*adapter} - {counts.USER_SPACE} for parts in slopes]
    rdma = case.mount.transport.proto == "rdma"
    return Row(
        case,
        tuple(map(counts.total, slopes, others)),
        tuple(counts.total(parts, adapter) for parts in slopes),
        len(after.transports),
        (_sum(after, "sends") - _sum(before, "sends")) / mebibytes,
        sum(_sum(after, name) - _sum(before, name) for name in _REGISTRATIONS)
        / mebibytes
        if rdma
        else None,
        _completions(site, case.load) if rdma else None,
    )


def _counted(site: _Site, load: Load) -> list[dict[str, Executed]]:
    """Run ``load``; return what was executed between its marks, by part."""
    begin = site.counts.stat().st_size
    site.guest.run(_command(site, load, REPEATS), check=True, timeout=_TIMEOUT_S)
    names = site.guest.run("cat /proc/modules", check=True).stdout
    loaded = counts.parse_modules(names)
    with site.counts.open(encoding="ascii") as file:
        file.seek(begin)
        marks = counts.parse_counts(file.read())
    if len(marks) != 2 * REPEATS + 1:
        raise LabProblem(f"{len(marks)} marks were counted, not {2 * REPEATS + 1}")
    return [counts.by_part(slots, loaded) for slots in marks[1:]]


def _completions(site: _Site, load: Load) -> float:
    """Return the completions for 1 MiB, counted in a run of their own."""
    command = ["bash", "-c", _TRACED, "traced", *_command(site, load, 0)]
    done = site.guest.run(command, check=True, timeout=_TIMEOUT_S)
    polled = sum(int(line.split()[1]) for line in done.stdout.splitlines())
    return polled * MIB / (counts.FACTOR * load.operations * load.block)


def _command(site: _Site, load: Load, repeats: int) -> list[str]:
    numbers = (load.block, load.operations, load.workers, repeats)
    return [str(site.programs.load), _FILE, load.direction, *map(str, numbers)]


def _statistics(guest: Guest, wanted: Mount) -> MountStatistics:
    text = guest.run("cat /proc/self/mountstats", check=True).stdout
    found, _ = parse_mount_statistics(text.encode())
    mount = next((one for one in found if one.mountpoint == "/mnt"), None)
    protocols = {one.protocol for one in mount.transports} if mount else set()
    if mount is None or protocols != {wanted.transport.proto}:
        raise LabProblem(f"the mount of {wanted} is not over its transport: {mount}")
    return mount


def _sum(mount: MountStatistics, column: str) -> int:
    return sum(transport.counters.get(column, 0) for transport in mount.transports)
