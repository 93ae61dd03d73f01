# SPDX-License-Identifier: GPL-2.0-or-later
"""Command lines made of verbs: how their parsers are built, and how words are read."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Sequence

from ovirt_rdma.cli.screen import FORMATS, terminal_width
from ovirt_rdma.host.problem import UsageProblem

TYPE_CHECKING = False  # of typing, which would be a tenth of the start-up of --help
if TYPE_CHECKING:
    from typing import Any, NoReturn, Optional


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are UsageProblems."""

    def __init__(self, **keys: Any) -> None:
        super().__init__(formatter_class=_HelpFormatter, **keys)

    def error(self, message: str) -> NoReturn:
        """Raise ``message`` as a UsageProblem."""
        raise UsageProblem(message, f"see {self.prog} --help")


class _HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Knows the width: argparse would load shutil and three compressors for it."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=_columns() - 2)


def _columns() -> int:
    """Return the terminal's width, found as argparse finds it."""
    with contextlib.suppress(ValueError):
        columns = int(os.environ.get("COLUMNS", ""))
        if columns > 0:
            return columns
    # Help is collected before it is printed, so sys.stdout says nothing now.
    return terminal_width(sys.__stdout__) or 80


if TYPE_CHECKING:
    Verbs = argparse._SubParsersAction[Parser]


def parse(
    parser: Parser, arguments: Optional[Sequence[str]] = None
) -> argparse.Namespace:
    """Return the words as a namespace; ``verb`` is the verb's ``module:function``.

    Raises UsageProblem for wrong words, and SystemExit after --help or --version.
    """
    words, rest = parser.parse_known_args(arguments)
    if words.verb is None:
        raise UsageProblem(
            f"say which verb: {', '.join(words.verbs)}", f"see {words.prog} --help"
        )
    if getattr(words, "refused_facts", None) is not None:
        raise UsageProblem(
            "this verb acts on this host and takes no facts file",
            "leave out --facts",
        )
    if rest:
        raise UsageProblem(
            f"unknown words: {' '.join(rest)}", f"see {words.prog} --help"
        )
    return words


def file_name(text: str) -> str:
    """Return ``text``; an argparse type that refuses an empty file name.

    A script's variable that is not set would otherwise ask for the default.
    """
    if not text:
        raise argparse.ArgumentTypeError(
            "the file name is empty; give a file, or leave this out"
        )
    return text


def add_verbs(made: Parser) -> Verbs:
    """Let ``made`` take verbs; ``words.verbs`` names them where none was given."""
    verbs = made.add_subparsers(metavar="VERB", title="verbs")
    made.set_defaults(verb=None, verbs=verbs.choices, prog=made.prog)
    return verbs


def add_group(verbs: Verbs, name: str, help: str) -> Verbs:
    """Add a word that is followed by one of several verbs."""
    group = verbs.add_parser(
        name,
        help=help,
        description=_sentence(help),
        epilog="'%(prog)s VERB --help' shows a verb's options and examples.",
        allow_abbrev=False,
    )
    return add_verbs(group)


def add_verb(
    verbs: Verbs,
    name: str,
    verb: str,
    help: str,
    *,
    codes: str,
    examples: Sequence[str],
    more: str = "",
) -> Parser:
    """Add a verb, called as ``module:function`` of this room.

    ``codes`` says its exit codes, ``examples`` are the words after the verb, and
    ``more`` goes on from ``help``.
    """
    shown = "\n".join(f"  %(prog)s {words}".rstrip() for words in examples)
    made = verbs.add_parser(
        name,
        help=help,
        description="\n".join(part for part in (_sentence(help), more) if part),
        epilog=f"exit codes: {codes}\n\nexamples:\n{shown}",
        allow_abbrev=False,
    )
    made.add_argument(
        "-o",
        "--output",
        choices=FORMATS,
        default="table",
        help="how to print the result; default: table",
    )
    # For tests on a tree that looks like a host.
    made.add_argument("--root", metavar="DIR", default="/", help=argparse.SUPPRESS)
    made.set_defaults(verb=verb, prog=made.prog)
    return made


def _sentence(help: str) -> str:
    return f"{help[0].upper()}{help[1:]}."
