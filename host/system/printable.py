# SPDX-License-Identifier: GPL-2.0-or-later
"""Text of others made fit for a terminal or a log: what would steer it is shown."""

from __future__ import annotations

# What str.isprintable takes for printable and no terminal shows: the rest of Unicode's
# Default_Ignorable_Code_Point (DerivedCoreProperties.txt, 15.0), which are letters and
# marks without a shape. A name with one of them looks like another name.
_UNSEEN = frozenset(
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
    """Return ``text`` on one line, with an escape (``\\x1b``) in place of what would
    not print or would steer a terminal: C0 and C1 codes, DEL, line separators, what
    changes the direction of writing, what cannot be seen, and surrogates, as which
    bytes that are no UTF-8 arrive.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        c
        if c.isprintable() and c not in _UNSEEN
        else c.encode("unicode_escape").decode("ascii")
        for c in text
    )
