# SPDX-License-Identifier: GPL-2.0-or-later
"""Packages have a manual page for each verb, made of the page of its command."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from support.man_page import (
    PAGES,
    options,
    plain,
    sections,
    verbs,
    warnings_of_groff,
)

from tools.metrics_reference import TOP
from tools.verbs import PARSERS


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("root")
    command = ["make", "-s", "install-man-pages", f"DESTDIR={folder}"]
    subprocess.run(command, cwd=TOP, check=True)
    return folder / "usr/share/man"


def test_each_verb_has_a_page_with_all_its_options(installed):
    expected = {"ovirt-rdma", "ovirt-rdma-host"}
    for program, parser in PARSERS.items():
        for verb, known in verbs(parser()).items():
            name = f"{program} {verb}".replace(" ", "-")
            expected.add(name)
            page = sections("SH", plain((installed / f"man8/{name}.8").read_text()))
            assert page["NAME"].startswith(f"\n{name} - ")
            assert page["SYNOPSIS"].startswith(f"\n.sp\n{program} {verb} [OPTION...]")
            assert options(page["OPTIONS"]) == known, name
            assert page["EXIT STATUS"].startswith("\n.sp\n0 "), name
            assert page["DESCRIPTION"].startswith("\n.sp\n"), name
            assert f"{program}(8)" in page["SEE ALSO"]
    assert {path.stem for path in (installed / "man8").iterdir()} == expected


def test_arguments_are_in_the_synopsis(installed):
    text = plain((installed / "man8/ovirt-rdma-domain-convert.8").read_text())
    assert sections("SH", text)["SYNOPSIS"].endswith(" NAME...\n")


def test_the_pages_of_commands_are_as_they_were(installed):
    for page in PAGES.iterdir():
        assert (installed / f"man{page.suffix[1:]}" / page.name).read_text() == (
            page.read_text()
        )


@pytest.mark.skipif(not shutil.which("groff"), reason="groff is not installed")
def test_groff_has_no_warning(installed):
    verbs = ("ovirt-rdma-host-nfs-check", "ovirt-rdma-report")
    for page in (*PAGES.iterdir(), *(installed / f"man8/{one}.8" for one in verbs)):
        assert warnings_of_groff(page) == "", page
