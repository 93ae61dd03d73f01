# SPDX-License-Identifier: GPL-2.0-or-later
"""The man page of ovirt-rdma and its parser agree."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from support.man_page import options, plain, sections, tags, verbs

from ovirt_rdma.cli.engine.main import parser

pytestmark = pytest.mark.hypervisor

PAGE = Path(__file__).parents[3] / "docs" / "ovirt-rdma.8"
# A verb has all options of such a section, or none.
SHARED = ("OPTIONS", "OPTIONS FOR CHANGES", "OPTIONS FOR HOSTS")


@pytest.fixture(scope="module")
def page() -> dict[str, str]:
    return sections("SH", plain(PAGE.read_text()))


def named(text: str) -> set[str]:
    """Return the verbs that are alone on a line."""
    return set(re.findall(r'^\.BR? "?([a-z ]+?)"?(?: ,| \.)?$', text, re.MULTILINE))


def test_each_verb_with_its_options_and_no_other(page):
    written = sections("SS", page["VERBS"])
    known = verbs(parser())
    assert list(written) == list(known)
    shared = set().union(*(options(page[name]) for name in SHARED))
    for verb, text in written.items():
        assert options(text) == known[verb] - shared, verb


def test_options_of_every_verb(page):
    everywhere = set.intersection(*verbs(parser()).values())
    assert options(page["OPTIONS"]) == everywhere


@pytest.mark.parametrize("section", SHARED[1:])
def test_options_of_many_verbs_and_which_verbs_they_are(page, section):
    intro = page[section].partition(".TP")[0]
    these = options(page[section])
    known = verbs(parser())
    assert named(intro) == {verb for verb in known if known[verb] & these}
    assert all(known[verb] >= these for verb in named(intro))


def test_exit_codes_are_those_of_the_help(page):
    written = [tag.split()[-1] for tag in tags(page["EXIT STATUS"])]
    shown = parser().format_help().partition("exit codes:")[2]
    assert written == re.findall(r"^  (\d+) ", shown, flags=re.MULTILINE)


@pytest.mark.skipif(not shutil.which("groff"), reason="groff is not installed")
def test_groff_has_no_warning():
    done = subprocess.run(
        ["groff", "-ww", "-man", "-Tutf8", str(PAGE)], capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert "ovirt-rdma" in done.stdout.decode()
