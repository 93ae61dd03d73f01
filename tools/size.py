#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Print the product's size, and how many files of it a job goes through.

    tools/size.py               the files of each folder, and what is in them
    tools/size.py --walks       the walks too, by running them
    tools/size.py --files mtu   one walk, with its files and the calls in each

Each walk is a test that does one job from the command line, VDSM or the API to its
end, on a fake host or the engine's double. ``sys.setprofile`` notes each file of ours
in which a function is called, in all threads, while the test runs, without its
fixtures. Importing a module does not count, nor does what runs in child processes. A
verb that decides lets all rules decide, so their files count in "mtu".

CODE are the lines without docstrings, comments, blank lines and imports; OTHER those of
units, pages, scripts and playbooks.
"""

from __future__ import annotations

import argparse
import ast
import collections
import contextlib
import io
import os
import subprocess
import sys
import threading
import tokenize
from collections.abc import Generator, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from types import CodeType, FrameType

import pytest

TOP = Path(__file__).resolve().parent.parent
ROOMS = (
    *("cli", "engine_sdk_tools", "storage", "host", "vdsm_hooks"),
    *("host_deploy", "portal"),
)


@dataclass(frozen=True)
class Walk:
    """``test`` does the job; ``goal`` is the number of files that it may enter."""

    name: str
    goal: int
    test: str
    job: str


WALKS = (
    Walk(
        "mtu",
        25,
        "tests/cli/host/test_revert_verb.py::test_an_mtu_there_and_back",
        "one netdev's MTU from sysfs to its effect, and revert",
    ),
    Walk(
        "connect",
        14,
        "tests/storage/vdsm/test_connection.py::TestRequireRdma::test_mounts_over_rdma_and_proves_it",
        "an export from VDSM's call to the mount and its proof",
    ),
    Walk(
        "counter",
        8,
        "tests/storage/metrics/test_exporter.py::test_the_file_can_be_read_by_all_and_nothing_is_left_beside_it",
        "the kernel's counters to the file for node_exporter",
    ),
    Walk(
        "srp",
        16,
        "tests/cli/host/test_block_verbs.py::test_the_rdma_cm_logs_in_over_ipoib",
        "a login to an SRP target",
    ),
    Walk(
        "convert",
        30,
        "tests/cli/engine/test_domain_convert_verb.py::test_convert_rolling_and_revert",
        "a rolling conversion of a domain on two hosts, and its revert",
    ),
    Walk(
        "report",
        45,
        "tests/cli/engine/test_report_verb.py::test_a_page_is_written",
        "facts of hosts to a cell of the report",
    ),
    Walk(
        "refusal",
        20,
        "tests/cli/engine/test_domain_convert_verb.py::test_what_cannot_be_converted",
        "a conversion that is refused",
    ),
)


class Trace:
    """A pytest plugin: the files that are entered, with the number of calls."""

    def __init__(self) -> None:
        self.calls: collections.Counter[str] = collections.Counter()
        self._folders = tuple(f"{TOP / room}{os.sep}" for room in ROOMS)
        self._paths: dict[CodeType, str | None] = {}

    def _path(self, code: CodeType) -> str | None:
        path = os.path.realpath(code.co_filename)
        ours = path.startswith(self._folders) and code.co_name != "<module>"
        return os.path.relpath(path, TOP) if ours else None

    def _called(self, frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            code = frame.f_code
            if code not in self._paths:
                self._paths[code] = self._path(code)
            if path := self._paths[code]:
                self.calls[path] += 1

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Generator[None, object, object]:
        """Note the calls while the test itself runs."""
        threading.setprofile(self._called)
        sys.setprofile(self._called)
        try:
            return (yield)
        finally:
            sys.setprofile(None)
            threading.setprofile(None)


def trace(walk: Walk) -> collections.Counter[str]:
    """Run a walk's test and return the calls in each file of ours.

    Raises :exc:`SystemExit` with pytest's output if the test does not pass.
    """
    plugin, output = Trace(), io.StringIO()
    words = ["-q", "-p", "no:cacheprovider", "--rootdir", str(TOP)]
    with contextlib.redirect_stdout(output):
        code = pytest.main([*words, str(TOP / walk.test)], [plugin])
    if code:
        sys.exit(f"{output.getvalue()}\n{walk.name}: {walk.test} did not pass")
    return plugin.calls


# Files that are no code: pages for readers, and packages' markers.
_NO_CODE = (".md", ".txt", ".typed", ".json", ".jsonl", ".svg", ".png")
_NO_TOKENS = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE),
    *(tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER),
}


@dataclass
class Size:
    """What is in a folder; ``other`` has the lines of files that are not Python."""

    files: int = 0
    lines: int = 0
    code: int = 0
    classes: int = 0
    other: int = 0

    def __add__(self, more: Size) -> Size:
        return Size(*map(sum, zip(astuple(self), astuple(more))))


def size_of(text: str) -> Size:
    """Return the size of a Python file."""
    left_out: set[int] = set()
    nodes = list(ast.walk(ast.parse(text)))
    for node in nodes:
        if not isinstance(node, (ast.Expr, ast.Import, ast.ImportFrom)):
            continue
        if not isinstance(node, ast.Expr) or isinstance(node.value, ast.Constant):
            left_out.update(range(node.lineno, (node.end_lineno or 0) + 1))
    lines = {
        line
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in _NO_TOKENS
        for line in range(token.start[0], token.end[0] + 1)
    }
    classes = sum(isinstance(node, ast.ClassDef) for node in nodes)
    return Size(1, text.count("\n"), len(lines - left_out), classes)


def sizes() -> dict[str, Size]:
    """Return the size of each folder, as git knows its files."""
    words = ["git", "ls-files"]
    listed = subprocess.run(words, cwd=TOP, capture_output=True, text=True, check=True)
    found: dict[str, Size] = {}
    for name in listed.stdout.split():
        folder, _, inside = name.partition("/")
        path = TOP / name
        is_room = inside and not folder.startswith(".")
        if is_room and not path.is_symlink() and path.suffix not in _NO_CODE:
            text = path.read_text()
            more = size_of(text) if path.suffix == ".py" else None
            more = more or Size(other=text.count("\n"))
            found[folder] = found.get(folder, Size()) + more
    return found


def _print_sizes() -> None:
    found = sizes()
    product = sum((found[name] for name in ROOMS), Size())
    names = [*ROOMS, *(name for name in found if name not in ROOMS)]
    print("FOLDER             FILES    LINES     CODE  CLASSES    OTHER")
    for name, size in ((name, found[name]) for name in names):
        _print_size(name, size)
        if name == ROOMS[-1]:
            _print_size("product", product)


def _print_size(name: str, size: Size) -> None:
    print(f"{name:<18}" + "{:>6}{:>9}{:>9}{:>9}{:>9}".format(*astuple(size)))


def _print_walks(walks: Sequence[Walk], *, files: bool) -> None:
    print(f"{'WALK':<9}{'FILES':>5}{'GOAL':>6}{'CALLS':>8}  JOB")
    for walk in walks:
        calls = trace(walk)
        print(
            f"{walk.name:<9}{len(calls):>5}{walk.goal:>6}{calls.total():>8}  {walk.job}"
        )
        for path, count in sorted(calls.items()) if files else ():
            print(f"{count:>14}  {path}")


def main() -> None:
    """Print what the command line asks for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--walks", action="store_true", help="run the walks too")
    parser.add_argument("--files", metavar="WALK", choices=[w.name for w in WALKS])
    arguments = parser.parse_args()
    if arguments.files:
        _print_walks([w for w in WALKS if w.name == arguments.files], files=True)
        return
    _print_sizes()
    if arguments.walks:
        print()
        _print_walks(WALKS, files=False)


if __name__ == "__main__":
    main()
