# SPDX-License-Identifier: GPL-2.0-or-later
"""Write sections with tables, charts and verdicts as Markdown. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from bench.spread import duration

# A column whose cells start with these is aligned to the right.
_NUMBERS = frozenset("0123456789")
# Characters of the longest bar of a chart.
_LONGEST_BAR = 60
_HEAD = """\
<!-- SPDX-License-Identifier: GPL-2.0-or-later -->
# What it costs, and what it saves

Written by `make bench`; the next complete run overwrites it. Ratios are of one run: \
rivals are measured in turns, round by round, and a ratio's spread is over the rounds. \
*Limit holds* and *Limit broken* compare the result with the promised limit; a broken \
limit makes `make bench` fail.
"""


@dataclass(frozen=True)
class Table:
    """Heads and rows of cells; all rows are as long as the heads."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Chart:
    """Bars that show how a value grows with a number: one line for each number, with
    the value and its text. Bars begin at 0, and the longest has the largest value.
    """

    number: str
    value: str
    bars: tuple[tuple[int, float, str], ...]

    @classmethod
    def of_seconds(
        cls, number: str, seconds: Mapping[int, float], value: str = "median time"
    ) -> Chart:
        """Return the chart of durations by ``number``."""
        return cls(
            number, value, tuple((n, s, duration(s)) for n, s in seconds.items())
        )


@dataclass(frozen=True)
class Verdict:
    """Whether a limit holds, and the sentence with the limit and the result."""

    holds: bool
    sentence: str


@dataclass(frozen=True)
class Section:
    """One question: what was measured and how, tables, charts, and verdicts.

    ``left_out`` says what this run did not measure, and how to measure it.
    """

    title: str
    text: str
    tables: tuple[Table, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    left_out: str = ""
    charts: tuple[Chart, ...] = ()


def document(facts: Iterable[tuple[str, str]], sections: Sequence[Section]) -> str:
    """Return the whole of RESULTS.md; ``facts`` are machine and versions."""
    parts = [_HEAD, "## Machine and versions\n"]
    parts += table_lines(Table(("what", "which"), tuple(facts)))
    for section in sections:
        parts += ["", markdown(section).rstrip("\n")]
    return "\n".join(parts) + "\n"


def broken_limits(sections: Iterable[Section]) -> list[str]:
    """Return the sentences of the verdicts that do not hold."""
    return [
        verdict.sentence
        for section in sections
        for verdict in section.verdicts
        if not verdict.holds
    ]


def markdown(section: Section) -> str:
    """Return a section, from its heading on."""
    parts = [f"## {section.title}", "", _one_line(section.text)]
    for table in section.tables:
        parts += ["", *table_lines(table)]
    for chart in section.charts:
        parts += ["", "```text", *chart_lines(chart), "```"]
    for verdict in section.verdicts:
        head = "Limit holds" if verdict.holds else "Limit broken"
        parts += ["", f"**{head}:** {verdict.sentence}"]
    if section.left_out:
        parts += ["", f"**Left out:** {section.left_out}"]
    return "\n".join(parts) + "\n"


def chart_lines(chart: Chart) -> Iterator[str]:
    """Yield a chart's lines, as plain text."""
    width = max(len(chart.number), *(len(str(number)) for number, _, _ in chart.bars))
    longest = max(value for _, value, _ in chart.bars) or 1.0
    yield f"{chart.number.rjust(width)}   {chart.value}"
    for number, value, text in chart.bars:
        bar = "#" * max(1, round(_LONGEST_BAR * value / longest))
        yield f"{str(number).rjust(width)} | {bar} {text}"


def table_lines(table: Table) -> Iterator[str]:
    """Yield a Markdown table's lines, padded so that they align as plain text too."""
    columns = list(zip(table.heads, *table.rows, strict=True))
    widths = [max(len(cell) for cell in column) for column in columns]
    right = [
        all(cell[:1] in _NUMBERS for cell in column[1:] if cell) for column in columns
    ]
    yield _row(table.heads, widths, right)
    rules = ("-" * width for width in widths)
    yield (
        "|"
        + "|".join(
            f" {rule[1:]}: " if to_right else f" {rule} "
            for rule, to_right in zip(rules, right, strict=True)
        )
        + "|"
    )
    for row in table.rows:
        yield _row(row, widths, right)


def _row(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    padded = (
        cell.rjust(width) if to_right else cell.ljust(width)
        for cell, width, to_right in zip(cells, widths, right, strict=True)
    )
    return f"| {' | '.join(padded)} |"


def _one_line(text: str) -> str:
    return " ".join(textwrap.dedent(text).split())
