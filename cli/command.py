# SPDX-License-Identifier: GPL-2.0-or-later
"""Run a verb of either command: parse arguments, report errors, set the exit code.

SIGTERM and SIGHUP end a verb as Ctrl-C does: it leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, Optional

from ovirt_rdma.cli.output import Output, terminal_width
from ovirt_rdma.cli.parser import Context, Parser, form_of, parse
from ovirt_rdma.host.errors import NOTHING_CHANGED, ExitCode, Problem, UsageProblem

if TYPE_CHECKING:  # of the engine's side; a hypervisor's command has none
    from ovirt_rdma.engine_sdk_tools.hosts.report import HostAccess

MakeParser = Callable[[Sequence[str]], Parser]

# If it is 1, a bug of ours is reported with its traceback.
DEBUG = "OVIRT_RDMA_DEBUG"

# Packages that may be missing: import name to the packages of EL and of PyPI.
_PACKAGES = {
    "ovirtsdk4": ("python3-ovirt-engine-sdk4", "ovirt-engine-sdk-python"),
    "pycurl": ("python3-pycurl", "pycurl"),
    "jinja2": ("python3-jinja2", "Jinja2"),
    "yaml": ("python3-pyyaml", "PyYAML"),
}

_ENDS = (signal.SIGTERM, signal.SIGHUP)
# Ending takes less than this: Ansible is given 10 s to stop.
_ENDING_S = 30.0


class Ended(KeyboardInterrupt):
    """SIGTERM or SIGHUP: the verb ends as after Ctrl-C.

    ``code`` is the exit code, 128 + the number of the signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__()
        self.code = 128 + number


def run_command(
    program: str,
    parser: MakeParser,
    arguments: Optional[Sequence[str]],
    access: Optional[HostAccess] = None,
) -> int:
    """Run the verb that ``arguments`` name, by default those of this process; return
    the exit code.

    ``parser`` makes the parser for them. ``access`` is for the verb's context. A
    Problem is reported on stderr.
    """
    output = Output()
    given = sys.argv[1:] if arguments is None else arguments
    try:
        with _ended_by_signals(), _threads_on(output):
            return _guarded(
                program, output, lambda: _run(parser, given, output, access)
            )
    except Ended as ended:  # while an error is being reported
        return ended.code
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED


def _guarded(program: str, output: Output, run: Callable[[], int]) -> int:
    try:
        code = run()
        output.flush()
        return code
    except KeyboardInterrupt as interrupt:
        if output.unchanged:
            output.message(NOTHING_CHANGED)
        return getattr(interrupt, "code", ExitCode.INTERRUPTED)
    except Exception as error:  # noqa: BLE001  (the last resort: a bug of ours)
        problem = error if isinstance(error, Problem) else _lacking(program, error)
        if problem is None:
            _report_bug(program, error, output)
            return ExitCode.FAILED
        content = output.problem(program, problem)
        output.error(problem.id, problem.exit_code, content)
        return problem.exit_code


def _lacking(program: str, error: Exception) -> Optional[Problem]:
    """Return the problem if a package is not installed; None for a bug of ours."""
    missing = (isinstance(error, ModuleNotFoundError) and error.name) or ""
    package = _PACKAGES.get(missing.partition(".")[0])
    if package is None:
        return None
    return Problem(
        "python-package-missing",
        f"{package[0]} is not installed; {program} needs it for this",
        f"dnf install {package[0]}, or pip install {package[1]}",
    )


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP raise Ended, so that nothing is left behind.

    Signals within the next 30 s are ignored: a shell and its terminal both send SIGHUP.
    Later ones count again: C code that calls Python may have dropped the first, as
    older pycurl does. A signal that was ignored before, as by nohup, stays ignored.
    """
    since = float("-inf")

    def end(number: int, frame: Optional[FrameType]) -> None:
        nonlocal since
        now = time.monotonic()
        if now - since >= _ENDING_S:
            since = now
            raise Ended(number)

    earlier: dict[int, Any] = {}
    with contextlib.suppress(ValueError):  # not the main thread
        for ending in _ENDS:
            if signal.getsignal(ending) == signal.SIG_DFL:
                earlier[ending] = signal.signal(ending, end)
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _threads_on(output: Output) -> Iterator[None]:
    """Print the traceback of a thread that fails through ``output``.

    Python itself would write it to stderr without making it printable.
    """

    def report(failure: Any) -> None:
        raised = (failure.exc_type, failure.exc_value, failure.exc_traceback)
        _print_traceback(output, *raised)

    earlier, threading.excepthook = threading.excepthook, report
    try:
        yield
    finally:
        threading.excepthook = earlier


def _run(
    parser: MakeParser,
    arguments: Sequence[str],
    output: Output,
    access: Optional[HostAccess],
) -> int:
    if arguments and arguments[0] == "help":
        arguments = [*arguments[1:], "--help"]
    with contextlib.redirect_stdout(io.StringIO()) as help_text:
        try:
            verb, values = parse(parser(arguments), arguments)
        except SystemExit:  # argparse, after --help or --version
            verb = None
        except UsageProblem:
            output.form = form_of(arguments)
            raise
    if verb is None:
        for line in help_text.getvalue().splitlines():
            output.line(line)
        return 0

    output.form = values.pop("form")
    root = values.pop("root", "/")
    # A verb that changes things has a dry run. It says after that, and with an error
    # before its first change, that nothing was changed.
    changes = getattr(verb, "changes", False)
    output.unchanged = changes or None
    streams = not output.for_people and getattr(verb, "streams", False)
    output.json_lines = streams and terminal_width(sys.stderr) is None
    with contextlib.ExitStack() as at_end:
        code = verb(**values).run(Context(output, at_end, root, access))
    if changes and values["dry_run"] and output.for_people:
        output.line(NOTHING_CHANGED)
    return code


def _report_bug(program: str, error: Exception, output: Output) -> None:
    debugging = os.environ.get(DEBUG) == "1"
    if debugging:
        _print_traceback(output, *sys.exc_info())
    output.message(
        f"{program}: this is a bug, please report it: {type(error).__name__}: {error}"
    )
    fix = "" if debugging else f"run it again with {DEBUG}=1 and add the output"
    if fix:
        output.message(f"fix: {fix}")
    sentence = f"{type(error).__name__}: {error}"
    output.error("bug", 1, {"sentences": [sentence], "fix": fix, "reasons": []})


def _print_traceback(output: Output, *raised: Any) -> None:
    for part in traceback.format_exception(*raised):
        for line in part.splitlines():
            output.message(line)
