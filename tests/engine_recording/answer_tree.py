# SPDX-License-Identifier: GPL-2.0-or-later
"""Parse an answer in XML for the comparison: objects with leaves, by dotted paths."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Optional
from xml.etree import ElementTree

from engine_recording.what_matters import MOVING, NESTED

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
