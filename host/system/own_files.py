# SPDX-License-Identifier: GPL-2.0-or-later
"""Make the text of our configuration files: in modules-load.d and modprobe.d, and that
which lets the daemon follow the P_Key tables. Pure.

The first line says that the file is ours, and the revision of its form. A file without
it is foreign and is never changed. Nor is a file with a line ``# mine``, which an admin
adds to take the file over (as ``# VDSM PRIVATE`` in VDSM's multipath.conf).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

MODULES_LOAD = "/etc/modules-load.d/ovirt-rdma.conf"
MODPROBE = "/etc/modprobe.d/ovirt-rdma.conf"
# The daemon makes and removes P_Key children only while it is there: so `apply` begins
# that, after its plan was seen, and `revert` ends it.
FOLLOW_PARTITIONS = "/etc/ovirt-rdma/follow-partitions"
OWN_FILES = (MODPROBE, MODULES_LOAD, FOLLOW_PARTITIONS)

# Increased when the form of the files changes.
REVISION = 1
_HEADER = "# ovirt-rdma revision "
_MINE = "# mine"
_EXPLAINED = (
    "# Written by ovirt-rdma-host {}, from /etc/ovirt-rdma/policy.yaml; changes",
    "# made here are lost. To keep the file as it is, add a line that reads: # mine",
)


def own_text(lines: Sequence[str], verb: str = "apply") -> str:
    """Return the text of a file of ours with ``lines`` in it, which ``verb`` writes."""
    explained = _EXPLAINED[0].format(verb), *_EXPLAINED[1:]
    return "\n".join((f"{_HEADER}{REVISION}", *explained, *lines)) + "\n"


def kept_reason(path: str, text: str) -> str:
    """Return why an admin wants to keep the file ``path`` with ``text``, or ""."""
    lines = text.splitlines()
    if any(" ".join(line.split()).lower() == _MINE for line in lines):
        return f"{path} has a line {_MINE!r}: it is left alone"
    return ""


def foreign_reason(path: str, text: Optional[str]) -> str:
    """Return why the existing file ``path`` must not be written by us, or "".

    ``text`` is its content, None if it could not be read.
    """
    if text is None:
        return f"{path} cannot be read"
    kept = kept_reason(path, text)
    if kept:
        return kept
    lines = text.splitlines()
    if not lines or not lines[0].startswith(_HEADER):
        return f"{path} is not from ovirt-rdma, judging by its first line"
    return ""
