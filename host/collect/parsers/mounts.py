# SPDX-License-Identifier: GPL-2.0-or-later
"""Parse mountinfo and mountstats, and join them into NFS mounts.

/proc/self/mountinfo as entries. Pure (proc(5); fs/proc_namespace.c).

The transports and ages in /proc/self/mountstats. Pure (fs/nfs/super.c,
net/sunrpc).

NFS mounts: mountinfo joined with mountstats by mount point. Pure.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from typing import Optional

from ovirt_rdma.host.facts.model import MountTransport, NfsMount

MOUNTINFO = "/proc/self/mountinfo"

_OCTAL = re.compile(rb"\\([0-3][0-7]{2})")


@dataclass(frozen=True)
class MountEntry:
    """One mount, escapes resolved; ``options`` as /proc/mounts joins them: those of
    the mount, then those of the file system.
    """

    mountpoint: str
    fstype: str
    source: str
    options: str


def parse_mountinfo(data: bytes) -> tuple[list[MountEntry], list[str]]:
    """Return the entries in the kernel's order, and a sentence for each line that is
    none; any bytes are accepted.
    """
    entries, problems = [], []
    # Not splitlines(): names may hold a carriage return or a form feed.
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line:
            continue
        entry = _entry(line.split(b" "))
        if entry:
            entries.append(entry)
        else:
            problems.append(f"{MOUNTINFO} line {number} is not a mount entry: skipped")
    return entries, problems


def visible(entries: list[MountEntry]) -> list[MountEntry]:
    """Return what is seen at each mount point: of stacked mounts the last one."""
    last: dict[str, MountEntry] = {}
    for entry in entries:
        last.pop(entry.mountpoint, None)
        last[entry.mountpoint] = entry
    return list(last.values())


def unescape(field: bytes) -> str:
    r"""Return a field of mountinfo or mountstats as text; ``\040`` is a space.

    Bytes that are not UTF-8 survive as surrogateescape.
    """
    plain = _OCTAL.sub(lambda match: bytes([int(match.group(1), 8)]), field)
    return plain.decode("utf-8", "surrogateescape")


def normalised_source(source: str) -> str:
    """Return ``server:/path`` with doubled and trailing slashes gone.

    As VDSM does it (lib/vdsm/storage/fileUtils.py, normalize_path); a source of
    another form is returned as it is.
    """
    closing = "]:" if source.startswith("[") else ":"
    server, colon, path = source.partition(closing)
    if not colon or not path:
        return source
    normal = posixpath.normpath(path)
    if normal.startswith("//"):
        normal = normal[1:]
    return f"{server}{colon}{normal}"


def _entry(fields: list[bytes]) -> Optional[MountEntry]:
    """Read ``id parent major:minor root mountpoint options [tag...] - fstype source
    super-options``; kernels differ in the tags.
    """
    try:
        dash = fields.index(b"-", 6)
        fstype, source, super_options = fields[dash + 1 : dash + 4]
    except ValueError:
        return None
    if not (fields[0].isdigit() and fields[4].startswith(b"/") and fstype):
        return None
    return MountEntry(
        mountpoint=unescape(fields[4]),
        fstype=unescape(fstype),
        source=unescape(source),
        options=_joined(unescape(fields[5]), unescape(super_options)),
    )


def _joined(mount_options: str, super_options: str) -> str:
    access, _, rest = mount_options.partition(",")
    super_access, _, super_rest = super_options.partition(",")
    if super_access == "ro":
        access = "ro"
    return ",".join(part for part in (access, rest, super_rest) if part)


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


NFS_TYPES = ("nfs", "nfs4")


def nfs_mounts(
    mountinfo: bytes, mountstats: bytes, problems: list[str]
) -> tuple[NfsMount, ...]:
    """Return the NFS mounts that are seen, in the kernel's order.

    Takes the two files as read; lines that cannot be understood get a sentence in
    ``problems`` and do not hide the others.
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
