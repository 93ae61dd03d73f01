# SPDX-License-Identifier: GPL-2.0-or-later
# ruff: noqa: PTH112, PTH115, PTH116, PTH119, PTH208
"""Read /proc, /sys and other folders below a root, without exceptions, waits or large
memory use; find processes, and configuration in folders that override each other.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Optional, Union

from ovirt_rdma.host.system.safe_file import (
    exists,
    names_of_others,
    read_file,
    read_file_of_others,
)
from ovirt_rdma.host.system.text import NUMBERS

_DEVICES = {stat.S_IFBLK: "block", stat.S_IFCHR: "char"}

# Receives sentences about files that could not be read; None drops them.
Problems = Optional[list[str]]


class FileTree:
    """The files of one host. Paths are absolute on that host: ``/sys/class/net``.

    Kernel text may have any bytes; they are kept by surrogateescape.
    """

    def __init__(self, root: Union[str, Path]) -> None:
        # Paths are strings: a host may have 10,000 files to read, and to create a Path
        # takes longer than to read a file of /sys.
        self._prefix = os.fspath(root).rstrip("/")

    @property
    def root(self) -> Path:
        """The root directory, which is ``/`` on a real host."""
        return Path(self._prefix or "/")

    def data(
        self, path: str, problems: Problems = None, *, others: str = ""
    ) -> Optional[bytes]:
        """Return the bytes of a file, or None and a sentence in ``problems``.

        ``others`` is the folder in its path that others than root can write, if any.
        """
        try:
            if others:
                return read_file_of_others(self.below(others), self.below(path))
            return read_file(self.below(path))
        except (OSError, ValueError) as e:  # ValueError: a NUL in the name
            _report(problems, path, e)
            return None

    def text(self, path: str, problems: Problems = None) -> Optional[str]:
        """Return a file's text without surrounding white space.

        If it is unreadable or empty: None, and a sentence in ``problems``.
        """
        data = self.data(path, problems)
        if data is None:
            return None
        text = data.decode("utf-8", "surrogateescape").strip()
        if not text and problems is not None:
            problems.append(f"{path} is empty")
        return text or None

    def number(self, path: str, problems: Problems = None) -> Optional[int]:
        """Return the number in a file, decimal or with ``0x``; None if it is none, and
        a sentence in ``problems``.
        """
        found = self.match(path, NUMBERS[0], "a number", problems)
        return int(found[0], 0) if found else None

    def match(
        self, path: str, form: re.Pattern[str], what: str, problems: Problems = None
    ) -> Optional[re.Match[str]]:
        """Return the match of a file's whole text with ``form``; None if it is not
        ``what``, and a sentence in ``problems``.
        """
        text = self.text(path, problems) or ""
        found = form.fullmatch(text)
        if text and not found and problems is not None:
            problems.append(f"{path} reads {text!a}, not {what}")
        return found

    def names(
        self, folder: str, problems: Problems = None, *, others: str = ""
    ) -> list[str]:
        """Return the sorted names in a folder; none if it is unreadable.

        ``others`` as for :meth:`data`.
        """
        try:
            if others:
                return names_of_others(self.below(others), self.below(folder))
            return sorted(os.listdir(self.below(folder)))
        except (OSError, ValueError) as e:
            _report(problems, folder, e)
            return []

    def has(self, path: str, *, others: str) -> bool:
        """Whether something is at ``path``; ``others`` as for :meth:`data`."""
        return exists(self.below(others), self.below(path))

    def is_folder(self, path: str) -> bool:
        """Whether ``path`` is a folder or a link to one."""
        try:
            return os.path.isdir(self.below(path))
        except (OSError, ValueError):
            return False

    def real_path(self, link: str) -> Optional[Path]:
        """Return the final target of a link, or None if it does not exist."""
        try:
            return self.root.joinpath(link.lstrip("/")).resolve(strict=True)
        except (OSError, ValueError, RuntimeError):  # RuntimeError: a loop, < 3.13
            return None

    def link_name(self, link: str) -> Optional[str]:
        """Return the last name in a link, such as ``mlx5_core`` of ``.../driver``; None
        if it is not a link.
        """
        try:
            return os.path.basename(os.readlink(self.below(link)))
        except (OSError, ValueError):
            return None

    def open_device(self, link: str) -> Optional[str]:
        """Return the device that a link of /proc/PID/fd leads to, by its name in
        /sys/dev: ``block/8:16``, ``char/21:3``; None if it leads elsewhere.

        Only what is in a /dev is looked at: to ask for any other file may wait without
        end for the server that has it. The process may have a /dev of its own, with
        other names.
        """
        path = self.below(link)
        try:
            if not os.readlink(path).startswith("/dev/"):
                return None
            status = os.stat(path)
        except (OSError, ValueError):
            return None
        kind = _DEVICES.get(stat.S_IFMT(status.st_mode))
        number = f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"
        return f"{kind}/{number}" if kind else None

    def below(self, path: str) -> str:
        """Return the path of ``path`` for this process."""
        return f"{self._prefix}/{path.lstrip('/')}"


def _report(problems: Problems, path: str, error: Exception) -> None:
    if problems is not None:
        reason = error.strerror if isinstance(error, OSError) else None
        problems.append(f"{path} cannot be read: {reason or error}")


# Configuration in folders that override each other, as modprobe.d(5),
# modules-load.d(5) and udev(7) define.

# In the order of precedence. On EL, /lib is a link to /usr/lib, so the last one adds
# nothing.
_PLACES = ("/etc", "/run", "/usr/local/lib", "/usr/lib", "/lib")


def folders_named(name: str) -> tuple[str, ...]:
    """Return the folders of that name, such as ``modprobe.d``, by precedence."""
    return tuple(f"{place}/{name}" for place in _PLACES)


def conf_texts(
    tree: FileTree, folders: Sequence[str], suffix: str, problems: list[str]
) -> Iterator[tuple[str, str]]:
    """Yield path and text of each file that is used, sorted by file name.

    Of files with the same name, the one in the first folder is used, even if it is
    empty or a link to /dev/null. Missing folders and dangling links (Debian has one)
    are ignored. A folder in a file's place and an unreadable file are problems.
    """
    chosen: dict[str, Optional[str]] = {}
    for folder in folders:
        if not tree.is_folder(folder):
            continue
        for name in tree.names(folder, problems):
            if name.startswith(".") or not name.endswith(suffix) or chosen.get(name):
                continue
            path = f"{folder}/{name}"
            if not tree.real_path(path):
                continue
            if not tree.is_folder(path):
                chosen[name] = path
            elif name not in chosen:  # the same folder may be seen through a link
                chosen[name] = None
                problems.append(f"{path} is a folder, so it is ignored")
    for name in sorted(chosen, key=os.fsencode):
        place = chosen[name]
        data = tree.data(place, problems) if place else None
        if place and data is not None:
            yield place, data.decode("utf-8", "surrogateescape")


def joined_lines(text: str) -> Iterator[tuple[int, str]]:
    r"""Yield the lines of a configuration file, each with its number; ``\`` at the end
    of one joins the next, of a comment too.
    """
    number = 1
    for line in re.split(r"(?<!\\)\n", text):
        yield number, line.replace("\\\n", "")
        number += 1 + line.count("\n")


# Processes, by what the kernel says of them. Any user may give a process any name and
# any words (execve(2), prctl(2)): these count only together with its user.

ROOT = 0
# vdsm and kvm (VDSM, vdsm.spec.in, useradd -u 36).
VDSM_UID, VDSM_GID = 36, 36

# Real, effective, saved and file system id (proc(5)).
_UIDS = re.compile(rb"^Uid:\t(\d+)\t(\d+)\t(\d+)\t(\d+)$", re.MULTILINE)


# Positions in /proc/PID/stat behind the program's name: proc(5), fields 3 and 22.
_STATE, _START = 0, 19


def state_and_start(pid: int, root: str = "") -> tuple[bytes, int]:
    """Return a process's state (a letter) and when it began, in clock ticks after boot.

    Raises OSError if there is none, ValueError if the kernel's text has another form.
    """
    fields = read_file(f"{root}/proc/{pid}/stat").rpartition(b")")[2].split()
    if len(fields) <= _START:
        raise ValueError("stat has too few fields")
    return fields[_STATE], int(fields[_START])


def start_of(pid: int) -> Optional[int]:
    """Return when a process began, in clock ticks after boot; None if it has ended."""
    try:
        state, start = state_and_start(pid)
    except OSError:
        return None
    return None if state in (b"Z", b"X") else start


_UPTIME = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)\b.*")


def read_uptime(tree: FileTree, problems: list[str]) -> float:
    """Return the seconds since boot, to 10 ms; 0.0 if they cannot be read."""
    found = tree.match("/proc/uptime", _UPTIME, "two numbers", problems)
    return float(found[1]) if found else 0.0


def seconds_after_boot() -> float:
    """Return the present time: clock_gettime(2), CLOCK_BOOTTIME."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def processes(
    tree: FileTree, first: Optional[int] = None
) -> Iterator[tuple[int, list[bytes]]]:
    """Yield the ids of all processes, in order, and the words that each was given; that
    of ``first`` before the others are looked for.
    """
    if first is not None:
        words = tree.data(f"/proc/{first}/cmdline") or b""
        yield first, words.rstrip(b"\0").split(b"\0")
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
