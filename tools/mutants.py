#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""``mutants.py [ID...]``: break the product in one place at a time, and run its tests.

tools/mutants.yaml lists the changes: each breaks a promise of docs/reliability.md. They
are made in a copy of the checkout. A mutant is killed if one of its tests fails. The
exit code is 0 if all were killed, 1 if one was not, 2 if the list or the tests are
invalid.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

import yaml

CHECKOUT = Path(__file__).resolve().parents[1]
TABLE = CHECKOUT / "tools" / "mutants.yaml"

KILLED = "killed"
SURVIVED = "survived"
NOT_FOUND = "not found"
BROKEN = "broken"
HUNG = "hung"
_MEANINGS = {
    SURVIVED: "no test failed",
    NOT_FOUND: "the text is not in its file exactly once",
    BROKEN: "pytest could not run the tests",
    HUNG: "the tests did not end",
}
# pytest's exit codes.
_PASSED, _FAILED = 0, 1
# The tests of a mutant take less than a minute, but a mutant may loop endlessly.
_LIMIT_S = 900.0
_MEMORY = Path("/dev/shm")  # noqa: S108  (only for a new folder)


class ListProblem(Exception):
    """The list or the tests are invalid; the text is a sentence."""


@dataclass(frozen=True)
class Mutant:
    """One change: the lines ``there`` of ``file`` become the lines ``instead``.

    Both are written without the indentation that they share in the file. ``promise``
    is the beginning of the row of docs/reliability.md that the change breaks. ``tests``
    are pytest's ids, of which one must fail.
    """

    id: str
    promise: str
    file: str
    there: str
    instead: str
    tests: tuple[str, ...]


@dataclass(frozen=True)
class Result:
    """The verdict on a mutant, its seconds, and pytest's output."""

    mutant: Mutant
    verdict: str
    seconds: float
    printed: str = ""


def read(path: Path = TABLE) -> tuple[Mutant, ...]:
    """Return the mutants of a list. Raises ListProblem if its form is invalid."""
    try:
        rows = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise ListProblem(f"{path.name}: {error}") from None
    mutants: dict[str, Mutant] = {}
    for row in rows:
        try:
            mutant = Mutant(**{**row, "tests": tuple(row["tests"])})
        except (TypeError, KeyError) as error:
            raise ListProblem(f"{path.name}: {error} in {row}") from None
        if mutant.id in mutants:
            raise ListProblem(f"{path.name}: there are two mutants {mutant.id}")
        mutants[mutant.id] = mutant
    return tuple(mutants.values())


def mutated(text: str, mutant: Mutant) -> Optional[str]:
    """Return ``text`` with the change; None unless its lines occur exactly once."""
    first, *others = mutant.there.splitlines()
    lines = [rf"^(?P<indent> *){re.escape(first)}\n"]
    lines += [rf"(?P=indent){re.escape(o)}\n" if o else r"\n" for o in others]
    places = list(re.finditer("".join(lines), text, re.MULTILINE))
    if len(places) != 1:
        return None
    place = places[0]
    new = "".join(f"{place['indent']}{o}\n" for o in mutant.instead.splitlines())
    return text[: place.start()] + new + text[place.end() :]


def run(tree: Path, mutant: Mutant, limit_s: float = _LIMIT_S) -> Result:
    """Make the change below ``tree``, run its tests, and revert the change."""
    began = time.monotonic()

    def result(verdict: str, printed: str = "") -> Result:
        return Result(mutant, verdict, time.monotonic() - began, printed)

    path = tree / mutant.file
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    changed = mutated(text, mutant)
    if changed is None:
        return result(NOT_FOUND)
    _write(path, changed)
    try:
        code, printed = _pytest(tree, mutant.tests, "-x", limit_s=limit_s)
    except subprocess.TimeoutExpired:
        return result(HUNG)
    finally:
        _write(path, text)
    verdicts = {_PASSED: SURVIVED, _FAILED: KILLED}
    return result(verdicts.get(code, BROKEN), printed)


