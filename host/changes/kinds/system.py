# SPDX-License-Identifier: GPL-2.0-or-later
"""Change our files, kernel modules and systemd units.

Our own configuration files: written whole, and only over a file of ours.

Loading a kernel module. Nothing unloads one again: others may use it by then, and a
module that nobody uses changes nothing.

Enabling and starting a systemd unit of ours, and the reverse.
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
from ovirt_rdma.host.system.own_files import why_not_ours
from ovirt_rdma.host.system.safe_file import read_file
from ovirt_rdma.host.system.tree import FileTree

_MODE = 0o644
_FIX = "move the file away, or take what it says out of the policy"


def read_file_text(host: Host, change: Change) -> Reading:
    """Return the file's text; None where there is none."""
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
    """Write the file, or remove it where ``after`` is None. Raises EffectFailed: where
    the file that is there is not ours, or the disk is full; it is untouched then.
    """
    _put(host, change.target, change.after)


def undo_file(host: Host, change: Change, before: Optional[str]) -> None:
    """Write the earlier text again, or remove the file where there was none."""
    present = read_file_text(host, change)
    if present.problem or present.value != before:
        _put(host, change.target, before)
    else:
        remove_unfinished(host.path(change.target).parent)  # killed before the rename


def _put(host: Host, target: str, text: Optional[str]) -> None:
    path = host.path(target)
    present = read_file_text(host, Change(FILE, target, None, text))
    if present.problem:
        raise EffectFailed("file-unreadable", present.problem, _FIX)
    foreign = "" if present.value is None else why_not_ours(target, present.value)
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
    """Return ``loaded``, or None. /sys/module has built-in modules, too."""
    tree = FileTree(host.root)
    name = module_name(change.target)
    listed = (tree.text("/proc/modules") or "").split("\n")
    loaded = name in {line.partition(" ")[0] for line in listed}
    return Reading(LOADED if loaded or tree.is_folder(f"/sys/module/{name}") else None)


def do_module(host: Host, change: Change) -> None:
    """Load the module. Raises EffectFailed."""
    name = change.target
    fix = f"see journalctl -k, and: modprobe --verbose {name}"
    host.must(f"{name} cannot be loaded", ("modprobe", name), fix)


ENABLED = "enabled"
_VERBS = {True: "enable", False: "disable"}


def read_unit(host: Host, change: Change) -> Reading:
    """Return systemd's UnitFileState; None where there is no such unit."""
    if not host.path(SYSTEMD_BOOTED).is_dir():
        return Reading(problem="systemd does not run here")
    words = ("systemctl", "show", "-p", "UnitFileState", "--value", change.target)
    try:
        return Reading(host.tool(*words).strip() or None)
    except CommandFailed as e:
        return Reading(problem=f"{' '.join(words)} failed: {e}")


def do_unit(host: Host, change: Change) -> None:
    """Enable and start the unit, or disable and stop it. Raises EffectFailed."""
    _set(host, change.target, change.after == ENABLED)


def undo_unit(host: Host, change: Change, before: Optional[str]) -> None:
    """Give the unit its earlier state; one that is gone needs nothing."""
    present = read_unit(host, change)
    if not present.problem and present.value in (None, before):
        return
    _set(host, change.target, before == ENABLED)


def is_gone(host: Host, change: Change) -> bool:
    """Whether there is no such unit (any more)."""
    return read_unit(host, change) == Reading()


def _set(host: Host, unit: str, enabled: bool) -> None:
    if not host.path(SYSTEMD_BOOTED).is_dir():
        raise EffectFailed(
            "systemd-not-running",
            f"{unit} cannot be changed: systemd does not run here",
        )
    verb = _VERBS[enabled]
    fix = f"see systemctl status {unit}"
    host.must(f"{unit} cannot be {verb}d", ("systemctl", verb, "--now", unit), fix)
