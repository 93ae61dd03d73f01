# SPDX-License-Identifier: GPL-2.0-or-later
"""The text of the configuration files that are ours: modules-load.d and modprobe.d.
Pure.

The first line says whose the file is and in which form it was written. A file without
it is somebody else's and stays as it is; so does one with a line ``# mine``, by which
an admin takes the file over (the idea is VDSM's: ``# VDSM PRIVATE`` in multipath.conf).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

MODULES_LOAD = "/etc/modules-load.d/ovirt-rdma.conf"
MODPROBE = "/etc/modprobe.d/ovirt-rdma.conf"
OWN_FILES = (MODPROBE, MODULES_LOAD)

# Counts up when what we write into a file changes its form.
REVISION = 1
_HEADER = "# ovirt-rdma revision "
_MINE = "# mine"
_EXPLAINED = (
    "# Written by ovirt-rdma-host apply, from /etc/ovirt-rdma/policy.yaml; changes",
    "# made here are lost. To keep the file as it is, add a line that reads: # mine",
)


def own_text(lines: Sequence[str]) -> str:
    """Return the text of a file of ours with ``lines`` in it."""
    return "\n".join((f"{_HEADER}{REVISION}", *_EXPLAINED, *lines)) + "\n"


def why_not_ours(path: str, text: Optional[str]) -> str:
    """Say why the file ``path``, which is there, is not ours to write; else "".

    ``text`` is None where it could not be read.
    """
    if text is None:
        return f"{path} cannot be read"
    lines = text.splitlines()
    if any(" ".join(line.split()).lower() == _MINE for line in lines):
        return f"{path} has a line {_MINE!r}: it is left alone"
    if not lines or not lines[0].startswith(_HEADER):
        return f"{path} is not from ovirt-rdma: its first line is not ours"
    return ""
