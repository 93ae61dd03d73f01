# SPDX-License-Identifier: GPL-2.0-or-later
"""Show a demo's story: run commands in a guest, print their output, and check it.

Every line that starts with ``$`` was run; its output is below it.
"""

from __future__ import annotations

import os
import re
import sys
import textwrap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from lab.command import Result
from lab.guest import Guest
from lab.problem import LabProblem

# The width of the terminal on which ovirt-rdma-host runs.
COLUMNS = 95
PROMPT = "   $ "
MARGIN = "     "
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
# Text that a terminal shows only until the line is cleared.
_PASSING = re.compile(r"^.*\r\x1b\[K", re.MULTILINE)
_COPIED = re.compile(r"^(\d+) bytes .* copied, ([0-9.e-]+) s", re.MULTILINE)
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Story:
    """Prints what happens; raises LabProblem if it is not what was expected.

    ``chapters`` is the number of earlier chapters.
    """

    def __init__(self, guest: Guest, chapters: int = 0) -> None:
        self.guest = guest
        self.chapters = chapters
        dumb = not sys.stdout.isatty() or "NO_COLOR" in os.environ
        commands = Path(sys.executable).parent
        self._environment = {
            "LC_ALL": "C.UTF-8",
            "PATH": f"{commands}:{_SYSTEM_PATH}",
            "TERM": "dumb" if dumb else os.environ.get("TERM", "dumb"),
        }

    def chapter(self, text: str) -> None:
        """Begin a chapter."""
        self.chapters += 1
        say(f"\n{self.chapters}. {text}")

    def command(self, line: str, expected: int = 0) -> str:
        """Run ``ovirt-rdma-host`` with the arguments ``line`` on a terminal; show and
        return its output, and expect this exit code.
        """
        # -onlcr: the terminal must not change the command's line ends.
        start = f"stty cols {COLUMNS} -onlcr; exec ovirt-rdma-host {line}"
        script = ["script", "-qec", start, "/dev/null"]
        result = self.guest.run(script, environment=self._environment)
        shown = replace(result, stdout=_PASSING.sub("", result.stdout))
        self._show(f"ovirt-rdma-host {line}", shown)
        expect(result.exit_code == expected, f"exit code is {expected}")
        return _COLOUR.sub("", shown.stdout)

    def shell(self, line: str) -> str:
        """Run a line in the guest; show and return what it prints."""
        result = self.guest.run(line, check=True, environment=self._environment)
        self._show(line, result)
        return result.stdout

    def mounted_over(self, place: str, transport: str) -> None:
        """Show the kernel's data of the mount at ``place``; expect ``transport``."""
        mount = self.shell(f"grep -F ' {place} ' /proc/self/mountinfo")
        expect(f"proto={transport}," in mount, f"mountinfo says proto={transport}")
        stats = self.shell(
            f"grep -F -A 20 'mounted on {place} ' /proc/self/mountstats | grep xprt:"
        )
        expect(f"xprt:\t{transport} " in stats, f"mountstats says xprt: {transport}")

    @staticmethod
    def _show(line: str, result: Result) -> None:
        first, *more = line.splitlines()
        say("\n".join([f"{PROMPT}{first}", *(f"{MARGIN}{text}" for text in more)]))
        for text in (result.stdout + result.stderr).splitlines():
            say(f"{MARGIN}{text}".rstrip())


def speed(output: str) -> float:
    """Return the MB/s (10**6 bytes) from the last line of dd, in English."""
    match = _COPIED.search(output)
    if match is None or not float(match[2]):
        raise LabProblem(f"the output of dd has no speed: {output.strip()!r}")
    return int(match[1]) / float(match[2]) / 1e6


def write_page(page: Path, record: Callable[[], str]) -> int:
    """Write the text that ``record`` returns to ``page``; return 0. If it raises
    LabProblem, say so, leave the page as it is, and return 1.
    """
    try:
        page.write_text(record(), encoding="utf-8")
    except LabProblem as problem:
        print(f"{page.stem}: {problem}", file=sys.stderr)
        return 1
    print(f"{page.name} is written.")
    return 0


def say(text: str) -> None:
    """Print a line without buffering."""
    print(text, flush=True)


def folded(text: str) -> None:
    """Print a long line, folded and indented."""
    more = f"{MARGIN}  "
    say(textwrap.fill(text, 96, initial_indent=MARGIN, subsequent_indent=more))


def expect(fact: bool, what: str) -> None:
    """Raise LabProblem unless ``fact``."""
    if not fact:
        raise LabProblem(f"not as expected: {what}")
