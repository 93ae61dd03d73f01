# SPDX-License-Identifier: GPL-2.0-or-later
"""The man page and the parser agree."""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from support.man_page import options, plain, sections, tags, verbs

from ovirt_rdma.cli.host.main import parser

PAGE = Path(__file__).parents[3] / "docs" / "ovirt-rdma-host.8"
OF_EVERY_VERB = {"-o", "--output", "-h", "--help"}


@pytest.fixture(scope="module")
def page() -> dict[str, str]:
    return sections("SH", plain(PAGE.read_text()))


def test_each_verb_with_its_options_and_no_other(page):
    written = sections("SS", page["VERBS"])
    known = verbs(parser())
    assert list(written) == list(known)
    for verb, text in written.items():
        assert options(text) == known[verb] - OF_EVERY_VERB, verb


def test_the_units_verbs(page):
    (top,) = (a for a in parser()._actions if isinstance(a, argparse._SubParsersAction))
    known = list(verbs(top.choices["unit"]))
    written = [tag.replace('"', "").split()[-1] for tag in tags(page["UNITS"])]
    names = [tag.split()[1].strip('"') for tag in tags(page["UNITS"])]
    assert names == known
    takes = {name: word for name, word in zip(names, written) if word != name}
    assert takes == {"netdev": "NAME", "unconfirmed": "RUN"}


def test_options_of_every_verb(page):
    assert options(page["OPTIONS"]) == OF_EVERY_VERB
    assert all(shown >= OF_EVERY_VERB for shown in verbs(parser()).values())


def test_exit_codes_are_those_of_the_help(page):
    written = [tag.split()[-1] for tag in tags(page["EXIT STATUS"])]
    shown = parser().format_help().partition("exit codes:")[2]
    assert written == re.findall(r"^  (\d+) ", shown, flags=re.MULTILINE)


def test_which_verbs_take_facts_files(page):
    groups = [shlex.split(tag)[1::2] for tag in tags(page["FACTS FILES"])]
    known = verbs(parser())
    assert set(groups[0]) == {verb for verb in known if "--facts" in known[verb]}
    assert sorted(verb for group in groups for verb in group) == sorted(known)


@pytest.mark.skipif(not shutil.which("groff"), reason="groff is not installed")
def test_groff_has_no_warning():
    done = subprocess.run(
        ["groff", "-ww", "-man", "-Tutf8", str(PAGE)], capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert "ovirt-rdma-host" in done.stdout.decode()
