# SPDX-License-Identifier: GPL-2.0-or-later
"""Test what is concluded from two samples of the kernel's statistics."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ovirt_rdma.host.facts.statistics import (
    Calls,
    MountBytes,
    MountStatistics,
    OperationStatistics,
    Transport,
    load_between,
    moved_without_requests,
)


def operation(name, count, queue=0, rtt=0, execute=0, sent=None, timeouts=0):
    sent = count if sent is None else sent
    return OperationStatistics(
        name, count, sent, timeouts, 100 * count, 200 * count, queue, rtt, execute
    )


def connection(connects=1, sends=0, backlog=0):
    counters = (("connect_count", connects), ("sends", sends), ("bklog_u", backlog))
    return Transport("rdma", counters)


ONE = connection()


def mount(*operations, age_s=100, transports=(ONE,)):
    return MountStatistics(
        "/mnt/a",
        "s:/a",
        age_s,
        transports=transports,
        operations=operations,
    )


def test_what_was_done_between_two_samples():
    before = mount(
        operation("READ", 10, 5, 50, 60),
        operation("LOOKUP", 100, 0, 100, 100),
        transports=(connection(1, 110, 0),),
    )
    after = mount(
        operation("READ", 20, 205, 450, 660, sent=23, timeouts=2),
        operation("LOOKUP", 110, 0, 120, 130),
        # Not in the sample before: it was never used then.
        operation("COMMIT", 10, 0, 100, 100),
        age_s=110,
        transports=(connection(3, 150, 80),),
    )
    load = load_between(before, after, 10.0)
    assert load is not None
    assert load.data == Calls(20, 10.0, 25.0, 35.0)
    assert load.all == Calls(30, 20 / 3, 520 / 30, 730 / 30)
    assert (load.count, load.sent_again, load.total("timeouts")) == (30, 3, 2)
    assert (load.total("bytes_sent"), load.total("bytes_received")) == (3000, 6000)
    assert (load.connects, load.backlog) == (2, 2.0)
    # 520 ms on the wire in 10 s.
    assert load.on_wire == pytest.approx(0.052)


def test_an_idle_mount_did_nothing():
    same = mount(operation("READ", 10, 5, 50, 60))
    load = load_between(same, same, 10.0)
    assert load is not None
    assert (load.count, load.all, load.backlog, load.on_wire) == (0, Calls(), 0.0, 0.0)


EARLIER = mount(operation("READ", 10, 5, 50, 60))


@pytest.mark.parametrize(
    ("before", "after", "seconds"),
    [
        (None, EARLIER, 10.0),
        # Mounted again at the same place.
        (EARLIER, EARLIER._replace(age_s=3), 10.0),
        (EARLIER, EARLIER._replace(source="s:/b"), 10.0),
        # A counter that is smaller than before: also mounted again, or wrapped.
        (EARLIER, mount(operation("READ", 9, 5, 50, 60), age_s=None), 10.0),
        (EARLIER, EARLIER, 0.0),
    ],
)
def test_samples_that_cannot_be_compared(before, after, seconds):
    assert load_between(before, after, seconds) is None


@pytest.mark.parametrize(
    ("before", "after", "connects"),
    [
        ((connection(1),), (connection(1),), 0),
        # nconnect: one of two was made again.
        ((connection(1), connection(1)), (connection(1), connection(2)), 1),
        # A connection more, which was made now.
        ((connection(1),), (connection(1), connection(1)), 1),
        ((connection(4),), (connection(1),), 0),
        ((), (), 0),
        ((Transport("rdma"),), (Transport("rdma"),), 0),
    ],
)
def test_connections(before, after, connects):
    load = load_between(mount(transports=before), mount(transports=after), 1.0)
    assert load is not None
    assert load.connects == connects


counts = st.integers(0, 1 << 64)


@given(
    st.lists(counts, min_size=8, max_size=8), st.lists(counts, min_size=8, max_size=8)
)
def test_any_counters_make_a_load_or_none(first, second):
    def sample(numbers):
        return mount(
            OperationStatistics("READ", *numbers),
            transports=(connection(*numbers[:3]),),
        )

    load = load_between(sample(first), sample(second), 1.0)
    if load is not None:
        assert load.count == second[0] - first[0] >= 0
        assert min(load.backlog, load.on_wire, load.sent_again, load.connects) >= 0


def with_bytes(*operations, moved=None, size=1 << 20):
    sums = None if moved is None else MountBytes(moved, 0)
    return mount(*operations)._replace(bytes=sums, rsize=size, wsize=size)


LOCAL = 16 << 20


@pytest.mark.parametrize(
    ("moved", "calls", "beyond"),
    [
        (LOCAL, 0, LOCAL),
        # LOCALIO was enabled or disabled meanwhile.
        (LOCAL + (1 << 20), 1, LOCAL),
        # Calls that are under way are counted at their end.
        (LOCAL, LOCAL >> 20, 0),
        (0, 0, 0),
        (None, 0, 0),
    ],
)
def test_data_without_calls_is_local(moved, calls, beyond):
    before = with_bytes(operation("READ", 5), moved=0)
    after = with_bytes(operation("READ", 5 + calls), moved=moved)
    assert moved_without_requests(before, after) == beyond


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("READ", "server_read"),
        # Debian's 6.12 reads NFS 4.2 over TCP by it.
        ("READ_PLUS", "server_read"),
        ("WRITE", "server_written"),
    ],
)
@pytest.mark.parametrize(("size", "beyond"), [(1 << 20, 0), (1 << 18, 24 << 20)])
def test_data_is_local_if_its_calls_cannot_have_carried_it(name, column, size, beyond):
    before = with_bytes(operation(name, 5), moved=0, size=size)
    after = with_bytes(operation(name, 37), moved=0, size=size)
    after = after._replace(bytes=after.bytes._replace(**{column: 32 << 20}))
    assert moved_without_requests(before, after) == beyond


def test_data_is_not_local_if_the_size_of_calls_is_unknown():
    before, after = (with_bytes(moved=n, size=None) for n in (0, LOCAL))
    assert moved_without_requests(before, after) == 0


def test_data_of_a_pnfs_layout_is_not_local():
    """Its calls are in the counters of other servers."""
    after = with_bytes(moved=LOCAL)._replace(layout="LAYOUT_FLEX_FILES")
    assert moved_without_requests(with_bytes(moved=0), after) == 0
