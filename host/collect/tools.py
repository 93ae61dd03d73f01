# SPDX-License-Identifier: GPL-2.0-or-later
"""Run the host's tools (``ip``, ``rdma``, ``ethtool``, ``nmcli`` ...); a failure is a
sentence, not an exception.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

from ovirt_rdma.host.collect.parsers import iproute
from ovirt_rdma.host.system.commands import (
    CommandFailed,
    CommandTimeout,
    NotInstalled,
    Runner,
)
from ovirt_rdma.host.system.tree import Problems

_MOST_TIMEOUTS = 2


@dataclass(frozen=True)
class Tools:
    """Run tools with ``run``; None if ``root`` is not the root of this host, where they
    cannot be run.
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
        """Return a tool's stdout, or None and a sentence if it fails.

        If the tool is ``optional`` and not installed, there is no sentence. A failure
        with the exit status ``raised_status`` is raised as CommandFailed.
        """
        command = " ".join(argv)
        if self.run is None:
            if not optional:
                add_problem(
                    problems,
                    f"{command} was not run: {self.root} is not this host's root",
                )
            return None
        try:
            return self.run(argv)
        except NotInstalled as e:
            if not optional:
                add_problem(problems, f"{command} failed: {e}")
        except CommandFailed as e:
            if raised_status is not None and e.returncode == raised_status:
                raise
            add_problem(problems, f"{command} failed: {e}")
        return None

    def rows(
        self,
        argv: Sequence[str],
        problems: Problems = None,
        *,
        optional: bool = False,
        raised_status: Optional[int] = None,
    ) -> Optional[list[iproute.Row]]:
        """Return the objects in the JSON array that a tool prints, as :meth:`text`."""
        text = self.text(argv, problems, optional=optional, raised_status=raised_status)
        if text is None:
            return None
        try:
            return iproute.rows(text)
        except ValueError as e:
            add_problem(problems, f"{' '.join(argv)} printed no JSON array: {e}")
            return None


def with_limited_timeouts(run: Runner) -> Runner:
    """Return ``run`` for one snapshot: a tool that has timed out twice is not run
    again, because that could take as long for each of many netdevs. Twice, because a
    call for all netdevs may take longer than a call for one.
    """
    timeouts: Counter[str] = Counter()

    def ask(argv: Sequence[str]) -> str:
        tool = argv[0]
        if timeouts[tool] == _MOST_TIMEOUTS:
            raise CommandFailed(f"not run, because {tool} has timed out before")
        try:
            return run(argv)
        except CommandTimeout:
            timeouts[tool] += 1
            raise

    return ask


def add_problem(problems: Problems, sentence: str) -> None:
    """Add ``sentence`` to ``problems``, unless that is None."""
    if problems is not None:
        problems.append(sentence)
