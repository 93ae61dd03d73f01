# SPDX-License-Identifier: GPL-2.0-or-later
"""Walk over the verbs of both commands, for documents, completion and tests.

The parsers are :class:`ovirt_rdma.cli.parser.Parser`, which lists its arguments and its
verbs: argparse has no public way to them.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from ovirt_rdma.cli.engine import main as engine
from ovirt_rdma.cli.host import main as host
from ovirt_rdma.cli.parser import Parser

PARSERS = {main.PROGRAM: main.parser for main in (engine, host)}


def walk(parser: Parser, words: str = "") -> Iterator[tuple[str, Parser]]:
    """Yield the words and the parser of a command or a verb, then those below it."""
    yield words, parser
    for name, child in parser.verbs.items():
        yield from walk(child, f"{words} {name}".strip())


def leaves(parser: Parser, words: str = "") -> dict[str, Parser]:
    """Return the parsers of the verbs by their words, without groups."""
    return {name: one for name, one in walk(parser, words) if not one.verbs}


def verbs(program: str, *, hidden: bool = False) -> dict[str, Parser]:
    """Return the parsers of a program's verbs, in the order of its help.

    ``hidden`` are the verbs that only units run, instead of the others.
    """
    if hidden:
        return leaves(host.unit_parser(), "unit") if program == host.PROGRAM else {}
    return leaves(PARSERS[program]())


def shown(parser: Parser) -> list[argparse.Action]:
    """Return the arguments and options that ``--help`` shows."""
    return [one for one in parser.arguments if one.help != argparse.SUPPRESS]
