# SPDX-License-Identifier: GPL-2.0-or-later
"""Read a page of HTML strictly: what a browser would correct silently is an error."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Optional

# Elements that have no end (HTML, 13.1.2).
_VOID = {"br", "input", "link", "meta"}


@dataclass
class Element:
    """An element: its tag, attributes, text and children."""

    tag: str
    attributes: dict[str, Optional[str]]
    children: list[Element] = field(default_factory=list)
    own_text: list[str] = field(default_factory=list)

    def all(self, tag: str = "") -> list[Element]:
        """Return all elements below this one, those with a tag or all."""
        found = []
        for child in self.children:
            if not tag or child.tag == tag:
                found.append(child)
            found += child.all(tag)
        return found

    @property
    def text(self) -> str:
        """Return the text of this element and those below it, without order."""
        return " ".join([*self.own_text, *(child.text for child in self.children)])


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.top = Element("", {})
        self.open = [self.top]
        self.declaration = ""

    def handle_decl(self, decl: str) -> None:
        self.declaration = decl

    def handle_starttag(self, tag: str, attrs: list[tuple[str, Optional[str]]]) -> None:
        names = [name for name, _ in attrs]
        assert len(set(names)) == len(names), f"an attribute twice: {tag} {names}"
        element = Element(tag, dict(attrs))
        self.open[-1].children.append(element)
        if tag not in _VOID:
            self.open.append(element)

    def handle_startendtag(
        self, tag: str, attrs: list[tuple[str, Optional[str]]]
    ) -> None:
        inside = [one.tag for one in self.open]
        assert "svg" in inside or tag in _VOID, f"<{tag}/> ends nothing in HTML"
        self.open[-1].children.append(Element(tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].tag == tag, f"</{tag}> in <{self.open[-1].tag}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.open[-1].own_text.append(data.strip())

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")

    def handle_pi(self, data: str) -> None:
        raise AssertionError(f"a processing instruction: {data}")


def read_page(page: bytes) -> Element:
    """Return the element ``html``. Fails for elements that are not nested."""
    reader = _Reader()
    reader.feed(page.decode("utf-8"))
    reader.close()
    assert reader.declaration.lower() == "doctype html"
    assert reader.open == [reader.top], [one.tag for one in reader.open]
    (html,) = reader.top.children
    return html
