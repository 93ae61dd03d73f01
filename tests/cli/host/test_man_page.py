# SPDX-License-Identifier: GPL-2.0-or-later
"""The man page and the parser agree."""

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

from ovirt_rdma.cli.host.main import parser, unit_parser

OF_EVERY_VERB = {"-o", "--output", "-h", "--help"}


@pytest.fixture(scope="module")
def page() -> dict[str, str]:
    return sections("SH", plain((PAGES / "ovirt-rdma-host.8").read_text()))


def test_each_verb_with_its_options_and_no_other(page):
    written = sections("SS", page["VERBS"])
    known = verbs(parser())
    assert sorted(written) == sorted(known)
    for verb, text in written.items():
        assert options(text) == known[verb] - OF_EVERY_VERB, verb


def test_the_units_verbs(page):
    known = list(verbs(unit_parser()))
    written = {name: word for name, *word in map(str.split, tags(page["UNITS"]))}
    assert list(written) == known
    assert (written["netdev"], written["unconfirmed"]) == (["NAME"], ["RUN"])


def test_options_of_every_verb(page):
    assert options(page["OPTIONS"]) == OF_EVERY_VERB
    assert all(shown >= OF_EVERY_VERB for shown in verbs(parser()).values())


def test_exit_codes_are_those_of_the_help(page):
    written = tags(page["EXIT STATUS"])
    shown = parser().format_help().partition("exit codes:")[2]
    assert written == re.findall(r"^  (\d+) ", shown, flags=re.MULTILINE)


def test_which_verbs_take_facts_files(page):
    groups = [tag.split(", ") for tag in tags(page["FACTS FILES"])]
    known = verbs(parser())
    assert set(groups[0]) == {verb for verb in known if "--facts" in known[verb]}
    assert sorted(verb for group in groups for verb in group) == sorted(known)


@pytest.mark.skipif(not shutil.which("groff"), reason="groff is not installed")
@pytest.mark.parametrize(
    "name", ["ovirt-rdma-host.8", "ovirt-rdma-policy.5", "ovirt-rdma-hooks.7"]
)
def test_groff_has_no_warning(name):
    assert warnings_of_groff(PAGES / name) == ""
