# SPDX-License-Identifier: GPL-2.0-or-later
"""Compare two answers to the same request: the engine's, recorded, and the double's.
Pure, except for the ids that it learns.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Optional

from engine_recording.answer_tree import Thing, things_of
from engine_recording.known_differences import KNOWN, Known
from engine_recording.what_matters import EMPTY, FAULT_WORDS, MOVING, READ

Found = tuple[str, str, str, str]


@dataclass(frozen=True)
class Seen:
    """An answer: HTTP status, Content-Type and body."""

    status: Optional[int]
    media: str = ""
    body: str = ""


@dataclass(frozen=True)
class Difference:
    """``kind`` is a word of this module; ``where`` in the answer, ``engine`` and
    ``double`` what each has there.
    """

    kind: str
    request: str
    where: str
    engine: str
    double: str

    @property
    def known(self) -> Optional[Known]:
        """Return the known difference that explains it, if any."""
        found = (k for k in KNOWN if k.covers(self.kind, self.request, self.where))
        return next(found, None)

    def __str__(self) -> str:
        place = f" {self.where}:" if self.where else ""
        return (
            f"{self.request}:{place} {self.kind}: the engine has {self.engine}, "
            f"the double {self.double}"
        )


class Ids:
    """The double's ids for objects that the engine made."""

    def __init__(self) -> None:
        self.known: dict[str, str] = {}

    def learn(self, theirs: str, ours: str) -> None:
        if theirs and ours and theirs != ours:
            self.known.setdefault(theirs, ours)

    def of(self, text: str) -> str:
        return self.known.get(text, text)

    def put_into(self, text: str) -> str:
        """Return a request's text with the ids of the double."""
        for theirs in sorted(self.known, key=len, reverse=True):
            if "-" in theirs:
                text = text.replace(theirs, self.known[theirs])
        return text


def compare(engine: Seen, double: Seen, ids: Ids) -> Iterator[Found]:
    """Yield (kind, where, the engine's, the double's)."""
    if engine.status != double.status:
        said = _detail(double.body)
        yield "HTTP status", "", _status(engine), f"{_status(double)} {said}".strip()
        return
    if _media(engine.media) != _media(double.media):
        yield "Content-Type", "", engine.media or "none", double.media or "none"
    if bool(engine.body.strip()) != bool(double.body.strip()):
        yield "body", "", _presence(engine), _presence(double)
        return
    if not engine.body.strip():
        return
    kind = _media(engine.media).partition(";")[0]
    if kind.endswith("/json"):
        yield from _json(engine.body, double.body)
    elif kind.endswith("/xml") and _media(double.media).startswith(kind):
        yield from _xml(engine.body, double.body, ids)


def _xml(engine: str, double: str, ids: Ids) -> Iterator[Found]:
    tag, theirs = things_of(engine)
    ours_tag, ours = things_of(double)
    if tag != ours_tag:
        yield "element", "", f"<{tag}>", f"<{ours_tag}>"
        return
    if _fault_of(theirs) is not None or _fault_of(ours) is not None:
        yield from _faults(_fault_of(theirs), _fault_of(ours))
        return
    if tag == "events":
        # replay.py compares which objects exist, for the whole run.
        return
    if tag in ("jobs", "steps"):
        theirs, ours = _external(theirs), _external(ours)
    yield from _lists(theirs, ours, ids, "")


def _lists(
    theirs: list[Thing], ours: list[Thing], ids: Ids, where: str
) -> Iterator[Found]:
    left = list(ours)
    for one in theirs:
        same = _pair(one, left, ids, alone=len(theirs) == len(ours) == 1)
        place = f"{where}/{one.name}".strip("/")
        if same is None:
            yield "object", place, "it", "nothing like it"
            continue
        left.remove(same)
        ids.learn(one.id, same.id)
        yield from _things(one, same, ids, place)
    for one in left:
        yield "object", f"{where}/{one.name}".strip("/"), "nothing like it", "it"


def _pair(one: Thing, among: list[Thing], ids: Ids, alone: bool) -> Optional[Thing]:
    for other in among:
        if one.id and ids.of(one.id) == other.id:
            return other
    mine = _key(one, ids)
    for other in among:
        if (alone or any(mine)) and mine == _key(other, Ids()):
            return other
    return among[0] if alone and among and among[0].tag == one.tag else None


