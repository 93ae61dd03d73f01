# SPDX-License-Identifier: GPL-2.0-or-later
"""The man page of ovirt-rdma and its parser agree."""

from __future__ import annotations

import re
import shutil

import pytest
from support.man_page import (
    PAGES,
    options,
    plain,
    sections,
    tags,
    verbs,
    warnings_of_groff,
)

from ovirt_rdma.cli.engine.main import parser

pytestmark = pytest.mark.hypervisor

PAGE = PAGES / "ovirt-rdma.8"
# A verb has all options of such a section, or lists those that it has itself.
SHARED = ("OPTIONS", "OPTIONS FOR CHANGES", "OPTIONS FOR HOSTS")


@pytest.fixture(scope="module")
def page() -> dict[str, str]:
    return sections("SH", plain(PAGE.read_text()))


def named(text: str) -> set[str]:
    """Return the verbs in the line ``For a, b and c.``."""
    (line,) = re.findall(r"^For (.*)\.$", text, re.MULTILINE)
    return set(re.split(", | and ", line))


def test_each_verb_with_its_options_and_no_other(page):
    written = sections("SS", page["VERBS"])
    known = verbs(parser())
    assert sorted(written) == sorted(known)
    everywhere = options(page["OPTIONS"])
    for verb, text in written.items():
        elsewhere = everywhere.union(
            *(options(page[one]) for one in SHARED[1:] if verb in named(page[one]))
        )
        assert options(text) == known[verb] - elsewhere, verb


def test_options_of_every_verb(page):
    everywhere = set.intersection(*verbs(parser()).values())
    assert options(page["OPTIONS"]) == everywhere


@pytest.mark.parametrize("section", SHARED[1:])
def test_options_of_many_verbs_and_which_verbs_they_are(page, section):
    these = options(page[section])
    assert len(these) > 3
    known = verbs(parser())
    assert named(page[section]) == {verb for verb in known if known[verb] >= these}


def test_exit_codes_are_those_of_the_help(page):
    written = tags(page["EXIT STATUS"])
    shown = parser().format_help().partition("exit codes:")[2]
    assert written == re.findall(r"^  (\d+) ", shown, flags=re.MULTILINE)


@pytest.mark.skipif(not shutil.which("groff"), reason="groff is not installed")
def test_groff_has_no_warning():
    assert warnings_of_groff(PAGE) == ""
