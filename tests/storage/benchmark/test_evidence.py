# SPDX-License-Identifier: GPL-2.0-or-later
"""Facts and counters become evidence; the mountstats lines are the kernel's own."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.fakes.fake_hosts import connectx3_ib, mapped_gid, soft_roce

from ovirt_rdma.host.collect.statistics import parse_mount_statistics
from ovirt_rdma.host.facts.devices import (
    Gid,
    Netdev,
    PciIdentity,
    RdmaDevice,
    RdmaPort,
)
from ovirt_rdma.host.facts.model import Facts, Route
from ovirt_rdma.host.facts.statistics import (
    PortCounters,
    Statistics,
)
from ovirt_rdma.storage.benchmark.model import NetworkPath
from ovirt_rdma.storage.benchmark.verdict import (
    Moment,
    path_to,
    sample_between,
)

MOUNT = "/run/ovirt-rdma-bench/mount"
SECTION = """\
device 10.0.0.1:/x mounted on {mount} with fstype nfs4 statvers=1.1
	opts:	rw,vers=4.2,rsize=65536,wsize=1048576,proto=rdma,nconnect=2
	age:	30
	bytes:	0 0 {bytes} 0 {bytes} 0 0 0
	RPC iostats version: 1.1  p/v: 100003/4 (nfs)
{xprts}
	per-op statistics
	READ: {reads} {sent} 0 1000 {bytes} {queue} {rtt} 999 0
	WRITE: 0 0 0 0 0 0 0 0 0
