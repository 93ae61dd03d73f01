# SPDX-License-Identifier: GPL-2.0-or-later
"""Parse command lines that consist of a verb and its arguments.

The parser of a verb is built only when the command line names that verb. Building one
takes some 0.3 ms, and a command line needs one of many.
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

TYPE_CHECKING = False  # importing typing would take a tenth of the time of --help
if TYPE_CHECKING:
    from typing import Any, NoReturn, Optional, Union

    _SubParsers = argparse._SubParsersAction["Parser"]
    Fill = Union[Callable[["Parser"], None], str]
    """A function that adds the arguments of a verb or group to its parser, or its name
    as ``module:function`` below ``ovirt_rdma.cli``.
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
    """Sets the width; argparse would import shutil and three compressors for it."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=_columns() - 2)


def _columns() -> int:
    """Return the width of the terminal, by the same rules as argparse."""
    with contextlib.suppress(ValueError):
        columns = int(os.environ.get("COLUMNS", ""))
        if columns > 0:
            return columns
    # While help is formatted, sys.stdout is a buffer.
    return terminal_width(sys.__stdout__) or 80


class _LazyParsers(dict[str, "Parser"]):
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
        # Help and errors list these.
        return (name for name in super().__iter__() if name not in self._hidden)

    def __getitem__(self, name: str) -> Parser:
        if name in self._builds:
            self[name] = self._builds.pop(name)()
        return super().__getitem__(name)

    def items(self) -> Any:
        return [(name, self[name]) for name in self]


class Verbs(_SubParsers):
    """argparse's subparsers for verbs, built on demand."""

    def __init__(self, **keys: Any) -> None:
        super().__init__(**keys)
        self._parsers = _LazyParsers()
        self.choices = self._name_parser_map = self._parsers

    def add(self, name: str, help: str, fill: Fill) -> None:
        """Add a verb, or a group of verbs.

        ``fill`` gets its parser, which has only ``help`` as its description.
        """
        self._choices_actions.append(self._ChoicesPseudoAction(name, (), help))
        self._add(name, help, fill, hidden=False)

    def add_hidden(self, name: str, help: str, fill: Fill) -> None:
        """Add a group that help and errors do not list: only units use it."""
        self._add(name, help, fill, hidden=True)

    def _add(self, name: str, help: str, fill: Fill, *, hidden: bool) -> None:
        def build() -> Parser:
            parser = Parser(
                prog=f"{self._prog_prefix} {name}",
                description=f"{help[0].upper()}{help[1:]}.",
                allow_abbrev=False,
            )
            (load_function(fill) if isinstance(fill, str) else fill)(parser)
            return parser

        self._parsers.later(name, build, hidden)


def load_function(place: str) -> Any:
    """Return the function that ``module:function`` names, below ``ovirt_rdma.cli``."""
    module, _, function = place.partition(":")
    return getattr(importlib.import_module(f"ovirt_rdma.cli.{module}"), function)


def parse(
    parser: Parser, arguments: Optional[Sequence[str]] = None
) -> argparse.Namespace:
    """Return the parsed arguments; ``verb`` is the verb's ``module:function``.

    Raises UsageProblem for a usage error, and SystemExit after --help or --version.
    """
    args, rest = parser.parse_known_args(arguments)
    if args.verb is None:
        raise UsageProblem(
            "verb-missing",
            f"the verb is missing; verbs: {', '.join(args.verbs)}",
            f"see {args.prog} --help",
        )
    if getattr(args, "refused_facts", None) is not None:
        raise UsageProblem(
            "verb-takes-no-facts",
            "this verb acts on this host and does not accept a facts file",
            "omit --facts",
        )
    if rest:
        raise UsageProblem(
            "arguments-unknown",
            f"unknown arguments: {' '.join(rest)}",
            f"see {args.prog} --help",
        )
    return args


def file_name(text: str) -> str:
    """Return ``text``; an argparse type that refuses an empty file name.

    Otherwise an unset variable of a script would select the default.
    """
    if not text:
        raise argparse.ArgumentTypeError(
            "the file name is empty; give a file, or omit this argument"
        )
    return text


def add_verbs(parser: Parser) -> Verbs:
    """Add verbs to ``parser``; ``args.verbs`` lists them if none was given."""
    # prog is set, because argparse would format a usage text to find it.
    verbs: Verbs = parser.add_subparsers(  # type: ignore[assignment]
        metavar="VERB", title="verbs", prog=parser.prog, action=Verbs
    )
    parser.set_defaults(verb=None, verbs=verbs.choices, prog=parser.prog)
    if parser.epilog is None:
        parser.epilog = "'%(prog)s VERB --help' shows a verb's options and examples."
    return verbs


def define_verb(
    parser: Parser,
    verb: str,
    *,
    codes: str,
    examples: Sequence[str],
    more: str = "",
    on_host: bool = True,
) -> None:
    """Make ``parser`` the parser of ``verb``, a ``module:function``.

    ``codes`` describes its exit codes, ``examples`` are the arguments after the verb,
    and ``more`` continues its description. ``on_host``: the verb is about this host.
    """
    shown = "\n".join(f"  %(prog)s {example}".rstrip() for example in examples)
    parser.epilog = f"exit codes: {codes}\n\nexamples:\n{shown}"
    if more:
        parser.description = f"{parser.description}\n{more}"
    parser.add_argument(
        "-o",
        "--output",
        dest="form",
        choices=FORMATS,
        default="table",
        help="output format; default: table",
    )
    if on_host:
        # For tests, on a tree that looks like a host.
        parser.add_argument(
            "--root", metavar="DIR", default="/", help=argparse.SUPPRESS
        )
    parser.set_defaults(verb=verb, prog=parser.prog)
