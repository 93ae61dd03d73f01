# SPDX-License-Identifier: GPL-2.0-or-later
"""What a glob may not say, as fnmatch reads it. Pure."""

from __future__ import annotations

import re
from typing import Optional

# A set of characters: a ] that comes first is one of them.
_SET = re.compile(r"\[!?(\]?[^]]*)\]")
_RANGE = re.compile(r"(.)-(.)", re.DOTALL)


def glob_mistake(glob: str) -> Optional[str]:
    """Return a sentence where a range such as ``[z-a]`` ends before it begins.

    On Python 3.9 fnmatch cannot read it at all, later ones match nothing.
    """
    for characters in _SET.findall(glob):
        for first, last in _RANGE.findall(characters):
            if first > last:
                return (
                    f"{glob!r} has a range that ends before it begins: {first}-{last}"
                )
    return None
