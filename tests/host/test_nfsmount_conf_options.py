# SPDX-License-Identifier: GPL-2.0-or-later
import pytest

from ovirt_rdma.host.nfsmount_conf_options import option_lines


@pytest.mark.parametrize(
    "options, lines",
    [
        ("", ()),
        ("hard", ("hard=True",)),
        ("noac,nosharecache", ("ac=False", "sharecache=False")),
        ("nconnect=4,rsize=1048576", ("nconnect=4", "rsize=1048576")),
        ("rsize=32k", ("rsize=32k",)),
        ("fsc=a#b", ('fsc="a#b"',)),
        ('context="s0:c1,c2",hard', ("context='\"s0:c1,c2\"'", "hard=True")),
    ],
)
def test_lines(options, lines):
    found = option_lines(options)
    assert (found.lines, found.mistakes) == (lines, ())


@pytest.mark.parametrize(
    "option, why",
    [
        ("sharecache", "VDSM itself sends nosharecache"),
        ("lock", "VDSM itself sends nolock"),
        ("include=x", "this name another meaning"),
        ("defaults", "this name another meaning"),
        ("Hard", "this name another meaning"),
        ("a b=1", "this name another meaning"),
        ("fsc=true", "this value another meaning"),
        ("fsc=$HOME", "this value another meaning"),
        ("fsc=", "this value another meaning"),
        ("local_lock=flock", "takes its last letter for a unit"),
        ('fsc="it\'s"', "both kinds of quotes"),
    ],
)
def test_what_the_file_cannot_carry(option, why):
    found = option_lines(f"hard,{option}")
    assert found.lines == ("hard=True",)
    (mistake,) = found.mistakes
    assert mistake.startswith(f"option {option!r}: ")
    assert why in mistake
