# SPDX-License-Identifier: GPL-2.0-or-later
"""When a mount was made, and which mark is about it. Pure.

The transport of an NFS mount never changes, so it has run over it since it was
made. The kernel gives ids of mounts out again, as soon as they are free, so that
place and time tell a mount from its predecessor.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from typing import Optional

from ovirt_rdma.host.facts import DegradedMark, NfsMount

# Ages are whole seconds, and uptime is read a moment later than they are.
SLACK_S = 5.0

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def mounted_s(mount: NfsMount, uptime_s: float) -> Optional[float]:
    """Return when ``mount`` was made, in seconds after boot; None if not known.

    ``uptime_s`` is 0.0 where it could not be read.
    """
    if mount.age_s is None or not uptime_s:
        return None
    return uptime_s - mount.age_s


def utc(booted_at: Optional[int], after_boot_s: Optional[float]) -> Optional[str]:
    """Return a time after boot as ``2026-11-21T02:51:34Z``; None if not known."""
    if booted_at is None or after_boot_s is None:
        return None
    try:
        moment = _EPOCH + timedelta(seconds=booted_at + after_boot_s)
    except OverflowError:  # a facts file may hold any number
        return None
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def shown(moment: str) -> str:
    """Return a time of :func:`utc` for people."""
    return moment.replace("T", " ").replace("Z", " UTC")


def mark_of(
    mount: NfsMount, marks: Iterable[DegradedMark], uptime_s: float
) -> Optional[DegradedMark]:
    """Return the mark that is about ``mount``, not about an earlier one there."""
    return next((mark for mark in marks if is_about(mark, mount, uptime_s)), None)


def is_about(mark: DegradedMark, mount: NfsMount, uptime_s: float) -> bool:
    """Whether ``mark`` was set on ``mount``, not on an earlier mount in its place."""
    if mark.mountpoint != mount.mountpoint:
        return False
    made = mounted_s(mount, uptime_s)
    if made is None or mark.mounted_s is None:
        return True
    return abs(made - mark.mounted_s) <= SLACK_S
