# SPDX-License-Identifier: GPL-2.0-or-later
"""docs/faults.md: what came of every fault, as a text and back. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from lab.fault import Fault, Row, WritingFault
from lab.fault_site import RETRANS, RPC_SECONDS, TIMEO

COMMAND = "make faults"

_INTRODUCTION = """\
<!-- SPDX-License-Identifier: GPL-2.0-or-later -->
# Faults: what they cost, and what to do

`{command}` made this file on {date} and is the only thing that writes it. Every \
line was tried in the lab ([lab.md](lab.md)): {versions}.

The engine sends `timeout={timeo}` and `retrans={retrans}`, so one call to a dead \
server lasts {rpc:g} s. The guests are emulated, some 15 times slower than hosts: of \
the seconds below, all but the waiting is that. Rules wait 2 s for a server that is \
not there (`readiness_timeout`), and 30 s for others because of the emulation.

| column | what |
|---|---|
| status | what the engine gets: 0 is good, 477 a failed mount, 469 no access |
| seconds | after how long it gets that |
| mounted | over what the export is mounted afterwards |
| vdsm.log says | the line that decides, without level, export and rule |
| what to do | the fix that vdsm.log gives; in brackets: what is to be done where it \
gives none |

Where a virtual machine writes, the export was mounted over RDMA before. *Its write* \
is what that got and how long its longest write took; status, seconds and vdsm.log are \
those of a connect while the fault lasts, or just after a fault that ended by itself. \
Every mount took data again when the fault had ended.
"""
_COLUMNS = ("rule", "NFS", "status", "seconds", "mounted")
_WORDS = ("vdsm.log says", "what to do")
_WRITING = ("its write",)
# A line of the log up to where it says what is wrong.
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
    """Return the whole file. ``versions`` is a list in words, ``date`` as ISO."""
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
    """Return what is to be done about ``row``, whose log gives no fix."""
    if isinstance(fault, WritingFault):
        return fault.advice
    if (row.status, row.mounted) == (0, "rdma"):
        return "nothing"
    raise ValueError(f"{row.fault}, {row.case}: vdsm.log gives no fix")


def shortened(line: str) -> str:
    """Return what a line of vdsm.log says, without level, export and rule."""
    return _BEFORE.sub("", line, count=1)
