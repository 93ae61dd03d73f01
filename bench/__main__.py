# SPDX-License-Identifier: GPL-2.0-or-later
"""``python -m bench``, run by ``make bench``: measure everything, write RESULTS.md.

Only a complete run writes that file; other runs print their results, or write them to
the file of --output. Exit codes: 0 all measured limits hold, 1 a limit is broken or
something could not be measured, 2 usage error, 130 stopped.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bench import (
    constructor,
    counters,
    engine_fleet,
    engine_report,
    failing_connect,
    hook_cost,
    host_plan,
    machine,
    metrics_export,
    paths,
    policy_size,
    readiness,
    startup,
)
from bench.byte_cost import section as byte_cost
from bench.report import Section, broken_limits, document
from bench.rounds import CHECKOUT, BenchmarkFailed
from lab.problem import LabProblem

RESULTS = CHECKOUT / "bench/RESULTS.md"
# How long a run takes; CONTRIBUTING.md says the same.
MINUTES, MINUTES_WITHOUT_LAB = 75, 45


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; return the exit code."""
    args = _parsed(arguments)
    started = time.monotonic()
    try:
        text, sections = _measured(args)
        _write_or_print(text, sections, args.output)
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


def _measured(args: argparse.Namespace) -> tuple[str, list[Section]]:
    pythons = startup.interpreters(args.python)
    facts = [*machine.facts()]
    if args.without_lab:
        rooms = failing_connect, byte_cost, paths
        sections = [room.skipped() for room in rooms]
    else:
        print("failing connects", flush=True)
        facts += machine.lab_facts()
        sections = [failing_connect.section(args.rounds)]
        print("bytes", flush=True)
        sections.append(byte_cost.section())
        print("paths", flush=True)
        sections.append(paths.section(args.rounds))
    print("constructors", flush=True)
    sections.append(constructor.section(args.rounds))
    print("hooks", flush=True)
    sections.append(hook_cost.section(args.rounds))
    print("start-up", flush=True)
    sections.append(startup.section(pythons, args.rounds))
    print("metrics", flush=True)
    sections.append(metrics_export.section(pythons, args.rounds))
    print("policies", flush=True)
    sections.append(policy_size.section(args.rounds))
    print("plans", flush=True)
    sections.append(host_plan.section(args.rounds))
    print("servers", flush=True)
    sections.append(readiness.section(args.rounds))
    print("counters", flush=True)
    sections.append(counters.section(args.rounds))
    print("fleet", flush=True)
    sections.append(engine_fleet.section(args.rounds))
    print("report", flush=True)
    sections.append(engine_report.section(args.rounds))
    return document(facts, sections), sections


def _write_or_print(
    text: str, sections: Sequence[Section], output: Path | None
) -> None:
    """Write ``text`` to ``output``, or to RESULTS if it is complete; else print it."""
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
        not_written = "" if output else f"; bench/{RESULTS.name} is not written"
        parts = ", ".join(f'"{title}"' for title in left_out)
        print(f"bench: parts are left out of {parts}{not_written}", file=sys.stderr)


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = _parser()
    args = parser.parse_args(arguments)
    if args.output and not args.output.parent.is_dir():
        parser.error(f"--output: {args.output.parent} is not a directory")
    return args


def _rounds(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "--without-lab",
        action="store_true",
        help=f"start no guests; takes {MINUTES_WITHOUT_LAB} min instead of {MINUTES}",
    )
    parser.add_argument(
        "--rounds",
        type=_rounds,
        default=5,
        help="number of measurements of each benchmark (default: 5)",
    )
    parser.add_argument(
        "--python",
        type=Path,
        action="append",
        default=[],
        metavar="PATH",
        help="measure start-up with this Python, outside a virtual environment; can be "
        "repeated (default: the Python that .venv was made with)",
    )
    parser.add_argument(
        "--output",
        type=Path,
        help=f"file for the results (default: bench/{RESULTS.name}, if complete)",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
