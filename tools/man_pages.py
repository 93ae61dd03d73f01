#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""``man_pages.py [--check|--verbs] BUILT KEPT``: keep the manual pages of Sphinx.

BUILT is Sphinx's output folder, KEPT the folder with the pages of the repository, which
packages install: a build host has no Sphinx. Without ``--check`` the pages are written
there. With it nothing is written, and the exit code is 1 if the words of a page differ.
Only words are compared, because another version of Sphinx may set them differently.

With ``--verbs`` BUILT is the folder with the pages of the repository, and KEPT gets a
page for each verb, such as ovirt-rdma-host-check(8), made of them. Packages are built
with that, so it needs the standard library of Python 3.9 only.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
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


def of_verbs(page: str) -> Iterator[tuple[str, str]]:
    """Yield name and text of a page for each verb of a command's page.

    It has the verb's section, and the options that the verb shares with others.
    """
    head, _, rest = page.partition(".SH NAME\n")
    command = rest.split(" ", 1)[0].replace("-", "\\-")
    sections = dict(_parts("SH", rest))
    shared = [text for name, text in sections.items() if name.startswith("OPTIONS")]
    for verb, text in _parts("SS", sections["VERBS"]):
        name = f"{command} {verb}".replace(" ", "\\-")
        usage = re.escape(f".sp\n\\fB{command} {verb}\\fP [")
        about, synopsis, details = re.split(f"^({usage}.*\n)", text, flags=re.M)
        options, _, codes = details.partition(".sp\nExit codes: ")
        first = re.split(r"[.:]\s", re.sub(r"^\.sp\n|\\f.", "", about))[0]
        parts = {
            "NAME": f"{name} \\- {first[0].lower()}{first[1:]}\n",
            "SYNOPSIS": synopsis,
            "DESCRIPTION": about,
            "OPTIONS": options + "".join(_shared_by(verb, one) for one in shared),
            "EXIT STATUS": f".sp\n{codes}",
            "SEE ALSO": f".sp\n\\fB{command}\\fP(8): all verbs, exit codes, "
            "environment, files, examples\n",
        }
        title = name.replace("\\-", "-")
        yield (
            title,
            re.sub(r'^\.TH "[^"]*"', f'.TH "{title.upper()}"', head, flags=re.M)
            + "".join(f".SH {heading}\n{part}" for heading, part in parts.items()),
        )


def _parts(request: str, text: str) -> list[tuple[str, str]]:
    parts = re.split(rf"^\.{request} (.*)\n", text, flags=re.M)
    return list(zip(parts[1::2], parts[2::2]))


def _shared_by(verb: str, text: str) -> str:
    """Return the options of a section if the verb is one of those that it names."""
    named = re.search(r"^\.sp\nFor (.*)\.\n", text, re.M)
    if named and f"\\fB{verb}\\fP" not in named[1]:
        return ""
    return text[named.end() if named else text.index(".INDENT") :]


def main(arguments: list[str]) -> int:
    """Run the program; see the module."""
    check = "--check" in arguments
    built, kept = (Path(name) for name in arguments if not name.startswith("--"))
    if "--verbs" in arguments:
        for path in sorted(built.glob("ovirt-rdma*.8")):
            for name, text in of_verbs(path.read_text()):
                (kept / f"{name}.8").write_text(text)
        return 0
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
