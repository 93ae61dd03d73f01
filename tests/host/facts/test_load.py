# SPDX-License-Identifier: GPL-2.0-or-later
"""Test what is concluded from two samples of the kernel's statistics."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ovirt_rdma.host.facts.statistics import (
    DATA,
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
    counters = {"connect_count": connects, "sends": sends, "bklog_u": backlog}
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
    means = ("queue_ms", "rtt_ms", "execute_ms")
    assert load.total("operations", DATA) == 20
    assert [load.mean(one, DATA) for one in means] == [10.0, 25.0, 35.0]
    assert [load.mean(one) for one in means] == [20 / 3, 520 / 30, 730 / 30]
    assert (load.count, load.sent_again, load.total("timeouts")) == (30, 3, 2)
    assert (load.total("bytes_sent"), load.total("bytes_received")) == (3000, 6000)
    assert (load.connects, load.backlog) == (2, 2.0)
    # 520 ms on the wire in 10 s.
    assert load.on_wire == pytest.approx(0.052)


def test_an_idle_mount_did_nothing():
    same = mount(operation("READ", 10, 5, 50, 60))
    load = load_between(same, same, 10.0)
    assert load is not None
    assert (load.count, load.backlog, load.on_wire) == (0, 0.0, 0.0)
    assert [load.mean(one) for one in ("queue_ms", "rtt_ms", "execute_ms")] == [0.0] * 3


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


# Data that was moved without requests

MIB = 1 << 20


def moved(name="READ", mib=0, requests=0, size=MIB, layout=None, writes=()):
    """A mount that has moved so much by so many requests, and has written some."""
    done = [operation(name, requests)] if requests else []
    done += [operation("WRITE", writes[1])] if writes else []
    written = writes[0] if writes else mib * (name == "WRITE")
    sums = mib * MIB * (name != "WRITE"), written * MIB
    sizes = {"rsize": size, "wsize": size}
    return mount(*done)._replace(**sizes, **_sums(*sums), layout=layout)


def _sums(read, written):
    return {"server_read": read, "server_written": written}


UNKNOWN = _sums(None, None)


@pytest.mark.parametrize(
    ("before", "after", "beyond"),
    [
        (moved(), moved(mib=64), 64),
        (moved("WRITE"), moved("WRITE", mib=64), 64),
        (moved(), moved(), 0),
        # Small writes over the connection hide no reads beside them.
        (moved(), moved(mib=64, writes=(1, 256)), 64),
        (moved(), moved(mib=64, requests=64), 0),
        (moved("READ_PLUS"), moved("READ_PLUS", mib=32, requests=32), 0),
        (moved("WRITE"), moved("WRITE", mib=32, requests=32), 0),
        # LOCALIO was enabled or disabled meanwhile.
        (moved(requests=5), moved(mib=17, requests=6), 16),
        # Its requests cannot have carried it. Debian's 6.12 reads by READ_PLUS.
        (moved(size=MIB // 4), moved(mib=32, requests=32, size=MIB // 4), 24),
        (
            moved("READ_PLUS", size=MIB // 4),
            moved("READ_PLUS", mib=32, requests=32, size=MIB // 4),
            24,
        ),
        (
            moved("WRITE", size=MIB // 4),
            moved("WRITE", mib=32, requests=32, size=MIB // 4),
            24,
        ),
        # 32 reads ended while the first sample was taken: their bytes came later.
        (moved(requests=32), moved(mib=9999, requests=9999), 0),
        # After a migration the server takes smaller requests.
        (moved(mib=999, requests=999), moved("READ", 1009, 1019, MIB // 2), 0),
        # Mounted again: its small reads are gone.
        (moved(mib=1, requests=256), moved(), 0),
        (moved(), moved(mib=64, size=None), 0),
        # Its requests are in the counters of other servers.
        (moved(), moved(mib=64, layout="LAYOUT_FLEX_FILES"), 0),
        (moved()._replace(**UNKNOWN), moved(mib=64), 0),
        (moved(), moved()._replace(**UNKNOWN), 0),
    ],
)
def test_what_was_moved_without_requests(before, after, beyond):
    assert moved_without_requests(before, after) == beyond * MIB
