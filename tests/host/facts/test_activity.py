# SPDX-License-Identifier: GPL-2.0-or-later
"""Two samples become totals and growth."""

from __future__ import annotations

from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ovirt_rdma.host.facts.model import (
    ConnectionActivity,
    PortError,
    Requests,
)
from ovirt_rdma.host.facts.statistics import (
    ERRORS,
    MountStatistics,
    OperationStatistics,
    PortCounters,
    Statistics,
    SunrpcTransport,
    Transport,
    activity_between,
)


def rdma(**values):
    return Transport("rdma", values)


def operation(name, operations, transmissions=None, queue_ms=0, rtt_ms=0):
    sent = operations if transmissions is None else transmissions
    return OperationStatistics(name, operations, sent, 0, 0, 0, queue_ms, rtt_ms, 0)


def mount(*transports, place="/mnt/a", source="nas:/a", **values):
    return MountStatistics(place, source, transports=transports, **values)


def sample(*mounts, taken_s=10.0, ports=(), transports=None):
    return Statistics(taken_s, mounts, transports, ports)


def of_mount(before, after):
    (found,) = activity_between(sample(before), sample(after, taken_s=12.5)).mounts
    return found


def test_totals_of_all_operations_and_connections():
    now = mount(
        rdma(connect_count=2, sends=70, bklog_u=5),
        rdma(connect_count=1, sends=30, bklog_u=6),
        operations=(
            operation("READ", 40, 44, queue_ms=7),
            operation("READ_PLUS", 2),
            operation("WRITE", 20, queue_ms=1, rtt_ms=2),
            operation("COPY", 3),
            operation("OFFLOAD_CANCEL", 1),
        ),
        server_read=4096,
        server_written=8192,
    )
    tcp = mount(Transport("tcp", {"connect_count": 1}), place="/mnt/tcp")
    (found,) = activity_between(sample(now, tcp), sample(now, tcp)).mounts
    assert (found.operations, found.retransmissions) == (66, 4)
    assert (found.reads, found.writes) == (42, 20)
    assert (found.server_read, found.server_written) == (4096, 8192)
    assert (found.copies, found.cancelled_copies) == (3, 1)
    assert (found.connects, found.sends, found.backlog) == (3, 100, 11)
    assert (found.connections, found.new_connects) == (2, 0)


def test_growth_between_the_samples():
    before = mount(
        rdma(connect_count=1, sends=9, bklog_u=1),
        operations=(operation("READ", 9, 9, queue_ms=3, rtt_ms=4),),
    )
    after = mount(
        rdma(connect_count=3, sends=29, bklog_u=6),
        operations=(operation("READ", 20, 27, queue_ms=10, rtt_ms=40),),
    )
    found = of_mount(before, after)
    assert (found.new_connects, found.new_retransmissions) == (2, 7)
    assert (found.new_operations, found.new_sends, found.new_backlog) == (11, 20, 5)
    assert found.new_reads == Requests(11, 7, 36)
    assert found.new_writes == Requests()
    assert activity_between(sample(before), sample(after, taken_s=12.5)).seconds == 2.5


@pytest.mark.parametrize(
    "before",
    [
        mount(rdma(connect_count=9), operations=(operation("READ", 9, 90),)),
        mount(rdma(connect_count=1), place="/mnt/b"),
        mount(rdma(connect_count=1), source="nas:/b"),
    ],
)
def test_another_mount_or_smaller_counters_are_no_growth(before):
    after = mount(rdma(connect_count=3), operations=(operation("READ", 20, 27),))
    found = of_mount(before, after)
    assert (found.new_connects, found.new_retransmissions) == (0, 0)


def queues(**values):
    """A connection of the server of ``place``, as sysfs shows it."""
    state = () if values.pop("closed", False) else ("CONNECTED", "BOUND")
    place = ("switch-0", "xprt-0-rdma", "rdma", values.pop("to", "10.0.0.1"), state)
    lengths = {f"{name}_q_len": length for name, length in values.items()}
    return SunrpcTransport(*place, {"pending_q_len": 0, "sending_q_len": 0, **lengths})


def two(*counted, **others):
    """A mount of 10.0.0.1 with two connections: sends and replies of each."""
    transports = [rdma(sends=sends, recvs=recvs) for sends, recvs in counted]
    return mount(*transports, **others)


QUEUED = queues(sending=3)
IDLE = [(5000, 5000), (9000, 9000)]


@pytest.mark.parametrize(
    "queue, later, waits",
    [
        # A request waits, though nothing is under way that could end the wait.
        (QUEUED, QUEUED, True),
        (queues(backlog=9), queues(backlog=12), True),
        # Those that wait have others to wait for: all slots are in use.
        (queues(backlog=9, pending=128), queues(backlog=9, pending=128), False),
        (QUEUED, queues(sending=3, pending=1), False),
        # They came only now, or are gone.
        (queues(), QUEUED, False),
        (QUEUED, queues(), False),
        # It was moved to another address.
        (QUEUED, queues(sending=3, to="10.0.0.2"), False),
        # It is made again.
        (queues(closed=True), queues(closed=True), False),
        (QUEUED, queues(closed=True, sending=3), False),
    ],
)
def test_a_connection_on_which_requests_wait_for_nothing(queue, later, waits):
    before, now = sample(transports=(queue,)), sample(transports=(later,))
    (found,) = activity_between(before, now).connections
    assert found.waits is waits


