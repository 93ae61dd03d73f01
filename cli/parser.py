# SPDX-License-Identifier: GPL-2.0-or-later
"""Command lines made of verbs: how their parsers are built, and how words are read.

A verb's parser is built when its name is read, not before: a parser costs some
0.3 ms, and a command line names one of many.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence

from ovirt_rdma.cli.output import FORMATS, terminal_width
from ovirt_rdma.host.errors import UsageProblem

TYPE_CHECKING = False  # of typing, which would be a tenth of the start-up of --help
if TYPE_CHECKING:
    from typing import Any, NoReturn, Optional, Union

    _SubParsers = argparse._SubParsersAction["Parser"]
    Fill = Union[Callable[["Parser"], None], str]
    """Adds to a parser what a verb or group takes; or where that is, as
    ``module:function`` of this room.
    """
else:
    _SubParsers = argparse._SubParsersAction


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are UsageProblems."""

    def __init__(self, **keys: Any) -> None:
        super().__init__(formatter_class=_HelpFormatter, **keys)

    def error(self, message: str) -> NoReturn:
        """Raise ``message`` as a UsageProblem."""
        raise UsageProblem("usage", message, f"see {self.prog} --help")


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


class _OnDemand(dict[str, "Parser"]):
    """Parsers by name, each built when it is first looked up."""

    def __init__(self) -> None:
        super().__init__()
        self._builds: dict[str, Callable[[], Parser]] = {}
        self._hidden: set[str] = set()

    def later(self, name: str, build: Callable[[], Parser], hidden: bool) -> None:
        self._builds[name] = build
        self[name] = None  # type: ignore[assignment]
        if hidden:
            self._hidden.add(name)

    def __iter__(self) -> Iterator[str]:
        # What help and errors list.
        return (name for name in super().__iter__() if name not in self._hidden)

    def __getitem__(self, name: str) -> Parser:
        if name in self._builds:
            self[name] = self._builds.pop(name)()
        return super().__getitem__(name)

    def items(self) -> Any:
        return [(name, self[name]) for name in self]


class Verbs(_SubParsers):
    """The verbs that may follow a word; argparse's subparsers, built on demand."""

    def __init__(self, **keys: Any) -> None:
        super().__init__(**keys)
        self._parsers = _OnDemand()
        self.choices = self._name_parser_map = self._parsers

    def add(self, name: str, help: str, fill: Fill) -> None:
        """Add a verb, or a word that is followed by one of several verbs.

        ``fill`` gets its parser, which has no more than ``help`` in it.
        """
        self._choices_actions.append(self._ChoicesPseudoAction(name, (), help))
        self._add(name, help, fill, hidden=False)

    def add_hidden(self, name: str, help: str, fill: Fill) -> None:
        """Add a word that neither help nor an error lists: people do not type it."""
        self._add(name, help, fill, hidden=True)

    def _add(self, name: str, help: str, fill: Fill, *, hidden: bool) -> None:
        def build() -> Parser:
            made = Parser(
                prog=f"{self._prog_prefix} {name}",
                description=f"{help[0].upper()}{help[1:]}.",
                allow_abbrev=False,
            )
            (named(fill) if isinstance(fill, str) else fill)(made)
            return made

        self._parsers.later(name, build, hidden)


def named(place: str) -> Any:
    """Return what ``module:function`` of this room names."""
    module, _, function = place.partition(":")
    return getattr(importlib.import_module(f"ovirt_rdma.cli.{module}"), function)


def parse(
    parser: Parser, arguments: Optional[Sequence[str]] = None
) -> argparse.Namespace:
    """Return the words as a namespace; ``verb`` is the verb's ``module:function``.

    Raises UsageProblem for wrong words, and SystemExit after --help or --version.
    """
    words, rest = parser.parse_known_args(arguments)
    if words.verb is None:
        raise UsageProblem(
            "verb-missing",
            f"say which verb: {', '.join(words.verbs)}",
            f"see {words.prog} --help",
        )
    if getattr(words, "refused_facts", None) is not None:
        raise UsageProblem(
            "verb-takes-no-facts",
            "this verb acts on this host and takes no facts file",
            "leave out --facts",
        )
    if rest:
        raise UsageProblem(
            "arguments-unknown",
            f"unknown words: {' '.join(rest)}",
            f"see {words.prog} --help",
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
    # With its own name, or argparse would format a usage text to learn it.
    verbs: Verbs = made.add_subparsers(  # type: ignore[assignment]
        metavar="VERB", title="verbs", prog=made.prog, action=Verbs
    )
    made.set_defaults(verb=None, verbs=verbs.choices, prog=made.prog)
    if made.epilog is None:
        made.epilog = "'%(prog)s VERB --help' shows a verb's options and examples."
    return verbs


def be_verb(
    made: Parser,
    verb: str,
    *,
    codes: str,
    examples: Sequence[str],
    more: str = "",
    on_host: bool = True,
) -> None:
    """Make ``made`` the parser of ``verb``, a ``module:function`` of this room.

    ``codes`` says its exit codes, ``examples`` are the words after the verb, and
    ``more`` goes on from its description. ``on_host``: it is about this host.
    """
    shown = "\n".join(f"  %(prog)s {words}".rstrip() for words in examples)
    made.epilog = f"exit codes: {codes}\n\nexamples:\n{shown}"
    if more:
        made.description = f"{made.description}\n{more}"
    made.add_argument(
        "-o",
        "--output",
        choices=FORMATS,
        default="table",
        help="how to print the result; default: table",
    )
    if on_host:
        # For tests on a tree that looks like a host.
        made.add_argument("--root", metavar="DIR", default="/", help=argparse.SUPPRESS)
    made.set_defaults(verb=verb, prog=made.prog)
