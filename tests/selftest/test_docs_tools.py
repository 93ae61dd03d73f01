# SPDX-License-Identifier: GPL-2.0-or-later
"""Test what makes HTML and manual pages of the documents, without Sphinx's builders."""

from __future__ import annotations

import pytest

# Only the developers' environment has it (make selftest).
pytest.importorskip("sphinx")

from tools import docs_pages, man_pages

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
