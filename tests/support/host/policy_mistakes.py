# SPDX-License-Identifier: GPL-2.0-or-later
"""Expect mistakes of a policy by line, key and id, not by their wording."""

from __future__ import annotations

import pytest

from ovirt_rdma.host.policy.forms import Diagnostic, PolicyProblem
from ovirt_rdma.host.policy.load import parse_policy


def mistakes(text: str) -> tuple[Diagnostic, ...]:
    """Return the mistakes of a policy that must be refused."""
    with pytest.raises(PolicyProblem) as caught:
        parse_policy(text, "p.yaml")
    problem = caught.value
    assert str(problem).split("\n") == [error.at("p.yaml") for error in problem.errors]
    assert [reason.id for reason in problem.reasons] == [
        error.sentence.id for error in problem.errors
    ]
    return problem.errors


def place(remark: Diagnostic) -> str:
    """Return ``LINE: KEY`` of a remark, or ``LINE:`` of one without a key."""
    return f"{remark.line}: {remark.key}".rstrip()


def expect_mistake(text: str, where: str, id: str, *arguments: str) -> None:
    """Expect one mistake with this place and id that names each of ``arguments``."""
    (mistake,) = mistakes(text)
    assert (place(mistake), mistake.sentence.id) == (where, id), mistake
    for argument in arguments:
        assert argument in mistake.sentence
    where = place(mistake)
    colon = ": " if mistake.key else " "
    assert mistake.at("p.yaml") == f"p.yaml:{where}{colon}{mistake.sentence}"


def rows(text: str) -> list[tuple[str, list[str]]]:
    r"""Return the rows of a table of mistakes: what is written, and after a ``|`` each
    what a test expects. ``\n`` stands for a new line; a row continues after a ``\``.
    """
    lines = text.replace("\\\n", "").splitlines()
    split = ([one.strip() for one in line.split(" | ")] for line in lines)
    return [(first.replace("\\n", "\n"), rest) for first, *rest in split]
