# SPDX-License-Identifier: GPL-2.0-or-later
"""``make session``: write docs/session.md, a terminal session on a real kernel.

The host and the steps are those of ``make demo`` (lab/demo_host.py). Each step is
checked; if one fails, the document is unchanged.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import redirect_stdout
from datetime import date
from pathlib import Path

from lab import demo_host
from lab.guest import Guest
from lab.problem import LabProblem
from lab.story import COLUMNS, MARGIN, PROMPT, Story, write_page

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "session.md"
_CHAPTER = re.compile(r"\d+\. ")
_VERSIONS = "uname -r; NetworkManager --version; systemctl --version | head -n 1"
_OPENING = (
    "<!-- SPDX-License-Identifier: GPL-2.0-or-later -->\n"
    "# A terminal session\n\n"
    "A host with InfiniBand is checked, prepared and reverted. Recorded on {when} by"
    " `make session`, at {columns} columns, in a virtual machine of [the lab](lab.md):"
    " Linux {kernel}, NetworkManager {network_manager}, {systemd}. The kernel's own"
    " ib_ipoib runs on the lab's fabric, whose HCAs identify themselves as an old"
    " ConnectX.\n"
)


def record() -> str:
    """Run the session and return the document. Raises LabProblem."""
    guest = demo_host.new_guest()
    printed = io.StringIO()
    try:
        with demo_host.host_pair(guest) as pair:
            opening = _opening(guest)
            story = Story(guest)
            with redirect_stdout(printed):
                before = demo_host.look_and_plan(story)
                demo_host.refuse(story, pair)
                demo_host.apply_and_confirm(story)
                demo_host.revert(story, before)
    except LabProblem as problem:
        raise LabProblem(f"{printed.getvalue()}\n{problem}") from problem
    return "\n".join([opening, *as_markdown(printed.getvalue().splitlines()), ""])


def as_markdown(printed: Iterable[str]) -> Iterator[str]:
    """Yield the lines of a story as Markdown: one heading per chapter, and commands
    with their output as on the terminal.
    """
    shown: list[str] = []
    for line in printed:
        if line.startswith((PROMPT, MARGIN)) or (shown and not line):
            shown.append(line[len(MARGIN) :] if line.startswith(MARGIN) else line)
            continue
        yield from _block(shown)
        shown.clear()
        chapter = _CHAPTER.match(line)
        if chapter is not None:
            yield from (f"## {line[chapter.end() :].rstrip('.')}", "")
        elif line:
            yield from (line.strip(), "")
    yield from _block(shown)


def _block(shown: Iterable[str]) -> Iterator[str]:
    text = "\n".join(shown).strip("\n")
    if text:
        yield from ("```text", text.replace(PROMPT, "$ "), "```", "")


def _opening(guest: Guest) -> str:
    versions = guest.run(_VERSIONS, check=True).stdout.splitlines()
    kernel, network_manager, systemd = versions
    return _OPENING.format(
        when=date.today().isoformat(),
        columns=COLUMNS,
        kernel=kernel,
        network_manager=network_manager,
        systemd=systemd.partition(" (")[0],
    )


def main() -> int:
    """Write the document; return 0 if all steps succeeded."""
    print("Recording a session in a guest under QEMU; this takes a minute or two ...")
    return write_page(DOCUMENT, record)


if __name__ == "__main__":
    sys.exit(main())