"""
XPRT = "\txprt:\trdma 0 0 {connects} 0 0 {sends} {sends} 0 {under_way} {backlog}"
REST = " 37 64 4 8411456 8389512 0 0 64320 3 0 0 0 0 44 96 0 0"


def _statistics(taken_s, reads=0, sent=0, rtt=0, queue=0, connects=1, protocol="rdma"):
    xprts = "\n".join(
        XPRT.format(connects=connects, sends=reads, under_way=reads * 16, backlog=reads)
        + (REST if protocol == "rdma" else " 2 0 0")
        for _ in range(2)
    ).replace("rdma", protocol)
    text = SECTION.format(
        mount=MOUNT,
        xprts=xprts,
        reads=reads,
        sent=sent,
        queue=queue,
        rtt=rtt,
        bytes=reads * 65536,
    )
    mounts, odd = parse_mount_statistics(text.encode())
    assert odd == []
    return Statistics(taken_s, mounts)


def _moment(statistics, busy=0, errors=0, packets=0, resent=0):
    port = PortCounters(
        "mlx5_0",
        1,
        {
            "port_rcv_packets": packets,
            "out_of_sequence": errors,
            "rnr_nak_retry_err": 10 * errors,
            "local_ack_timeout_err": None,
        },
    )
    cpus = {"cpu0": (busy, 1000 + busy), "cpu1": (0, 1000 + busy)}
    return Moment(statistics._replace(ports=(port,)), cpus, resent)


PATH = NetworkPath("10.0.0.1", "ens1f0", 9000, "mlx5_0", 1)


def test_a_sample_is_the_growth_between_two_moments():
    before = _moment(_statistics(100.0, 50, 50, 30, 10))
    after = _moment(
        _statistics(103.0, 1050, 1060, 2030, 510, connects=2), 250, 7, 9000, 12
    )
    sample = sample_between(before, after, MOUNT, PATH)
    assert (sample.seconds, sample.transport, sample.connections) == (3.0, "rdma", 2)
    assert (sample.operations, sample.transmissions) == (1000, 1010)
    assert (sample.rtt_ms, sample.queue_ms) == (2.0, 0.5)
    assert (sample.backlog, sample.reconnects) == (1.0, 2)
    # One of two processors was busy all the time.
    assert (sample.cpu_s, sample.cpus, sample.busiest_cpu) == (3.0, 2, 1.0)
    # A receiver that was late (RNR) is no loss.
    assert (sample.path_errors, sample.packets, sample.tcp_resent) == (7, 9000, 12)


@pytest.mark.parametrize(
    "name",
    ["out_of_sequence", "out_of_seq_request", "rcvd_seq_err"],
    ids=["mlx5 receives", "rxe receives", "rxe sends"],
)
def test_packets_lost_on_either_way_are_counted(name):
    """rxe: check_psn in rxe_resp.c, and rxe_comp.c, of drivers/infiniband/sw/rxe."""

    def moment(taken_s, errors):
        port = PortCounters("mlx5_0", 1, {name: errors})
        return Moment(_statistics(taken_s)._replace(ports=(port,)))

    sample = sample_between(moment(1.0, 3), moment(2.0, 60), MOUNT, PATH)
    assert sample.path_errors == 57


def test_a_sample_without_the_mount_or_the_port_says_nothing_about_them():
    empty = Moment(Statistics(100.0))
    sample = sample_between(
        empty, replace(empty, statistics=Statistics(101.0)), "/m", None
    )
    assert (sample.transport, sample.connections) == (None, 0)
    assert (sample.path_errors, sample.packets, sample.tcp_resent) == (None, None, None)
    assert sample.busiest_cpu == 0.0


def test_a_fallback_shows_in_the_connections():
    before, after = (_moment(_statistics(t, protocol="tcp")) for t in (1.0, 2.0))
    assert sample_between(before, after, MOUNT, PATH).transport == "tcp"


def test_data_without_requests_did_not_leave_the_host():
    """LOCALIO: fs/nfs/read.c, nfs_readpage_done."""
    read = {"server_read": 1 << 20, "server_written": 0}

    def moment(taken_s, **more):
        statistics = _statistics(taken_s)
        (mount,) = statistics.mounts
        return _moment(statistics._replace(mounts=(mount._replace(**more),)))

    before, after = moment(1.0), moment(2.0, **read)
    assert sample_between(before, after, MOUNT, PATH).transport == "local"
    # With pNFS the requests went to other servers.
    after = moment(2.0, **read, layout="LAYOUT_FLEX_FILES")
    assert sample_between(before, after, MOUNT, PATH).transport == "rdma"


def test_virtual_machines_are_no_load_of_this_host():
    """proc(5): guest and guest_nice are part of user and nice."""
    # user nice system idle iowait irq softirq steal guest guest_nice

    def moment(taken_s, stat):
        return Moment.of(Statistics(taken_s), stat, "", "")

    before = moment(1.0, "cpu0 0 0 0 0 0 0 0 0 0 0\n")
    after = moment(3.0, "cpu0 600 200 100 50 50 0 0 9 500 150\n")
    assert after.cpus == {"cpu0": (250, 1000)}
    sample = sample_between(before, after, MOUNT, None)
    assert (sample.busiest_cpu, sample.cpu_s) == (0.25, 0.5)
    assert moment(1.0, "cpu0 5 0 5 0 0 0 0 0 20 0\n").cpus == {"cpu0": (0, 10)}
    # Kernels before 2.6.24 have no guest times.
    old = moment(1.0, "cpu0 600 200 100 50 50 0 0 9\n")
    assert old.cpus == {"cpu0": (900, 1000)}


PCI = PciIdentity("0000:17:00.0", "0x15b3", "0x101d", "0x00")


def _roce(gid="10.0.0.2", rate=100_000):
    ports = (
        RdmaPort(
            *(1, "ACTIVE", "LinkUp", "Ethernet", rate, rate, 4096, 1024),
            gids=(Gid(0, mapped_gid(gid), "RoCE v2", "ens1f0"),),
        ),
    )
    return Facts(
        "hv1",
        "5.14.0",
        100.0,
        rdma_devices=(
            RdmaDevice("mlx5_0", "CA", "x", "mlx5_core", pci=PCI, ports=ports),
        ),
        netdevs=(Netdev("ens1f0", 1, 1500, "00:00:00:00:00:01", "up"),),
    )


ROCE = (1500, "mlx5_0", 1, "Ethernet", 100_000, 1024)


@pytest.mark.parametrize(
    ("route", "known"),
    [
        (Route("10.0.0.1", "ens1f0", "10.0.0.2"), ("ens1f0", *ROCE)),
        # By another netdev, without a source, and to another address.
        (Route("10.0.0.1", "em1", "192.0.2.7"), ("em1",)),
        (Route("10.0.0.1", "ens1f0"), ("ens1f0", 1500)),
        (Route("10.9.9.9", "ens1f0", "10.0.0.2"), ()),
    ],
    ids=["port and MTU", "another netdev", "no source", "no route"],
)
def test_the_path_by_a_route(route, known):
    facts = replace(_roce(), routes=(route,))
    assert path_to(facts, "10.0.0.1") == NetworkPath("10.0.0.1", *known)


def test_the_rate_of_soft_roce_is_unknown(tmp_path):
    # rxe_query_port invents 2.5 Gb/s for a netdev without a speed.
    host = soft_roce(tmp_path)
    facts = host.reader().facts(["10.0.0.1"])
    path = path_to(facts, "10.0.0.1")
    assert (path.device, path.data_rate_mbps) == ("rxe0", None)


def test_the_path_over_infiniband_is_that_of_the_ipoib_netdev(tmp_path):
    host = connectx3_ib(tmp_path)
    facts = host.reader().facts(["10.0.0.1"])
    path = path_to(facts, "10.0.0.1")
    assert (path.device, path.port, path.link_layer) == ("mlx4_0", 1, "InfiniBand")
    assert (path.netdev, path.data_rate_mbps) == ("ib0", 40_000)
