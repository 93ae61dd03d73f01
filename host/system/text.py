# SPDX-License-Identifier: GPL-2.0-or-later
"""Read numbers that others wrote (tools, the kernel, files of users), and make foreign
text safe for a terminal or a log: control characters are escaped.
"""

from __future__ import annotations

import re
from typing import Optional

# int() also takes other scripts' digits, signs, blanks and underscores, and raises for
# more than 4300 digits. No 64-bit number has more digits than these.
NUMBERS = {
    0: re.compile(r"0x[0-9a-fA-F]{1,16}|0|[1-9][0-9]{0,19}"),
    10: re.compile(r"[0-9]{1,20}"),
    16: re.compile(r"(?:0x)?[0-9a-fA-F]{1,16}"),
}


def whole(text: str, base: int = 10) -> Optional[int]:
    """Return the whole number that ``text`` is; None if it is none, or has more digits
    than 64 bits need. ``base`` is 10, 16, or 0 for decimal or, with 0x, hex.
    """
    return int(text, base) if NUMBERS[base].fullmatch(text) else None


# Printable for str.isprintable but invisible on a terminal: the rest of Unicode's
# Default_Ignorable_Code_Point (DerivedCoreProperties.txt, 15.0), letters and marks
# without a shape. A name with one of them looks like another name.
_INVISIBLE = frozenset(
    chr(code)
    for first, last in (
        (0x034F, 0x034F),
        (0x115F, 0x1160),
        (0x17B4, 0x17B5),
        (0x180B, 0x180F),
        (0x3164, 0x3164),
        (0xFE00, 0xFE0F),
        (0xFFA0, 0xFFA0),
        (0xE0100, 0xE01EF),
    )
    for code in range(first, last + 1)
)


def printable(text: str) -> str:
    """Return ``text`` on one line, with escapes such as ``\\x1b``.

    Escaped are C0 and C1 codes, DEL, line separators, characters that change the
    writing direction, invisible ones, and surrogates, which stand for bytes that are
    not UTF-8.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        c
        if c.isprintable() and c not in _INVISIBLE
        else c.encode("unicode_escape").decode("ascii")
        for c in text
    )
