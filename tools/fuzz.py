#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Run the tests in test_*fuzz*.py with many examples, and say how many ran.

OVIRT_RDMA_FUZZ_EXAMPLES is the number for each test, 20000 unless set. Arguments are
pytest's. The exit code is pytest's, or 1 where it passed and no example was counted.
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
    """Run pytest; its statistics become one line a test, and the sum.

    Returns the exit code.
    """
    files = sorted(str(path) for path in CHECKOUT.glob("tests/*/test_*fuzz*.py"))
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
    if pytest.returncode == 0 and not any(counts.values()):
        sentence = (
            "fuzz: pytest passed, and no examples were counted: either none ran, or "
            "Hypothesis words its statistics differently now (tools/fuzz.py)"
        )
        print(sentence, file=sys.stderr)
        return 1
    return pytest.returncode


def counted(lines: Iterable[str]) -> dict[str, int]:
    """Return the examples of each test, by its node ID, from what pytest prints; the
    lines that are no statistics are printed.
    """
    counts: dict[str, int] = {}
    test, in_statistics = "", False
    for line in lines:
        header = _HEADER.match(line)
        if header:
            in_statistics = header[1] == "Hypothesis Statistics"
        named, found = _TEST.match(line), _EXAMPLES.search(line)
        if not in_statistics:
            print(line, end="", flush=True)
        elif named:
            test = named[1]
        elif found:
            counts[test] = counts.get(test, 0) + int(found[1]) + int(found[2])
    return counts


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
