# SPDX-License-Identifier: GPL-2.0-or-later
"""Read verbs and options from a man page and a parser, in a form to compare."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from ovirt_rdma.cli.parser import Parser
from tools.verbs import leaves, shown

PAGES = Path(__file__).parents[2] / "docs" / "man"


def verbs(made: Parser) -> dict[str, set[str]]:
    """Return every verb with its visible options."""
    return {
        name: {option for one in shown(parser) for option in one.option_strings}
        for name, parser in leaves(made).items()
    }


def plain(text: str) -> str:
    """Return a page without fonts and escapes; the requests stay."""
    text = re.sub(r"\\(?:f[BIPR]|&)", "", text)
    return text.replace("\\-", "-").replace("\\(aq", "'")


def sections(kind: str, text: str) -> dict[str, str]:
    parts = re.split(rf"^\.{kind} (.*)$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2]))


def tags(text: str) -> list[str]:
    """Return the lines after .TP."""
    return re.findall(r"^\.TP\n(?:\.B )?(.*)$", text, flags=re.MULTILINE)


def options(text: str) -> set[str]:
    found: set[str] = set()
    for tag in tags(text):
        found.update(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", tag))
    return found


def warnings_of_groff(page: Path) -> str:
    """Return what groff says about a page; raise if it shows nothing of it."""
    assert shutil.which("groff")
    command = ["groff", "-ww", "-man", "-Tutf8", str(page)]
    done = subprocess.run(command, capture_output=True, check=True)
    assert page.stem in done.stdout.decode()
    return done.stderr.decode()