def check_unmutated(tree: Path, mutants: Sequence[Mutant]) -> None:
    """Raise ListProblem if a test fails without any change, as it would kill every
    mutant.
    """
    tests = dict.fromkeys(test for mutant in mutants for test in mutant.tests)
    code, printed = _pytest(tree, tuple(tests), limit_s=None)
    if code != _PASSED:
        raise ListProblem(f"{printed}the tests do not pass without a mutant")


@contextmanager
def copies(count: int) -> Iterator[tuple[Path, ...]]:
    """Make ``count`` copies of the checkout, as it is on disk."""
    listed = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    names = subprocess.run(
        listed, cwd=CHECKOUT, check=True, stdout=subprocess.PIPE, text=True
    ).stdout.split("\0")
    place = _MEMORY if os.access(_MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="mutants-", dir=place) as folder:
        trees = tuple(Path(folder) / str(number) for number in range(count))
        for tree in trees:
            for name in filter(None, names):
                if (CHECKOUT / name).is_file():
                    (tree / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(CHECKOUT / name, tree / name)
            # Makes the folders available by their import names.
            subprocess.run(("make", "--silent", "tree"), cwd=tree, check=True)
        yield trees


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    # Python compares time and size, which may both be those of the previous text.
    Path(importlib.util.cache_from_source(str(path))).unlink(missing_ok=True)


def _pytest(
    tree: Path, tests: Sequence[str], *more: str, limit_s: Optional[float]
) -> tuple[int, str]:
    options = ("-q", "--tb=short", "-p", "no:cacheprovider", *more)
    done = subprocess.run(
        (sys.executable, "-m", "pytest", *options, *tests),
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree / ".cache/package")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        timeout=limit_s,
        check=False,
    )
    return done.returncode, done.stdout


def _results(mutants: Sequence[Mutant], jobs: int) -> Iterator[Result]:
    with copies(jobs) as trees:
        check_unmutated(trees[0], mutants)
        free: queue.Queue[Path] = queue.Queue()
        for tree in trees:
            free.put(tree)

        def run_in_free_tree(mutant: Mutant) -> Result:
            tree = free.get()
            try:
                return run(tree, mutant)
            finally:
                free.put(tree)

        with ThreadPoolExecutor(jobs) as pool:
            yield from pool.map(run_in_free_tree, mutants)


def _chosen(names: Sequence[str], mutants: Sequence[Mutant]) -> tuple[Mutant, ...]:
    unknown = sorted(set(names) - {mutant.id for mutant in mutants})
    if unknown:
        raise ListProblem(f"there is no mutant {', '.join(unknown)}; see --list")
    return tuple(mutant for mutant in mutants if not names or mutant.id in names)


def main(arguments: Optional[Sequence[str]] = None, table: Path = TABLE) -> int:
    """Run the mutants that ``arguments`` name, and print a table and a verdict."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[2])
    parser.add_argument("names", nargs="*", metavar="ID", help="only these mutants")
    parser.add_argument("--list", action="store_true", help="list them, run nothing")
    parser.add_argument(
        "--jobs",
        type=int,
        default=1,
        metavar="N",
        help="number of mutants to run in parallel (default: 1)",
    )
    args = parser.parse_args(arguments)
    say = functools.partial(print, flush=True)
    left = []
    try:
        mutants = _chosen(args.names, read(table))
        if args.list:
            for mutant in mutants:
                say(f"{mutant.id}  {mutant.file}: {mutant.promise}")
            return 0
        for result in _results(mutants, max(args.jobs, 1)):
            say(f"{result.verdict:9} {result.seconds:6.1f} s  {result.mutant.id}")
            if result.verdict != KILLED:
                left.append(result)
    except ListProblem as problem:
        print(f"mutants: {problem}", file=sys.stderr)
        return 2
    for result in left:
        say(f"{result.mutant.id} in {result.mutant.file}: {_MEANINGS[result.verdict]}")
        if result.verdict == BROKEN:
            say(result.printed.rstrip())
    if left:
        say(f"{len(left)} of {len(mutants)} mutants were not killed.")
        return 1
    say(f"All {len(mutants)} mutants were killed.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
