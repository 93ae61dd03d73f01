# SPDX-License-Identifier: GPL-2.0-or-later
"""Send a recording's requests to a double of the same world, and list differences.

An engine advances by itself, the double when it is read. So between two changes the
sequence of statuses of each object is compared, not each answer; and the double is read
until it has reached the engine's state.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from urllib.parse import parse_qsl, urlencode, urlsplit

import requests
from engine_double import EngineDouble
from engine_double.answers import API

from engine_recording.compare import (
    EVENTS,
    KNOWN,
    Difference,
    Found,
    Ids,
    Seen,
    Thing,
    compare,
    moving,
    things_of,
)
from engine_recording.exchanges import RUN, SNAPSHOT, Exchange, Recording
from engine_recording.recorder import PASSWORD, TOKEN, UNKNOWN_TOKEN
from engine_recording.world_of_snapshot import PASSWORD as ITS_PASSWORD
from engine_recording.world_of_snapshot import world_of

# The double is read this many times to reach the engine's state.
_ROUNDS = 30
# Changes of jobs and events change nothing else.
_BOOKS = ("jobs", "steps", "end", "clear", "events")
# A lasting effect of the first of them shows after the second.
_ROUND = {"activate": "(de)activate", "deactivate": "(de)activate"}
_KEPT = ("accept", "content-type", "correlation-id", "filter")
_JOB_ID = re.compile("[?&]JobId=([^&]*)")
# What no verb of ours asks any more, and so the double does not know.
_LEFT_OUT = re.compile(
    f"GET ({API}/(clusterlevels|options)/|{API}/clusters/[^/]*/"
    f"(enabledfeatures|networks/)|.*/services/health)|PUT {API}/networks/"
)


def replay(recording: Recording) -> list[Difference]:
    """Replay on a double of the recording's first world; return all differences, known
    ones too.
    """
    with EngineDouble(world_of(recording.part(SNAPSHOT))) as double:
        return _Replay(double, recording).run()


class _Replay:
    def __init__(self, double: EngineDouble, recording: Recording) -> None:
        self._double = double
        self._recording = recording
        self._ids = Ids()
        self._tokens: dict[str, str] = {}
        self._events: dict[str, str] = {}
        self._found: list[Difference] = []
        self._engine, self._its = Side(), Side()
        # The last change, for example POST deactivate.
        self._change = ""
        self._http = requests.Session()
        self._http.trust_env = False
        self._base = double.url[: -len(API)]
        # The form of the snapshot is compared too.
        parts = recording.part(SNAPSHOT) + recording.part(RUN)
        parts = [one for one in parts if one.changes or not _is_left_out(one)]
        self._exchanges = list(_without_job_ids(parts))

    def run(self) -> list[Difference]:
        part: list[Exchange] = []
        for one in self._exchanges:
            if one.changes and not _is_sso(one):
                self._readings(part)
                part = []
                self._one(one)
            else:
                part.append(one)
        self._readings(part)
        for found in status_differences(self._engine, self._its):
            self._found.append(Difference(found[0], "the whole run", *found[1:]))
        return list(dict.fromkeys(self._found))

    def _readings(self, part: Sequence[Exchange]) -> None:
        """Return the reads between two changes."""
        self._engine.events.clear()
        self._its.events.clear()
        last: dict[str, tuple[Exchange, Seen]] = {}
        for one in part:
            theirs, ours = _recorded(one), self._send(one)
            if _is_sso(one) or one.status != 200 or ours.status != 200:
                self._compare(one, theirs, ours)
                continue
            self._learn_events(theirs, ours)
            self._learn(theirs, ours)
            key = f"{one.target} {one.request_headers.get('authorization')}"
            if key in last:
                before, answer = last[key]
                self._compare(before, _recorded(before), answer)
            # The last one is compared when the double has reached the same state.
            last[key] = one, ours
            self._engine.note(theirs, self._ids, self._change, _is_newest(one))
            self._its.note(ours, Ids(), self._change, _is_newest(one))
        self._catch_up(last)
        for one, ours in last.values():
            self._compare(one, _recorded(one), ours)
        self._codes(part)

    def _one(self, one: Exchange) -> None:
        word = one.path.rsplit("/", 1)[1]
        if word not in _BOOKS:
            word = _ROUND.get(word, "" if "-" in word else word)
            self._change = f"{one.method} {word}".strip()
        if _is_left_out(one):
            return
        theirs, ours = _recorded(one), self._send(one)
        self._learn(theirs, ours)
        self._compare(one, theirs, ours)
        self._engine.note(theirs, self._ids, self._change, False)
        self._its.note(ours, Ids(), self._change, False)

    def _catch_up(self, last: dict[str, tuple[Exchange, Seen]]) -> None:
        """Read the double until all objects have reached the engine's state."""
        for _ in range(_ROUNDS):
            if not behind(self._engine, self._its):
                return
            for key, (one, _) in list(last.items()):
                ours = self._send(one)
                if ours.status == 200:
                    last[key] = one, ours
                self._its.note(ours, Ids(), self._change, _is_newest(one))

    def _codes(self, part: Sequence[Exchange]) -> None:
        theirs, ours = self._engine.codes(), self._its.codes()
        if theirs != ours:
            shown = [", ".join(map(str, codes)) or "none" for codes in (theirs, ours)]
            self._found.append(Difference("events", _span(part), "codes", *shown))
        others = set(self._engine.events.values()) - EVENTS
        for code in sorted(others - set(self._its.events.values())):
            self._found.append(
                Difference("other event", _span(part), f"code {code}", "it", "not it")
            )

    def _compare(self, one: Exchange, theirs: Seen, ours: Seen) -> None:
        for kind, where, has, got in compare(theirs, ours, self._ids):
            self._found.append(Difference(kind, one.name, where, has, got))

    def _learn(self, theirs: Seen, ours: Seen) -> None:
        """Pair the ids of what the engine and the double made."""
        # The comparison does it as well.
        for _ in compare(theirs, ours, self._ids):
            pass
        for side in (theirs, ours):
            if not side.body or "/xml" not in side.media.lower():
                return
        made, same = things_of(theirs.body)[1], things_of(ours.body)[1]
        if len(made) == len(same) == 1 and made[0].tag == same[0].tag:
            self._ids.learn(made[0].id, same[0].id)

    def _learn_events(self, theirs: Seen, ours: Seen) -> None:
        """Pair the newest events of both at the same moment."""
        if "<events" in theirs.body and "<events" in ours.body:
            newest = [things_of(side.body)[1][:1] for side in (theirs, ours)]
            if all(newest):
                self._events[newest[0][0].id] = newest[1][0].id

    def _send(self, one: Exchange) -> Seen:
        self._double.world.seconds = one.at_s
        body = self._form(one.request_body) if _is_sso(one) else one.request_body
        headers = {k: v for k, v in one.request_headers.items() if k in _KEPT}
        given = one.request_headers.get("authorization")
        if given:
            kind, _, token = given.partition(" ")
            headers["authorization"] = f"{kind} {self._tokens.get(token, token)}"
        reply = self._http.request(
            one.method,
            self._base + self._target(one.target),
            data=self._ids.put_into(body).encode() or None,
            headers=headers,
            allow_redirects=False,
            timeout=60,
        )
        media = reply.headers.get("Content-Type", "")
        self._keep_token(one, reply)
        return Seen(reply.status_code, media, reply.content.decode("utf-8", "replace"))

    def _target(self, target: str) -> str:
        parts = urlsplit(self._ids.put_into(target))
        words = parse_qsl(parts.query, keep_blank_values=True)
        if not any(name == "from" for name, _ in words):
            return parts.path + (f"?{parts.query}" if parts.query else "")
        newest = max((e.id for e in self._double.world.log.events), default=0)
        words = [
            (name, self._events.get(text, str(newest)) if name == "from" else text)
            for name, text in words
        ]
        return f"{parts.path}?{urlencode(words)}"

    def _form(self, body: str) -> str:
        words = dict(parse_qsl(body, keep_blank_values=True))
        if words.get("password") == PASSWORD:
            words["password"] = ITS_PASSWORD
        if "token" in words:
            words["token"] = self._tokens.get(words["token"], words["token"])
        return urlencode(words)

    def _keep_token(self, one: Exchange, reply: requests.Response) -> None:
        word = re.search(rf'"access_token": "({TOKEN}-\d+)"', one.body)
        if word and reply.ok:
            token = reply.json().get("access_token", UNKNOWN_TOKEN)
            self._tokens[word.group(1)] = str(token)


