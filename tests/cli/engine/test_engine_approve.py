# SPDX-License-Identifier: GPL-2.0-or-later
"""Ask for confirmation before a change."""

from __future__ import annotations

import io
import sys
from argparse import Namespace

import pytest

from ovirt_rdma.cli import parser
from ovirt_rdma.cli.output import Output
from ovirt_rdma.cli.parser import Declined, approve

pytestmark = pytest.mark.hypervisor

ASKED = Namespace(assume_yes=False)


class Typed(io.StringIO):
    """A terminal with typed input."""

    def isatty(self) -> bool:
        return True


def test_long_lines_are_folded_at_words(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", Typed("y\n"))
    monkeypatch.setattr(parser, "terminal_width", lambda stream: 30)
    plan = [
        "host01, host02, host03, one by one: policy",
        "  host01  ib0  10.20.0.11/24",
    ]
    approve(ASKED, Output(), plan)
    assert capsys.readouterr().err.splitlines() == [
        "host01, host02, host03, one by",
        "  one: policy",
        "  host01  ib0  10.20.0.11/24",
        "Continue? [y/N] ",
    ]


@pytest.mark.parametrize("answer", ["n\n", "\n", "", "yep\n"])
def test_anything_but_yes_is_no(monkeypatch, answer):
    monkeypatch.setattr(sys, "stdin", Typed(answer))
    with pytest.raises(Declined):
        approve(ASKED, Output(), [])
