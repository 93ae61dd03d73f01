# SPDX-License-Identifier: GPL-2.0-or-later
"""``python -m bench.byte_cost``: count what a byte costs, print or record the table.

Exit codes: 0 done, 1 it could not be counted or a limit is broken, 2 usage error.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from bench import machine
from bench.byte_cost.cases import cases
from bench.byte_cost.runs import Row, measured
from bench.byte_cost.section import (
    RECORDED,
    TITLE,
    document,
    judged,
    recorded,
    table,
)
from bench.report import Table, broken_limits, markdown, table_lines
from bench.rounds import CHECKOUT, BenchmarkFailed
from lab.cache import provisioned
from lab.problem import LabProblem

TABLE = CHECKOUT / "bench/BYTE_COST.md"
_HEAD = f"""\
<!-- SPDX-License-Identifier: GPL-2.0-or-later -->
# {TITLE}

Written by `python -m bench.byte_cost --record`; with `--all` it has more rows.
[What a byte costs](../docs/byte-cost.md) says how it is counted and what it means.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Count; return the exit code."""
    args = _parser().parse_args(arguments)
    rows = []
    try:
        known = recorded()
        for row in measured(cases(every=args.all)):
            print(f"{row.case.key}: counted", file=sys.stderr, flush=True)
            rows.append(row)
        if args.record:
            record(rows)
            print(f"{RECORDED}: written\n{TABLE}: written")
            return 0
    except (LabProblem, BenchmarkFailed, OSError) as problem:
        print(f"bench.byte_cost: {problem}", file=sys.stderr)
        return 1
    section = judged(rows, known)
    print(markdown(section))
    broken = broken_limits([section])
    for sentence in broken:
        print(f"bench.byte_cost: limit broken: {sentence}", file=sys.stderr)
    return 1 if broken else 0


def record(rows: Sequence[Row]) -> None:
    """Write the recorded table, for later runs and for people. Raises OSError."""
    facts = {
        "ovirt-rdma": machine.commit(CHECKOUT),
        "QEMU": machine.qemu_version(),
        "kernel": provisioned().kernel_release,
    }
    RECORDED.write_text(document(rows, facts), encoding="utf-8")
    lines = [_HEAD, *table_lines(Table(("what", "which"), tuple(facts.items()))), ""]
    lines += table_lines(table(rows))
    TABLE.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.byte_cost")
    parser.add_argument(
        "--all",
        action="store_true",
        help="also NFS 3, several connections and Soft-RoCE; takes much longer",
    )
    parser.add_argument(
        "--record",
        action="store_true",
        help=f"write bench/{RECORDED.name} and bench/{TABLE.name}, which later runs"
        " are compared with",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