def _without_job_ids(exchanges: Sequence[Exchange]) -> Iterator[Exchange]:
    """Leave out the query word JobId, which our product never sends and the double does
    not take: with it the jobs that it names, and what was refused because of it.
    """
    named = {
        found[1]
        for one in exchanges
        if (found := _JOB_ID.search(one.target)) and one.status != 400
    }
    for one in exchanges:
        about = one.path.split("/jobs/")[-1][:36]
        made = re.search(r'<job [^>]*\bid="([^"]*)"', one.body)
        if about in named or (one.changes and made and made[1] in named):
            continue
        if _JOB_ID.search(one.target):
            if one.status == 400:
                continue
            one = replace(one, target=_JOB_ID.sub("", one.target))  # noqa: PLW2901
        yield one


def _recorded(one: Exchange) -> Seen:
    return Seen(one.status, one.headers.get("content-type", ""), one.body)


def _is_left_out(one: Exchange) -> bool:
    return _LEFT_OUT.match(f"{one.method} {one.target}") is not None


def _is_sso(one: Exchange) -> bool:
    return not one.path.startswith(API)


def _is_newest(one: Exchange) -> bool:
    """Whether it asks for the newest id of the log, not for events."""
    return "max=1" in one.target


def _span(part: Sequence[Exchange]) -> str:
    numbers = [one.number for one in part]
    ends = sorted({numbers[0], numbers[-1]})
    return f"{' to '.join(map(str, ends))}: readings"


