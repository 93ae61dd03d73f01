# SPDX-License-Identifier: GPL-2.0-or-later
"""The exit codes of the commands ``ovirt-rdma`` and ``ovirt-rdma-host``.

A module of its own, because its class takes 0.2 ms to make, and vdsmd and the hooks
load ``errors``.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum


class ExitCode(IntEnum):
    """An exit code, with the ``sentence`` of ``--help`` and the manual pages."""

    sentence: str

    DONE = 0, "done, or nothing to do"
    FAILED = 1, "failed"
    USAGE = 2, "usage error"
    CHECKS_FAILED = 3, "checks failed, or something is not as it should be"
    REFUSED = 4, "refused as unsafe, or declined"
    SOME = 5, "done on some hosts, not on others"
    ROLLED_BACK = 6, "failed, and everything was rolled back"
    OTHER_RUN = 75, "another run is changing the same host or data center"
    INTERRUPTED = (
        130,
        "interrupted by Ctrl-C; 129 by a lost terminal (SIGHUP), 143 by SIGTERM",
    )

    def __new__(cls, number: int, sentence: str) -> ExitCode:
        """Return ``number`` with its ``sentence``."""
        code = int.__new__(cls, number)
        code._value_ = number
        code.sentence = sentence
        return code


# What a run of several parts ends with, if its parts end differently: the first of
# these. What needs somebody comes before what was undone, and that before what was
# never started.
_WORST_FIRST: tuple[int, ...] = (
    ExitCode.FAILED,
    ExitCode.SOME,
    ExitCode.ROLLED_BACK,
    ExitCode.USAGE,
    ExitCode.REFUSED,
    ExitCode.CHECKS_FAILED,
    ExitCode.OTHER_RUN,
    ExitCode.DONE,
)


def worst(codes: Iterable[int]) -> int:
    """Return the worst of the exit codes of several parts by what they mean; 0 for
    none.
    """
    return min(codes, key=_WORST_FIRST.index, default=0)
