# SPDX-License-Identifier: GPL-2.0-or-later
"""Collect what a support case needs in one archive, bounded in size and time.

What cannot be read, or takes too long, is a note in the archive and does not end it.
"""

from __future__ import annotations

import contextlib
import io
import lzma
import os
import re
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Union

from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.paths import under
from ovirt_rdma.host.services.support_content import (
    FILES,
    FILES_OF_OTHERS,
    OURS_IN_LOG,
    TOOLS,
    VDSM_LOG,
    VERBS,
)
from ovirt_rdma.host.system.commands import ENVIRONMENT, output_of
from ovirt_rdma.host.system.files import not_written, write_atomically
from ovirt_rdma.host.system.safe_file import (
    link_of_others,
    names_of_others,
    read_file_of_others,
    tail_of_others,
)
from ovirt_rdma.host.system.tree import FileTree

SUFFIX = ".tar.xz"
_COMMAND = "ovirt_rdma.cli.host.main"
# Limits for a part, for all parts, for one command, and for all commands. A host of
# bench/large_host.py has facts of 0.8 MB, read within 10 s.
MOST_BYTES = 4_000_000
MOST_BYTES_OF_ALL = 40_000_000
_COMMAND_S = 60.0
_ALL_S = 240.0
# So much of the end of vdsm.log is searched; VDSM rotates it at 15 MB.
_MOST_LOG = 32_000_000
_MOST_FILES = 2000
# The fastest: a tenth of the memory of xz's default, for a slightly larger file.
_PRESET = 1


@dataclass
class Bundle:
    """The parts of a bundle, by name, and sentences about what is missing.

    ``limit_s`` is the time for all commands, in seconds.
    """

    limit_s: float = _ALL_S
    parts: dict[str, bytes] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._left = MOST_BYTES_OF_ALL
        self._end = time.monotonic() + self.limit_s

    def add(self, name: str, data: bytes) -> None:
        """Add a part; one that is too long is cut at its start."""
        most = min(MOST_BYTES, self._left)
        if len(data) > most:
            self.notes.append(f"{name} is cut: its last {most} of {len(data)} bytes")
            data = data[len(data) - most :]
        self._left -= len(data)
        self.parts[name] = data

    def add_output(self, name: str, argv: Sequence[str]) -> None:
        """Add what a command prints, or a note why there is nothing. Its messages are a
        part of their own, so that a document stays one.
        """
        timeout = min(_COMMAND_S, self._end - time.monotonic())
        shown = " ".join(argv)
        if timeout <= 0:
            self.notes.append(f"{shown} was not run: no time was left")
            return
        try:
            data, messages, why = _output(argv, timeout)
        except OSError as error:
            self.notes.append(f"{shown} failed: {error.strerror}")
            return
        if why:
            self.notes.append(f"{shown}: {why}")
        if data:
            self.add(name, data)
        if messages:
            self.add(f"{name}.stderr", messages)


def collect(root: Union[str, Path] = "/", limit_s: float = _ALL_S) -> Bundle:
    """Return the parts for the host below ``root``; its commands take ``limit_s``.

    Below another root than ``/`` only our own verbs are run. Never raises for what the
    host has.
    """
    bundle, place = Bundle(limit_s), str(root)
    for verb in VERBS:
        words = [word for word in verb if not word.startswith("-") and word != "json"]
        suffix = ".json" if "json" in verb else ".txt"
        argv = [sys.executable, "-m", _COMMAND, *verb, "--root", place]
        bundle.add_output(f"commands/{'-'.join(words)}{suffix}", argv)
    for name, tool in TOOLS:
        if Path(place) != Path("/"):
            bundle.notes.append(f"{tool[0]} was not run: {place} is not this host")
            continue
        bundle.add_output(f"commands/{name}.txt", tool)
    count = 0
    for spec in (*FILES, *FILES_OF_OTHERS):
        for path in _files(place, spec, bundle.notes):
            count += 1
            if count > _MOST_FILES:
                bundle.notes.append(f"there are more than {_MOST_FILES} files")
                break
            _add_file(bundle, place, spec, path)
    _add_log(bundle, place)
    return bundle


