# SPDX-License-Identifier: GPL-2.0-or-later
"""Parse mountinfo, the table of mounts, and fields that mountstats has too. Pure.

mountinfo is in proc(5) and fs/proc_namespace.c. Nothing of the facts is needed here:
the exporter of metrics starts often.
"""

from __future__ import annotations

import posixpath
import re
from typing import NamedTuple, Optional

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
