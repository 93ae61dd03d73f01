# SPDX-License-Identifier: GPL-2.0-or-later
"""Open files for reading, safely: the only module that does.

Whatever is at a path, a read ends and uses limited memory. Only regular files are read,
which includes those of /proc and /sys. An open never waits, neither for the other end
of a pipe nor for a lease (open(2), O_NONBLOCK). Refusals are OSErrors whose
``strerror`` is a clause.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Union

Name = Union[str, os.PathLike[str]]

# The largest files of a hypervisor are kernel configurations, udev databases and mount
# tables, each well below 1 MB.
MOST_BYTES = 16 << 20
# For files that the user vdsm can write: VDSM's records of networks and our marks have
# some hundred bytes per entry.
MOST_BYTES_OF_OTHERS = 1 << 20
# For folders that the user vdsm can write. A port has at most 4094 VLAN networks.
MOST_NAMES_OF_OTHERS = 4096
# For files that a person names: a dump of a host's facts has some megabytes.
MOST_BYTES_NAMED = 256 << 20

# Names and links in a path; those of VDSM have five.
_MOST_STEPS = 40
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_CHUNK = 1 << 16
_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
    stat.S_IFLNK: "a symbolic link",
}


def read_file(path: Name, most: int = MOST_BYTES) -> bytes:
    """Return the bytes of a regular file in folders that only root can write.

    Links are followed, because an admin made them. A link to /dev/null, which disables
    a file for systemd, udev and modprobe.d, is empty. Raises OSError if there is no
    file, if it is not regular, or has more than ``most`` bytes; IsADirectoryError for a
    folder.
    """
    # To open a device or a pipe can have an effect, so they are looked at first.
    place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        return _content(place, most)
    finally:
        os.close(place)


def read_own_file(path: Name) -> bytes:
    """Return the bytes of a regular file of root's, or of this user's, that nobody else
    can write. Raises as :func:`read_file`, and for a symbolic link.
    """
    place = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        status = os.fstat(place)
        kind, why = stat.S_IFMT(status.st_mode), ""
        if kind != stat.S_IFREG:
            why = f"it is {_KINDS.get(kind, 'a folder')}, not a regular file"
        elif status.st_uid not in (0, os.geteuid()):
            why = f"it belongs to the user {status.st_uid}, not to root"
        elif status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            why = "other users than its owner may write to it"
        if why:
            raise OSError(errno.EINVAL, why)
        return _content(place, MOST_BYTES_NAMED)
    finally:
        os.close(place)


def has_line(path: Name, wanted: Callable[[bytes], bool]) -> bool:
    """Whether a line of a file of the kernel, of any length, is ``wanted``. Raises
    OSError.
    """
    with open(path, "rb", opener=lambda name, _: os.open(name, _FLAGS)) as lines:
        return any(map(wanted, lines))


def read_file_of_others(
    folder: str, path: str, most: int = MOST_BYTES_OF_OTHERS
) -> bytes:
    """Return the bytes of a regular file below ``folder``, which others than root can
    write. Nothing outside of it is ever opened.

    Raises as :func:`read_file`, and for a symbolic link, or a link in the path that
    leads out of ``folder``.
    """
    with _place(folder, path) as place:
        return _content(place, most, null=False)


def names_of_others(
    folder: str, path: str, most: int = MOST_NAMES_OF_OTHERS
) -> list[str]:
    """Return the sorted names in the folder ``path``, which is ``folder`` or below it.

    Raises OSError, also if ``path`` leads out of it or has more than ``most`` names.
    """
    with _place(folder, path) as place:
        if stat.S_ISLNK(os.fstat(place).st_mode):
            raise OSError(errno.ENOTDIR, "it is a symbolic link, not a folder")
        with os.scandir(f"/proc/self/fd/{place}") as inside:
            names = sorted(entry.name for entry in islice(inside, most + 1))
    if len(names) > most:
        raise OSError(errno.EFBIG, f"it has more than {most} names")
    return names


def read_named(path: Name, most: int = MOST_BYTES_NAMED) -> bytes:
    """Return the bytes of a file from the command line, which may be a pipe:
    ``<(ssh host ...)``. Raises OSError, also for a device or socket, and for more than
    ``most`` bytes.
    """
    place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISFIFO(os.fstat(place).st_mode):
            return _content(place, most)
        return _bytes(os.open(_again(place), _FLAGS & ~os.O_NONBLOCK), most)
    finally:
        os.close(place)


def exists(folder: str, path: str) -> bool:
    """Whether ``path`` below ``folder``, which others than root can write, exists. True
    also if it would be refused on reading.
    """
    try:
        with _place(folder, path):
            return True
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True


@contextmanager
def _place(folder: str, path: str) -> Iterator[int]:
    """Yield a descriptor of ``path`` that does not open it (open(2), O_PATH): opening a
    device can have an effect, for example arm a watchdog.

    The path is resolved name by name, so that a link that leads out of ``folder`` is
    never followed, not even to a server that does not respond. VDSM has links inside:
    ``netconf -> /var/lib/vdsm/staging/netconf.Xy3`` (network/netconfpersistence.py).
    """
    todo = _names(path[len(folder) :])
    opened = [os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)]
    current = base = opened[0]
    try:
        while todo:
            name = todo.pop(0)
            flags = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
            opened.append(os.open(name, flags, dir_fd=current))
            if len(opened) > _MOST_STEPS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            if not todo or not stat.S_ISLNK(os.fstat(opened[-1]).st_mode):
                current = opened[-1]
                continue
            target = os.readlink("", dir_fd=opened[-1])
            if target.startswith(f"{folder}/"):
                current, target = base, target[len(folder) :]
            elif target.startswith("/"):
                raise _leads_out()
            todo = _names(target) + todo
        yield current
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _names(path: str) -> list[str]:
    names = [name for name in path.split("/") if name not in ("", ".")]
    if ".." in names:
        raise _leads_out()
    return names


def _leads_out() -> OSError:
    return OSError(errno.ELOOP, "a symbolic link leads out of its folder")


def _content(place: int, most: int, *, null: bool = True) -> bytes:
    """Return the bytes of what :func:`os.open` with O_PATH has found."""
    status = os.fstat(place)
    kind = stat.S_IFMT(status.st_mode)
    # Linux, Documentation/admin-guide/devices.txt
    if null and kind == stat.S_IFCHR and status.st_rdev == os.makedev(1, 3):
        return b""
    if kind == stat.S_IFDIR:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if kind != stat.S_IFREG:
        what = _KINDS.get(kind, "something else")
        raise OSError(errno.EINVAL, f"it is {what}, not a regular file")
    return _bytes(os.open(_again(place), _FLAGS), most)


def _again(place: int) -> str:
    # The file that was looked at, even if another one has its name by now.
    return f"/proc/self/fd/{place}"


def _bytes(descriptor: int, most: int) -> bytes:
    """Return all bytes, and close ``descriptor``."""
    # The size is not used: files of /proc have none.
    parts: list[bytes] = []
    left = most
    try:
        while part := os.read(descriptor, min(_CHUNK, left + 1)):
            left -= len(part)
            if left < 0:
                raise OSError(errno.EFBIG, f"it has more than {most} bytes")
            parts.append(part)
    finally:
        os.close(descriptor)
    return b"".join(parts)
