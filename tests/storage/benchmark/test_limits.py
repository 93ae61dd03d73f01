# SPDX-License-Identifier: GPL-2.0-or-later
"""Each planted limit is named, and it alone; a sound host is not blamed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.storage.benchmarks import (
    PATH,
    RDMA,
    TCP,
    benchmark,
    counted,
    rates,
)

from ovirt_rdma.storage.benchmark.model import NetworkPath, Setting
from ovirt_rdma.storage.benchmark.verdict import limits, possible

READ, WRITE = "sequential-read", "sequential-write"
RANDOM = "random-read"
LINE = 12.2e9  # what 100 Gb/s carry with an MTU of 4096, almost


def _small_reads(figures):
    """Change small reads: for each transport and depth ``figures`` gives the operations
    per second, the ms until the reply, and the busy share of the host.
    """

    def change(job):
        if job.load.name != RANDOM:
            return job
        operations, rtt, busy = figures(job.setting.transport, job.load.depth)
        operations += 0.01 * job.repeat
        return replace(
            job,
            bytes_per_s=operations * 4096,
            operations_per_s=operations,
            sample=replace(job.sample, rtt_ms=rtt, backlog=0.0, busiest_cpu=busy),
        )

    return change


# One nfsd thread: 32 requests take as long as 32 times one.
_serial = _small_reads(lambda how, depth: (9500.0, 0.1 * depth, 0.4))
_slow_disk = _small_reads(lambda how, depth: (100.0 * depth, 9.5, 0.4))
# One nfsd thread, which waits 9.5 ms for the disk with each request.
_serial_disk = _small_reads(lambda how, depth: (105.0, 9.5 * depth, 0.4))


def _recorded(figures):
    """Small reads as on kernel 6.1 in the lab."""
    return _small_reads(lambda how, depth: figures[how, depth])


# A disk that answers after 40 ms; some reads came from the server's memory.
ONE_THREAD = _recorded(
    {
        ("rdma", 1): (17.1, 53.7, 0.33),
        ("rdma", 32): (21.1, 1113.0, 0.27),
        ("tcp", 1): (19.6, 48.6, 0.31),
        ("tcp", 32): (21.8, 1086.4, 0.20),
    }
)
# A host and a server in memory, both busy; equally fast by chance.
BUSY_HOST = _recorded(
    {
        ("rdma", 1): (64.0, 2.2, 0.59),
        ("rdma", 32): (151.0, 27.0, 0.56),
        ("tcp", 1): (65.0, 2.5, 0.59),
        ("tcp", 32): (150.0, 62.8, 0.53),
    }
)
# A server in memory whose processor is busy: the way takes long, that of TCP longer.
BUSY_SERVER = _recorded(
    {
        ("rdma", 1): (104.0, 7.7, 0.70),
        ("rdma", 32): (225.0, 120.8, 0.66),
        ("tcp", 1): (38.0, 20.8, 0.52),
        ("tcp", 32): (215.0, 109.3, 0.48),
    }
)


def _too_late(job):
    """One nfsd thread that needs more than timeo=100 for the last of 32 reads."""
    if (job.setting.transport, job.load.name) != ("rdma", READ):
        return job
    return replace(
        job,
        p99_9_us=1.71e7,
        sample=replace(
            job.sample, operations=39, transmissions=46, reconnects=1, path_errors=0
        ),
    )


PLANTED = {
    "rate of the port": (benchmark(rates("rdma", {READ: LINE})), "link-rate"),
    "rate by tc, unknown port": (
        benchmark(
            rates(None, {READ: 1.18e8, WRITE: 1.15e8}),
            path=NetworkPath("10.0.0.1", "eth0", 1500),
        ),
        "link-rate",
    ),
    "loss on RoCE": (
        benchmark(counted("rdma", path_errors=4000, packets=1_000_000)),
        "losses",
    ),
    "reconnects": (benchmark(counted("rdma", READ, reconnects=2)), "losses"),
    "16 slots": (benchmark(counted("rdma", backlog=15.5), slots=16), "slots"),
    "all processors busy": (
        benchmark(counted("rdma", cpu_s=94.0, busiest_cpu=0.99)),
        "cpu",
    ),
    "one processor busy": (benchmark(counted("rdma", busiest_cpu=0.98)), "cpu"),
    "one nfsd thread": (benchmark(_serial), "server"),
    "slow disk, writes": (
        benchmark(rates(None, {WRITE: 2.2e8})),
        "server",
    ),
    "slow disk, reads": (
        benchmark(rates(None, {READ: 2.0e8, WRITE: 1.7e8}), _slow_disk),
        "server",
    ),
    "one nfsd thread before a slow disk": (
        benchmark(rates(None, {READ: 2.0e8, WRITE: 1.7e8}), _serial_disk),
        "server",
    ),
    "one nfsd thread before a slow disk, and the server's memory": (
        benchmark(ONE_THREAD),
        "server",
    ),
    "requests that are late, and lost packets": (
        benchmark(_too_late, counted("rdma", READ, path_errors=66, packets=56_719)),
        "losses",
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_limit_is_named_alone(name):
    made, wanted = PLANTED[name]
    found = limits(made, RDMA)
    assert {one.kind for one in found} == {wanted}
    assert found[0].evidence


def test_segments_sent_again_are_a_limit_of_tcp_only():
    for sign in ({"tcp_resent": 60_000}, {"tcp_out_of_order": 400_000}):
        made = benchmark(counted(None, **sign))
        assert {one.kind for one in limits(made, TCP)} == {"losses"}
        assert limits(made, RDMA) == ()


def test_errors_are_of_packets_only_if_these_are_counted():
    for packets, words in ((56_719, " in 170157 packets"), (None, "")):
        made = benchmark(counted("rdma", READ, path_errors=66, packets=packets))
        (found,) = limits(made, RDMA)
        assert found.evidence.endswith(f": 198 errors of the port{words}")


def test_a_host_that_reads_sees_losses_as_gaps_only():
    found = limits(benchmark(counted("tcp", READ, tcp_out_of_order=400_000)), TCP)
    assert [(one.kind, one.loads) for one in found] == [("losses", ("large reads",))]
    # Of three repeats.
    assert "1200000 TCP segments with gaps" in found[0].evidence


SOUND = {
    "as it is": benchmark(),
    # Its data did not go over the transport that is judged.
    "TCP in place of RDMA": benchmark(
        rates("rdma", {READ: 4e9}), counted(None, transport="mixed", busiest_cpu=1.0)
    ),
    "a few errors": benchmark(
        counted(None, path_errors=3, tcp_resent=4, tcp_out_of_order=900)
    ),
    "a kernel without counters": benchmark(
        counted(
            None,
            transport=None,
            connections=0,
            operations=0,
            transmissions=0,
            path_errors=None,
            packets=None,
            tcp_resent=None,
            tcp_out_of_order=None,
            rtt_ms=0.0,
        ),
        slots=None,
        path=None,
    ),
    "no counters, and no gain by more requests": benchmark(
        _serial, counted(None, rtt_ms=0.0, backlog=0.0)
    ),
    "this host is busy itself": benchmark(_serial, counted(None, busiest_cpu=0.56)),
    "a server that is busy, not its disks": benchmark(BUSY_SERVER),
    "a host that is busy, not the server's disks": benchmark(BUSY_HOST),
    "requests that are late, without lost packets": benchmark(_too_late),
    "writes slower than reads over RDMA only": benchmark(rates("rdma", {WRITE: 4.0e9})),
}


@pytest.mark.parametrize("name", SOUND)
@pytest.mark.parametrize("setting", [RDMA, TCP], ids=["rdma", "tcp"])
def test_a_sound_host_is_not_blamed(name, setting):
    assert limits(SOUND[name], setting) == ()


def test_a_full_link_excuses_what_is_behind_it():
    made = benchmark(
        rates("rdma", {READ: LINE, WRITE: LINE}),
        counted("rdma", backlog=3.0, load=READ),
    )
    assert [(one.kind, one.loads) for one in limits(made, RDMA)] == [
        ("link-rate", ("large reads", "large writes"))
    ]


def test_a_full_port_comes_before_a_busy_processor():
    made = benchmark(
        rates("rdma", {READ: LINE}), counted("rdma", READ, busiest_cpu=0.99)
    )
    assert [(one.kind, one.loads) for one in limits(made, RDMA)] == [
        ("link-rate", ("large reads",))
    ]


def test_each_kind_of_load_may_have_its_own_limit():
    made = benchmark(rates("rdma", {READ: LINE}), rates(None, {WRITE: 3e8}), _serial)
    assert [(one.kind, one.loads) for one in limits(made, RDMA)] == [
        ("link-rate", ("large reads",)),
        ("server", ("large writes", "small requests")),
    ]


def test_what_a_run_exceeds_is_no_limit():
    """A bond of two ports carries more than one of them."""
    one = replace(PATH, data_rate_mbps=50_000)
    assert possible(benchmark(path=one)) is None
    assert round((possible(benchmark()) or 0) / 1e9, 1) == 12.3


def test_no_limit_without_results():
    assert limits(benchmark(), Setting("rdma", "3")) == ()


def test_no_disk_is_named_if_the_other_transport_loses_packets():
    """By chance RDMA is as slow as TCP then, as in the lab with 1 of 1000 lost."""
    slow = rates(None, {WRITE: 1.9e9})
    kinds = {one.kind for one in limits(benchmark(slow), TCP)}
    assert "server" in kinds
    lost = counted("rdma", path_errors=66, packets=12277)
    kinds = {one.kind for one in limits(benchmark(slow, lost), TCP)}
    assert "server" not in kinds
