# SPDX-License-Identifier: GPL-2.0-or-later
"""Results of benchmarks: a sound host, and changes that plant one limit each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Optional

from ovirt_rdma.storage.benchmark.model import (
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

RDMA, TCP = Setting("rdma", "4.2"), Setting("tcp", "4.2")
MIB = 1 << 20
LOADS = (
    Load(SEQUENTIAL_WRITE, MIB, 32),
    Load(SEQUENTIAL_READ, MIB, 32),
    Load(RANDOM_READ, 4096, 1),
    Load(RANDOM_READ, 4096, 32),
    Load(RANDOM_WRITE, 4096, 32),
)
# 100 Gb/s RoCE; the server is quick, and has memory.
PATH = NetworkPath(
    "10.0.0.1",
    "ens1f0",
    9000,
    "mlx5_0",
    1,
    "Ethernet",
    100_000,
    4096,
)
# Bytes per second by load, in the order of LOADS: RDMA at two thirds of the link.
RATES = (5.0e9, 8.0e9, 1.2e8, 1.6e9, 9.0e8)
RTT_MS = (4.0, 3.0, 0.03, 0.07, 0.12)

ChangeJob = Callable[[Job], Job]


def benchmark(
    *changes: ChangeJob,
    settings: Iterable[Setting] = (RDMA, TCP),
    path: Optional[NetworkPath] = PATH,
    slots: Optional[int] = 128,
    repeats: int = 3,
) -> Benchmark:
    """Return a sound benchmark after ``changes`` of each job.

    RDMA is twice as fast as TCP, and the repeats are 2 % apart.
    """
    jobs = [
        _job(setting, number, load, repeat)
        for repeat in range(1, repeats + 1)
        for setting in settings
        for number, load in enumerate(LOADS)
    ]
    for change in changes:
        jobs = [change(job) for job in jobs]
    return Benchmark(
        "2026-11-23T12:00:00Z",
        "hv1",
        "5.14.0-503.el9",
        "10.0.0.1:/x",
        "3.35",
        path,
        slots,
        tuple(jobs),
    )


def _job(setting: Setting, number: int, load: Load, repeat: int) -> Job:
    factor = (1.0 if setting.transport == "rdma" else 0.5) * (1 + 0.01 * (repeat - 2))
    rate = RATES[number] * factor
    operations = int(rate * 3 / load.block_bytes)
    sample = Sample(
        3.0,
        setting.transport,
        1,
        4.0 if setting.transport == "rdma" else 9.0,
        32,
        0.4,
        operations,
        operations,
        RTT_MS[number],
        0.01,
        0.0,
        0,
        0,
        operations * (load.block_bytes // 4096 + 1),
        0,
    )
    return Job(
        setting,
        load,
        repeat,
        rate,
        rate / load.block_bytes,
        900.0,
        sample,
    )


def rates(transport: Optional[str], values: dict[str, float]) -> ChangeJob:
    """Set the rates of loads by name, of one transport or all."""

    def change(job: Job) -> Job:
        value = values.get(job.load.name)
        if value is None or transport not in (None, job.setting.transport):
            return job
        rate = value * (1 + 0.01 * (job.repeat - 2))
        return replace(
            job, bytes_per_s=rate, operations_per_s=rate / job.load.block_bytes
        )

    return change


def counted(
    of: Optional[str] = None, load: Optional[str] = None, **values: Any
) -> ChangeJob:
    """Set fields of the samples, of one transport and one load or of all."""

    def change(job: Job) -> Job:
        if of not in (None, job.setting.transport):
            return job
        if load not in (None, job.load.name):
            return job
        return replace(job, sample=replace(job.sample, **values))

    return change


def only(setting: Setting, change: ChangeJob) -> ChangeJob:
    """Make a change for one setting."""
    return lambda job: change(job) if job.setting == setting else job
