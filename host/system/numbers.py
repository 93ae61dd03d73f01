# SPDX-License-Identifier: GPL-2.0-or-later
"""Read numbers that others wrote: tools, the kernel, files of users."""

from __future__ import annotations

import re
from typing import Optional

# int() also takes other scripts' digits, signs, blanks and underscores, and raises for
# more than 4300 digits. No 64-bit number has more digits than these.
_FORMS = {
    0: re.compile(r"0x[0-9a-fA-F]{1,16}|0|[1-9][0-9]{0,19}"),
    10: re.compile(r"[0-9]{1,20}"),
    16: re.compile(r"(?:0x)?[0-9a-fA-F]{1,16}"),
}


def whole(text: str, base: int = 10) -> Optional[int]:
    """Return the whole number that ``text`` is; None if it is none, or has more digits
    than 64 bits need. ``base`` is 10, 16, or 0 for decimal or, with 0x, hex.
    """
    return int(text, base) if _FORMS[base].fullmatch(text) else None
