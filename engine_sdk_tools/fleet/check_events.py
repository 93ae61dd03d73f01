# SPDX-License-Identifier: GPL-2.0-or-later
"""Write failed checks of hosts as events of the engine.

So whoever watches the engine, or gets its notifications, sees for example that VDSM was
updated to a form that the add-on does not support, and that the host mounts as stock.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from ovirt_rdma.engine_sdk_tools.api.engine_session import EngineSession
from ovirt_rdma.engine_sdk_tools.api.errors import EngineProblem
from ovirt_rdma.engine_sdk_tools.api.request import Call
from ovirt_rdma.engine_sdk_tools.api.sdk import types
from ovirt_rdma.engine_sdk_tools.fleet.check import STATUS
from ovirt_rdma.engine_sdk_tools.job import ORIGIN
from ovirt_rdma.engine_sdk_tools.matrix import FAIL, Matrix

# The engine's text in its AppErrors.properties, and its key, if it has no text.
_KNOWN = re.compile(
    "External Event with this custom id already exists"
    "|EXTERNAL_EVENT_DUPLICATE_CUSTOM_ID"
)
# Of one cell: the text comes from the host.
_LONGEST = 1000


@dataclass(frozen=True)
class HostFailure:
    """The failed checks of one host: its id and name in the engine, the names of the
    checks, and a text with sentences and fixes.
    """

    host: str
    name: str
    checks: tuple[str, ...]
    text: str


def failures(matrix: Matrix) -> tuple[HostFailure, ...]:
    """Return the hosts with failed checks. A host's status in the engine is left out:
    the engine has events of its own about that. Pure.
    """
    found = []
    for row, cells in zip(matrix.rows, matrix.cells):
        failed = [
            (column.name, cell)
            for column, cell in zip(matrix.columns, cells)
            if cell.verdict == FAIL and column.name != STATUS
        ]
        if failed:
            sentences = (
                f"{name}: {cell.sentence}{f' (fix: {cell.fix})' if cell.fix else ''}"
                for name, cell in failed
            )
            text = "; ".join(sentence[:_LONGEST] for sentence in sentences)
            names = tuple(name for name, _ in failed)
            found.append(HostFailure(row.id, row.name, names, text))
    return tuple(found)


def write_events(
    session: EngineSession, failed: Sequence[HostFailure], now: datetime
) -> Iterator[str]:
    """Write one event per host, and yield the hosts that got one.

    The engine refuses a second event with the same origin and custom_id
    (AddExternalEventCommand.java:47-51). The custom_id is made from the host, the names
    of its failed checks and the day in UTC, so a check each hour says it once a day.
    Raises EngineProblem if the engine does not accept an event for another reason.
    """
    for failure in failed:
        event = types.Event(
            origin=ORIGIN,
            severity=types.LogSeverity.ERROR,
            custom_id=_custom_id(failure, now),
            description=f"ovirt-rdma: checks of {failure.name} failed: {failure.text}",
            # The event does not get that of the request (EventMapper.java:199-201).
            correlation_id=session.correlation_id,
            host=types.Host(id=failure.host),
        )
        doing = f"writing an event about {failure.name}"
        try:
            session.report_progress(Call("events", "add", doing, {"event": event}))
        except EngineProblem as problem:
            if not _KNOWN.search(f"{problem.detail} {problem}"):
                raise
        else:
            yield failure.name


def _custom_id(failure: HostFailure, now: datetime) -> int:
    text = "\0".join((f"{now:%Y-%m-%d}", failure.host, *failure.checks))
    # A positive int of Java.
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") >> 1 or 1
