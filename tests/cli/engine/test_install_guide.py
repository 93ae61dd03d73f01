# SPDX-License-Identifier: GPL-2.0-or-later
"""Follow docs/install.md on the engine machine, with the double as the engine.

``login`` needs TLS; test_login_verb.py tests it.
"""

from __future__ import annotations

import shlex

import pytest
from engine_double import EngineDouble, sample_world
from support.engine.engine_command_line import run_engine
from support.engine.engine_door import DoubleDoor
from support.guide import blocks

pytestmark = [pytest.mark.hypervisor, pytest.mark.engine]

LOGIN = "login"


@pytest.fixture
def double():
    # The page converts data1, and creates data2.
    world = sample_world(domains=("data1",), addon=True)
    with EngineDouble(world) as made:
        yield made
        assert made.strict_errors == []


@pytest.fixture
def lines():
    """The page's command lines, without the name of the command."""
    words = [
        shlex.split(line)
        for block in blocks("The domain")
        for line in block.splitlines()
    ]
    assert {program for program, *_ in words} == {"ovirt-rdma"}
    assert words[0][1] == LOGIN
    return [rest for _, *rest in words[1:]]


def test_the_domain_is_created_and_proven_and_another_converted(capsys, double, lines):
    door = DoubleDoor(double.world)
    answers = {"create", "convert"}
    for line in lines:
        # A reader answers the question with y.
        yes = ["--assume-yes"] if answers.intersection(line) else []
        result = run_engine(capsys, double, door, *line, *yes)
        # hosts check compares with the policy of this machine, and there is none.
        assert result.code in (0, 3 * (line == ["hosts", "check"])), (line, result)

    result = run_engine(capsys, double, door, "domain", "verify", "-o", "json")
    assert [column["name"] for column in result.document["columns"]] == [
        "data1",
        "data2",
    ]
    texts = {cell["text"] for row in result.document["cells"] for cell in row}
    assert texts == {"rdma"}, result.out
