#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""``tools/picture.py``: draw the terminal of README from the recorded session.

The lines are those of docs/engine-session.md, "A host falls back to TCP": the first
command whole, of the second what it says at its end. The picture is an SVG, readable on
a light and on a dark page. ``make golden`` writes docs/pictures/verify.svg with it.
"""

from __future__ import annotations

import html
import re
import textwrap
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
SESSION = TOP / "docs/engine-session.md"
PICTURE = TOP / "docs/pictures/verify.svg"
_SECTION = "## A host falls back to TCP"
_TITLE = (
    "ovirt-rdma domain verify finds a mount over TCP, and domain heal moves it back"
)
_CHARACTER, _LINE, _EDGE, _WIDTH = 8.43, 19, 16, 90
_STYLE = """\
text { font: 14px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace;
       white-space: pre; fill: #1f2328; }
rect { fill: #f6f8fa; stroke: #d0d7de; }
.prompt { font-weight: bold; }
.bad { fill: #b3261e; font-weight: bold; }
.good { fill: #0f6b2f; }
.fix { fill: #0550ae; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; } rect { fill: #161b22; stroke: #30363d; }
  .bad { fill: #ff8c82; } .good { fill: #56d364; } .fix { fill: #79c0ff; }
}
"""


def lines(session: str) -> list[str]:
    """Return the lines to draw; pure. Raises ValueError if the page lacks them."""
    section = session.partition(_SECTION)[2].partition("\n## ")[0]
    blocks = re.findall(r"```text\n(.*?)```", section, re.DOTALL)
    if len(blocks) < 2:
        raise ValueError(f"{SESSION.name} has no two recordings in {_SECTION!r}")
    verify, heal = (block.rstrip().splitlines() for block in blocks[:2])
    end = next(n for n, line in enumerate(heal) if line.startswith("Heal of"))
    # A finding was wrapped at the width of the recorded terminal.
    findings = re.sub(r"(?<=[^\n])\n(?!(?i:host)|fix:|\n|$)", " ", "\n".join(verify))
    whole = [*findings.splitlines(), "", heal[0], "...", *heal[end:]]
    return [part for line in whole for part in textwrap.wrap(line, _WIDTH) or [""]]


def svg(drawn: list[str]) -> str:
    """Return the picture of a terminal's lines; pure."""
    width = round(max(map(len, drawn)) * _CHARACTER + 2 * _EDGE)
    height = len(drawn) * _LINE + 2 * _EDGE - 4
    texts = [
        f'<text x="{_EDGE}" y="{_EDGE + 12 + n * _LINE}" xml:space="preserve">'
        f"{_marked(line)}</text>"
        for n, line in enumerate(drawn)
    ]
    return "\n".join(
        (
            '<?xml version="1.0" encoding="UTF-8"?>',
            "<!-- SPDX-License-Identifier: GPL-2.0-or-later -->",
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}"'
            f' height="{height}" viewBox="0 0 {width} {height}" role="img">',
            f"<title>{_TITLE}</title>",
            f"<style>\n{_STYLE}</style>",
            f'<rect x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8"/>',
            *texts,
            "</svg>\n",
        )
    )


def _marked(line: str) -> str:
    text = html.escape(line, quote=False)
    if line.startswith("$ "):
        return f'<tspan class="prompt">{text}</tspan>'
    if line.startswith(("fix:", "next:")):
        return f'<tspan class="fix">{text}</tspan>'
    text = re.sub(r"\bFAIL\b", r'<tspan class="bad">\g<0></tspan>', text)
    return re.sub(r"\bhealed\b", r'<tspan class="good">\g<0></tspan>', text)


def main() -> None:
    """Write the picture."""
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(svg(lines(SESSION.read_text())))


if __name__ == "__main__":
    main()
