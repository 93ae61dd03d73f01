# SPDX-License-Identifier: GPL-2.0-or-later
# A fake host has a hundred files, and pathlib took half of the time to write them.
# ruff: noqa: PTH102, PTH103, PTH108, PTH113, PTH114, PTH120, PTH211
"""Files of a fake host: written, linked, and unreadable ones."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Union


@dataclass
class FakeFiles:
    """A folder that stands for ``/``; all paths are absolute on that host."""

    path: Path

    def write(self, path: str, content: Union[str, bytes]) -> None:
        """Write a file; a text gets the newline that kernel files end in."""
        place = self._place(path)
        if isinstance(content, str):
            content = content.encode("utf-8", "surrogateescape") + b"\n"
        try:
            _write(place, content)
        except FileNotFoundError:  # most folders are there
            os.makedirs(os.path.dirname(place), exist_ok=True)
            _write(place, content)

    def unreadable(self, path: str) -> None:
        """Make a file that is listed but whose read fails, also for root."""
        place = self._place(path)
        if os.path.isfile(place):
            os.unlink(place)
        _make_folder(place)

    def link(self, path: str, target: str) -> None:
        """Make a relative link to ``target``, a path on this host."""
        place, below = self._place(path), self._place(target)
        folder = os.path.dirname(place)
        _make_folder(folder)
        _make_folder(below)
        if not os.path.islink(place):
            # Folders on the way may be links.
            real = os.path.realpath(self.path) + "/" + target.lstrip("/")
            os.symlink(os.path.relpath(real, os.path.realpath(folder)), place)

    def _place(self, path: str) -> str:
        return f"{self.path}/{path.lstrip('/')}"


def _write(place: str, content: bytes) -> None:
    file = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
    try:
        os.write(file, content)
    finally:
        os.close(file)


def _make_folder(place: str) -> None:
    try:
        os.mkdir(place)
    except FileExistsError:
        pass
    except FileNotFoundError:
        os.makedirs(place, exist_ok=True)
