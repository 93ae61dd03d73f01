# SPDX-License-Identifier: GPL-2.0-or-later
"""Test how the lab reads a unit and its drop-ins, compared with systemd.service(5)."""

from __future__ import annotations

import pytest

from lab.systemd_unit import environment_file, exec_start

pytestmark = pytest.mark.selftest

UNIT = '[Service]\nType=simple\nExecStart=/usr/bin/run -1 /dev/null "/a b"\n'


def test_a_unit_alone() -> None:
    assert exec_start([UNIT]) == ["/usr/bin/run", "-1", "/dev/null", "/a b"]


def test_a_dropin_takes_the_command_back_and_gives_another() -> None:
    dropin = "[Service]\nExecStart=\n  ExecStart = sh -c 'a=$$1; \\\n  $$a'\n"
    assert exec_start([UNIT, dropin]) == ["sh", "-c", "a=$1;    $a"]
    assert exec_start([UNIT, "[Service]\n# ExecStart=\n"])[0] == "/usr/bin/run"


@pytest.mark.parametrize("dropin, count", [("ExecStart=", 0), ("ExecStart=/b", 2)])
def test_systemd_would_refuse(dropin: str, count: int) -> None:
    with pytest.raises(ValueError, match=f"has {count} ExecStart"):
        exec_start([UNIT, dropin])


def test_environment_files() -> None:
    text = "# comment\n;A=0\nA=1\n\nB='two words'\nA=3\nnothing\n"
    assert environment_file(text) == {"A": "3", "B": "two words"}
