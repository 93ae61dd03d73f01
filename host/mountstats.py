# SPDX-License-Identifier: GPL-2.0-or-later
"""The transports and ages in /proc/self/mountstats. Pure (fs/nfs/super.c,
net/sunrpc).
"""

from __future__ import annotations

from typing import Optional

from ovirt_rdma.host.facts import MountTransport
from ovirt_rdma.host.mountinfo import unescape

MOUNTSTATS = "/proc/self/mountstats"

# The counters are unsigned 64 bit numbers: 20 digits at most.
_DIGITS = 20


def parse_mountstats(
    data: bytes,
) -> tuple[dict[str, tuple[MountTransport, ...]], list[str]]:
    """Return the transports of each mount point that has any, and sentences.

    A mount point has one ``xprt:`` line a connection (nconnect). Protocol names and
    numbers of counters differ between kernels and are taken as they come; lines
    that mean nothing here are passed over. Counters that are no numbers leave the
    transport without counters, with a sentence. Any bytes are accepted; of mounts
    stacked on one mount point the last one counts.
    """
    found: dict[str, list[MountTransport]] = {}
    problems: list[str] = []
    here: Optional[str] = None
    for number, line in enumerate(data.split(b"\n"), 1):
        if line.startswith((b"device ", b"no device ")):
            here = _mountpoint(line.split(b" "))
            if here is not None:
                found[here] = []
            continue
        words = line.split()
        if here is None or not words or words[0] != b"xprt:":
            continue
        where = f"{MOUNTSTATS} line {number}"
        if len(words) == 1:
            problems.append(f"{where} names no transport: skipped")
            continue
        counters = words[2:]
        if not all(word.isdigit() and len(word) <= _DIGITS for word in counters):
            problems.append(f"{where} has a counter that is no number: not counted")
            counters = []
        protocol = words[1].decode("utf-8", "surrogateescape")
        found[here].append(MountTransport(protocol, tuple(map(int, counters))))
    return {key: tuple(value) for key, value in found.items() if value}, problems


def parse_ages(data: bytes) -> dict[str, int]:
    """Return the seconds since each mount was made (``age:``), where it says so.

    Any bytes are accepted; of mounts stacked on one mount point the last one counts.
    """
    ages: dict[str, int] = {}
    here: Optional[str] = None
    for line in data.split(b"\n"):
        if line.startswith((b"device ", b"no device ")):
            here = _mountpoint(line.split(b" "))
            if here is not None:
                ages.pop(here, None)
            continue
        words = line.split()
        if here is None or len(words) != 2 or words[0] != b"age:":
            continue
        if words[1].isdigit() and len(words[1]) <= _DIGITS:
            ages[here] = int(words[1])
    return ages


def _mountpoint(words: list[bytes]) -> Optional[str]:
    """Read ``device SOURCE mounted on PATH with fstype TYPE [...]``; the source is
    one word, for the kernel escapes spaces.
    """
    if words[2:4] != [b"mounted", b"on"] or words[5:7] != [b"with", b"fstype"]:
        return None
    return unescape(words[4])
