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
SHARED = tuple(f"OPTIONS FOR {what}" for what in ("THE ENGINE", "CHANGES", "HOSTS"))


@pytest.fixture(scope="module")
def page() -> dict[str, str]:
    return sections("SH", plain(PAGE.read_text()))


def named(text: str) -> set[str]:
    """Return the verbs in the line ``For a, b and c.``; without the line, all verbs."""
    above = text.partition(".TP")[0]
    for line in re.findall(r"^For (.*)\.$", above, re.MULTILINE):
        return set(re.split(", | and ", line))
    return set(verbs(parser()))


def test_each_verb_with_its_options_and_no_other(page):
    written = sections("SS", page["VERBS"])
    known = verbs(parser())
    assert sorted(written) == sorted(known)
    everywhere = options(page["OPTIONS"])
    for verb, text in written.items():
        elsewhere = everywhere.union(
            *(options(page[one]) for one in SHARED if verb in named(page[one]))
        )
        assert options(text) == known[verb] - elsewhere, verb


def test_options_of_every_verb(page):
    everywhere = set.intersection(*verbs(parser()).values())
    elsewhere = set().union(*(options(page[one]) for one in SHARED))
    assert options(page["OPTIONS"]) == everywhere - elsewhere


@pytest.mark.parametrize("section", SHARED)
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
