# SPDX-License-Identifier: GPL-2.0-or-later
"""Tell what a mount moved without requests from what its requests carried."""

from __future__ import annotations

import pytest

from ovirt_rdma.host.facts.statistics import (
    MountBytes,
    MountStatistics,
    OperationStatistics,
    moved_without_requests,
)

pytestmark = pytest.mark.hypervisor

MIB = 1 << 20


def sample(read=0, reads=0, written=0, writes=0, size=MIB, layout=None):
    """Return a mount that has moved so many bytes by so many requests."""
    operations = tuple(
        OperationStatistics(name, count, count, 0, 0, 0, 0, 0, 0)
        for name, count in (("READ", reads), ("WRITE", writes))
        if count
    )
    return MountStatistics(
        "/m",
        "s:/a",
        rsize=size,
        wsize=size,
        operations=operations,
        bytes=MountBytes(read, written),
        layout=layout,
    )


@pytest.mark.parametrize(
    ("before", "after", "moved"),
    [
        (sample(), sample(read=64 * MIB), 64 * MIB),
        (sample(), sample(written=64 * MIB), 64 * MIB),
        # Small writes over the connection hide no reads beside them.
        (sample(), sample(read=64 * MIB, written=MIB, writes=256), 64 * MIB),
        (sample(), sample(read=64 * MIB, reads=64), 0),
        # 32 reads ended while the first sample was taken: their bytes came later.
        (sample(reads=32), sample(read=9999 * MIB, reads=9999), 0),
        # After a migration the server takes smaller requests.
        (
            sample(read=999 * MIB, reads=999),
            sample(read=1009 * MIB, reads=1019, size=MIB // 2),
            0,
        ),
        # Mounted again: its small reads are gone.
        (sample(read=MIB, reads=256), sample(), 0),
        (sample(), sample(read=64 * MIB, size=None), 0),
        (sample(), sample(read=64 * MIB, layout="LAYOUT_FLEX_FILES"), 0),
        (sample()._replace(bytes=None), sample(read=64 * MIB), 0),
    ],
)
def test_what_was_moved_without_requests(before, after, moved):
    assert moved_without_requests(before, after) == moved
