# SPDX-License-Identifier: GPL-2.0-or-later
"""Read what was changed: the runs of a host, and the engine's events. Pure.

The document ``history -o json`` comes from a host, so it may be anything. A newer
version of the add-on may add keys; only those that are read here are checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timezone
from typing import Any, Optional

from ovirt_rdma.host.system.json_document import json_type

# Of one host, the newest.
MOST_RUNS = 50
# A step's id has a netdev or a PCI address; a sentence may list several steps.
_MOST_STEPS, _WORD, _SENTENCE = 200, 100, 1000
INTERRUPTED = "interrupted"
# The key of a change that is still applied.
_APPLIED = "held"


@dataclass(frozen=True)
class HostRun:
    """A run that changed a host: ``at`` in ISO 8601, ``by`` the command.

    ``outcome`` is ``done``, ``rolled back``, ``partly rolled back`` or INTERRUPTED,
    with a ``sentence`` unless it is done. ``steps`` are the ids of the steps that it
    applied, ``applied`` is the number of those that are still applied.
    """

    number: int
    at: str
    by: str
    outcome: str
    sentence: str = ""
    steps: tuple[str, ...] = ()
    applied: int = 0


@dataclass(frozen=True)
class EngineEvent:
    """An event that this program has written in the engine; ``at`` in ISO 8601."""

    at: str
    severity: str
    text: str


class _Wrong(ValueError):
    """The document is not a history; ``str()`` says where."""


def runs_of(
    history: Optional[Mapping[str, Any]],
) -> tuple[Optional[tuple[HostRun, ...]], str]:
    """Return the newest MOST_RUNS runs, the newest first, and "".

    Returns None and a sentence if the document has another form; None and "" if there
    is no document.
    """
    if history is None:
        return None, ""
    try:
        runs = _list(history, "runs", "")
        return tuple(
            _run(run, f"runs[{number}]") for number, run in enumerate(runs[:MOST_RUNS])
        ), ""
    except _Wrong as wrong:
        return None, f"its history is not one of ovirt-rdma-host: {wrong}"


def own_events(events: Iterable[Any]) -> tuple[EngineEvent, ...]:
    """Return events of the engine, which are objects of the SDK, as data."""
    return tuple(
        EngineEvent(
            f"{event.time.astimezone(timezone.utc):%Y-%m-%dT%H:%M:%SZ}"
            if event.time
            else "",
            str(getattr(event.severity, "value", "") or ""),
            str(event.description or ""),
        )
        for event in events
    )


def _run(run: object, where: str) -> HostRun:
    acts = _list(run, "acts", where)[:_MOST_STEPS]
    steps: dict[str, bool] = {}
    for number, act in enumerate(acts):
        place = f"{where}.acts[{number}]"
        step = _text(act, "step", place, _WORD)
        applied = _get(act, _APPLIED, place)
        if not isinstance(applied, bool):
            raise _Wrong(f"{place}.{_APPLIED} is {json_type(applied)}")
        steps[step] = steps.get(step, False) or applied
    its_number = _get(run, "run", where)
    if not isinstance(its_number, int) or isinstance(its_number, bool):
        raise _Wrong(f"{where}.run is {json_type(its_number)}")
    verb = _text(run, "verb", where, _WORD)
    return HostRun(
        its_number,
        _text(run, "at", where, _WORD),
        _text(run, "by", where, _SENTENCE) or verb,
        _text(run, "outcome", where, _WORD) or INTERRUPTED,
        _text(run, "sentence", where, _SENTENCE),
        tuple(steps),
        sum(steps.values()),
    )


def _get(data: object, key: str, where: str) -> object:
    if not isinstance(data, Mapping):
        raise _Wrong(f"{where or 'it'} is {json_type(data)}, not an object")
    if key not in data:
        raise _Wrong(f"{where}{'.' if where else ''}{key} is missing")
    return data[key]


def _list(data: object, key: str, where: str) -> list[object]:
    value = _get(data, key, where)
    if not isinstance(value, list):
        raise _Wrong(f"{where}{'.' if where else ''}{key} is {json_type(value)}")
    return value


def _text(data: object, key: str, where: str, most: int) -> str:
    """Return a text, "" for null; of a long one its beginning."""
    value = _get(data, key, where)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise _Wrong(f"{where}.{key} is {json_type(value)}, not a string")
    return value if len(value) <= most else f"{value[:most]}..."
