# SPDX-License-Identifier: GPL-2.0-or-later
"""Change pages for Sphinx: the contents of the first one, the layout of manual pages.

The first page needs no table of contents: each of its sections is a part, and the links
in the section's list are its pages.

What the theme leaves out for keyboards and screen readers is added to the HTML.

Manual pages start with a section DESCRIPTION. Their tables become lists, because a
terminal is too narrow for most, and a link within the project is its text only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform


def _with_contents(app: Sphinx, page: str, source: list[str]) -> None:
    """Add hidden tables of contents: for each section of the first page, for rules."""
    if page == app.config.root_doc:
        source[0] += "".join(contents_of(source[0]))
    elif page == "docs/rules":
        source[0] += "\n```{toctree}\n:hidden:\n:glob:\nrules/*\n```\n"


def contents_of(text: str) -> Iterator[str]:
    """Yield a toctree for each section of a page with links; pure."""
    for section in text.split("\n## ")[1:]:
        title, _, rest = section.partition("\n")
        pages = re.findall(r"\]\(([^):#]+)\.md\)", rest)
        lines = "\n".join(dict.fromkeys(pages))
        yield f"\n```{{toctree}}\n:hidden:\n:caption: {title}\n{lines}\n```\n"


# What the theme and Sphinx write, and what to write instead; a second time changes
# nothing. Blocks that may be wider than the screen are scrolled by keyboard, too.
_FOR_ALL = (
    (
        '<p class="caption" role="heading">',
        '<p class="caption" role="heading" aria-level="2">',
    ),
    (
        '<aside class="sidebar-drawer">',
        '<aside class="sidebar-drawer" aria-label="All pages">',
    ),
    ('<aside class="toc-drawer', '<aside aria-label="This page" class="toc-drawer'),
    ('<th class="head"><p></p></th>', '<td class="head"></td>'),
    ("<pre>", '<pre tabindex="0">'),
    ('<div class="table-wrapper', '<div tabindex="0" class="table-wrapper'),
    ('\n<div id="search-results">', '\n<h1>Search</h1><div id="search-results">'),
)


def for_all(page: str) -> str:
    """Return a page of HTML that keyboards and screen readers can use; pure."""
    for theirs, ours in _FOR_ALL:
        page = page.replace(theirs, ours)
    return page


def _with_access(app: Sphinx, problem: Exception | None) -> None:
    if app.builder.format == "html" and problem is None:
        for file in Path(app.outdir).rglob("*.html"):
            file.write_text(for_all(file.read_text()))


class ForManualPages(SphinxPostTransform):
    """Change a document for the builder of manual pages; see the module."""

    default_priority = 900
    builders = ("man",)

    def run(self, **_: Any) -> None:
        """Change the document."""
        for table in list(self.document.findall(nodes.table)):
            table.replace_self(_list_of(table))
        for link in list(self.document.findall(nodes.reference)):
            if "://" not in link.get("refuri", ""):
                link.replace_self(list(link.children))
        page = next(iter(self.document.findall(nodes.section)), None)
        if page is not None:
            _start_with_description(page)


def _start_with_description(page: nodes.section) -> None:
    first = [
        one
        for one in page.children
        if not isinstance(one, (nodes.title, nodes.section, nodes.comment))
    ]
    if first:
        section = nodes.section(ids=["description"], names=["description"])
        section += nodes.title("Description", "Description")
        for node in first:
            page.remove(node)
            section += node
        page.insert(1, section)


def _list_of(table: nodes.table) -> nodes.definition_list:
    """Return a table as a list: the first cell of a row is the term.

    Each further one that is not empty follows, after the heading of its column if there
    are several.
    """
    headings, *rows = (
        [entry.children for entry in row.children] for row in table.findall(nodes.row)
    )
    listing = nodes.definition_list()
    for first, *others in rows:
        term = nodes.term("", "", *(part for one in first for part in one.children))
        body = nodes.definition()
        for heading, cell in zip(headings[1:], others):
            for one in cell:
                if not one.astext():
                    continue
                line = nodes.paragraph("", "", *one.children)
                if len(headings) > 2:
                    line.insert(0, nodes.Text(f"{heading[0].astext()}: "))
                body += line
        listing += nodes.definition_list_item("", term, body)
    return listing


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the changes."""
    app.connect("source-read", _with_contents)
    app.connect("build-finished", _with_access)
    app.add_post_transform(ForManualPages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
