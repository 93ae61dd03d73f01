#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""``make screens``: the report and pages of build/docs as a browser shows them.

Writes build/screens/*.png, on a phone, on half a screen and on a whole one, light and
dark, to look at; and docs/pictures/report.png, which docs/report.md shows. Those of
docs/portal.md are of a real portal.
"""

from __future__ import annotations

import sys
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TOP / "tests"))

from support.browser import browser  # noqa: E402
from support.engine import report_site  # noqa: E402

PAGES = ("index", "tour", "policy", "engine-session", "jobs/roce")
WIDTHS = (400, 1000, 1600)
# Summary, what needs attention, and the fabric.
_SHOWN = 1215


def main() -> None:
    """Write the pictures."""
    folder = TOP / "build/screens"
    folder.mkdir(parents=True, exist_ok=True)
    report = folder / "report.html"
    report_site.main(3, str(report))
    files = [report, *(TOP / f"build/docs/docs/{name}.html" for name in PAGES)]
    with browser() as page:
        for file in files:
            for width in WIDTHS:
                for scheme in ("light", "dark"):
                    page.open(file, width, dark=scheme == "dark")
                    shot = folder / f"{file.stem}-{width}-{scheme}.png"
                    shot.write_bytes(page.picture())
        page.open(report, 1000)
        (TOP / "docs/pictures/report.png").write_bytes(page.picture(_SHOWN))
    print(f"screens: {folder}")


if __name__ == "__main__":
    main()
