# SPDX-License-Identifier: GPL-2.0-or-later
"""Read the state of enablement, and refuse steps that would be unsafe.

The marker says that a mode is enabled, and which one. Mode vdsmd also has a link to the
drop-in that starts vdsmd through the launcher. Mode host has only the marker, which
hooks and units check. A foreign file in a place of ours, or another enabled mode, is a
reason to refuse. Everything is read below a root directory, which tests use; nothing is
changed here.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from ovirt_rdma.host.collect.software import read_selinux, running_scripts
from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.exit_code import ExitCode
from ovirt_rdma.host.facts.model import SELinux
from ovirt_rdma.host.paths import (
    DAEMON_FILE,
    DROPIN_DIRECTORY,
    DROPIN_LINK,
    DROPIN_SOURCE,
    ENABLED,
    FOLDER_NOTE,
    LAUNCHER,
    OTHER_DROPIN_DIRECTORIES,
    RUN_MOUNTS,
    STOCK_REASON,
    STOCK_VDSMD,
    SYSTEMD_BOOTED,
    under,
)
from ovirt_rdma.host.system.files import unfinished, unfinished_files
from ovirt_rdma.host.system.safe_file import read_file
from ovirt_rdma.host.system.tree import FileTree

# The owner of a file in a place of ours.
ABSENT = "absent"
OURS = "ours"
FOREIGN = "foreign"
PRESENT = "present"

MODE_VDSMD = "vdsmd"
# The marker only: hooks and units are active, NFS mounts are stock.
MODE_HOST = "host"
MODES = (MODE_VDSMD, MODE_HOST)
MARKER_HEADER = (
    "# Written by ovirt-rdma-host enable; ovirt-rdma-host disable removes it."
)
# The note that enable created the folder, so that disable removes it.
NOTE = f"{MARKER_HEADER}\nmade: {DROPIN_DIRECTORY}\n"

# The program that started the running vdsmd.
BY_LAUNCHER = "launcher"
BY_STOCK = "stock"

# VDSM's user may write the file.
_LONGEST_REASON = 1000

_SETS_EXEC_START = re.compile(rb"^[ \t]*ExecStart[ \t]*=", re.MULTILINE)


@dataclass(frozen=True)
class VdsmdProcess:
    """A running vdsmd: its process id, and its program, BY_LAUNCHER or BY_STOCK.

    ``because``: why the launcher started stock vdsmd; None if it did not.
    """

    pid: int
    program: str
    because: Optional[str] = None


@dataclass(frozen=True)
class Folder:
    """A folder for files of ours: ABSENT, PRESENT or FOREIGN (not a plain folder), and
    the sorted names in it.
    """

    state: str
    entries: tuple[str, ...] = ()


@dataclass(frozen=True)
class EnablementState:
    """The state from which enable and disable are planned.

    marker, link, note: ABSENT, OURS or FOREIGN
    marker_mode: the mode in a marker of ours
    directory: vdsmd.service.d
    overrides: foreign drop-ins that replace vdsmd's ExecStart too
    left_over: unfinished files and folders of runs that were killed
    stock: VDSM has its vdsmd where the launcher expects it
    selinux: None if SELinux is disabled
    daemon_unit: the daemon's unit is installed
    systemd: systemd is running and can be reloaded
    """

    marker: str
    marker_mode: Optional[str]
    note: str
    link: str
    directory: Folder
    overrides: tuple[str, ...]
    left_over: tuple[str, ...]
    launcher: bool
    dropin: bool
    stock: bool
    process: Optional[VdsmdProcess]
    selinux: Optional[SELinux]
    daemon_unit: bool
    systemd: bool


def marker_text(mode: str) -> str:
    """Return the content of the marker for ``mode``."""
    return f"{MARKER_HEADER}\nmode: {mode}\n"


_MARKERS = {marker_text(mode).encode(): mode for mode in MODES}


def read_state(root: Path) -> EnablementState:
    """Read the state below ``root``. Raises OSError if a place is unreadable."""
    marker, mode = _one_of(_MARKERS, under(root, ENABLED))
    note, _ = _one_of({NOTE.encode(): ""}, under(root, FOLDER_NOTE))
    return EnablementState(
        marker=marker,
        marker_mode=mode,
        note=note,
        link=_link_state(under(root, DROPIN_LINK)),
        directory=_folder(under(root, DROPIN_DIRECTORY)),
        overrides=_overrides(root),
        left_over=_left_over(root),
        launcher=under(root, LAUNCHER).is_file(),
        dropin=under(root, DROPIN_SOURCE).is_file(),
        stock=under(root, STOCK_VDSMD).is_file(),
        process=vdsmd_process(root),
        selinux=read_selinux(FileTree(root)),
        daemon_unit=under(root, DAEMON_FILE).is_file(),
        # sd_booted(3): this folder exists only if systemd is the init.
        systemd=under(root, SYSTEMD_BOOTED).is_dir(),
    )


def marker_mode(root: Path) -> Optional[str]:
    """Return the mode in the marker below ``root``; None if there is no marker of ours
    or it cannot be read.
    """
    try:
        return _one_of(_MARKERS, under(root, ENABLED))[1]
    except OSError:
        return None


def vdsmd_process(root: Path) -> Optional[VdsmdProcess]:
    """Find the running vdsmd by its command line."""
    programs = {LAUNCHER: BY_LAUNCHER, STOCK_VDSMD: BY_STOCK}
    tree = FileTree(root)
    for pid, script in running_scripts(tree, programs):
        because = _stock_reason(tree, pid) if script == STOCK_VDSMD else None
        return VdsmdProcess(pid, programs[script], because)
    return None


def _stock_reason(tree: FileTree, pid: int) -> Optional[str]:
    """Return why the launcher started stock vdsmd in the process ``pid``, which stock
    vdsmd replaces, so that the id is the same.
    """
    data = tree.data(STOCK_REASON, others=RUN_MOUNTS) or b""
    number, _, reason = data.decode("utf-8", "replace").strip().partition(" ")
    return reason[:_LONGEST_REASON] or None if number == str(pid) else None


def _one_of(texts: Mapping[bytes, str], path: Path) -> tuple[str, Optional[str]]:
    """Return the owner of the file ``path`` and the entry of ``texts`` for its text."""
    if path.is_symlink():
        return FOREIGN, None
    try:
        content = read_file(path)
    except FileNotFoundError:
        return ABSENT, None
    except IsADirectoryError:
        return FOREIGN, None
    return (OURS, texts[content]) if content in texts else (FOREIGN, None)


def _folder(path: Path) -> Folder:
    if path.is_symlink():
        return Folder(FOREIGN)
    if path.is_dir():
        return Folder(PRESENT, tuple(sorted(entry.name for entry in path.iterdir())))
    return Folder(FOREIGN if path.exists() else ABSENT)


def _link_state(path: Path) -> str:
    if path.is_symlink():
        return OURS if str(path.readlink()) == DROPIN_SOURCE else FOREIGN
    return FOREIGN if path.exists() else ABSENT


def _left_over(root: Path) -> tuple[str, ...]:
    """Return unfinished files and folders of ours."""
    paths: list[Path] = []
    for path in (ENABLED, FOLDER_NOTE):
        if not under(root, path).parent.is_symlink():
            paths += unfinished_files(under(root, path))
    for folder in (posixpath.dirname(ENABLED), DROPIN_DIRECTORY):
        place = unfinished(under(root, folder))
        if place.is_dir() and not place.is_symlink():
            paths.append(place)
    return tuple(f"/{path.relative_to(root)}" for path in paths)


def _overrides(root: Path) -> tuple[str, ...]:
    """Return drop-ins of vdsmd.service, other than ours, that set ExecStart.

    A name in an earlier folder hides the same name in a later one.
    """
    overrides: dict[str, str] = {posixpath.basename(DROPIN_LINK): ""}
    for directory in (DROPIN_DIRECTORY, *OTHER_DROPIN_DIRECTORIES):
        for path in sorted(under(root, directory).glob("*.conf")):
            if path.name in overrides:
                continue
            overrides[path.name] = ""
            try:
                content = read_file(path)
            except OSError:
                continue  # systemd ignores it too
            if _SETS_EXEC_START.search(content):
                overrides[path.name] = f"{directory}/{path.name}"
    return tuple(path for path in overrides.values() if path)


# Step ids; stable, they appear in JSON.
MAKE_LINK = "make-link"
WRITE_NOTE = "write-folder-note"
WRITE_MARKER = "write-marker"
REMOVE_LINK = "remove-link"
REMOVE_DIRECTORY = "remove-directory"
REMOVE_NOTE = "remove-folder-note"
REMOVE_MARKER = "remove-marker"
REMOVE_LEFT_OVER = "remove-left-over"
RELOAD_SYSTEMD = "reload-systemd"
START_DAEMON = "start-daemon"
STOP_DAEMON = "stop-daemon"
RESTART_VDSMD = "restart-vdsmd"


@dataclass(frozen=True)
class Step:
    """One change: its stable id, its target, and a sentence about it."""

    id: str
    target: str
    sentence: str


Places = tuple[tuple[str, str], ...]


class EnablementRefused(Problem):
    """The request would be unsafe; nothing was changed."""

    exit_code = ExitCode.REFUSED


def modes_on(state: EnablementState) -> tuple[str, ...]:
    """Return the modes that are enabled completely or in part."""
    signs = {
        MODE_VDSMD: state.link == OURS,
        MODE_HOST: False,  # has only the marker
    }
    return tuple(m for m, sign in signs.items() if sign or state.marker_mode == m)


def own_places(state: EnablementState) -> Places:
    """Return the places that all modes use, as state and path."""
    return ((state.marker, ENABLED), (state.note, FOLDER_NOTE))


def vdsmd_places(state: EnablementState) -> Places:
    """Return the places of mode vdsmd, as state and path."""
    return (
        (state.directory.state, DROPIN_DIRECTORY),
        (state.link, DROPIN_LINK),
    )


def refuse_foreign(*places: tuple[str, str]) -> None:
    """Raise EnablementRefused if one of ``places`` has a foreign file or folder."""
    for state, path in places:
        if state == FOREIGN:
            raise EnablementRefused(
                "file-not-ours",
                f"{path} exists already and was not written by ovirt-rdma-host",
                "find out what it is for, move it away, and run this command again",
            )


def refuse_untrusted(refused: Sequence[str]) -> None:
    """Raise EnablementRefused if fapolicyd would not let programs of ours run."""
    if refused:
        raise EnablementRefused(
            "fapolicyd-untrusted",
            f"fapolicyd is running on this host and does not trust "
            f"{', '.join(refused)}: VDSM could not start these files",
            "install ovirt-rdma-host from its RPM, or run: "
            + "; ".join(
                f"fapolicyd-cli --file add {path} --trust-file ovirt-rdma"
                for path in refused
            )
            + "; fapolicyd-cli --update",
        )


def refuse_other_mode(state: EnablementState, wanted: str) -> None:
    """Raise EnablementRefused if another mode than ``wanted`` is enabled."""
    for mode in modes_on(state):
        if mode != wanted:
            raise EnablementRefused(
                "other-mode-enabled",
                f"mode {mode} is enabled, and only one mode can be",
                f"ovirt-rdma-host disable, then ovirt-rdma-host enable --mode {wanted}",
            )
