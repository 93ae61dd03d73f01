# SPDX-License-Identifier: GPL-2.0-or-later
"""Read the commands of a guide, in the order in which a reader runs them."""

from __future__ import annotations

import re
from pathlib import Path

INSTALL = Path(__file__).parents[2] / "docs" / "install.md"


def blocks(section: str) -> list[str]:
    """Return the shell blocks of a section of the install guide.

    These are the fenced blocks marked ``sh``; indented blocks are not for this machine.
    """
    parts = re.split(r"^## (.*)$", INSTALL.read_text(), flags=re.MULTILINE)
    text = dict(zip(parts[1::2], parts[2::2]))[section]
    return re.findall(r"^```sh\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
