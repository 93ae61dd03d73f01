# SPDX-License-Identifier: GPL-2.0-or-later
"""The host's own tools, asked so that nothing they do can raise: ``ip``, ``rdma``,
``ethtool``, ``nmcli`` and their like.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

from ovirt_rdma.host.collect.parsers import iproute
from ovirt_rdma.host.system.commands import (
    CommandFailed,
    NoAnswer,
    NotInstalled,
    Runner,
)
from ovirt_rdma.host.system.tree import Problems

_MOST_SILENCES = 2


@dataclass(frozen=True)
class Tools:
    """Runs tools through ``run``; with None not at all: ``root`` is then a tree that
    only looks like this host.
    """

    run: Optional[Runner]
    root: str = "/"

    def text(
        self,
        argv: Sequence[str],
        problems: Problems = None,
        *,
        optional: bool = False,
        raised_status: Optional[int] = None,
    ) -> Optional[str]:
        """Return what a tool prints; None, with a sentence, where it gives nothing.

        A tool that is ``optional`` and not installed is worth no sentence. A failure
        with the exit status ``raised_status`` is raised, as CommandFailed.
        """
        command = " ".join(argv)
        if self.run is None:
            if not optional:
                say(
                    problems,
                    f"{command} was not run: {self.root} is not this host's root",
                )
            return None
        try:
            return self.run(argv)
        except NotInstalled as e:
            if not optional:
                say(problems, f"{command} failed: {e}")
        except CommandFailed as e:
            if raised_status is not None and e.returncode == raised_status:
                raise
            say(problems, f"{command} failed: {e}")
        return None

    def rows(
        self,
        argv: Sequence[str],
        problems: Problems = None,
        *,
        optional: bool = False,
        raised_status: Optional[int] = None,
    ) -> Optional[list[iproute.Row]]:
        """Return the objects of the JSON array that a tool prints; else as
        :meth:`text`.
        """
        text = self.text(argv, problems, optional=optional, raised_status=raised_status)
        if text is None:
            return None
        try:
            return iproute.rows(text)
        except ValueError as e:
            say(problems, f"{' '.join(argv)} printed no JSON array: {e}")
            return None


def not_for_ever(run: Runner) -> Runner:
    """Return ``run`` for one snapshot: a tool that gave no answer in time twice is not
    asked again, which would take as long for each of many netdevs. Not once, because
    a question about all of them may take longer than one about a single one.
    """
    silent: Counter[str] = Counter()

    def ask(argv: Sequence[str]) -> str:
        tool = argv[0]
        if silent[tool] == _MOST_SILENCES:
            raise CommandFailed(f"not asked, as {tool} gave no answer before")
        try:
            return run(argv)
        except NoAnswer:
            silent[tool] += 1
            raise

    return ask


def say(problems: Problems, sentence: str) -> None:
    """Add ``sentence``, unless nobody listens."""
    if problems is not None:
        problems.append(sentence)
