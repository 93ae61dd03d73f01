# SPDX-License-Identifier: GPL-2.0-or-later
"""What is there of the vdsmd launcher on a host: read, never changed.

Everything is read below a root directory, so that a fake tree is a test.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from ovirt_rdma.host.paths import (
    DROPIN_DIRECTORY,
    DROPIN_LINK,
    DROPIN_SOURCE,
    ENABLED,
    LAUNCHER,
    OTHER_DROPIN_DIRECTORIES,
    STOCK_VDSMD,
    SYSTEMD_BOOTED,
    under,
)

# Places that we write to: nothing there, our own thing there, or another's.
ABSENT = "absent"
OURS = "ours"
FOREIGN = "foreign"
PRESENT = "present"

MODE_VDSMD = "vdsmd"
MARKER_HEADER = (
    "# Written by ovirt-rdma-host enable; ovirt-rdma-host disable removes it."
)
MARKER_TEXT = f"{MARKER_HEADER}\nmode: {MODE_VDSMD}\n"

# Which program the running vdsmd was started with.
BY_LAUNCHER = "launcher"
BY_STOCK = "stock"

_SETS_EXEC_START = re.compile(rb"^[ \t]*ExecStart[ \t]*=", re.MULTILINE)


@dataclass(frozen=True)
class VdsmdProcess:
    """A running vdsmd: its process id, and whether our launcher or stock runs it."""

    pid: int
    program: str


@dataclass(frozen=True)
class EnablementState:
    """What the plans for enable and disable are made from.

    ``marker`` and ``link`` are ABSENT, OURS or FOREIGN. ``directory``, which is
    vdsmd.service.d, is ABSENT, PRESENT or FOREIGN (no plain folder);
    ``overrides`` are files of others that replace vdsmd's ExecStart too.
    ``systemd`` says whether there is a systemd to reload.
    """

    marker: str
    link: str
    directory: str
    directory_entries: tuple[str, ...]
    overrides: tuple[str, ...]
    launcher: bool
    dropin: bool
    process: Optional[VdsmdProcess]
    systemd: bool


def read_state(root: Path) -> EnablementState:
    """Read the state below ``root``. Raises OSError where a folder is unreadable."""
    directory = under(root, DROPIN_DIRECTORY)
    return EnablementState(
        marker=_marker_state(under(root, ENABLED)),
        link=_link_state(under(root, DROPIN_LINK)),
        directory=_directory_state(directory),
        directory_entries=(
            tuple(sorted(entry.name for entry in directory.iterdir()))
            if directory.is_dir()
            else ()
        ),
        overrides=_overrides(root),
        launcher=under(root, LAUNCHER).is_file(),
        dropin=under(root, DROPIN_SOURCE).is_file(),
        process=vdsmd_process(root),
        # sd_booted(3): this folder exists exactly where systemd is the init.
        systemd=under(root, SYSTEMD_BOOTED).is_dir(),
    )


def vdsmd_process(root: Path) -> Optional[VdsmdProcess]:
    """Find the running vdsmd by its command line: python3, then the script.

    Of several (one stopping, one starting) the one with the lowest id.
    """
    programs = {
        LAUNCHER.encode(): BY_LAUNCHER,
        STOCK_VDSMD.encode(): BY_STOCK,
    }
    proc = under(root, "/proc")
    for pid in sorted(int(e.name) for e in proc.glob("[0-9]*") if e.name.isdecimal()):
        try:
            arguments = (proc / str(pid) / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue  # it has ended
        if not posixpath.basename(arguments[0]).startswith(b"python"):
            continue
        script = next((a for a in arguments[1:] if not a.startswith(b"-")), b"")
        if script in programs:
            return VdsmdProcess(pid, programs[script])
    return None


def _marker_state(path: Path) -> str:
    if path.is_symlink():
        return FOREIGN
    try:
        return OURS if path.read_bytes() == MARKER_TEXT.encode() else FOREIGN
    except FileNotFoundError:
        return ABSENT
    except IsADirectoryError:
        return FOREIGN


def _directory_state(path: Path) -> str:
    if path.is_symlink():
        return FOREIGN
    if path.is_dir():
        return PRESENT
    return FOREIGN if path.exists() else ABSENT


def _link_state(path: Path) -> str:
    if path.is_symlink():
        return OURS if str(path.readlink()) == DROPIN_SOURCE else FOREIGN
    return FOREIGN if path.exists() else ABSENT


def _overrides(root: Path) -> tuple[str, ...]:
    """Drop-ins of vdsmd.service, other than ours, that set ExecStart.

    A name in an earlier folder hides the same name in a later one.
    """
    found: dict[str, str] = {posixpath.basename(DROPIN_LINK): ""}
    for directory in (DROPIN_DIRECTORY, *OTHER_DROPIN_DIRECTORIES):
        for path in sorted(under(root, directory).glob("*.conf")):
            if path.name in found:
                continue
            found[path.name] = ""
            try:
                content = path.read_bytes()
            except OSError:
                continue  # systemd passes over it as well
            if _SETS_EXEC_START.search(content):
                found[path.name] = f"{directory}/{path.name}"
    return tuple(path for path in found.values() if path)