def write(bundle: Bundle, path: Path, root: Union[str, Path] = "/") -> int:
    """Write the archive to ``path``, readable by its owner; return its bytes.

    Raises Problem if there is something at ``path``, or it cannot be written.
    """
    data = _archive(bundle, FileTree(root).text("/proc/sys/kernel/hostname") or "host")
    try:
        write_atomically(path, data, 0o600, replace=False)
    except FileExistsError as error:
        raise exists(path) from error
    except OSError as error:
        raise not_written(error, path) from error
    return len(data)


def exists(path: Path) -> Problem:
    """Return the error for a file that is there already."""
    return Problem("bundle-exists", f"{path} exists", "name another file, or remove it")


def _output(argv: Sequence[str], timeout_s: float) -> tuple[bytes, bytes, str]:
    """Return what a command prints to stdout and to stderr, and what went wrong or "".

    The exit status of ``check`` says what it found, so a status alone is no failure.
    """
    process = subprocess.Popen(
        list(argv),
        env={**ENVIRONMENT, "PYTHONDONTWRITEBYTECODE": "1"},
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        out, messages, failure = output_of(process, timeout_s, MOST_BYTES)
    finally:
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        for pipe in filter(None, (process.stdout, process.stderr)):
            pipe.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(1)
    why = str(failure or "")
    if not out and not messages and not why:
        why = f"it printed nothing, exit status {process.returncode}"
    return out, messages, why


def _files(root: str, path: str, notes: list[str]) -> Iterator[str]:
    """Yield the files at or below ``path``; a folder that cannot be read is a note."""
    top = _top(root, path)
    todo = [path]
    while todo:
        one = todo.pop()
        try:
            names = names_of_others(top, _below(root, one))
        except FileNotFoundError:
            continue
        except NotADirectoryError:
            yield one
        except OSError as error:
            notes.append(f"{one} cannot be read: {error.strerror}")
        else:
            todo += [f"{one}/{name}" for name in reversed(names)]


def _add_file(bundle: Bundle, root: str, spec: str, path: str) -> None:
    """Add a file; of a link, such as sunrpc has many, where it leads."""
    place = _top(root, spec), _below(root, path)
    try:
        target = link_of_others(*place)
        if target is not None:
            bundle.add(f"files{path}.link", os.fsencode(f"{target}\n"))
            return
        data = read_file_of_others(*place, MOST_BYTES)
    except OSError as error:
        bundle.notes.append(f"{path} cannot be read: {error.strerror}")
        return
    bundle.add(f"files{path}", data)


def _add_log(bundle: Bundle, root: str) -> None:
    folder = _top(root, VDSM_LOG)
    try:
        data = tail_of_others(folder, _below(root, VDSM_LOG), _MOST_LOG)
    except FileNotFoundError:
        return
    except OSError as error:
        bundle.notes.append(f"{VDSM_LOG} cannot be read: {error.strerror}")
        return
    ours = tuple(text.encode() for text in OURS_IN_LOG)
    lines = [line for line in data.split(b"\n") if any(text in line for text in ours)]
    bundle.add(f"files{VDSM_LOG}", b"".join(line + b"\n" for line in lines))


def _top(root: str, path: str) -> str:
    """Return the folder of ``path``: links that lead out of it are not followed."""
    return _below(root, path.rpartition("/")[0])


def _below(root: str, path: str) -> str:
    return str(under(root, path))


def _archive(bundle: Bundle, hostname: str) -> bytes:
    now = time.time()
    name = re.sub(r"[^A-Za-z0-9.-]", "_", hostname)[:64]
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
    parts = dict(sorted(bundle.parts.items()))
    notes = "".join(f"{note}\n" for note in bundle.notes) or "Nothing is missing.\n"
    parts["notes.txt"] = notes.encode("utf-8", "backslashreplace")
    data = io.BytesIO()
    with tarfile.TarFile(fileobj=data, mode="w") as archive:
        for path, content in parts.items():
            member = tarfile.TarInfo(f"ovirt-rdma-{name}-{stamp}/{path}")
            member.size, member.mode, member.mtime = len(content), 0o600, int(now)
            archive.addfile(member, io.BytesIO(content))
    return lzma.compress(data.getvalue(), preset=_PRESET)
