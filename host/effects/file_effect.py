# SPDX-License-Identifier: GPL-2.0-or-later
"""Our own configuration files: written whole, and only over a file of ours."""

from __future__ import annotations

from typing import Optional

from ovirt_rdma.host.atomic_file import (
    remove_unfinished,
    sync_directory,
    write_atomically,
)
from ovirt_rdma.host.effects.effect import EffectFailed, Host, Reading
from ovirt_rdma.host.own_files import why_not_ours
from ovirt_rdma.host.rules.rule import FILE, Change
from ovirt_rdma.host.safe_file import read_file

_MODE = 0o644
_FIX = "move the file away, or take what it says out of the policy"


def read(host: Host, change: Change) -> Reading:
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


def do(host: Host, change: Change) -> None:
    """Write the file, or remove it where ``after`` is None. Raises EffectFailed: where
    the file that is there is not ours, or the disk is full; it is untouched then.
    """
    _put(host, change.target, change.after)


def undo(host: Host, change: Change, before: Optional[str]) -> None:
    """Write the earlier text again, or remove the file where there was none."""
    present = read(host, change)
    if present.problem or present.value != before:
        _put(host, change.target, before)
    else:
        remove_unfinished(host.path(change.target).parent)  # killed before the rename


def _put(host: Host, target: str, text: Optional[str]) -> None:
    path = host.path(target)
    present = read(host, Change(FILE, target, None, text))
    if present.problem:
        raise EffectFailed(present.problem, _FIX)
    foreign = "" if present.value is None else why_not_ours(target, present.value)
    if foreign:
        raise EffectFailed(foreign, _FIX)
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
        raise EffectFailed(f"{target} cannot be written: {e.strerror}") from None
