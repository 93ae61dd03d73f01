# SPDX-License-Identifier: GPL-2.0-or-later
"""Two servers: one with two paths that are well, one whose first path is down."""

from __future__ import annotations

from ovirt_rdma.host.system.tree import seconds_after_boot
from ovirt_rdma.storage.paths.state import (
    DOWN,
    UP,
    Move,
    PathsState,
    PathState,
    ServerPaths,
    write_paths,
)

GONE = PathState(
    "10.98.0.1", "ib0", DOWN, "ib0 has no carrier", "check its cable", 60.0, 0, 0.0
)
LEFT = PathState("10.99.0.1", "ib1", UP, since=0.0, connections=2, share=1.0)
MOVE = Move(61.0, "10.98.0.1", "10.99.0.1", "ib0 lost its carrier", 0.83)
HALF = ServerPaths(("nas1:/a", "nas1:/b"), (LEFT, GONE), 2, 1, 3, MOVE)

FIRST = PathState("10.96.0.1", "ib2", UP, since=0.0, connections=2, share=0.52)
SECOND = PathState("10.97.0.1", "ib3", UP, since=0.0, connections=2)
WHOLE = ServerPaths(("nas2:/c",), (FIRST, SECOND), 4)


def keep(root, *servers):
    """Let the daemon of the host below ``root`` have written these."""
    write_paths(root, PathsState(70.0, seconds_after_boot(), servers))
