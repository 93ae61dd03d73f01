# SPDX-License-Identifier: GPL-2.0-or-later
"""Write files atomically, and remove unfinished files of killed writes.

A reader sees the old content or the new, never a part. The new file is written beside
the old one, and its writer locks it (flock(2)). The lock ends with the process, so an
unlocked file has no writer any more; a process id or an age could not prove that.

The first line of our configuration files (in modules-load.d and modprobe.d, and that
which lets the daemon follow the P_Key tables) says that the file is ours, and the
revision of its form. A file without it is foreign and is never changed. Nor is a file
with a line ``# mine``, which an admin adds to take the file over (as ``# VDSM PRIVATE``
in VDSM's multipath.conf).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

from ovirt_rdma.host.errors import Problem

PUBLIC_MODE = 0o644

# Editors and people do not use this suffix, and it does not end in .conf.
_SUFFIX = ".ovirt-rdma"
_UNFINISHED = re.compile(r"\..+\.[a-z0-9_]{8}" + re.escape(_SUFFIX), re.DOTALL)


class NotDurable(OSError):
    """The file was replaced, but the entry of the folder may not be on disk: after a
    power cut the earlier file may be back.
    """

    def __init__(self, error: OSError) -> None:
        reason = (
            "it was replaced, but the earlier one may be back after a power cut: "
            f"{error.strerror or error}"
        )
        super().__init__(error.errno, reason, error.filename)


def write_atomically(
    path: Path,
    data: bytes,
    mode: int,
    *,
    replace: bool = True,
    like: Optional[Path] = None,
) -> None:
    """Replace ``path`` by a file with ``data`` and the permission bits ``mode``, or
    with owner, mode, label and access control list of the file ``like``.

    The umask is ignored. Data and directory entry are on disk on return. After a
    failure the old file is unchanged, nothing is left beside it, and the OSError is
    raised; only NotDurable is raised after the change. A symlink at ``path`` is
    replaced. Without ``replace``, FileExistsError is raised if ``path`` exists.
    Unfinished files of killed writes in the folder are removed.
    """
    remove_unfinished(path.parent)
    descriptor, temporary = _locked_beside(path)
    with os.fdopen(descriptor, "wb") as stream:  # closed, so unlocked, after the rename
        try:
            os.fchmod(descriptor, mode)
            if like is not None:
                _make_like(descriptor, like)
            stream.write(data)
            stream.flush()
            os.fsync(descriptor)
            if replace:
                temporary.replace(path)
            else:
                os.link(temporary, path)
                temporary.unlink()
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
    sync_change(path.parent)


def _make_like(descriptor: int, like: Path) -> None:
    status = like.stat()
    os.fchown(descriptor, status.st_uid, status.st_gid)
    # After the owner, because a change of owner clears bits.
    os.fchmod(descriptor, stat.S_IMODE(status.st_mode))
    names = []
    try:
        names = os.listxattr(like)
    except OSError as error:
        if error.errno not in (errno.ENOTSUP, errno.EPERM):
            raise
    # Not shutil.copystat, which would continue without one that is refused.
    for name in names:
        os.setxattr(descriptor, name, os.getxattr(like, name))


def _locked_beside(path: Path) -> tuple[int, Path]:
    while True:
        # As tempfile does it, which loads 0.5 MB into each process that writes a file.
        name = path.with_name(f".{path.name}.{os.urandom(4).hex()}{_SUFFIX}")
        new = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(name, os.O_WRONLY | new, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # another process is removing it as unfinished
            os.close(descriptor)
            continue
        except OSError:  # without locks nobody removes unfinished files either
            pass
        if os.fstat(descriptor).st_nlink:
            return descriptor, name
        os.close(descriptor)


def remove_unfinished(folder: Path) -> None:
    """Remove unfinished files of killed writes of this user in ``folder``.

    Only regular files with our form of name are removed. Never raises; a file that
    cannot be removed stays.
    """
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            ours = _UNFINISHED.fullmatch(entry.name)
            if ours and entry.is_file(follow_symlinks=False):
                with contextlib.suppress(OSError):
                    _remove_if_left_over(Path(entry.path))


def _remove_if_left_over(path: Path) -> None:
    descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid():
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()
    finally:
        os.close(descriptor)


def sync_directory(directory: Path) -> None:
    """Write the entries of ``directory`` to disk: created, renamed, removed files."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_change(directory: Path) -> None:
    """Write to disk that a file of ``directory`` was replaced. Raises NotDurable."""
    try:
        sync_directory(directory)
    except OSError as error:
        raise NotDurable(error) from error


def write_kernel_file(path: Path, data: bytes) -> None:
    """Write ``data`` to an existing file with one write(2). Raises OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
    try:
        os.write(descriptor, data)
    finally:
        os.close(descriptor)


_ROOT = "run this command as root"
_SPACE = "free space on the file system of {folder}"
_FIXES = {
    errno.EACCES: _ROOT,
    errno.EPERM: _ROOT,
    errno.ENOSPC: _SPACE,
    errno.EDQUOT: _SPACE,
    errno.EROFS: "the file system of {folder} is read-only: make it writable",
    errno.EIO: "check the disk of {folder}, which has errors: journalctl -k",
    errno.ELOOP: "remove the symbolic link, which ovirt-rdma-host did not create",
    # flock(2): out of memory for lock records.
    errno.ENOLCK: "find out why the kernel has no memory for locks",
}


def fix_for(error: OSError, path: Path) -> str:
    """Return the fix for ``error`` from an attempt to write or lock ``path``."""
    other = "check {folder}: it must be a folder that root can write to"
    return _FIXES.get(error.errno or 0, other).format(folder=path.parent)


def not_written(error: OSError, path: Path) -> Problem:
    """Return ``error`` from an attempt to write ``path`` as a Problem."""
    return Problem(
        "file-not-written",
        f"{path} cannot be written: {error.strerror}",
        fix_for(error, path),
    )


def make_folder(folder: Path) -> None:
    """Make a folder that everybody may read, whatever the umask is, unless it is there.
    Raises OSError.
    """
    if not folder.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o755)


def write_public(path: Path, text: str) -> None:
    """Replace ``path``, a file of ours that everybody may read, and make its folder.
    Raises Problem if that is not possible.
    """
    try:
        make_folder(path.parent)
        write_atomically(path, text.encode("ascii"), PUBLIC_MODE)
    except OSError as error:
        raise not_written(error, path) from error


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
