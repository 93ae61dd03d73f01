#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""``tools/picture.py``: draw the terminals of README and of the pages, as SVG.

A picture is 80 columns wide, and readable on a light and on a dark page. Its lines are
those of a recorded session (docs/session.md, docs/engine-session.md), or what a verb
prints now about a host of the tests. ``make golden`` writes docs/pictures/*.svg.
"""

from __future__ import annotations

import contextlib
import html
import io
import os
import re
import sys
import textwrap
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from unittest import mock

TOP = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TOP / "tests"))

from support.storage.benchmarks import benchmark, rates  # noqa: E402
from support.storage.metrics_host import Load, MetricsHost  # noqa: E402
from support.storage.seen_mount import FAST, MOUNT, seen, signs  # noqa: E402

from ovirt_rdma.cli import output  # noqa: E402
from ovirt_rdma.cli.host import nfs  # noqa: E402
from ovirt_rdma.cli.host.bench import Bench  # noqa: E402
from ovirt_rdma.cli.host.main import PROGRAM  # noqa: E402
from ovirt_rdma.cli.host.main import main as host_command  # noqa: E402
from ovirt_rdma.storage.benchmark.model import SEQUENTIAL_READ  # noqa: E402
from ovirt_rdma.storage.health.signs import SILENT  # noqa: E402
from ovirt_rdma.storage.health.state import HealthState  # noqa: E402
from ovirt_rdma.storage.health.verdict import judge  # noqa: E402

DOCS = TOP / "docs"
FOLDER = DOCS / "pictures"
COLUMNS = 80
_HOST = TOP / "tests/data/hosts/connectx-7-ndr"
_CHARACTER, _LINE, _EDGE = 8.43, 19, 16
_STYLE = """\
text { font: 14px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace;
       white-space: pre; fill: #1f2328; }
rect { fill: #f6f8fa; stroke: #d0d7de; }
.prompt { font-weight: bold; }
.bad { fill: #b3261e; font-weight: bold; }
.doubtful { fill: #7d4e00; font-weight: bold; }
.good { fill: #0f6b2f; }
.fix { fill: #0550ae; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; } rect { fill: #161b22; stroke: #30363d; }
  .bad { fill: #ff8c82; } .doubtful { fill: #e3b341; } .good { fill: #56d364; }
  .fix { fill: #79c0ff; }
}
"""
# The first that matches colours a line, or the word in it.
_MARKS = (
    ("prompt", r"^\$ .*"),
    ("fix", r"^\s*(?:fix|next):.*"),
    ("bad", r"\bFAIL\b|^(?:dead|stalled)\b"),
    ("doubtful", r"^(?:WARN|slow)\b"),
    ("good", r"\bhealed\b|^(?:PASS|ok|done)\b|\bconverted$"),
)


def recorded(page: str, section: str) -> list[list[str]]:
    """Return the recordings of a section of a page in docs, each as lines.

    Raises ValueError if it has none.
    """
    text = (DOCS / page).read_text().partition(f"\n## {section}\n")[2]
    blocks = re.findall(r"```text\n(.*?)```", text.partition("\n## ")[0], re.DOTALL)
    if not blocks:
        raise ValueError(f"docs/{page} has no recording in {section!r}")
    return [block.rstrip().splitlines() for block in blocks]


def fitted(lines: list[str]) -> list[str]:
    """Return lines of a wider terminal, wrapped to fit a picture; pure."""
    return [
        part
        for line in lines
        for part in textwrap.wrap(line, COLUMNS, break_on_hyphens=False) or [""]
    ]


def shown(*words: str) -> list[str]:
    """Run ovirt-rdma-host on a terminal of 80 columns; return what is then on it."""
    terminal = io.StringIO()
    with (
        mock.patch.object(output, "terminal_width", lambda stream: COLUMNS),
        mock.patch.dict(os.environ, TERM="dumb"),
        contextlib.redirect_stdout(terminal),
    ):
        host_command(words)
    return terminal.getvalue().rstrip().splitlines()


def prompted(*words: str) -> list[str]:
    """Return the command line and what it prints."""
    return [f"$ {PROGRAM} {' '.join(words)}", *shown(*words)]


def verify() -> list[str]:
    """Return a mount that fell back to TCP, and its healing."""
    seen_by_verify, heal = recorded("engine-session.md", "A host falls back to TCP")[:2]
    end = next(n for n, line in enumerate(heal) if line.startswith("Heal of"))
    # A finding was wrapped at the width of the recorded terminal.
    wrapped = r"(?<=[^\n])\n(?!(?i:host)|fix:|\n|$)"
    findings = re.sub(wrapped, " ", "\n".join(seen_by_verify))
    return fitted([*findings.splitlines(), "", heal[0], "...", *heal[end:]])


def check() -> list[str]:
    """Return what check finds on a host of the tests."""
    return _on_host("check")


def plan() -> list[str]:
    """Return the plan for the same host."""
    return _on_host("plan")


def _on_host(verb: str) -> list[str]:
    before = Path.cwd()
    os.chdir(_HOST)
    try:
        return prompted(verb, "--facts", "facts.json", "--policy", "policy.yaml")
    finally:
        os.chdir(before)


def apply() -> list[str]:
    """Return an apply that is refused, and one that waits for its confirmation."""
    refused = "Storage is in use over ib0: disruptive steps are refused"
    done = "Applied and verified. Without confirm it would be rolled back"
    first, *_ = recorded("session.md", refused)
    second, *_ = recorded("session.md", done)
    confirmed = (f"{PROGRAM} apply --confirm-timeout", f"{PROGRAM} confirm")
    refusal = _commands(first, f"{PROGRAM} apply")
    return fitted([*refusal, "$ umount /mnt", *_commands(second, *confirmed)])


def convert() -> list[str]:
    """Return the conversion of a domain: the first host, and the end."""
    section = "The old domain is converted to RDMA while virtual machines run"
    whole = next(
        block
        for block in recorded("engine-session.md", section)
        if "--dry-run" not in block[0] and block[-1].startswith("next:")
    )
    first = next(n for n, line in enumerate(whole) if line.startswith("[9/"))
    last = next(n for n, line in enumerate(whole) if line.startswith("Domain "))
    rows = whole[last + 1 : -1]
    start = whole.index("Continue? [y/N] y")
    end = [*whole[last - 3 : last + 1], *rows[:3], "...", whole[-1]]
    return fitted([whole[0], "...", *whole[start - 1 : first], "...", *end])


def _commands(block: list[str], *wanted: str) -> list[str]:
    lines: list[str] = []
    taken = False
    for line in block:
        if line.startswith("$ "):
            taken = line[2:].startswith(wanted)
        if taken:
            lines.append(line)
    return lines


def health() -> list[str]:
    """Return the health of two mounts, the cable of one of which is out."""
    its = signs(SILENT, carrier=False, ports_down=("mlx5_0/1 is DOWN",))
    sound = replace(MOUNT, source="nas2:/iso", mountpoint="/mnt/b", address="10.0.1.1")
    mounts = (judge(seen(its=its)), judge(replace(seen(FAST), mount=sound)))
    looker = SimpleNamespace(look=lambda *_, **__: HealthState(0.0, 0.0, 0.0, mounts))
    with mock.patch.object(nfs, "Looker", lambda root: looker):
        return prompted("nfs", "health")


def watch() -> list[str]:
    """Return one sample of the mounts of a host of the tests, in its ten seconds."""
    with TemporaryDirectory() as root:
        host = MetricsHost(Path(root))
        host.mount("nas1:/vm")
        host.mount("nas1:/iso", "tcp")

        def work(seconds: float) -> None:
            host.load = Load(reads=25_000, writes=9_500, backlog_sum=90_000)
            host.uptime_s += seconds
            host.write()

        at = "2026-11-28 12:00:10"
        with (
            mock.patch.object(time, "sleep", work),
            mock.patch("ovirt_rdma.cli.host.mounts.when", lambda seconds: at),
        ):
            lines = shown("watch", "--interval", "10", "--count", "1", "--root", root)
    return [f"$ {PROGRAM} watch --interval 10 --count 1", *lines]


def bench() -> list[str]:
    """Return a benchmark of the tests whose link is fully used."""
    made = benchmark(rates("rdma", {SEQUENTIAL_READ: 12.0e9}))
    with mock.patch.object(Bench, "_measured", lambda *_: made):
        return prompted("bench", str(made.export))


# Of each picture: its title, for those who cannot see it, and its lines.
PICTURES: dict[str, tuple[str, Callable[[], list[str]]]] = {
    "verify": (
        "ovirt-rdma domain verify finds a mount over TCP, and domain heal moves it "
        "back",
        verify,
    ),
    "check": ("ovirt-rdma-host check finds what is wrong, with a fix", check),
    "plan": ("ovirt-rdma-host plan shows each change, why, and its undo", plan),
    "apply": (
        "ovirt-rdma-host apply changes the host and waits for confirm",
        apply,
    ),
    "convert": ("ovirt-rdma domain convert moves a domain host by host", convert),
    "health": ("ovirt-rdma-host nfs health names the cause of a dead mount", health),
    "watch": ("ovirt-rdma-host watch shows what each mount does", watch),
    "bench": ("ovirt-rdma-host bench compares RDMA with TCP", bench),
}


def svg(title: str, lines: list[str]) -> str:
    """Return the picture of a terminal's lines; pure."""
    width = round(max(map(len, lines)) * _CHARACTER + 2 * _EDGE)
    height = len(lines) * _LINE + 2 * _EDGE - 4
    texts = [
        f'<text x="{_EDGE}" y="{_EDGE + 12 + n * _LINE}" xml:space="preserve">'
        f"{_marked(line)}</text>"
        for n, line in enumerate(lines)
    ]
    return "\n".join(
        (
            '<?xml version="1.0" encoding="UTF-8"?>',
            "<!-- SPDX-License-Identifier: GPL-2.0-or-later -->",
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}"'
            f' height="{height}" viewBox="0 0 {width} {height}" role="img">',
            f"<title>{html.escape(title, quote=False)}</title>",
            f"<style>\n{_STYLE}</style>",
            f'<rect x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8"/>',
            *texts,
            "</svg>\n",
        )
    )


def _marked(line: str) -> str:
    for kind, pattern in _MARKS:
        found = re.search(pattern, line)
        if found:
            before, word, after = (
                html.escape(part, quote=False)
                for part in (line[: found.start()], found[0], line[found.end() :])
            )
            return f'{before}<tspan class="{kind}">{word}</tspan>{after}'
    return html.escape(line, quote=False)


def drawings() -> dict[str, str]:
    """Return all pictures as SVG, by name."""
    return {name: svg(title, lines()) for name, (title, lines) in PICTURES.items()}


def main() -> None:
    """Write the pictures."""
    FOLDER.mkdir(exist_ok=True)
    for name, drawing in drawings().items():
        (FOLDER / f"{name}.svg").write_text(drawing)


if __name__ == "__main__":
    main()
