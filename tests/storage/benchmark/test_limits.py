# SPDX-License-Identifier: GPL-2.0-or-later
"""Each planted limit is named, and it alone; a sound host is not blamed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.storage.benchmarks import (
    MIB,
    PATH,
    RDMA,
    TCP,
    benchmark,
    counted,
    only,
    rates,
)

from ovirt_rdma.storage.benchmark.limits import Case, limits
from ovirt_rdma.storage.benchmark.model import (
    LinkResult,
    NetworkPath,
    Setting,
)
from ovirt_rdma.storage.benchmark.verdict import verdict

READ, WRITE = "sequential-read", "sequential-write"
RANDOM = "random-read"
RDMA4 = replace(RDMA, nconnect=4)
LINE = 12.2e9  # what 100 Gb/s carry with an MTU of 4096, almost


def _serial(job):
    """One nfsd thread: 32 requests take as long as 32 times one."""
    if job.load.name != RANDOM:
        return job
    rtt = 0.1 * min(job.load.depth, 128)
    operations = 9500.0 + 10 * job.repeat
    return replace(
        job,
        bytes_per_s=operations * 4096,
        operations_per_s=operations,
        sample=replace(job.sample, rtt_ms=rtt, backlog=0.0),
    )


def _slow_disk(job):
    if job.load.name != RANDOM:
        return job
    operations = 100.0 * min(job.load.depth, 32) + job.repeat
    return replace(
        job,
        bytes_per_s=operations * 4096,
        operations_per_s=operations,
        sample=replace(job.sample, rtt_ms=9.5, backlog=0.0),
    )


def _serial_disk(job):
    """One nfsd thread, which waits 9.5 ms for the disk with each request."""
    if job.load.name != RANDOM:
        return job
    operations = 105.0 + job.repeat
    rtt = 9.5 * min(job.load.depth, 128)
    return replace(
        job,
        bytes_per_s=operations * 4096,
        operations_per_s=operations,
        sample=replace(job.sample, rtt_ms=rtt, backlog=0.0),
    )


def _recorded(figures):
    """Small reads as on kernel 6.1 in the lab: for each transport and depth the
    operations per second, the ms until the reply, and the busy share of the host.
    """

    def change(job):
        key = (job.setting.transport, job.load.depth)
        if job.load.name != RANDOM:
            return job
        operations, rtt, busy = figures.get(key, (job.operations_per_s, 900.0, 0.3))
        return replace(
            job,
            bytes_per_s=operations * 4096,
            operations_per_s=operations,
            sample=replace(job.sample, rtt_ms=rtt, backlog=0.0, busiest_cpu=busy),
        )

    return change


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


LINK = (LinkResult("ib_read_bw", "read", "rdma", "10.0.0.1", 1.2e9),)
PLANTED = {
    "rate of the port": (benchmark(rates("rdma", {READ: LINE})), "link-rate"),
    "rate by tc, seen by a tool": (
        replace(
            benchmark(
                rates(
                    None, {READ: 1.1e9, WRITE: 1.05e9, RANDOM: 1e9, "random-write": 9e8}
                ),
                rates("tcp", {RANDOM: 5e8, READ: 9e8, WRITE: 8e8}),
                path=None,
            ),
            link=LINK,
        ),
        "link-rate",
    ),
    "rate by tc, no tool, unknown port": (
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
    "MTU 1024 of 4096": (
        benchmark(path=replace(PATH, active_mtu=1024, netdev_mtu=1500)),
        "mtu",
    ),
    "16 slots": (benchmark(counted("rdma", backlog=15.5), slots=16), "slots"),
    "nconnect ignored": (
        benchmark(settings=(RDMA, TCP, RDMA4)),
        "connections",
    ),
    "one connection is not enough": (
        benchmark(
            only(RDMA4, rates(None, {READ: 1.05e10, WRITE: 8.0e9})),
            only(RDMA4, counted(connections=4)),
            settings=(RDMA, TCP, RDMA4),
        ),
        "connections",
    ),
    "rsize 64 KiB": (benchmark(counted("rdma", READ, rsize=65536)), "rsize"),
    "wsize 64 KiB": (benchmark(counted("rdma", WRITE, wsize=65536)), "rsize"),
    "PCIe 8 GT/s x4": (
        benchmark(
            rates("rdma", {READ: 3.2e9, WRITE: 3.1e9}),
            path=replace(PATH, pcie_mbps=31_507, pcie_link="8 GT/s x4"),
        ),
        "pcie",
    ),
    "all processors busy": (
        benchmark(counted("rdma", cpu_s=94.0, busiest_cpu=0.99)),
        "cpu",
    ),
    "one processor busy": (benchmark(counted("rdma", busiest_cpu=0.98)), "cpu"),
    "one nfsd thread": (benchmark(_serial), "server-threads"),
    "TCP in place of RDMA": (
        benchmark(rates("rdma", {READ: 4e9}), counted("rdma", transport="tcp")),
        "transport",
    ),
    "slow disk, writes": (
        benchmark(rates(None, {WRITE: 2.2e8})),
        "server-disk",
    ),
    "slow disk, reads": (
        benchmark(rates(None, {READ: 2.0e8, WRITE: 1.7e8}), _slow_disk),
        "server-disk",
    ),
    "one nfsd thread before a slow disk": (
        benchmark(rates(None, {READ: 2.0e8, WRITE: 1.7e8}), _serial_disk),
        "server-threads",
    ),
    "one nfsd thread before a slow disk, and the server's memory": (
        benchmark(ONE_THREAD),
        "server-threads",
    ),
    "requests that are late, and lost packets": (
        benchmark(_too_late, counted("rdma", READ, path_errors=66, packets=56_719)),
        "losses",
    ),
    "wrong port": (
        benchmark(
            rates("rdma", {READ: 2.9e9, WRITE: 2.9e9}),
            rates("tcp", {READ: 2.0e9, WRITE: 2.0e9}),
            path=replace(
                PATH,
                device="mlx5_1",
                data_rate_mbps=25_000,
                fastest="mlx5_0/1",
                fastest_mbps=100_000,
            ),
        ),
        "wrong-path",
    ),
}
# What a benchmark shows beside the planted limit, and is right too.
BESIDE = {
    # The link tools' rate is the whole of what the link has: nothing else is wrong.
    "rate of the port": set(),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_limit_is_named_alone(name):
    made, wanted = PLANTED[name]
    found = limits(made, RDMA)
    assert {one.kind for one in found} == {wanted} | BESIDE.get(name, set())
    assert found[0].evidence


def test_a_route_by_a_management_port_is_named():
    path = NetworkPath("10.0.0.1", "em1", 1500, fastest="mlx5_0/1", fastest_mbps=40_000)
    found = limits(benchmark(path=path, settings=(TCP,)), TCP)
    assert [one.kind for one in found] == ["wrong-path"]
    assert "em1, which is no RDMA port" in found[0].evidence
    # em1 may have 100 Gb/s, and the 40 of the other may be for something else.
    assert found[0].sentence == "the server is reached by a netdev without RDMA"
    assert "faster" not in found[0].fix


def test_a_server_without_rdma_limits_all_loads_of_tcp():
    reason = "10.0.0.1 refuses RDMA connections on port 20049"
    made = replace(benchmark(settings=(TCP,)), no_rdma=reason)
    (found,) = limits(made, TCP)
    assert (found.kind, len(found.loads), found.evidence) == ("transport", 3, reason)
    full = benchmark(rates("tcp", {READ: LINE}), settings=(TCP,))
    found = limits(replace(full, no_rdma=reason), TCP)
    assert [(one.kind, one.loads) for one in found] == [
        ("link-rate", ("large reads",)),
        ("transport", ("large writes", "small requests")),
    ]


def test_segments_sent_again_are_a_limit_of_tcp_only():
    for sign in ({"tcp_resent": 60_000}, {"tcp_out_of_order": 400_000}):
        made = benchmark(counted(None, **sign))
        assert {one.kind for one in limits(made, TCP)} == {"losses"}
        assert limits(made, RDMA) == ()


def test_a_host_that_reads_sees_losses_as_gaps_only():
    found = limits(benchmark(counted("tcp", READ, tcp_out_of_order=400_000)), TCP)
    assert [(one.kind, one.loads) for one in found] == [("losses", ("large reads",))]
    # Of three repeats.
    assert "1200000 TCP segments out of order" in found[0].evidence


SOUND = {
    "as it is": benchmark(),
    "nfsd with 512 KiB": benchmark(counted(None, rsize=MIB // 2, wsize=MIB // 2)),
    "a few errors": benchmark(
        counted(None, path_errors=3, tcp_resent=4, tcp_out_of_order=900)
    ),
    "a kernel without counters": benchmark(
        counted(
            None,
            transport=None,
            connections=0,
            rsize=None,
            wsize=None,
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
    "an x8 slot of enough speed": benchmark(
        path=replace(PATH, pcie_mbps=126_000, pcie_link="16 GT/s x8")
    ),
    "RoCE with MTU 4096 of 4096, netdev 4200": benchmark(
        path=replace(PATH, netdev_mtu=4200)
    ),
    "a faster port that is not needed": benchmark(
        path=replace(PATH, fastest="mlx5_2/1", fastest_mbps=200_000)
    ),
    "a server that is busy, not its disks": benchmark(BUSY_SERVER),
    "a host that is busy, not the server's disks": benchmark(BUSY_HOST),
    "requests that are late, without lost packets": benchmark(_too_late),
    "more connections do not help": benchmark(
        only(RDMA4, counted(connections=4)), settings=(RDMA, TCP, RDMA4)
    ),
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
        counted("rdma", rsize=65536, load=READ),
        settings=(RDMA, TCP, RDMA4),
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
        ("server-disk", ("large writes",)),
        ("server-threads", ("small requests",)),
    ]


@pytest.mark.parametrize(
    "peer, netdev, path, used",
    [
        ("10.0.0.1", None, None, True),
        ("10.0.0.1", "em1", PATH, True),
        ("hv2", "ens1f0", PATH, True),
        ("hv2", "em1", PATH, False),
        ("hv2", None, None, False),
        ("hv2", None, NetworkPath("10.0.0.1"), False),
    ],
)
def test_a_tool_counts_only_on_the_way_to_the_server(peer, netdev, path, used):
    link = (LinkResult("ib_read_bw", "read", "rdma", peer, 9e9, netdev),)
    made = replace(benchmark(path=path), link=link)
    case = Case(made, RDMA)
    assert case.link_rate == (9e9 if used else None)


def test_what_a_run_exceeds_is_no_limit():
    """A stream of iperf3 takes one processor, and reads by NFS were 8 GB/s."""

    def possible(rate, path=None):
        link = (LinkResult("iperf3", "stream", "tcp", "10.0.0.1", rate),)
        return Case(replace(benchmark(path=path), link=link), TCP).possible

    assert possible(3e9) is None
    assert round(possible(3e9, PATH) / 1e9, 1) == 12.3
    # As fast as the tool, or almost: that is the link.
    assert possible(7.9e9) == 8.08e9
    assert possible(9e9) == 9e9


@pytest.mark.parametrize(
    "name, words",
    [
        ("slow disk, writes", "the server takes writes no faster: its disks, sync or"),
        ("slow disk, reads", "the server's disks are the limit"),
    ],
)
def test_only_slow_reads_show_the_disks(name, words):
    """Writes may wait for its processors as well: nothing here tells them apart."""
    (found,) = limits(PLANTED[name][0], RDMA)
    assert found.sentence.startswith(words)


def test_no_limit_without_results():
    assert limits(benchmark(), Setting("rdma", "3")) == ()


def test_no_disk_is_named_if_the_other_transport_loses_packets():
    """By chance RDMA is as slow as TCP then, as in the lab with 1 of 1000 lost."""
    slow = rates(None, {WRITE: 1.9e9})
    kinds = {one.kind for one in limits(benchmark(slow), TCP)}
    assert "server-disk" in kinds
    lost = counted("rdma", path_errors=66, packets=12277)
    kinds = {one.kind for one in limits(benchmark(slow, lost), TCP)}
    assert "server-disk" not in kinds


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        (None, "max_block_size"),
        ("linux", "max_block_size"),
        ("ontap", "unstable with NetApp ONTAP: use nconnect"),
        ("vast", "documents of VAST"),
    ],
)
def test_the_advice_for_small_requests_depends_on_the_kind_of_server(kind, word):
    small = benchmark(counted("rdma", READ, rsize=65536))
    (found,) = limits(replace(small, server_kind=kind), RDMA)
    assert found.kind == "rsize" and word in found.fix


def test_the_recommended_options_are_those_of_the_kind():
    sound = replace(benchmark(), server_kind="ontap")
    found = verdict(sound)
    assert found.options == "proto=rdma,port=20049,rsize=65536,wsize=65536"
    assert "docs.netapp.com" in found.reasons[-1]
    assert verdict(benchmark()).options == "proto=rdma,port=20049"
