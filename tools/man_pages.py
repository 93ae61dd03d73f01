#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""``man_pages.py [--check] BUILT KEPT``: keep the manual pages that Sphinx has built.

BUILT is Sphinx's output folder, KEPT the folder with the pages of the repository, which
packages install: a build host has no Sphinx. Without ``--check`` the pages are written
there. With it nothing is written, and the exit code is 1 if the words of a page differ.
Only words are compared, because another version of Sphinx may set them differently.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

_LICENSE = '.\\" SPDX-License-Identifier: GPL-2.0-or-later\n'
_ORIGIN = '.\\" Made from docs/ and the parsers of the commands: make man\n'


def finished(built: str) -> str:
    """Return a page as it is kept: with its license, without Sphinx's own heading."""
    body = re.sub(r'\A(?:\.(?:\\".*)?\n)+', "", built)
    # The title's empty date makes man print today's.
    body = re.sub(r'^(\.TH "[^"]*" "\d") " " ""', r'\1 "" ""', body, flags=re.M)
    body = re.sub(r'^\.\\" End of generated man page\.\n', "", body, flags=re.M)
    return _LICENSE + _ORIGIN + body.rstrip("\n") + "\n"


def words(page: str) -> list[str]:
    """Return the words that a reader of the page sees, and its headings."""
    text = page.partition(".SH NAME")[2]
    text = re.sub(r"\\(?:f[A-Z]|&|X'[^']*')", "", text).replace("\\(aq", "'")
    text = re.sub(r"^\.(?!S[HS] )\S*(?: [\d.]+)?$", "", text, flags=re.M)
    return text.replace("\\-", "-").split()


def main(arguments: list[str]) -> int:
    """Run the program; see the module."""
    check = "--check" in arguments
    built, kept = (Path(name) for name in arguments if name != "--check")
    pages = {path.name: finished(path.read_text()) for path in built.glob("*.[1-9]")}
    if not check:
        kept.mkdir(exist_ok=True)
        for path in kept.glob("*.[1-9]"):
            path.unlink()
        for name, text in pages.items():
            (kept / name).write_text(text)
        return 0
    there = {path.name: path.read_text() for path in kept.glob("*.[1-9]")}
    old = [
        name
        for name in sorted({*pages, *there})
        if words(pages.get(name, "")) != words(there.get(name, ""))
    ]
    for name in old:
        print(f"{kept / name} is not what its sources make now; run: make man")
    return 1 if old else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
