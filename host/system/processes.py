# SPDX-License-Identifier: GPL-2.0-or-later
"""Find processes by what the kernel says of them.

Any user may give a process any name and any words (execve(2), prctl(2)): these count
only together with its user.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Union

from ovirt_rdma.host.system.tree import FileTree

ROOT = 0
# vdsm and kvm (VDSM, vdsm.spec.in, useradd -u 36).
VDSM_UID, VDSM_GID = 36, 36

# Real, effective, saved and file system id (proc(5)).
_UIDS = re.compile(rb"^Uid:\t(\d+)\t(\d+)\t(\d+)\t(\d+)$", re.MULTILINE)


def processes(tree: FileTree) -> Iterator[tuple[int, list[bytes]]]:
    """Yield the ids of all processes, in order, and the words that each was given."""
    for pid in sorted(int(name) for name in tree.names("/proc") if name.isdecimal()):
        words = tree.data(f"/proc/{pid}/cmdline") or b""
        yield pid, words.rstrip(b"\0").split(b"\0")


def runs(tree: FileTree, pid: Union[int, str], uid: int, program: str) -> bool:
    """Whether the process ``pid`` is the user's, and runs a file whose name begins with
    ``program``: it may have a version, or ``(deleted)``, at its end.

    Only root sees the file that another user's process runs; the user alone counts for
    others.
    """
    found = _UIDS.search(tree.data(f"/proc/{pid}/status") or b"")
    # The real id too: a set-user-ID program takes its words from the user.
    if not found or set(found.groups()) != {b"%d" % uid}:
        return False
    name = tree.link_name(f"/proc/{pid}/exe")
    return name is None or name.startswith(program)
