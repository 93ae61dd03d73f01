#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""``house_rules.py FILE...``: check rules of this repository that no linter has.

Each file names its license. No file names a folder of the machine on which it was
written, or cites notes that are not in the repository.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path, PurePath

# Folders of a developer's machine, not part of a longer path.
_MACHINE_PATH = re.compile(r"(?<![\w.})\]/-])/(?:work|root|home/[a-z]\w*)(?=/|\b)")
# Developers' notes, which readers do not have. Cite the source itself.
_NOTES = re.compile(r"(?<![\w/])(?:shared/)?facts/\w+\.md\b", re.IGNORECASE)
# In the lab's guests these are folders of the guest.
_GUEST_FILES = PurePath("lab/boot")
# Files that cannot hold a comment, and the license itself.
_WITHOUT_LICENSE_LINE = ("LICENSE", "*.json", "*.jsonl")
_TAG = "SPDX-License-Identifier: GPL-2.0-or-later"
_TOP = 5


def findings(path: PurePath, text: str) -> Iterator[str]:
    """Yield a sentence for each rule that the file ``path`` breaks; pure.

    ``path`` is relative to the top of the repository. An empty file breaks none.
    """
    lines = text.splitlines()
    exempt = any(path.match(pattern) for pattern in _WITHOUT_LICENSE_LINE)
    if lines and not exempt and not any(_TAG in line for line in lines[:_TOP]):
        yield f"{path}: none of its first {_TOP} lines says {_TAG}"
    if _GUEST_FILES in path.parents:
        return
    for number, line in enumerate(lines, start=1):
        folder = _MACHINE_PATH.search(line)
        if folder:
            yield f"{path}:{number}: names {folder.group()}, a folder of one machine"
        notes = _NOTES.search(line)
        if notes:
            yield f"{path}:{number}: cites {notes.group()}, not in the repository"


def main(names: list[str]) -> int:
    """Print the findings in the files ``names``; the exit code is 0 or 1."""
    sentences = [
        sentence
        for name in names
        for sentence in findings(PurePath(name), Path(name).read_text(encoding="utf-8"))
    ]
    for sentence in sentences:
        print(sentence)
    return 1 if sentences else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
