# SPDX-License-Identifier: GPL-2.0-or-later
"""Plan a benchmark: what is measured, in which order, for how long. Pure.

RDMA and TCP are mounted in turns, never side by side: two mounts of one server and
version share a connection (:mod:`ovirt_rdma.storage.trunking`). Each repeat changes
which one is first, so that a server that warms up favours neither.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Optional

from ovirt_rdma.host.errors import Problem, UsageProblem
from ovirt_rdma.host.exit_code import ExitCode
from ovirt_rdma.host.mount_options import RDMA, TCP
from ovirt_rdma.storage.benchmark.model import (
    DEPTH,
    RANDOM_READ,
    RANDOM_WRITE,
    SEQUENTIAL_READ,
    SEQUENTIAL_WRITE,
    Load,
    Setting,
)

VERSIONS = ("3", "4.0", "4.1", "4.2")
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
    limit_s: how long all may take by the plan
    """

    transports: Sequence[str] = (RDMA, TCP)
    versions: Sequence[str] = ("4.2",)
    nconnect: Sequence[int] = (1,)
    repeats: int = 3
    seconds: int = 3
    size: int = 256 * MIB
    limit_s: float = 1800.0


@dataclass(frozen=True)
class Turn:
    """One mount, and what fio does in it."""

    setting: Setting
    repeat: int
    loads: tuple[Load, ...]


def turns(request: Request, slots: Optional[int]) -> tuple[Turn, ...]:
    """Return the mounts in their order.

    ``slots`` is the number of slots of an RDMA connection: one load has twice as many
    requests under way. Raises UsageProblem for a plan that takes too long.
    """
    loads = _loads(slots or DEFAULT_SLOTS)
    planned = tuple(_in_order(request, loads))
    needed = duration_s(request, planned)
    if needed > request.limit_s:
        raise UsageProblem(
            "bench-too-long",
            f"this would take {needed / 60:.0f} minutes, and the limit is "
            f"{request.limit_s / 60:.0f}",
            "measure fewer versions, connections or repeats, or raise --time-limit",
        )
    return planned


def _loads(slots: int) -> tuple[Load, ...]:
    above = min(2 * slots, 1024)
    depths = sorted({1, DEPTH, above})
    return (
        Load(SEQUENTIAL_WRITE, MIB, DEPTH),
        Load(SEQUENTIAL_READ, MIB, DEPTH),
        *(Load(RANDOM_READ, _BLOCK, depth) for depth in depths),
        Load(RANDOM_WRITE, _BLOCK, DEPTH),
    )


def _in_order(request: Request, loads: tuple[Load, ...]) -> Iterator[Turn]:
    for repeat in range(1, request.repeats + 1):
        for version in request.versions:
            for nconnect in request.nconnect:
                transports = list(request.transports)
                if repeat % 2 == 0:
                    transports.reverse()
                for transport in transports:
                    yield Turn(Setting(transport, version, nconnect), repeat, loads)


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
