# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ``explain``: show what a rule checks, why, what to do, and the sources.

The text is docs/rules/ID.md, which the package installs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from ovirt_rdma.cli.context import Context
from ovirt_rdma.cli.host.arguments import HostVerb
from ovirt_rdma.cli.host.decision import rule_of
from ovirt_rdma.cli.host.main import PROGRAM
from ovirt_rdma.cli.parser import Parser
from ovirt_rdma.host.errors import Problem, UsageProblem
from ovirt_rdma.host.rules.registry import RULES
from ovirt_rdma.host.system.safe_file import read_file

# In a checkout, and where the package installs them.
FOLDERS = (
    Path(__file__).resolve().parents[2] / "docs/rules",
    Path("/usr/share/ovirt-rdma/rules"),
)


@dataclass(frozen=True)
class RulePage:
    """The page of a rule: ``what``, ``why`` and ``fix`` are paragraphs."""

    id: str
    title: str
    what: list[str]
    why: list[str]
    fix: list[str]
    sources: list[str]


def read_page(rule: str) -> RulePage:
    """Return the page of the rule with this id. Raises Problem if it is missing."""
    folder = next((each for each in FOLDERS if each.is_dir()), FOLDERS[-1])
    path = folder / f"{rule}.md"
    try:
        text = read_file(path).decode()
        heading, *parts = re.sub(r"\\([<*`|])", r"\1", text).split("\n## ")
        _, _, title = heading.partition(f"# {rule}: ")
        what, why, fix, sources = (part.strip().split("\n\n")[1:] for part in parts)
    except (OSError, ValueError) as error:
        raise Problem(
            "rule-text-unreadable",
            f"the text of {rule}, {path}, cannot be read: {error}",
            "install the package ovirt-rdma-host again",
        ) from error
    listed = "\n".join(sources).removeprefix("- ").split("\n- ")
    return RulePage(rule, title.strip(), what, why, fix, listed)


class Explain(HostVerb):
    """Explain one rule, or list all."""

    codes = "0 printed"
    examples = ("IPOIB-MTU-01", "--list")

    id: Optional[str]
    list: bool

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        parser.add_argument(
            "id", metavar="ID", nargs="?", help="the id of a rule or a step"
        )
        parser.add_argument(
            "--list", action="store_true", help="list all ids with their titles"
        )

    def run(self, context: Context) -> int:
        if (self.id is None) != self.list:
            raise UsageProblem(
                "options-exclude-each-other",
                "give either the id of a rule or --list",
                f"list the ids: {PROGRAM} explain --list",
            )
        output = context.output
        if self.id is None:
            titles = [(rule.id, read_page(rule.id).title) for rule in RULES]
            if output.for_people:
                output.table(("ID", "TITLE"), titles)
            else:
                listed = [{"id": rule, "title": title} for rule, title in titles]
                output.document("rules", {"rules": listed})
            return 0
        page = read_page(rule_of(self.id).id)
        texts = {"what": page.what, "why": page.why, "fix": page.fix}
        if not output.for_people:
            joined = {name: "\n\n".join(text) for name, text in texts.items()}
            about = {"id": page.id, "title": page.title, **joined}
            output.document("rule", {**about, "sources": page.sources})
            return 0
        output.text(f"{page.id}: {page.title}")
        for name, paragraphs in texts.items():
            output.line()
            output.line(name)
            for number, paragraph in enumerate(paragraphs):
                if number:
                    output.line()
                output.text(paragraph, "  ")
        output.line()
        output.line("sources")
        for source in page.sources:
            output.text(source, "  ", "- ")
        return 0
