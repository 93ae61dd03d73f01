# SPDX-License-Identifier: GPL-2.0-or-later
"""Parse mountstats, and join it with mountinfo by mount point into NFS mounts. Pure.

mountstats has the transports and ages of mounts (fs/nfs/super.c, net/sunrpc);
``mount_table`` parses mountinfo.
"""

from __future__ import annotations

from typing import Optional

from ovirt_rdma.host.collect.parsers.mount_table import (
    MOUNTSTATS,
    NFS_TYPES,
    normalised_source,
    parse_mountinfo,
    unescape,
    visible,
)
from ovirt_rdma.host.facts.model import MountTransport, NfsMount

# The counters are unsigned 64 bit numbers: 20 digits at most.
_DIGITS = 20


def parse_mountstats(
    data: bytes,
) -> tuple[dict[str, tuple[MountTransport, ...]], list[str]]:
    """Return the transports of each mount point that has any, and sentences.

    A mount point has one ``xprt:`` line per connection (nconnect). Protocol names and
    the number of counters differ between kernels; all are accepted. Other lines are
    ignored. If a counter is not a number, the transport has no counters, and there is a
    sentence. Any bytes are accepted. Of mounts stacked on one mount point the last one
    is used.
    """
    transports: dict[str, list[MountTransport]] = {}
    problems: list[str] = []
    mountpoint: Optional[str] = None
    for number, line in enumerate(data.split(b"\n"), 1):
        if line.startswith((b"device ", b"no device ")):
            mountpoint = _mountpoint(line.split(b" "))
            if mountpoint is not None:
                transports[mountpoint] = []
            continue
        words = line.split()
        if mountpoint is None or not words or words[0] != b"xprt:":
            continue
        where = f"{MOUNTSTATS} line {number}"
        if len(words) == 1:
            problems.append(f"{where} names no transport: skipped")
            continue
        counters = words[2:]
        if not all(word.isdigit() and len(word) <= _DIGITS for word in counters):
            problems.append(f"{where} has a counter that is not a number: ignored")
            counters = []
        protocol = words[1].decode("utf-8", "surrogateescape")
        transport = MountTransport(protocol, tuple(map(int, counters)))
        transports[mountpoint].append(transport)
    return {key: tuple(value) for key, value in transports.items() if value}, problems


def parse_ages(data: bytes) -> dict[str, int]:
    """Return the seconds since each mount was made, from its ``age:`` line.

    Any bytes are accepted. Of mounts stacked on one mount point the last one is used.
    """
    ages: dict[str, int] = {}
    mountpoint: Optional[str] = None
    for line in data.split(b"\n"):
        if line.startswith((b"device ", b"no device ")):
            mountpoint = _mountpoint(line.split(b" "))
            if mountpoint is not None:
                ages.pop(mountpoint, None)
            continue
        words = line.split()
        if mountpoint is None or len(words) != 2 or words[0] != b"age:":
            continue
        if words[1].isdigit() and len(words[1]) <= _DIGITS:
            ages[mountpoint] = int(words[1])
    return ages


def _mountpoint(words: list[bytes]) -> Optional[str]:
    """Read ``device SOURCE mounted on PATH with fstype TYPE [...]``; the source is one
    word, because the kernel escapes spaces.
    """
    if words[2:4] != [b"mounted", b"on"] or words[5:7] != [b"with", b"fstype"]:
        return None
    return unescape(words[4])


def nfs_mounts(
    mountinfo: bytes, mountstats: bytes, problems: list[str]
) -> tuple[NfsMount, ...]:
    """Return the visible NFS mounts, in the kernel's order.

    The arguments are the contents of the two files. Invalid lines get a sentence in
    ``problems``; the others are used.
    """
    entries, odd_mounts = parse_mountinfo(mountinfo)
    transports, odd_stats = parse_mountstats(mountstats)
    ages = parse_ages(mountstats)
    problems += [*odd_mounts, *odd_stats]
    mounts = []
    for entry in visible(entries):
        if entry.fstype not in NFS_TYPES:
            continue
        values = dict(
            option.split("=", 1) for option in entry.options.split(",") if "=" in option
        )
        mounts.append(
            NfsMount(
                source=normalised_source(entry.source),
                mountpoint=entry.mountpoint,
                fstype=entry.fstype,
                options=entry.options,
                version=values.get("vers"),
                protocol=values.get("proto"),
                port=_port(values.get("port")),
                address=values.get("addr"),
                age_s=ages.get(entry.mountpoint),
                transports=transports.get(entry.mountpoint, ()),
            )
        )
    return tuple(mounts)


def _port(text: Optional[str]) -> Optional[int]:
    if text is None or not text.isdecimal() or len(text) > 5:
        return None
    return int(text)
