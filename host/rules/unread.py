# SPDX-License-Identifier: GPL-2.0-or-later
"""FACTS-01: what could not be read."""

from __future__ import annotations

from collections.abc import Iterator

from ovirt_rdma.host.rules.absence import HOST
from ovirt_rdma.host.rules.rule import PASS, WARN, Finding, Rule
from ovirt_rdma.host.rules.view import View

ID = "FACTS-01"
# More would hide the rest of the result; facts -o json has them all.
_SHOWN = 20


def decide(view: View) -> Iterator[Finding]:
    """Give a finding for each problem of the facts."""
    problems = view.facts.problems
    if not problems:
        yield Finding(ID, HOST, PASS, "everything could be read")
    for problem in problems[:_SHOWN]:
        sentence = problem.rstrip(".") or "something could not be read"
        yield Finding(ID, HOST, WARN, sentence, _fix(problem))
    left = len(problems) - _SHOWN
    if left > 0:
        sentence = f"{left} more things could not be read"
        yield Finding(ID, HOST, WARN, sentence, "ovirt-rdma-host facts shows them")


def _fix(problem: str) -> str:
    """What the problem's words tell of its cause."""
    text = problem.lower()
    if "permission denied" in text or "not permitted" in text:
        return "run it as root"
    if "no such file" in text and "failed" in text:
        return "install the tool"
    return "rules that need it say SKIP, or that it is unknown"


RULE = Rule(
    id=ID,
    title="what could not be read",
    what="Everything that the rules look at should be readable.",
    why=(
        "A file in /sys may answer with an error, hold nothing or garbage, or vanish "
        "while it is read, and a tool may be missing. The rest is complete all the "
        "same; what depends on the missing piece is then unknown and no rule guesses."
    ),
    fix=(
        "As root more can be read. Errors of /sys are the driver's: look into "
        "journalctl -k. A tool that is missing is named."
    ),
    sources=("ovirt-rdma-host facts -o json, problems",),
    decide=decide,
)

RULES = (RULE,)
