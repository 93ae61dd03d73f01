# SPDX-License-Identifier: GPL-2.0-or-later
"""Find the documents, and the commands of a guide in the order of a reader."""

from __future__ import annotations

import re
from pathlib import Path

TOP = Path(__file__).parents[2]
INSTALL = TOP / "docs" / "install.md"
# Recorded, or about the past.
_NOT_READ = ("CHANGELOG.md", "bench/RESULTS.md")


def pages() -> list[Path]:
    """Return all documents that people write."""
    found = [*TOP.glob("*.md"), *(TOP / "docs").rglob("*.md")]
    for room in ("vdsm_hooks", "examples", "host_deploy"):
        found += (TOP / room).rglob("*.md")
    return [one for one in found if str(one.relative_to(TOP)) not in _NOT_READ]


def blocks(section: str) -> list[str]:
    """Return the shell blocks of a section of the install guide.

    These are the fenced blocks marked ``sh``; indented blocks are not for this machine.
    """
    text = _section(section)
    return re.findall(r"^```sh\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def indented(section: str) -> list[str]:
    """Return the lines of the indented blocks of a section of the install guide."""
    return re.findall(r"^ {4}(.*)$", _section(section), flags=re.MULTILINE)


def _section(section: str) -> str:
    parts = re.split(r"^## (.*)$", INSTALL.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2]))[section]
