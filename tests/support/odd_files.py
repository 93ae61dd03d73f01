# SPDX-License-Identifier: GPL-2.0-or-later
"""Replace files that root reads by odd ones, as VDSM's user could, and limit readers.

A read that waits, or uses all memory, fails its test and ends.
"""

from __future__ import annotations

import os
import resource
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

KINDS = ["pipe", "zeros", "sparse", "folder", "socket", "secret", "device", "deep"]
# The message about each after "cannot be read: "; "" if it is another sentence.
SAID = {
    "pipe": "it is a named pipe, not a regular file",
    "zeros": "it is a symbolic link, not a regular file",
    "sparse": "it has more than 1048576 bytes",
    "folder": "Is a directory",
    "socket": "it is a socket, not a regular file",
    "secret": "it is a symbolic link, not a regular file",
    "device": "it is a device, not a regular file",
    "deep": "",
}
_LONG_S = 60
_MUCH = 1 << 30


def put(path: Path, kind: str) -> None:
    """Replace ``path`` by a file of ``kind``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "zeros":
        path.symlink_to("/dev/zero")
    elif kind == "sparse":
        with path.open("wb") as file:
            file.truncate(2 << 30)
    elif kind == "folder":
        path.mkdir()
    elif kind == "socket":
        here = os.open(path.parent, os.O_PATH)  # a socket's path must be short
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(f"/proc/self/fd/{here}/{path.name}")
        os.close(here)
    elif kind == "secret":
        path.symlink_to("/etc/shadow")
    elif kind == "device":
        os.mknod(path, 0o20666, os.makedev(1, 5))  # /dev/zero; root only
    elif kind == "deep":
        path.write_bytes(b"[" * 1_000_000)
    else:
        raise ValueError(kind)


@contextmanager
def bounded() -> Iterator[None]:
    """Fail a main thread that waits without end, or uses memory without end."""

    def too_long(number: int, frame: object) -> None:
        raise AssertionError("it waits for ever")

    before = signal.signal(signal.SIGALRM, too_long)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + _MUCH, hard))
    signal.alarm(_LONG_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