def listed(found: Sequence[Difference]) -> list[str]:
    """Return a sentence for each difference; equal ones once, with a count."""
    alike: dict[tuple[str, ...], list[Difference]] = {}
    for one in found:
        alike.setdefault(_shape(one), []).append(one)
    lines = []
    for same in alike.values():
        more = f" (and {len(same) - 1} more like it)" if len(same) > 1 else ""
        lines.append(f"{same[0]}{more}")
    return lines


def _shape(one: Difference) -> tuple[str, ...]:
    method, _, target = one.request.partition(": ")[2].partition(" ")
    path = target.partition("?")[0]
    # Names of objects are between a tag and the next slash.
    where = "/".join(part.split(" ")[0] for part in one.where.split("/"))
    about = (where,) if where else (method, _ID.sub("ID", path))
    values = [_ID.sub("ID", text) for text in (one.engine, one.double)]
    if one.kind in ("never shown", "events", "HTTP status", "fault"):
        about = (where, method, _ID.sub("ID", path))
    if "correlation" in where or "description" in where:
        values = []
    return (one.kind, *about, *values)


_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|ovirt-rdma-[0-9a-f]{12}")


def unknown(found: Sequence[Difference]) -> list[str]:
    """Return sentences for the differences that matter, as :func:`listed` does."""
    return listed([one for one in found if one.kind not in KNOWN])


# -- the statuses and events that engine and double showed during a run

# Statuses that last seconds: a poll may miss them, in the engine as in the double.
PASSING = {"unassigned", "initializing", "connecting", "locked", "activating"}
PASSING |= {"preparing_for_maintenance", "reboot"}
# Of a data center and its domains, while its SPM moves.
_SPM_MOVES = {"problematic", "contend", "unknown"}
PASSING |= _SPM_MOVES
# The engine is free to choose the host that becomes SPM.
_CHOICE = "spm.status"