@pytest.mark.parametrize(
    "after, still",
    [
        (IDLE, 2),
        # Another connection works, or both do.
        ([(5000, 5000), (9900, 9900)], 1),
        ([(5001, 5000), (9001, 9001)], 0),
        # The mount was made again meanwhile, and counts from 0.
        ([(3, 3), (1, 1)], 0),
    ],
)
def test_connections_over_which_nothing_was_sent_or_received(after, still):
    found = of_mount(two(*IDLE), two(*after))
    assert (found.still, found.unanswered) == (still, 0)


@pytest.mark.parametrize(
    "before, after, unanswered",
    [
        # It sends ten and gets no reply, while the other gets some.
        ((40, 40), (50, 40), 1),
        # A reply came.
        ((40, 40), (51, 41), 0),
        # A few were sent just before the second sample.
        ((40, 40), (49, 40), 0),
        # Ten were sent again or killed, at some time; it is idle, or works.
        ((50, 40), (50, 40), 0),
        ((50, 40), (51, 41), 0),
    ],
)
def test_a_connection_that_gets_no_reply_while_another_does(before, after, unanswered):
    sends = of_mount(two((1, 1), before), two((9, 9), after))
    assert sends.unanswered == unanswered


def test_after_requests_were_sent_again_a_mount_is_as_sound_as_before():
    """A restart of the server, say: sends are ahead of replies from then on."""
    again = (operation("READ", 10_000, 10_010),)
    before = sample(two((5010, 5000), (5000, 5000), operations=again), transports=())
    after = two((5010, 5000), (5001, 5001), operations=again)
    (found,) = activity_between(before, sample(after, transports=())).mounts
    assert found.unanswered == 0


def test_a_server_that_does_not_answer_blocks_no_single_connection():
    silent = of_mount(two((1, 1), (1, 1)), two((50, 1), (50, 1)))
    assert (silent.still, silent.unanswered) == (0, 0)
    # Nor does a kernel without these counters.
    unknown = of_mount(mount(rdma(), rdma()), mount(rdma(), rdma()))
    assert (unknown.still, unknown.unanswered) == (0, 0)


def test_connections_are_those_over_rdma():
    both = (
        SunrpcTransport(
            *("switch-0", "xprt-0-rdma", "rdma", "10.0.0.1", ("BOUND",)),
            {"max_num_slots": 128, "num_reqs": 7, "backlog_q_len": 0},
        ),
        SunrpcTransport("switch-1", "xprt-1-tcp", "tcp"),
    )
    found = activity_between(sample(), sample(transports=both))
    assert found.connections == (
        ConnectionActivity("switch-0/xprt-0-rdma", "10.0.0.1", ("BOUND",), 128),
    )
    assert activity_between(sample(), sample()).connections is None


def port(number=1, **values):
    return PortCounters("mlx5_0", number, values)


def of_port(before, after):
    ((found,),) = (
        activity_between(sample(ports=(before,)), sample(ports=(after,))).ports,
    )
    return found


def test_errors_that_are_not_0_with_their_growth():
    found = of_port(
        port(symbol_error=3, link_downed=1, port_rcv_packets=100),
        port(symbol_error=5, link_downed=1, port_rcv_errors=0, port_rcv_packets=160),
    )
    assert found.errors == (
        PortError("symbol_error", 5, 2),
        PortError("link_downed", 1),
    )
    assert (found.read, found.packets, found.new_packets) == (True, 160, 60)


def test_counters_of_soft_roce_and_a_counter_that_was_set_to_0():
    found = of_port(
        port(rcvd_seq_err=90, rcvd_pkts=100), port(rcvd_seq_err=4, rcvd_pkts=7)
    )
    assert found.errors == (PortError("rcvd_seq_err", 4, 0),)
    assert (found.packets, found.new_packets) == (7, 0)


def test_a_device_that_does_not_answer_is_not_read():
    assert not of_port(port(symbol_error=None), port(symbol_error=None)).read
    # The counters of the device as a whole are no port.
    whole = sample(ports=(port(0, symbol_error=1),))
    assert activity_between(whole, whole).ports == ()


NAMES = st.sampled_from(["READ", "WRITE", "COPY", *ERRORS])
NUMBERS = st.integers(0, 2**64 - 1)
TRANSPORTS = st.builds(
    rdma, connect_count=NUMBERS, sends=NUMBERS, recvs=NUMBERS, bklog_u=NUMBERS
)
MOUNTS = st.builds(
    mount,
    TRANSPORTS,
    TRANSPORTS,
    operations=st.dictionaries(NAMES, st.tuples(NUMBERS, NUMBERS)).map(
        # Each request is transmitted at least once (net/sunrpc/stats.c).
        lambda counts: tuple(
            operation(name, count, count + again)
            for name, (count, again) in counts.items()
        )
    ),
)
SAMPLES = st.builds(
    lambda one, other, s: sample(one, taken_s=s, ports=(other,)),
    MOUNTS,
    st.builds(port, symbol_error=NUMBERS, port_rcv_packets=NUMBERS),
    st.floats(0, 1e9),
)


@given(SAMPLES, SAMPLES)
def test_no_number_is_negative_or_grows_beyond_its_total(before, after):
    found = activity_between(before, after)
    assert found.seconds >= 0
    for one in found.mounts:
        values = {field.name: getattr(one, field.name) for field in fields(one)}
        del values["mountpoint"], values["new_reads"], values["new_writes"]
        for new in (one.new_reads, one.new_writes):
            assert min(new.count, new.queue_ms, new.rtt_ms) >= 0
        assert all(value is None or value >= 0 for value in values.values())
        assert one.new_connects <= one.connects
        assert one.new_retransmissions <= one.retransmissions
    for error in (error for one in found.ports for error in one.errors):
        assert 0 <= error.grown <= error.value
