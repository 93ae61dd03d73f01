# SPDX-License-Identifier: GPL-2.0-or-later
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

    def write(self, path: str, content: Union[str, bytes]) -> Path:
        """Write a file; a text gets the newline that kernel files end in."""
        place = self.path / path.lstrip("/")
        if isinstance(content, str):
            content = content.encode("utf-8", "surrogateescape") + b"\n"
        try:
            place.write_bytes(content)
        except FileNotFoundError:  # most folders are there
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
        return place

    def unreadable(self, path: str) -> None:
        """Make a file that is listed but whose read fails, also for root."""
        place = self.path / path.lstrip("/")
        if place.is_file():
            place.unlink()
        place.mkdir(parents=True, exist_ok=True)

    def link(self, path: str, target: str) -> None:
        """Make a relative link to ``target``, a path on this host."""
        place = self.path / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        (self.path / target.lstrip("/")).mkdir(parents=True, exist_ok=True)
        if not place.is_symlink():
            below = self.path.resolve() / target.lstrip("/")
            place.symlink_to(os.path.relpath(below, place.parent.resolve()))
