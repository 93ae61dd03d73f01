# SPDX-License-Identifier: GPL-2.0-or-later
"""Make the parts of the picture: boxes with texts that fit, and lines. Pure.

All lengths are SVG user units, 1 of which is 1 CSS pixel. The widths of texts are
estimated, because only a browser knows them: a character has 7 units at 13 px, a bold
one 8.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ovirt_rdma.host.system.printable import printable

Key = TypeVar("Key")

LINE, PAD, GAP, HEADING = 19, 9, 16, 30
_CHARACTER, _BOLD = 7, 8

Column = tuple[int, int]
"""The left edge and the width of a column."""
Content = tuple[list[tuple[str, str]], str]
"""The lines of a box, each with its style, and the title of the box."""


@dataclass(frozen=True)
class Text:
    """A line of text; ``style`` is a class of the style sheet, ``title`` the whole of a
    shortened text.
    """

    x: int
    y: int
    text: str
    style: str = ""
    title: str = ""


@dataclass(frozen=True)
class Tile:
    """A host of a group: its verdict and sign; ``title`` is its name."""

    x: int
    y: int
    verdict: str
    sign: str
    title: str


@dataclass(frozen=True)
class Box:
    """A frame with its contents."""

    x: int
    y: int
    width: int
    height: int
    style: str
    title: str
    texts: tuple[Text, ...] = ()
    tiles: tuple[Tile, ...] = ()

    @property
    def middle(self) -> int:
        """The height of its middle, where lines begin and end."""
        return self.y + self.height // 2


@dataclass(frozen=True)
class Line:
    """A line from box to box: an SVG path."""

    path: str
    style: str
    title: str


def stacked(
    column: Column, style: str, contents: Mapping[Key, Content], beside: int
) -> dict[Key, Box]:
    """Return boxes in the middle of a column of the height ``beside``, by their keys in
    ``contents``.
    """
    whole = sum(PAD * 2 + LINE * len(lines) + GAP for lines, _ in contents.values())
    # Not lower than what a reader of the first screen sees.
    y = min(max(HEADING, (beside - whole + GAP) // 2), 240)
    boxes = {}
    for key, content in contents.items():
        boxes[key] = _box(column, y, style, content)
        y += boxes[key].height + GAP
    return boxes


def _box(column: Column, y: int, style: str, content: Content) -> Box:
    lines, title = content
    texts = tuple(
        fitted(column, y + PAD + 13 + LINE * number, text, text_style)
        for number, (text, text_style) in enumerate(lines)
    )
    height = PAD * 2 + LINE * len(lines)
    return Box(column[0], y, column[1], height, style, title, texts)


def levelled(
    column: Column,
    style: str,
    contents: Mapping[Key, Content],
    middles: Sequence[float],
) -> dict[Key, Box]:
    """Return boxes in the order of ``contents``, all with as many lines; the middle of
    each is as near to its height in ``middles``, which rise, as the others allow.
    """
    lines = max((len(one) for one, _ in contents.values()), default=0)
    height = PAD * 2 + LINE * lines
    step = height + GAP
    # Isotonic regression: boxes that would lie on each other move as one block. A block
    # is the sum and the number of the tops that its boxes would have without it.
    blocks: list[tuple[float, int]] = []
    for number, middle in enumerate(middles):
        block = (middle - height // 2 - number * step, 1)
        while blocks and blocks[-1][0] / blocks[-1][1] > block[0] / block[1]:
            before = blocks.pop()
            block = (before[0] + block[0], before[1] + block[1])
        blocks.append(block)
    tops = [
        max(round(total / number), HEADING)
        for total, number in blocks
        for _ in range(number)
    ]
    return {
        key: _box(column, top + number * step, style, content)
        for number, (top, (key, content)) in enumerate(zip(tops, contents.items()))
    }


def most_name(column: Column) -> int:
    """Return how many bold characters fit into a box of ``column``."""
    return (column[1] - 2 * PAD) // _BOLD


def fitted(column: Column, y: int, text: str, style: str) -> Text:
    """Return a text that fits into a box of ``column``; a long one is shortened."""
    text = printable(text)
    own = (column[1] - 2 * PAD) // _CHARACTER
    most = most_name(column) if style == "name" else own
    if len(text) <= most:
        return Text(column[0] + PAD, y, text, style)
    return Text(column[0] + PAD, y, f"{text[: most - 1]}…", style, text)


def curve(x: int, y: int, to_x: int, to_y: int) -> str:
    """Return the path of a line that leaves and arrives horizontally."""
    half = (x + to_x) // 2
    return f"M{x} {y}C{half} {y} {half} {to_y} {to_x} {to_y}"
