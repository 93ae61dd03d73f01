# SPDX-License-Identifier: GPL-2.0-or-later
"""Parse mountinfo, mountstats, and vdsmd's marks of degraded mounts. Pure.

mountinfo is in proc(5) and fs/proc_namespace.c, mountstats in fs/nfs/super.c and
net/sunrpc/stats.c. Any bytes are accepted.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, Optional

from ovirt_rdma.host.facts.model import DegradedMark, NfsMount
from ovirt_rdma.host.system.json_codec import Records, plain
from ovirt_rdma.host.system.json_document import Envelope, json_value

MOUNTINFO = "/proc/self/mountinfo"
MOUNTSTATS = "/proc/self/mountstats"
NFS_TYPES = ("nfs", "nfs4")

_OCTAL = rb"\\([0-3][0-7]{2})"


class MountEntry(NamedTuple):
    """One mount, with escapes resolved; ``options`` as in /proc/mounts: those of the
    mount, then those of the file system.
    """

    mountpoint: str
    fstype: str
    source: str
    options: str


def parse_mountinfo(data: bytes) -> tuple[list[MountEntry], list[str]]:
    """Return the entries in the kernel's order, and a sentence for each invalid line.

    Any bytes are accepted.
    """
    entries, problems = [], []
    # Not splitlines(): names may have a carriage return or a form feed.
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
    """Return the visible mount of each mount point: the last of stacked mounts."""
    last: dict[str, MountEntry] = {}
    for entry in entries:
        last.pop(entry.mountpoint, None)
        last[entry.mountpoint] = entry
    return list(last.values())


def unescape(field: bytes) -> str:
    r"""Return a field of mountinfo or mountstats as text; ``\040`` is a space.

    Bytes that are not UTF-8 are kept by surrogateescape.
    """
    if b"\\" in field:
        field = re.sub(_OCTAL, lambda match: bytes([int(match.group(1), 8)]), field)
    return field.decode("utf-8", "surrogateescape")


def normalised_source(source: str) -> str:
    """Return ``server:/path`` without doubled and trailing slashes.

    VDSM does the same (lib/vdsm/storage/fileUtils.py, normalize_path). A source of
    another form is returned unchanged.
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


class Section(NamedTuple):
    """An NFS mount in mountstats: its entry, without options, and the words of its
    lines, each with its number.
    """

    mount: MountEntry
    lines: list[tuple[int, list[bytes]]]


def parse_mountstats(data: bytes) -> dict[str, Section]:
    """Return the NFS mounts in mountstats by mount point, in its order; of mounts
    stacked on one mount point the last one counts.
    """
    sections: dict[str, Section] = {}
    section: Optional[Section] = None
    for number, line in enumerate(data.split(b"\n"), 1):
        if line.startswith((b"device ", b"no device ")):
            section, mount = None, _device(line.split(b" "))
            if mount is not None:
                sections.pop(mount.mountpoint, None)
            if mount is not None and mount.fstype in NFS_TYPES:
                section = sections[mount.mountpoint] = Section(mount, [])
        elif section is not None:
            words = line.split()
            if words:
                section.lines.append((number, words))
    return sections


def _device(words: list[bytes]) -> Optional[MountEntry]:
    """Read ``device SOURCE mounted on PATH with fstype TYPE [statvers=1.1]``; the
    source is one word, because the kernel escapes spaces.
    """
    if words[2:4] != [b"mounted", b"on"] or words[5:7] != [b"with", b"fstype"]:
        return None
    if len(words) == 7:
        return None
    source = normalised_source(unescape(words[1]))
    return MountEntry(unescape(words[4]), unescape(words[7]), source, "")


def nfs_mounts(
    mountinfo: bytes, mountstats: bytes, problems: list[str]
) -> tuple[NfsMount, ...]:
    """Return the visible NFS mounts, in the kernel's order, from the contents of both
    files. Invalid lines get a sentence in ``problems``; the others are used.
    """
    entries, odd = parse_mountinfo(mountinfo)
    problems += odd
    sections = parse_mountstats(mountstats)
    mounts = []
    for entry in visible(entries):
        if entry.fstype not in NFS_TYPES:
            continue
        values = dict(
            option.split("=", 1) for option in entry.options.split(",") if "=" in option
        )
        section = sections.get(entry.mountpoint)
        protocols, age_s = _protocols(section, problems) if section else ((), None)
        mounts.append(
            NfsMount(
                source=normalised_source(entry.source),
                mountpoint=entry.mountpoint,
                fstype=entry.fstype,
                options=entry.options,
                version=values.get("vers"),
                protocol=values.get("proto"),
                port=number_in(values.get("port"), 5),
                address=values.get("addr"),
                age_s=age_s,
                protocols=protocols,
            )
        )
    return tuple(mounts)


def _protocols(
    section: Section, problems: list[str]
) -> tuple[tuple[str, ...], Optional[int]]:
    """Return the protocol of each connection of a mount, and the mount's age."""
    protocols, age_s = [], None
    for number, words in section.lines:
        if words[0] == b"xprt:" and len(words) == 1:
            problems.append(f"{MOUNTSTATS} line {number} names no transport: skipped")
        elif words[0] == b"xprt:":
            protocols.append(words[1].decode("utf-8", "surrogateescape"))
        elif words[0] == b"age:" and len(words) == 2:
            age_s = number_in(words[1].decode("ascii", "replace"))
    return tuple(protocols), age_s


def number_in(text: Optional[str], digits: int = 20) -> Optional[int]:
    """Return a number of at most so many digits; unsigned 64 bit numbers have 20."""
    if text is None or not (text.isascii() and text.isdecimal()) or len(text) > digits:
        return None
    return int(text)


@dataclass(frozen=True)
class _Marks:
    mounts: tuple[DegradedMark, ...]


MARKS, _MARKS_FORM = Envelope("degraded-mounts"), Records("a mark")


def marks_to_json(marks: Iterable[DegradedMark]) -> bytes:
    """Return the marks, which vdsmd writes to /run, as ASCII JSON."""
    return MARKS.text(plain(_Marks(tuple(marks)))).encode("ascii")


def marks_from_json(data: bytes) -> tuple[DegradedMark, ...]:
    """Return the marks in ``data``; raises ValueError with the reason if it is not a
    result of :func:`marks_to_json`.
    """
    return _MARKS_FORM.read(_Marks, MARKS.content(json_value(data))).mounts
