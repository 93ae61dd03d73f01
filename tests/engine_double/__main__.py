# SPDX-License-Identifier: GPL-2.0-or-later
"""Print what the engine does, with the lines of its source, for ids that begin so.

PYTHONPATH=tests .venv/bin/python -m engine_double MAINT UP-01
"""

from __future__ import annotations

import sys

from . import double  # noqa: F401 - imports each module with behaviours
from .behaviours import BEHAVIOURS


def main(words: list[str]) -> int:
    """Print the behaviours whose ids begin with one of ``words``, or all."""
    for id, one in sorted(BEHAVIOURS.items()):
        if id.startswith(tuple(words) or ""):
            print(f"{id}  {one.says}", *one.sources, sep="\n    ")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
