# SPDX-License-Identifier: GPL-2.0-or-later
"""``python -m bench``, which ``make bench`` calls: measures all, writes RESULTS.md.

Only a run that leaves nothing out writes that file; others print what they measured, or
write it where --output says. Exit codes: 0 all measured limits hold, 1 one is broken or
something could not be measured, 2 wrong arguments, 130 stopped.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bench import (
    constructor,
    engine_fleet,
    failing_connect,
    hook_cost,
    host_plan,
    machine,
    policy_size,
    startup,
)
from bench.report import Section, broken_limits, document
from bench.rounds import CHECKOUT, BenchmarkFailed
from lab.problem import LabProblem

RESULTS = CHECKOUT / "bench/RESULTS.md"
# How long a run takes; CONTRIBUTING.md says the same.
MINUTES, MINUTES_WITHOUT_LAB = 26, 15


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; returns the exit code."""
    words = _parsed(arguments)
    started = time.monotonic()
    try:
        text, sections = _measured(words)
        _hand_over(text, sections, words.output)
    except (LabProblem, BenchmarkFailed) as problem:
        print(f"bench: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("bench: stopped", file=sys.stderr)
        return 130
    print(f"measured in {time.monotonic() - started:.0f} s")
    broken = broken_limits(sections)
    for sentence in broken:
        print(f"bench: limit broken: {sentence}", file=sys.stderr)
    return 1 if broken else 0


def _measured(words: argparse.Namespace) -> tuple[str, list[Section]]:
    pythons = startup.interpreters(words.python)
    facts = [*machine.facts()]
    if words.without_lab:
        sections = [failing_connect.skipped()]
    else:
        print("failing connects", flush=True)
        facts += machine.lab_facts()
        sections = [failing_connect.section(words.rounds)]
    print("constructors", flush=True)
    sections.append(constructor.section(words.rounds))
    print("hooks", flush=True)
    sections.append(hook_cost.section(words.rounds))
    print("start-up", flush=True)
    sections.append(startup.section(pythons, words.rounds))
    print("policies", flush=True)
    sections.append(policy_size.section(words.rounds))
    print("plans", flush=True)
    sections.append(host_plan.section(words.rounds))
    print("fleet", flush=True)
    sections.append(engine_fleet.section(words.rounds))
    return document(facts, sections), sections


def _hand_over(text: str, sections: Sequence[Section], output: Path | None) -> None:
    """Write ``text`` to ``output``, or else to RESULTS where it is complete, or else
    print it.
    """
    left_out = [section.title for section in sections if section.left_out]
    file = output or (None if left_out else RESULTS)
    if file is None:
        print(text)
    else:
        try:
            file.write_text(text, encoding="utf-8")
        except OSError as error:
            print(text)
            sentence = f"{file} cannot be written ({error.strerror}); printed instead"
            raise BenchmarkFailed(sentence) from error
        print(f"{file}: written")
    if left_out:
        said = "" if output else f"; bench/{RESULTS.name} is not written"
        parts = ", ".join(f'"{title}"' for title in left_out)
        print(f"bench: parts are left out of {parts}{said}", file=sys.stderr)


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = _parser()
    words = parser.parse_args(arguments)
    if words.output and not words.output.parent.is_dir():
        parser.error(f"--output: {words.output.parent} is not a directory")
    return words


def _rounds(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 on")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "--without-lab",
        action="store_true",
        help=f"start no guests: {MINUTES_WITHOUT_LAB} min, not {MINUTES}",
    )
    parser.add_argument(
        "--rounds",
        type=_rounds,
        default=5,
        help="how often each is measured; default: 5",
    )
    parser.add_argument(
        "--python",
        type=Path,
        action="append",
        default=[],
        metavar="PATH",
        help="a Python to measure start-up on, outside a virtual environment; may be "
        "given again; default: the one that .venv was made with",
    )
    parser.add_argument(
        "--output",
        type=Path,
        help=f"default: bench/{RESULTS.name}, if nothing is left out",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
