# SPDX-License-Identifier: GPL-2.0-or-later
"""Parse command lines that consist of a verb and its arguments.

The verbs of a command are a table. A verb is imported, and its parser filled, only if
the command line names it.

Here is also what verbs share: their context, the question before something is changed,
and the exit code of verbs that check.
"""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Optional, TypeVar, Union

from ovirt_rdma.cli.output import FORMATS, Output, terminal_width
from ovirt_rdma.host.errors import ExitCode, Problem, UsageProblem, did_you_mean
from ovirt_rdma.host.system.text import whole

if TYPE_CHECKING:  # of the engine's side; a hypervisor's command has none
    from ovirt_rdma.engine_sdk_tools.hosts.report import HostAccess


@dataclass(frozen=True)
class Context:
    """What a verb works with.

    ``output`` gets the result and the messages. ``at_end`` is closed when the verb is
    done. ``root`` is the host's root directory, another one than / in tests.
    ``access`` is the host access to use in place of the one that the arguments name.
    """

    output: Output
    at_end: ExitStack
    root: str = "/"
    access: Optional[HostAccess] = None


Table = Sequence[tuple[str, str, Union[str, "Table"]]]
"""Name and help of verbs, each with its class below ``cli`` ("host.plan.ShowPlan"), or
the table of a group of verbs.
"""


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are UsageProblems.

    ``verb`` is the verb that it parses, ``verbs`` are the parsers of those of a group,
    ``arguments`` are all its arguments and options. The
    parsed arguments have the parser of the last word as ``parser``.
    """

    verb: Optional[type[Verb]] = None

    def __init__(self, **keys: Any) -> None:
        self.verbs: dict[str, Parser] = {}
        self.arguments: list[argparse.Action] = []
        form = argparse.RawDescriptionHelpFormatter
        super().__init__(formatter_class=form, allow_abbrev=False, **keys)
        self.set_defaults(parser=self)

    def add_argument(self, *names: Any, **keys: Any) -> argparse.Action:
        """Add an argument or option, as argparse does."""
        self.arguments.append(super().add_argument(*names, **keys))
        return self.arguments[-1]

    def add_group(self, title: str) -> Callable[..., None]:
        """Return ``add_argument`` of a new group, which ``--help`` shows apart."""
        add = self.add_argument_group(title).add_argument
        return lambda *names, **keys: self.arguments.append(add(*names, **keys))

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        # argparse calls it for verbs too; its sentence lists all choices, and differs
        # between versions of Python.
        if action.choices is None or value in action.choices:
            return
        known = list(action.choices)
        near = did_you_mean(str(value), known)
        if not action.option_strings:
            raise UsageProblem(
                "verb-unknown",
                f"there is no verb {value!r}; verbs: {', '.join(known)}",
                f"{near} see {self.prog} --help".lstrip(),
            )
        allowed = ", ".join(map(str, known))
        raise argparse.ArgumentError(
            action, f"{value!r} is none of {allowed}{near and '; '}{near}"
        )

    def error(self, message: str) -> NoReturn:
        """Raise ``message`` as a UsageProblem."""
        raise UsageProblem("usage", message, f"see {self.prog} --help")


class Verb(ABC):
    """A verb of a command, with the values of its arguments.

    Each annotates its values, which have the names of its arguments. ``codes``
    describes its exit codes, ``examples`` are the arguments after the verb, and
    ``more`` continues its description.
    """

    codes: ClassVar[str]
    examples: ClassVar[tuple[str, ...]]
    more: ClassVar[str] = ""

    def __init__(self, **values: Any) -> None:
        vars(self).update(values)

    @classmethod  # noqa: B027
    def add_common(cls, parser: Parser) -> None:
        """Add the options of many verbs; ``add_arguments`` is called after this."""

    @classmethod  # noqa: B027
    def add_arguments(cls, parser: Parser) -> None:
        """Add the verb's own arguments; without this, it has none."""

    @abstractmethod
    def run(self, context: Context) -> int:
        """Run the verb; return the exit code. Raises Problem."""


def add_verbs(
    parser: Parser, table: Table, arguments: Optional[Sequence[str]] = None
) -> None:
    """Add the verbs of ``table`` to ``parser``.

    Only the one that ``arguments`` name can be parsed, the others are listed; None: all
    can.
    """
    names = {name for name, _, _ in table}
    named = next((word for word in arguments or () if word in names), None)
    # prog is set, because argparse would format a usage text to find it.
    verbs = parser.add_subparsers(metavar="VERB", title="verbs", prog=parser.prog)
    for name, help, verb in table:
        wanted = arguments is None or name == named
        description = f"{help[0].upper()}{help[1:]}."
        child = parser.verbs[name] = verbs.add_parser(
            name, help=help, description=description, add_help=wanted
        )
        if not wanted:
            continue
        if isinstance(verb, str):
            module, _, kind = verb.rpartition(".")
            _define(child, getattr(import_module(f"ovirt_rdma.cli.{module}"), kind))
        else:
            add_verbs(child, verb, arguments)
    if parser.epilog is None:
        parser.epilog = "'%(prog)s VERB --help' shows a verb's options and examples."


def end_of_help(program: str, codes: Iterable[ExitCode]) -> str:
    """Return the end of a command's ``--help``: its exit codes and its manual page."""
    lines = "\n".join(f"  {code:<4d} {code.sentence}" for code in codes)
    return (
        f"exit codes:\n{lines}\n\n"
        f"'{program} help VERB' shows a verb's options and examples;\n"
        f"{program}(8) is the manual."
    )


