# SPDX-License-Identifier: GPL-2.0-or-later
"""Write our configuration files, load kernel modules, enable and disable our units.

A file is written atomically, and only if there is none or it is ours. A module is never
unloaded: others may use it by then, and an unused module does no harm.
"""

from __future__ import annotations

from typing import Optional

from ovirt_rdma.host.changes.kinds.base import EffectFailed, Host, Reading
from ovirt_rdma.host.facts.module_names import module_name
from ovirt_rdma.host.paths import SYSTEMD_BOOTED
from ovirt_rdma.host.rules.base import FILE, Change
from ovirt_rdma.host.system.commands import CommandFailed
from ovirt_rdma.host.system.files import (
    remove_unfinished,
    sync_directory,
    write_atomically,
)
from ovirt_rdma.host.system.own_files import foreign_reason
from ovirt_rdma.host.system.safe_file import read_file
from ovirt_rdma.host.system.tree import FileTree

_MODE = 0o644
_FIX = "move the file away, or remove from the policy what it sets"


def read_file_text(host: Host, change: Change) -> Reading:
    """Return the file's text; None if there is no file."""
    path = host.path(change.target)
    try:
        if path.is_symlink():
            return Reading(problem=f"{change.target} is a symbolic link, not our file")
        return Reading(read_file(path).decode("utf-8", "surrogateescape"))
    except (FileNotFoundError, NotADirectoryError):
        return Reading()
    except OSError as e:
        return Reading(problem=f"{change.target} cannot be read: {e.strerror}")


def do_file(host: Host, change: Change) -> None:
    """Write the file, or remove it if ``after`` is None. Raises EffectFailed if the
    present file is not ours, or the disk is full; the file is unchanged then.
    """
    _put(host, change.target, change.after)


def undo_file(host: Host, change: Change, before: Optional[str]) -> None:
    """Write the earlier text again, or remove the file if there was none."""
    present = read_file_text(host, change)
    if present.problem or present.value != before:
        _put(host, change.target, before)
    else:
        # A write may have been killed before the rename.
        remove_unfinished(host.path(change.target).parent)


def _put(host: Host, target: str, text: Optional[str]) -> None:
    path = host.path(target)
    present = read_file_text(host, Change(FILE, target, None, text))
    if present.problem:
        raise EffectFailed("file-unreadable", present.problem, _FIX)
    foreign = "" if present.value is None else foreign_reason(target, present.value)
    if foreign:
        raise EffectFailed("file-not-ours", foreign, _FIX)
    try:
        if text is not None:
            path.parent.mkdir(mode=0o755, exist_ok=True)
            write_atomically(path, text.encode("utf-8", "surrogateescape"), _MODE)
            return
        if present.value is not None:
            path.unlink()
            sync_directory(path.parent)
        remove_unfinished(path.parent)
    except OSError as e:
        raise EffectFailed(
            "file-not-written", f"{target} cannot be written: {e.strerror}"
        ) from None


LOADED = "loaded"


def read_module(host: Host, change: Change) -> Reading:
    """Return ``loaded``, or None. /sys/module has built-in modules too."""
    tree = FileTree(host.root)
    name = module_name(change.target)
    listed = (tree.text("/proc/modules") or "").split("\n")
    loaded = name in {line.partition(" ")[0] for line in listed}
    return Reading(LOADED if loaded or tree.is_folder(f"/sys/module/{name}") else None)


def do_module(host: Host, change: Change) -> None:
    """Load the module. Raises EffectFailed."""
    name = change.target
    fix = f"see journalctl -k, and: modprobe --verbose {name}"
    host.run_or_fail(f"module {name} cannot be loaded", ("modprobe", name), fix)


ENABLED = "enabled"
_VERBS = {True: "enable", False: "disable"}


def read_unit(host: Host, change: Change) -> Reading:
    """Return systemd's UnitFileState; None if there is no such unit."""
    if not host.path(SYSTEMD_BOOTED).is_dir():
        return Reading(problem="systemd is not running here")
    command = ("systemctl", "show", "-p", "UnitFileState", "--value", change.target)
    try:
        return Reading(host.tool(*command).strip() or None)
    except CommandFailed as e:
        return Reading(problem=f"{' '.join(command)} failed: {e}")


def do_unit(host: Host, change: Change) -> None:
    """Enable and start the unit, or disable and stop it. Raises EffectFailed."""
    _set(host, change.target, change.after == ENABLED)


def undo_unit(host: Host, change: Change, before: Optional[str]) -> None:
    """Restore the unit's earlier state; do nothing if it no longer exists."""
    present = read_unit(host, change)
    if not present.problem and present.value in (None, before):
        return
    _set(host, change.target, before == ENABLED)


def is_gone(host: Host, change: Change) -> bool:
    """Whether there is no such unit."""
    return read_unit(host, change) == Reading()


def _set(host: Host, unit: str, enabled: bool) -> None:
    if not host.path(SYSTEMD_BOOTED).is_dir():
        raise EffectFailed(
            "systemd-not-running",
            f"{unit} cannot be changed: systemd is not running here",
        )
    verb = _VERBS[enabled]
    fix = f"see systemctl status {unit}"
    command = ("systemctl", verb, "--now", unit)
    host.run_or_fail(f"{unit} cannot be {verb}d", command, fix)
