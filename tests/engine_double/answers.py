# SPDX-License-Identifier: GPL-2.0-or-later
"""Define the answers of the double's handlers, and write them as XML.

ovirtsdk4's own writer makes the text; it writes no links, which are inserted after the
start tag.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Optional
from xml.sax.saxutils import quoteattr

from ovirtsdk4 import types
from ovirtsdk4.writer import Writer

API = "/ovirt-engine/api"
XML = "application/xml;charset=UTF-8"
_FAILED = "Operation Failed"


@dataclass(frozen=True)
class Answer:
    """A reply: HTTP status, body and headers."""

    status: int = 200
    body: bytes = b""
    content_type: str = XML
    headers: Mapping[str, str] = field(default_factory=dict)


class Refusal(Exception):
    """The engine refuses: an HTTP status and the messages of the fault, often none.

    409 for conflicts, 400 for bad parameters, 403, 500
    (restapi/util/ErrorMessageHelper.java:27-74). What fails while it is carried out is
    always 400: its messages are no EngineMessage.
    """

    def __init__(self, status: int, *messages: str, reason: str = _FAILED):
        super().__init__(status, *messages)
        self.answer = fault(status, *messages, reason=reason)


class Missing(Exception):
    """There is no such object: 404 with an empty body."""


class Mistake(Exception):
    """The client sent what this engine does not know: the test must fail."""


def fault(status: int, *messages: str, reason: str = _FAILED) -> Answer:
    """A fault; a list of messages, and only that, comes in brackets."""
    detail: Optional[str] = ", ".join(messages)
    if reason == _FAILED:
        detail = f"[{detail}]"
    text = Writer.write(types.Fault(reason=reason, detail=detail or None))
    return Answer(status, _document(text))


def done() -> Answer:
    """Return the reply of an action that was carried out."""
    return Answer(200, _document("<action><status>complete</status></action>"))


def in_action(refused: Answer) -> Answer:
    """Return the fault of ``refused`` as the answer of an action that has begun."""
    text = refused.body.decode()
    if _FAILED not in text or "<fault>" not in text:
        return refused
    inside = text[text.index("<fault>") :]
    body = f"<action>{inside}<status>failed</status></action>"
    return Answer(refused.status, _document(body))


def linked(obj: Any, **links: str) -> Any:
    """Give ``obj`` links to its sub-collections: rel (nics) and href."""
    obj.links_of_the_double = links
    return obj


def one(obj: Any, status: int = 200) -> Answer:
    return Answer(status, _document(_text(obj)))


def created(obj: Any) -> Answer:
    return one(obj, 201)


def listed(root: str, objects: Iterable[Any]) -> Answer:
    """A list, ``root`` is its tag (``storage_domains``)."""
    inside = "".join(map(_text, objects))
    return Answer(200, _document(f"<{root}>{inside}</{root}>"))


def _text(obj: Any) -> str:
    text: str = Writer.write(obj)
    links = getattr(obj, "links_of_the_double", None)
    if not links:
        return text
    inside = "".join(
        f"<link href={quoteattr(href)} rel={quoteattr(rel)}/>"
        for rel, href in links.items()
    )
    start, rest = text.split(">", 1)
    if start.endswith("/"):
        return f"{start[:-1]}>{inside}</{start[1:-1].split()[0]}>"
    return f"{start}>{inside}{rest}"


def _document(text: str) -> bytes:
    return f'<?xml version="1.0" encoding="UTF-8"?>{text}'.encode()