def _define(parser: Parser, verb: type[Verb]) -> None:
    shown = "\n".join(f"  %(prog)s {example}".rstrip() for example in verb.examples)
    parser.epilog = f"exit codes: {verb.codes}\n\nexamples:\n{shown}"
    if verb.more:
        parser.description = f"{parser.description}\n{verb.more}"
    _add_form(parser)
    verb.add_common(parser)
    verb.add_arguments(parser)
    parser.verb = verb


def _add_form(parser: Parser) -> None:
    parser.add_argument(
        "-o",
        "--output",
        dest="form",
        choices=FORMATS,
        default="table",
        help="output format; default: table",
    )


def parse(
    parser: Parser, arguments: Sequence[str]
) -> tuple[type[Verb], dict[str, Any]]:
    """Return the verb that ``arguments`` name, and the values of its arguments.

    ``form``, the output format, is among these. Raises UsageProblem for a usage error,
    and SystemExit after --help or --version.
    """
    args, rest = parser.parse_known_args(arguments)
    values = vars(args)
    chosen: Parser = values.pop("parser")
    if chosen.verb is None:
        raise UsageProblem(
            "verb-missing",
            f"the verb is missing; verbs: {', '.join(chosen.verbs)}",
            f"see {chosen.prog} --help",
        )
    if rest:
        options = [
            name
            for action in chosen.arguments
            if action.help != argparse.SUPPRESS
            for name in action.option_strings
        ]
        unknown = [word.partition("=")[0] for word in rest if word[0:1] == "-"]
        near = did_you_mean(unknown[0], options) if unknown else ""
        raise UsageProblem(
            "arguments-unknown",
            f"unknown arguments: {' '.join(rest)}",
            f"{near} see {chosen.prog} --help".lstrip(),
        )
    return chosen.verb, values


def form_of(arguments: Sequence[str]) -> str:
    """Return the output format that ``arguments`` name, even if others are wrong."""
    parser = Parser(add_help=False)
    _add_form(parser)
    try:
        args, _ = parser.parse_known_args(arguments)
    except UsageProblem:
        return "table"
    return str(args.form)


def file_name(text: str) -> str:
    """Return ``text``; an argparse type that refuses an empty file name.

    Otherwise an unset variable of a script would select the default.
    """
    if not text:
        raise argparse.ArgumentTypeError(
            "the file name is empty; give a file, or omit this argument"
        )
    return text


def number(least: int, most: int) -> Callable[[str], int]:
    """Return an argparse type: a whole number from ``least`` to ``most``."""

    def read(text: str) -> int:
        # int() also takes signs and other digits, and refuses very long numbers with
        # its own message.
        value = whole(text)
        if value is None or not least <= value <= most:
            raise argparse.ArgumentTypeError(
                f"{text[:20]!r} is not a number from {least} to {most}"
            )
        return value

    return read


_Seconds = TypeVar("_Seconds", int, float)
_UNITS = {"": 1, "s": 1, "min": 60, "h": 3600}


def time_span(
    least: float, most: float, form: Callable[[float], _Seconds]
) -> Callable[[str], _Seconds]:
    """Return an argparse type: a time span (``90``, ``2min``, ``1h``) of ``least`` to
    ``most`` seconds. ``form`` is int or float.
    """

    def read(text: str) -> _Seconds:
        match = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(s|min|h|)", text)
        value = float(match[1]) * _UNITS[match[2]] if match else -1.0
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(
                f"{text[:20]!r} is not {least:g} to {most:g} seconds, as 90 or 2min"
            )
        return form(value)

    return read


class Declined(Problem):
    """The operator declined, or there is no terminal to ask on."""

    exit_code = ExitCode.REFUSED


class Approval:
    """The value of :func:`add_assume_yes`."""

    assume_yes: bool


def add_assume_yes(parser: Parser) -> None:
    """Add ``--assume-yes``."""
    parser.add_argument(
        "-y", "--assume-yes", action="store_true", help="do not ask for confirmation"
    )


def approve(
    args: Approval, output: Output, plan: Iterable[str], why: Iterable[str] = ()
) -> None:
    """Show the lines of ``plan`` and ask for confirmation, unless --assume-yes.

    Raises Declined if the answer is no, or without a terminal, with the lines of
    ``why`` it asks. After this, the run may change something.
    """
    if args.assume_yes:
        output.unchanged = False
        return
    if sys.stdin is None or not sys.stdin.isatty():
        raise Declined(
            "no-terminal",
            "\n".join([*why, "there is no terminal to ask on"]),
            "add --assume-yes, or --dry-run to show what would be done",
        )
    output.flush()
    width = terminal_width(sys.stderr) or 80
    for line in plan:
        indent = " " * (len(line) - len(line.lstrip()) + 2)
        for part in textwrap.wrap(line, width, subsequent_indent=indent):
            output.message(part)
    try:
        yes = output.ask("Continue? [y/N] ")
    except KeyboardInterrupt:
        output.message("")
        raise
    if not yes:
        raise Declined("declined", "declined")
    output.unchanged = False


class AllowNone:
    """The value of :func:`add_allow_none`."""

    allow_none: bool


def add_allow_none(parser: Parser, what: str) -> None:
    """Add ``--allow-none``; ``what`` may be missing, as ``RDMA device``."""
    parser.add_argument(
        "--allow-none",
        action="store_true",
        help=f"exit with 0 also if there is no {what} to check",
    )


def verdict_code(args: AllowNone, *, looked_at: bool, failed: bool) -> ExitCode:
    """Return 3 if a check failed, or if nothing was looked at and that is not
    allowed; else 0.
    """
    good = not failed and (looked_at or args.allow_none)
    return ExitCode.DONE if good else ExitCode.CHECKS_FAILED
