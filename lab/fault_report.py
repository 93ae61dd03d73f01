# SPDX-License-Identifier: GPL-2.0-or-later
"""Write the results of all faults as docs/faults.md, and read that back. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lab.fault import Fault, Row, WritingFault
from lab.fault_site import CASES, RETRANS, RPC_SECONDS, TIMEO, Case

COMMAND = "make faults"

_INTRODUCTION = """\
<!-- SPDX-License-Identifier: GPL-2.0-or-later -->
# Faults: their effect, and what to do

`{command}` wrote this on {date}; do not edit it. Every line was tried in the \
[lab](lab.md): {versions}. Both rules, `require-rdma` and `prefer-rdma`, were tried \
with NFS 4.2 and 3; cases with one result share a line.

The engine sends `timeout={timeo}` and `retrans={retrans}`, so one call to a dead \
server lasts {rpc:g} s. Guests are emulated, some 15 times slower than hosts: but for \
timeouts, hosts need fewer seconds. Rules wait 2 s for a server that is absent \
(`readiness_timeout`), for others 30 s because of the emulation.

*Status* is the engine's: 0 is good, 477 a failed mount, 469 no access; *seconds* is \
the time until the engine gets it, *mounted* the transport afterwards. *vdsm.log says* \
is the deciding line, without level, export and rule. *Do* is a number of \
[the list](#what-to-do).
"""
_CONNECTING = "## When a domain is connected\n"
_WRITING = """\
## While a virtual machine writes

The export was mounted over RDMA before. *Its write* is the error that the machine got \
and the time of its longest write; status, seconds and vdsm.log are those of a connect \
during the fault, or just after one that ended by itself. After every fault, all \
mounts accepted data again.
"""
_TO_DO = """\
## What to do

The fix in vdsm.log; in parentheses, what to do if it gives none.
"""
_COLUMNS = ("fault", "rule", "NFS", "status", "seconds", "mounted")
_WORDS = ("vdsm.log says", "do")
_ITS_WRITE = ("its write",)
_BOTH = "both"
_NOTHING = "-"
# The part of a log line before the error.
_BEFORE = re.compile(
    r"^(?:[A-Z]+ )?(?:Could not connect to storage server: )?(?:\S+:/\S+: )?"
    r"(?:FALLING BACK TO TCP, this mount is degraded: )?"
    r"(?:rule '[^']*' says [a-z-]+ \([^)]*\), but )?"
)
_FAULT = re.compile(r"\*\*(\S+)\*\*: ")
_NUMBER = re.compile(r"\d+\.\d")


@dataclass(frozen=True)
class Shown:
    """A case of a line of a table, read back."""

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
    to_do: list[str] = []
    for title, writing in ((_CONNECTING, False), (_WRITING, True)):
        columns = (*_COLUMNS, *(_ITS_WRITE if writing else ()), *_WORDS)
        lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
        for fault in faults:
            if isinstance(fault, WritingFault) == writing:
                lines += _lines(fault, [r for r in rows if r.fault == fault.id], to_do)
        parts.append("\n".join((title, *lines, "")))
    listed = (f"{number}. {text}" for number, text in enumerate(to_do, start=1))
    parts.append("\n".join((_TO_DO, *listed, "")))
    return "\n".join(parts)


def read_back(text: str) -> list[Shown]:
    """Return a line for each case of all tables in a report, in the order of CASES."""
    found: dict[tuple[str, Case], Shown] = {}
    fault = ""
    for line in text.splitlines():
        cells = line.strip("|").split(" | ")
        if not line.startswith("| ") or cells[0].strip() == _COLUMNS[0]:
            continue
        first, rule, versions, status, _, mounted = map(str.strip, cells[:6])
        named = _FAULT.match(first)
        fault = named[1] if named else fault
        for case in CASES:
            if rule in (_BOTH, case.rule) and case.version in versions.split(", "):
                found[fault, case] = Shown(
                    fault, case.rule, case.version, int(status), mounted
                )
    order = {one: None for one, _ in found}
    return [found[one, case] for one in order for case in CASES if (one, case) in found]


def _lines(fault: Fault, rows: Sequence[Row], to_do: list[str]) -> Iterator[str]:
    """Yield the lines of a fault; what to do is added to ``to_do``."""
    alike: dict[object, list[Row]] = {}
    for row in rows:
        key = (row.status, row.mounted, _NUMBER.sub("", row.writer), _says(row))
        alike.setdefault((*key, row.fix), []).append(row)
    first = f"**{fault.id}**: {fault.sentence}"
    for group in [part for some in alike.values() for part in _parts(some)]:
        row = group[0]
        rules = {one.case.rule for one in group}
        do = row.fix or _to_do(fault, row)
        if do != _NOTHING and do not in to_do:
            to_do.append(do)
        cells = [first, _BOTH if len(rules) > 1 else row.case.rule]
        cells.append(", ".join(dict.fromkeys(one.case.version for one in group)))
        cells += [str(row.status), _range([f"{one.seconds:.1f}" for one in group])]
        cells.append(row.mounted)
        if isinstance(fault, WritingFault):
            cells.append(_range([one.writer for one in group]))
        cells.append(_says(row))
        cells.append(do if do == _NOTHING else str(to_do.index(do) + 1))
        yield f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"
        first = ""


def _parts(rows: list[Row]) -> list[list[Row]]:
    """Return rows with one result by rule, unless each rule has the same versions."""
    by_rule: dict[str, list[Row]] = {}
    for row in rows:
        by_rule.setdefault(row.case.rule, []).append(row)
    versions = {tuple(row.case.version for row in some) for some in by_rule.values()}
    return [rows] if len(versions) == 1 else [*by_rule.values()]


def _range(texts: list[str]) -> str:
    """Return texts that differ in their one number as one, with a range."""
    low, high = min(texts, key=_number), max(texts, key=_number)
    if low == high:
        return low
    return _NUMBER.sub(lambda found: f"{found[0]} to {_NUMBER.findall(high)[0]}", low)


def _number(text: str) -> float:
    return float(next(iter(_NUMBER.findall(text)), 0))


def _says(row: Row) -> str:
    """Return what vdsm.log says, with EXPORT and N for what differs by the case."""
    text = shortened(row.says).replace(f"{row.case.rule}-{row.case.version}", "EXPORT")
    port = "111" if row.case.version == "3" else "2049"
    text = text.replace(f"TCP port {port} ", "TCP port 2049 (NFS 3: 111) ")
    return re.sub(r"\d+ s ago", "N s ago", text)


def _to_do(fault: Fault, row: Row) -> str:
    """Return what to do about ``row``, whose log gives no fix."""
    if isinstance(fault, WritingFault):
        return f"({fault.advice})" if fault.advice != "nothing" else _NOTHING
    if (row.status, row.mounted) == (0, "rdma"):
        return _NOTHING
    raise ValueError(f"{row.fault}, {row.case}: vdsm.log gives no fix")


def shortened(line: str) -> str:
    """Return a line of vdsm.log without level, export and rule."""
    return _BEFORE.sub("", line, count=1)
