# SPDX-License-Identifier: GPL-2.0-or-later
"""Write the results of all faults as docs/faults.md, and read that back. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from lab.fault import Fault, Row, WritingFault
from lab.fault_site import RETRANS, RPC_SECONDS, TIMEO

COMMAND = "make faults"

_INTRODUCTION = """\
<!-- SPDX-License-Identifier: GPL-2.0-or-later -->
# Faults: their effect, and what to do

`{command}` generated this file on {date}; do not edit it. Every line was tried in the \
lab ([lab.md](lab.md)): {versions}.

The engine sends `timeout={timeo}` and `retrans={retrans}`, so one call to a dead \
server lasts {rpc:g} s. The guests are emulated and some 15 times slower than hosts: \
except for the timeouts, the seconds below are longer than on a host for that reason. \
Rules wait 2 s for a server that is absent (`readiness_timeout`), and 30 s for others \
because of the emulation.

| column | meaning |
|---|---|
| status | the engine's status: 0 is good, 477 a failed mount, 469 no access |
| seconds | the time until the engine gets the status |
| mounted | the transport of the mount afterwards |
| vdsm.log says | the deciding line, without level, export and rule |
| what to do | the fix in vdsm.log; in parentheses: what to do if it gives no fix |

If a virtual machine writes, the export was mounted over RDMA before. *Its write* is \
the error that it got and the time of its longest write; status, seconds and vdsm.log \
are those of a connect during the fault, or just after a fault that ended by itself. \
After every fault, all mounts accepted data again.
"""
_COLUMNS = ("rule", "NFS", "status", "seconds", "mounted")
_WORDS = ("vdsm.log says", "what to do")
_WRITING = ("its write",)
# The part of a log line before the error.
_BEFORE = re.compile(
    r"^(?:[A-Z]+ )?(?:Could not connect to storage server: )?(?:\S+:/\S+: )?"
    r"(?:FALLING BACK TO TCP, this mount is degraded: )?"
    r"(?:rule '[^']*' says [a-z-]+ \([^)]*\), but )?"
)
_HEADING = re.compile(r"^## (\S+)$", re.M)


@dataclass(frozen=True)
class Shown:
    """A line of a table, read back."""

    fault: str
    rule: str
    version: str
    status: int
    mounted: str


def report(
    faults: Sequence[Fault], rows: Sequence[Row], versions: str, date: str
) -> str:
    """Return the whole file. ``versions`` is a list as text, ``date`` is ISO."""
    parts = [
        _INTRODUCTION.format(
            command=COMMAND,
            date=date,
            versions=versions,
            timeo=TIMEO,
            retrans=RETRANS,
            rpc=RPC_SECONDS,
        )
    ]
    for fault in faults:
        of_fault = [row for row in rows if row.fault == fault.id]
        parts.append(f"## {fault.id}\n\n{fault.sentence}\n\n{_table(fault, of_fault)}")
    return "\n".join(parts)


def read_back(text: str) -> list[Shown]:
    """Return the lines of all tables in a report."""
    parts = _HEADING.split(text)
    found = []
    for fault, body in zip(parts[1::2], parts[2::2]):
        lines = [line for line in body.splitlines() if line.startswith("| ")]
        for line in lines[1:]:
            rule, version, status, _, mounted = line.strip("| ").split(" | ")[:5]
            found.append(Shown(fault, rule, version, int(status), mounted))
    return found


def _table(fault: Fault, rows: Sequence[Row]) -> str:
    writing = isinstance(fault, WritingFault)
    columns = (*_COLUMNS, *(_WRITING if writing else ()), *_WORDS)
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for row in rows:
        cells = [row.case.rule, row.case.version, str(row.status)]
        cells += [f"{row.seconds:.1f}", row.mounted]
        cells += [row.writer] if writing else []
        cells += [shortened(row.says), row.fix or f"({_to_do(fault, row)})"]
        lines.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
    return "\n".join(lines) + "\n"


def _to_do(fault: Fault, row: Row) -> str:
    """Return what to do about ``row``, whose log gives no fix."""
    if isinstance(fault, WritingFault):
        return fault.advice
    if (row.status, row.mounted) == (0, "rdma"):
        return "nothing"
    raise ValueError(f"{row.fault}, {row.case}: vdsm.log gives no fix")


def shortened(line: str) -> str:
    """Return a line of vdsm.log without level, export and rule."""
    return _BEFORE.sub("", line, count=1)
