# SPDX-License-Identifier: GPL-2.0-or-later
"""A sentence about many hosts is printed once."""

from __future__ import annotations

import pytest

from ovirt_rdma.cli.engine.session import show_matrix
from ovirt_rdma.cli.output import Output
from ovirt_rdma.engine_sdk_tools.model import (
    FAIL,
    Axis,
    Cell,
    Matrix,
    OnHost,
    OnHosts,
    group_by_sentence,
)


def on(number, sentence, fix="", verdict="fail"):
    """Replace ``{name}`` and ``{address}`` by those of the host."""
    name, address = f"host{number}", f"host{number}.example.com"
    words = {"name": name, "address": address}
    return OnHost(name, address, sentence.format(**words), fix.format(**words), verdict)


@pytest.mark.parametrize(
    ("sentence", "fix", "shown", "its_fix"),
    [
        ("it is down", "start it", "it is down", "start it"),
        ("{name} has no command", "", "the host has no command", ""),
        ("{address} has no command", "", "the host has no command", ""),
        (
            "the key of {name}",
            "ssh root@{address}",
            "the key of HOST",
            "ssh root@host1.example.com",
        ),
        ("{name}: on {address}, {name}.", "", "the host: on HOST, HOST.", ""),
        (
            "no",
            "policy push p --hosts {name}; {name}",
            "no",
            "policy push p --hosts host1,host2,host10; host1",
        ),
    ],
)
def test_what_differs_by_the_hosts_name_is_said_once(sentence, fix, shown, its_fix):
    found = group_by_sentence(on(number, sentence, fix) for number in (1, 2, 10))
    assert found == [OnHosts(("host1", "host2", "host10"), shown, its_fix, "fail")]


def test_one_host_keeps_its_own_words():
    (found,) = group_by_sentence([on(1, "{name} is away", "ssh {address}")] * 2)
    assert found.line == "host1: host1 is away"
    assert found.fix == "ssh host1.example.com"


def test_what_is_about_another_host_is_not_the_same():
    told = [on(1, "host1-b has it"), on(2, "host1-b has it"), on(1, "host10 has it")]
    assert [one.sentence for one in group_by_sentence(told)] == [
        "host1-b has it",
        "host10 has it",
    ]


def test_verdicts_fixes_and_sentences_stay_apart():
    told = [
        on(1, "a"),
        on(2, "b"),
        on(3, "a", "restart it"),
        on(4, "a", verdict="warn"),
    ]
    assert len(group_by_sentence(told)) == 4


def test_what_nobody_would_read_is_a_number(capsys):
    rows = tuple(Axis(f"h{number}", address=f"a{number}") for number in range(250))
    cells = tuple((Cell(FAIL, "bad", f"its port {n} is down"),) for n in range(250))
    output = Output()
    show_matrix(output, Matrix("hosts", rows, (Axis("rdma ports"),), cells))
    output.flush()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["HOST", "RDMA", "PORTS"]
    assert sum("is down" in line for line in lines) == 30
    assert lines[-1] == "220 more are not shown; -o json has all."
