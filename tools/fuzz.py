#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Run the tests in test_*fuzz*.py with many examples, and print how many ran.

OVIRT_RDMA_FUZZ_EXAMPLES is the number for each test, by default 20000. Arguments are
pytest's. The exit code is pytest's, or 1 if it passed and no example of a file was
counted.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]

_HEADER = re.compile(r"=+ (.*) =+$")
_TEST = re.compile(r"(tests/\S+?::.+):$")
_EXAMPLES = re.compile(r"- (\d+) passing(?: examples?)?, (\d+) failing")


def main(arguments: list[str]) -> int:
    """Run pytest, print one line of statistics per test and the sum, and return the
    exit code.
    """
    files = fuzz_files()
    command = [
        *(sys.executable, "-m", "pytest", "-v", "--hypothesis-profile=fuzz"),
        *("--hypothesis-show-statistics", *arguments, *files),
    ]
    with subprocess.Popen(
        command, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True
    ) as pytest:
        counts = counted(pytest.stdout or ())
    for test, count in counts.items():
        print(f"{count:8} {test}")
    print(f"{sum(counts.values()):8} examples in {len(counts)} tests")
    run = {test.partition("::")[0] for test, count in counts.items() if count}
    missing = [] if arguments else [name for name in files if name not in run]
    if pytest.returncode == 0 and run and missing:
        print(f"fuzz: no examples of {', '.join(missing)}", file=sys.stderr)
        return 1
    if pytest.returncode == 0 and not any(counts.values()):
        sentence = (
            "fuzz: pytest passed, but no examples were counted: either none ran, or "
            "the statistics of Hypothesis have another form now (tools/fuzz.py)"
        )
        print(sentence, file=sys.stderr)
        return 1
    return pytest.returncode


def fuzz_files() -> list[str]:
    """Return the files whose tests are run, from the checkout on."""
    paths = (CHECKOUT / "tests").rglob("test_*fuzz*.py")
    return sorted(
        str(path.relative_to(CHECKOUT))
        for path in paths
        if "selftest" not in path.parts
    )


def counted(lines: Iterable[str]) -> dict[str, int]:
    """Return the number of examples of each test, by node ID, from pytest's output.

    Other lines than statistics are printed.
    """
    counts: dict[str, int] = {}
    test, in_statistics = "", False
    for line in lines:
        header = _HEADER.match(line)
        if header:
            in_statistics = header[1] == "Hypothesis Statistics"
        name, examples = _TEST.match(line), _EXAMPLES.search(line)
        if not in_statistics:
            print(line, end="", flush=True)
        elif name:
            test = name[1]
        elif examples:
            counts[test] = counts.get(test, 0) + int(examples[1]) + int(examples[2])
    return counts


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
