# SPDX-License-Identifier: GPL-2.0-or-later
"""Define the double's routing table: the requests, and what they can contain.

    @route("GET", "/hosts", query=("all_content",), follow=("nics",))
    def list_hosts(call): return listed("hosts", [...])

    @route("POST", "/hosts/{host}/deactivate", root="action", fields=("reason",))
    def deactivate(call): ...; return done()

A handler gives an SDK object (200), an ``answers.Answer``, or None (200, no body), and
raises ``Refusal``, ``Missing`` or ``Mistake``. What the table does not name is a
mistake of the client: paths, query words, elements and enum words.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Optional, TypeVar
from xml.etree import ElementTree

from ovirtsdk4 import Error
from ovirtsdk4.reader import Reader
from ovirtsdk4.writer import Writer

from engine_double.answers import Missing, Mistake

if TYPE_CHECKING:
    from engine_double.world import World

# On any call: restapi/resource/BackendResource.java:38-45.
EVERYWHERE = frozenset({"correlation_id"})

Handler = Callable[["Call"], Any]
T = TypeVar("T")


@dataclass
class Call:
    """A request as a handler sees it.

    ``ids`` are the names in the path's braces. ``body`` is what ovirtsdk4 reads from
    the body, None without one; ``sent`` has the dotted paths of the elements in it
    (``storage.mount_options``), so that "empty" and "not sent" differ.
    """

    world: World
    method: str
    path: str
    ids: Mapping[str, str]
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: Any = None
    sent: frozenset[str] = frozenset()
    follow: frozenset[str] = frozenset()
    correlation_id: Optional[str] = None

    def flag(self, word: str) -> bool:
        """A query word that is true or false, or not sent: false."""
        text = self.query.get(word, "false")
        if text not in ("true", "false"):
            raise Mistake(f"the query word {word} is {text!r}, not true or false")
        return text == "true"


@dataclass(frozen=True)
class Route:
    method: str
    path: str
    pattern: re.Pattern[str]
    handler: Handler
    query: frozenset[str]
    follow: frozenset[str]
    root: Optional[str]
    fields: frozenset[str]
    wants: frozenset[str]


ROUTES: list[Route] = []
_BY_SHAPE: dict[tuple[str, int], list[Route]] = {}


def route(
    method: str,
    path: str,
    *,
    query: Iterable[str] = (),
    follow: Iterable[str] = (),
    root: Optional[str] = None,
    fields: Iterable[str] = (),
    wants: Iterable[str] = (),
) -> Callable[[Handler], Handler]:
    """Enter a handler for ``method`` and ``path`` (below the API's address).

    ``query`` are the words it may have besides those that any call may have, and
    ``follow`` the links that it can follow. ``root`` is the tag of the body, None for
    none. ``fields`` are dotted paths of elements below it; those above each are
    allowed too, an attribute id is written ``host.id``. Elements in a list are written
    with their tag: ``usages.usage``. ``wants`` are fields that must be there, because
    the engine refuses a body without them, or does what no verb of ours wants.
    """
    pattern = re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", path) + r"\Z")
    wants = frozenset(wants)
    parts = [name.split(".") for name in (*fields, *wants)]
    exact = {".".join(one[:end]) for one in parts for end in range(1, len(one) + 1)}
    words = set(query) | ({"follow"} if follow else set())

    if any(r.method == method and r.path == path for r in ROUTES):
        raise ValueError(f"{method} {path} is in the table already")

    def enter(handler: Handler) -> Handler:
        found = Route(
            method,
            path,
            pattern,
            handler,
            frozenset(words),
            frozenset(follow),
            root,
            frozenset(exact),
            wants,
        )
        ROUTES.append(found)
        _BY_SHAPE.setdefault((method, path.count("/")), []).append(found)
        return handler

    return enter


def find(method: str, path: str) -> tuple[Route, dict[str, str]]:
    """Return the route of a request; raises Mistake if there is none."""
    for candidate in _BY_SHAPE.get((method, path.count("/")), ()):
        match = candidate.pattern.match(path)
        if match:
            return candidate, match.groupdict()
    raise Mistake(f"there is no {method} {path}")


def check_query(found: Route, query: Mapping[str, str]) -> frozenset[str]:
    """Check the query parameters by the table; return the links to follow."""
    unknown = sorted(set(query) - found.query - EVERYWHERE)
    if unknown:
        raise Mistake(
            f"{found.method} {found.path} has no query word {', '.join(unknown)}"
        )
    links = frozenset(filter(None, re.split(r"[,\s]+", query.get("follow", ""))))
    if links - found.follow:
        words = ", ".join(sorted(links - found.follow))
        raise Mistake(f"{found.method} {found.path} cannot follow {words}")
    return links


def read_body(found: Route, raw: bytes) -> tuple[Any, frozenset[str]]:
    """Read a body strictly; return the SDK object and the paths of its elements."""
    where = f"{found.method} {found.path}"
    if found.root is None:
        if raw.strip():
            raise Mistake(f"{where} has no body")
        return None, frozenset()
    if not raw.strip():
        raise Mistake(f"{where} wants a body, <{found.root}>")
    try:
        tree = ElementTree.fromstring(raw)
    except ElementTree.ParseError as error:
        raise Mistake(f"the body of {where} is not XML: {error}") from error
    if tree.tag != found.root:
        raise Mistake(f"the body of {where} is <{tree.tag}>, not <{found.root}>")
    sent = _elements(tree)
    names = {name for name, _ in sent}
    if names - found.fields:
        raise Mistake(f"{where} has no element {min(names - found.fields)}")
    try:
        body = Reader.read(raw)
        again = _elements(ElementTree.fromstring(Writer.write(body, root=found.root)))
    except (Error, TypeError, ValueError) as error:
        raise Mistake(f"the body of {where} cannot be read: {error}") from error
    # The SDK drops what it does not understand when it reads and writes the body: an
    # element of another type, or an unknown enum value.
    lost = Counter(pair for pair in sent if pair[1]) - Counter(again)
    if lost:
        what = ", ".join(f"{name}={text!r}" for name, text in sorted(lost))
        raise Mistake(f"the body of {where} has what the SDK does not know: {what}")
    if found.wants - names:
        raise Mistake(f"{where} wants an element {min(found.wants - names)}")
    return body, frozenset(names)


def _elements(top: ElementTree.Element) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []

    def walk(element: ElementTree.Element, name: str) -> None:
        for key, text in element.attrib.items():
            if key != "href":
                found.append((f"{name}.{key}" if name else key, text))
        if name:
            found.append((name, (element.text or "").strip()))
        for child in element:
            walk(child, f"{name}.{child.tag}" if name else str(child.tag))

    walk(top, "")
    return found


def known(objects: Mapping[str, Any], name: str) -> Any:
    """The object with the id ``name``; raises Missing."""
    try:
        return objects[name]
    except KeyError:
        raise Missing(name) from None


def matching(
    search: str, objects: Iterable[T], fields: Mapping[str, Callable[[T], Any]]
) -> list[T]:
    """The ``objects`` that ``search`` names, FIELD=VALUE or FIELD!=VALUE: what the
    product sends of the engine's search language. ``fields`` gives each field's value.
    """
    if not search:
        return list(objects)
    found = re.fullmatch(r"(\w+)(!?=)(\S+)", search)
    if not found or found[1] not in fields:
        raise Mistake(f"the double cannot search {search!r}")
    name, sign, value = found.groups()
    # ILIKE: case is ignored, and "*" is SQL's "%" (SyntaxChecker.java:1142-1176).
    alike = re.compile(re.escape(value).replace(r"\*", ".*"), re.IGNORECASE)
    return [
        one
        for one in objects
        if bool(alike.fullmatch(str(fields[name](one) or ""))) == (sign == "=")
    ]
