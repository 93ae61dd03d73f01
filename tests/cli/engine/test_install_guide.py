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
from support.guide import blocks, indented

from ovirt_rdma.cli.engine import session as cli_session

pytestmark = [pytest.mark.hypervisor, pytest.mark.engine]

LOGIN = "login"


@pytest.fixture
def double(monkeypatch, tmp_path):
    monkeypatch.setattr(cli_session, "state_folder", lambda *_: tmp_path / "state")
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


def words_of_domains(section):
    """The indented command lines about domains, without the name of the command."""
    lines = [shlex.split(line) for line in indented(section)]
    return [rest for _, *rest in lines if rest[0] == "domain"]


def transports(run):
    document = run("domain", "verify", "-o", "json").document
    names = [column["name"] for column in document["columns"]]
    return names, {cell["text"] for row in document["cells"] for cell in row}


def test_the_domains_are_on_rdma_as_the_page_says_and_then_back_on_tcp(
    capsys, double, lines
):
    door = DoubleDoor(double.world)
    # A reader answers the question with y.
    asks = {"create", "convert", "revert"}

    def run(*words):
        yes = ["--assume-yes"] if asks.intersection(words) else []
        return run_engine(capsys, double, door, *words, *yes)

    for line in lines:
        result = run(*line)
        # hosts check compares with the policy of this machine, and there is none.
        assert result.code in (0, 3 * (line == ["hosts", "check"])), (line, result)
    assert transports(run) == (["data1", "data2"], {"rdma"})

    back = words_of_domains("Remove")
    assert {verb for _, verb, *_ in back} == {"revert", "convert"}
    for line in back:
        result = run(*line)
        assert result.code == 0, (line, result)
    assert transports(run) == (["data1", "data2"], {"tcp"})
    assert not any(
        "rdma" in (row.mount_options or "") for row in double.world.connections.values()
    )