def _key(one: Thing, ids: Ids) -> tuple[Optional[str], ...]:
    words = ("name", "description", "event_name", "address", "path")
    links = ("network@id", "host_nic@id")
    found = tuple(ids.put_into(one.first(word) or "") or None for word in words)
    return found + tuple(ids.of(one.first(word) or "") or None for word in links)


def _things(one: Thing, same: Thing, ids: Ids, place: str) -> Iterator[Found]:
    read = READ.get(one.tag, ())
    # The end time depends on the status, and statuses are compared separately.
    moved = one.first("status") != same.first("status")
    for path in sorted({*one.leaves, *same.leaves}):
        theirs = sorted(ids.put_into(text) for text in one.leaves.get(path, ()))
        ours = sorted(same.leaves.get(path, ()))
        if path == "end_time" and moved:
            continue
        if path in MOVING:
            if bool(theirs) != bool(ours):
                yield "element", f"{place}/{path}", _shown(theirs), _shown(ours)
        elif path in read:
            if theirs != ours and not _both_empty(theirs, ours):
                yield "value", f"{place}/{path}", _shown(theirs), _shown(ours)
        elif theirs and not ours:
            yield "not read", f"{one.tag}/{path}", _shown(theirs), "nothing"
        elif ours and not theirs and not _both_empty(theirs, ours):
            top = path.split(".")[0].split("@")[0]
            has = any(p.split(".")[0].split("@")[0] == top for p in one.leaves)
            if not has:
                yield "invented", f"{place}/{path}", "nothing", _shown(ours)
    for name in sorted({*one.inside, *same.inside}):
        if (name in one.inside) != (name in same.inside):
            theirs_has = one.inside.get(name)
            if theirs_has or same.inside.get(name):
                has = ("a list", "none") if theirs_has else ("none", "a list")
                yield "element", f"{place}/{name}", *has
            continue
        yield from _lists(one.inside[name], same.inside[name], ids, f"{place}/{name}")


def _fault_of(things: list[Thing]) -> Optional[tuple[str, str]]:
    for one in things:
        inside = "fault." if one.tag == "action" else ""
        if one.tag == "fault" or f"{inside}reason" in one.leaves:
            return (
                one.first(f"{inside}reason") or "",
                one.first(f"{inside}detail") or "",
            )
    return None


def _faults(
    engine: Optional[tuple[str, str]], double: Optional[tuple[str, str]]
) -> Iterator[Found]:
    if engine is None or double is None:
        yield "fault", "", str(engine or "no fault"), str(double or "no fault")
        return
    if engine[0] != double[0]:
        yield "fault", "reason", engine[0], double[0]
    theirs, ours = (_words(detail) for _, detail in (engine, double))
    if theirs != ours:
        told = [
            f"{', '.join(words) or 'no known word'}: {fault[1]}"
            for words, fault in ((theirs, engine), (ours, double))
        ]
        yield "fault", "detail", told[0], told[1]


def _words(detail: str) -> list[str]:
    return [name for name, form in FAULT_WORDS.items() if re.search(form, detail)]


def _detail(body: str) -> str:
    found = re.search(r"<detail>(.*?)</detail>", body, re.S)
    return found.group(1).strip() if found else ""


def _json(engine: str, double: str) -> Iterator[Found]:
    theirs, ours = (_keys(text) for text in (engine, double))
    if theirs != ours:
        yield "JSON", "", ", ".join(theirs) or "{}", ", ".join(ours) or "{}"


def _keys(text: str) -> list[str]:
    try:
        document = json.loads(text)
    except ValueError:
        return ["no JSON"]
    return sorted(document) if isinstance(document, Mapping) else ["no object"]


def _external(things: list[Thing]) -> list[Thing]:
    """Keep jobs and steps of clients, without those that the engine deletes later."""
    return [
        one
        for one in things
        if one.first("external") == "true"
        and (one.first("auto_cleared") != "true" or one.first("status") == "started")
    ]


def _both_empty(theirs: list[str], ours: list[str]) -> bool:
    return all(text in EMPTY for text in (*theirs, *ours))


def _media(text: str) -> str:
    return text.lower().replace(" ", "")


def _status(seen: Seen) -> str:
    return "no answer" if seen.status is None else str(seen.status)


def _presence(seen: Seen) -> str:
    return "a body" if seen.body.strip() else "no body"


def _shown(texts: list[str]) -> str:
    return ", ".join(text or '""' for text in texts) or "nothing"
