# SPDX-License-Identifier: GPL-2.0-or-later
"""Compare two answers to the same request: the engine's, recorded, and the double's.
Pure, except for the ids that it learns.

Elements that READ does not name are compared in one direction only: the double must
not show what the engine does not have. Paths are dotted below the object's element; an
attribute id is written ``network@id``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Optional
from xml.etree import ElementTree

# Statuses that change by themselves: their sequence is compared, not each answer.
MOVING = ("status", "spm.status")

_STORAGE = ("type", "address", "path", "nfs_version", "mount_options", "vfs_type")
_STORAGE += ("nfs_timeo", "nfs_retrans")
_VERSION = ("version.major", "version.minor")

# The product's readers: reader.py, job.py, fleet/feature_gate.py, conversion,
# domains/create.py, networks/attach.py.
READ: dict[str, tuple[str, ...]] = {
    "api": ("product_info.version.major", "product_info.version.minor"),
    "data_center": ("name", *_VERSION),
    "cluster": ("name", "data_center@id", "upgrade_in_progress", *_VERSION),
    "network": ("name", "data_center@id", "mtu", "vlan@id", "required", "usages.usage"),
    "host": (
        *("name", "address", "cluster@id", "ssh.port", "ssh.fingerprint"),
        *("ssh.public_key", "summary.total", "hosted_engine.configured"),
    ),
    "host_nic": (
        *("name", "mac.address", "mtu", "ip.address", "ip.netmask"),
        *("bonding.slaves.host_nic@id", "bonding.options.option.name"),
    ),
    "network_attachment": (
        *("network@id", "host_nic@id", "in_sync"),
        "ip_address_assignments.ip_address_assignment.ip.address",
        "ip_address_assignments.ip_address_assignment.ip.netmask",
        "ip_address_assignments.ip_address_assignment.assignment_method",
        "properties.property.name",
        "properties.property.value",
    ),
    "hook": ("name", "event_name"),
    "storage_domain": (
        *("name", "type", "master", "data_centers.data_center@id"),
        *(f"storage.{word}" for word in _STORAGE),
    ),
    "storage_connection": _STORAGE,
    "vm": ("name", "host@id", "placement_policy.affinity"),
    "disk": ("content_type",),
    "job": ("description", "external", "auto_cleared"),
    "step": ("description", "type", "external"),
    "event": ("code", "severity", "correlation_id", "origin", "custom_id", "host@id"),
    "action": (),
    "cluster_feature": ("name",),
    "system_option": ("name", "values.system_option_value.version"),
    "fault": (),
}

# Objects inside an object that are compared one by one, as if they were in a list.
NESTED = {
    "host": ("nics", "network_attachments", "hooks"),
    "cluster": ("networks",),
    "job": ("steps",),
}

# Elements that may be empty: an engine may show them, or leave them out.
EMPTY = ("", "0")

# Messages of faults that the product distinguishes, one kind each; the others are for
# people. The same patterns are used for both sides.
FAULT_WORDS = {
    "locked": r"Related operation .*in progress|FAILED_OBJECT_LOCKED",
    "passing": r"wait for operation to complete|[Tt]ry again later|try later",
    "no message": r"^\[\]$",
}

# Events whose codes the product looks for, or a person waits for with it: coming up,
# maintenance, migrations, mounts that failed, domains, and our own.
EVENTS = {13, 15, 16, 17, 602, 14001, 188, 996, 962, 963, 966, 967, 9801, 9802, 9803}
# The kinds of differences that do not matter, with the reason.
KNOWN = {
    "not read": (
        "the double shows what our product reads and little more; READ has that"
    ),
    "passing status": (
        "a status that lasts seconds falls between two polls of an engine, while the "
        "double advances when it is read"
    ),
    "SPM": "which host becomes SPM, and when, is the engine's own choice",
    "other event": (
        "an engine writes many events; compared are those of what was asked for, by "
        "the codes that the double has"
    ),
}

# -- an answer in XML: objects with leaves, by dotted paths

Element = ElementTree.Element
# They lead to other objects and have no data of this one.
_LEFT_OUT = ("link", "actions")


@dataclass
class Thing:
    """An object of an answer. ``leaves``: dotted path to the texts there."""

    tag: str
    id: str
    leaves: dict[str, list[str]] = field(default_factory=dict)
    inside: dict[str, list[Thing]] = field(default_factory=dict)

    def first(self, path: str) -> Optional[str]:
        return next(iter(self.leaves.get(path, ())), None)

    @property
    def name(self) -> str:
        """The name for messages: the same in each engine."""
        words = ("name", "description", "event_name", "path", "code", "network@id")
        found = (self.first(word) for word in words)
        return f"{self.tag} {next((text for text in found if text), '')}".strip()

    def all(self) -> Iterator[Thing]:
        """Yield it and all objects inside it."""
        yield self
        for things in self.inside.values():
            for one in things:
                yield from one.all()


def things_of(body: str) -> tuple[str, list[Thing]]:
    """Return the tag of the answer and its objects: all of a list, or the only one."""
    top = ElementTree.fromstring(body.encode())
    if _is_list(top):
        return top.tag, [_thing(one) for one in top if one.tag not in _LEFT_OUT]
    return top.tag, [_thing(top)]


def moving(thing: Thing) -> Iterator[tuple[str, str]]:
    """Yield the statuses of an object that change by themselves, as (word, status)."""
    for word in MOVING:
        text = thing.first(word)
        if text is not None:
            yield word, text


def _is_list(top: Element) -> bool:
    if top.get("id") is not None or top.tag in ("api", "action", "fault"):
        return False
    return top.tag.endswith("s") or top.tag in ("storage_connections",)


def _thing(one: Element) -> Thing:
    made = Thing(one.tag, one.get("id") or "")
    for child in one:
        if child.tag in NESTED.get(one.tag, ()):
            found = [_thing(found) for found in child if found.tag not in _LEFT_OUT]
            # The API's form 3 puts <actions> into a list of nics.
            made.inside[child.tag] = found
        elif child.tag not in _LEFT_OUT:
            _walk(child, child.tag, made.leaves)
    return made


def _walk(one: Element, path: str, leaves: dict[str, list[str]]) -> None:
    if one.get("id") is not None:
        leaves.setdefault(f"{path}@id", []).append(str(one.get("id")))
    text = (one.text or "").strip()
    below = [child for child in one if child.tag not in _LEFT_OUT]
    if text or not (below or one.get("id")):
        leaves.setdefault(path, []).append(text)
    for child in below:
        _walk(child, f"{path}.{child.tag}", leaves)


# -- the comparison

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
