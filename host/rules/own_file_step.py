# SPDX-License-Identifier: GPL-2.0-or-later
"""What becomes of one of our own configuration files: written, removed, left. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

from ovirt_rdma.host.facts import Software
from ovirt_rdma.host.own_files import own_text, why_not_ours
from ovirt_rdma.host.rules.rule import FILE, Change


@dataclass(frozen=True)
class OwnFileChange:
    """``change`` is None where the file is already as wanted; ``refused`` says why it
    may not be written.
    """

    change: Optional[Change] = None
    refused: str = ""


def own_file_change(
    software: Software, path: str, lines: Sequence[str]
) -> OwnFileChange:
    """Return what makes ``path`` hold ``lines``; without lines the file goes."""
    there = next((file for file in software.own_files if file.path == path), None)
    wanted = own_text(lines) if lines else None
    if there is None:
        if wanted is None:
            return OwnFileChange()
        return OwnFileChange(Change(FILE, path, None, wanted))
    if there.text == wanted:
        return OwnFileChange()
    refused = why_not_ours(path, there.text)
    if refused and wanted is None:
        return OwnFileChange()
    return OwnFileChange(Change(FILE, path, there.text, wanted), refused)


def kept_lines(software: Software, path: str) -> tuple[str, ...]:
    """Return the lines, comments apart, of a file of ours that is there."""
    there = next((file for file in software.own_files if file.path == path), None)
    if there is None or there.text is None or why_not_ours(path, there.text):
        return ()
    lines = (line.strip() for line in there.text.splitlines())
    return tuple(line for line in lines if line and not line.startswith("#"))