# Key of a status: tag, id in the double, name of the status.
Key = tuple[str, str, str]


@dataclass
class Side:
    """The output of one side. ``been`` are the statuses of each object in order,
    ``after`` those that were seen after a kind of change, by (change, tag, word).
    """

    been: dict[Key, list[str]] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    after: dict[tuple[str, str, str], set[str]] = field(default_factory=dict)
    events: dict[int, int] = field(default_factory=dict)

    def note(self, seen: Seen, ids: Ids, change: str, newest_only: bool) -> None:
        """Record the contents of an answer."""
        if (
            seen.status not in (200, 201)
            or "/xml" not in seen.media.lower()
            or not seen.body
        ):
            return
        tag, things = things_of(seen.body)
        if tag == "events":
            for one in things if not newest_only else ():
                self.events[int(one.id)] = int(one.first("code") or 0)
            return
        for one in _told(things):
            self.names[ids.of(one.id)] = one.name
            for word, status in moving(one):
                been = self.been.setdefault((one.tag, ids.of(one.id), word), [])
                if not been or been[-1] != status:
                    been.append(status)
                if one.tag not in ("job", "step"):
                    cause = "" if status in _SPM_MOVES else change
                    about = cause, one.tag, word
                    self.after.setdefault(about, set()).add(status)

    def last(self, key: Key) -> str:
        return self.been.get(key, [""])[-1]

    def codes(self) -> list[int]:
        """Return the relevant event codes in order, and forget them."""
        found = [self.events[number] for number in sorted(self.events)]
        return [code for code in found if code in EVENTS]


def _told(things: list[Thing]) -> Iterator[Thing]:
    for top in things:
        if top.tag == "action":
            continue
        if top.tag not in ("job", "step") or top.first("external") == "true":
            yield from top.all()


def behind(engine: Side, double: Side) -> bool:
    """Whether the double is not yet where the engine is."""
    if set(engine.codes()) - set(double.codes()):
        return True
    return any(
        key in double.been and double.last(key) != been[-1]
        for key, been in engine.been.items()
        if key[2] != _CHOICE
    )


def status_differences(engine: Side, double: Side) -> Iterator[Found]:
    """Compare a whole run: the lasting statuses of each object, and all seen ones."""
    for key, theirs in engine.been.items():
        ours = double.been.get(key, theirs)
        name = f"{engine.names[key[1]]}/{key[2]}"
        if key[2] == _CHOICE:
            if ours != theirs:
                yield "SPM", name, ", ".join(theirs), ", ".join(ours)
            continue
        lasting, same = _lasting(theirs), _lasting(ours)
        if lasting != same:
            yield "statuses", name, *_from_first_difference(lasting, same)
        elif theirs != ours:
            yield "passing status", name, ", ".join(theirs), ", ".join(ours)
    for about, theirs_seen in engine.after.items():
        never = theirs_seen - double.after.get(about, set())
        if never and about[2] != _CHOICE:
            change, tag, word = about
            yield (
                "never shown",
                f"{tag}/{word} after {change or 'any change'}",
                ", ".join(sorted(never)),
                ", ".join(sorted(double.after.get(about, set()))) or "nothing",
            )


def _lasting(been: list[str]) -> list[str]:
    found: list[str] = []
    for status in been:
        if status not in PASSING and found[-1:] != [status]:
            found.append(status)
    return found


def _from_first_difference(theirs: list[str], ours: list[str]) -> tuple[str, str]:
    at = 0
    while theirs[at : at + 1] == ours[at : at + 1] and at < len(theirs):
        at += 1
    before = "..., " if at > 1 else ""
    shown = [
        f"{before}{', '.join(side[max(0, at - 1) :]) or 'nothing'}"
        for side in (theirs, ours)
    ]
    return shown[0], shown[1]
