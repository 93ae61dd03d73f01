# SPDX-License-Identifier: GPL-2.0-or-later
"""Test what makes HTML and manual pages of the documents, without Sphinx's builders."""

from __future__ import annotations

import argparse

import pytest

# Only the developers' environment has it (make selftest).
pytest.importorskip("sphinx")

from tools import command_docs, docs_pages, man_pages
from tools.verbs import verbs

pytestmark = pytest.mark.selftest

ROFF = """\
.\\" Man page generated from reStructuredText
.
.nr x 0
.TH "OVIRT-RDMA" "8" " " "" "ovirt-rdma"
.SH NAME
ovirt-rdma \\- it
.SH VERBS
.INDENT 0.0
.TP
\\fB\\-\\-dry\\-run\\fP
The engine\\(aqs answer\\&.
.UNINDENT
.\\" End of generated man page.
"""


def test_a_finished_page_has_a_license_no_date_and_no_mark_of_the_program():
    page = man_pages.finished(ROFF)
    assert page.startswith('.\\" SPDX-License-Identifier: GPL-2.0-or-later\n')
    assert '.TH "OVIRT-RDMA" "8" "" "" "ovirt-rdma"\n' in page
    assert "reStructuredText" not in page
    assert "End of generated" not in page
    assert man_pages.finished(ROFF) == page


def test_words_are_what_a_reader_sees():
    assert man_pages.words(man_pages.finished(ROFF)) == [
        *("ovirt-rdma", "-", "it", ".SH", "VERBS", "--dry-run"),
        *("The", "engine's", "answer."),
    ]


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("\\fB\\-\\-dry\\-run\\fP", "\\fI\\-\\-dry\\-run\\fP", 0),  # set differently
        ("answer", "reply", 1),
        (".SH VERBS", ".SS VERBS", 1),
    ],
)
def test_a_page_is_old_if_its_words_or_headings_differ(
    tmp_path, capsys, old, new, code
):
    built, kept = tmp_path / "built", tmp_path / "kept"
    built.mkdir()
    (built / "ovirt-rdma.8").write_text(ROFF)
    assert man_pages.main([str(built), str(kept)]) == 0
    assert man_pages.main(["--check", str(built), str(kept)]) == 0
    (built / "ovirt-rdma.8").write_text(ROFF.replace(old, new))
    assert man_pages.main(["--check", str(built), str(kept)]) == code
    assert ("run: make man" in capsys.readouterr().out) == bool(code)


def test_a_page_that_is_gone_or_new_is_a_difference(tmp_path):
    built, kept = tmp_path / "built", tmp_path / "kept"
    for folder, name in ((built, "a.8"), (kept, "b.8")):
        folder.mkdir()
        (folder / name).write_text(ROFF)
    assert man_pages.main(["--check", str(built), str(kept)]) == 1
    man_pages.main([str(built), str(kept)])
    assert [path.name for path in kept.iterdir()] == ["a.8"]


def test_the_contents_are_the_links_of_each_section():
    text = (
        "# Top\n\n[out](x.md)\n\n## Use\n\n- [a](a.md): see [b](b.md#there)\n"
        "- [c](../c.md), [a](a.md), [web](https://example.org/d.md)\n## Empty\n"
    )
    use, empty = docs_pages.contents_of(text)
    assert use.split("\n")[1:-2] == [
        "```{toctree}",
        ":hidden:",
        ":caption: Use",
        "a",
        "../c",
    ]
    assert empty.split("\n")[3:5] == [":caption: Empty", ""]


def test_all_verbs_and_the_hidden_ones():
    shown = verbs("ovirt-rdma-host")
    assert {"check", "policy load", "nfs list"} < set(shown)
    assert not any(name.startswith("unit") for name in shown)
    hidden = verbs("ovirt-rdma-host", hidden=True)
    assert {"unit daemon", "unit recover"} < set(hidden)


@pytest.mark.parametrize(
    ("help", "sentence"),
    [
        ("the data center", "The data center."),
        ("rdma-core loads it; default: %(default)s", "rdma-core loads it; default: 7."),
        ("Already.", "Already."),
    ],
)
def test_help_becomes_a_sentence(help, sentence):
    action = argparse.ArgumentParser().add_argument("--x", help=help, default=7)
    assert command_docs.sentence_of(action) == sentence


def test_a_group_of_options_is_described_once_or_in_the_verb():
    change = {"-n", "--dry-run", "-y", "--assume-yes", "--no-job"}
    assert change < command_docs.shared_options("ovirt-rdma", "domain create")
    assert not change & command_docs.shared_options("ovirt-rdma", "hosts list")


def test_verbs_and_facts_files():
    kinds = command_docs.facts_verbs()
    assert "check" in kinds["accepted"]
    assert "apply" in kinds["others"]
    assert "status" in kinds["others"]
