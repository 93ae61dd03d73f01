# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import io
import json
import sys

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from support import command_line
from support.command_line import NO_RDMA, RXE, run_on_terminal, run_process

from ovirt_rdma.cli.output import Output, count

texts = st.text(max_size=8) | st.sampled_from(["\udcff", "\x1b[31m", "a\nb", ""])


def printed(add, encoding="utf-8") -> str:
    """Return the text that Output writes to a stdout of this encoding."""
    raw = io.BytesIO()
    out, sys.stdout = sys.stdout, io.TextIOWrapper(raw, encoding)
    try:
        output = Output()
        add(output)
        output.flush()
    finally:
        sys.stdout = out
    return raw.getvalue().decode(encoding)


@given(st.lists(st.tuples(texts, texts, texts), max_size=4))
def test_a_table_has_one_printable_line_a_row_and_aligned_columns(rows):
    lines = printed(lambda s: s.table(("A", "B", "C"), rows)).split("\n")
    assert len(lines) == len(rows) + 2
    assert lines.pop() == ""
    assert all(line.isprintable() for line in lines)
    second = lines[0].index("B")
    for line, row in zip(lines[1:], rows):
        assert line[second - 2 : second].strip() == ""
        if row[1].isprintable():
            assert line[second:].startswith(row[1].rstrip())


def test_a_table_has_texts_below_rows():
    shown = printed(
        lambda s: s.table(("A", "B"), [("a", "b"), ("aa", "c")], below=("", "fix: d"))
    )
    assert shown == "A   B\na   b\naa  c\n    fix: d\n"


def test_a_wide_cell_moves_no_other_row():
    rows = [("a", "b", "c"), ("a", "b" * 9, "c")]
    shown = printed(lambda s: s.table(("A", "B", "C"), rows, widest=4))
    assert shown == "A  B  C\na  b  c\na  bbbbbbbbb  c\n"


WIDE = """\
import sys
from ovirt_rdma.cli.output import Output
output = Output()
rows = [("a", "b", "c"), ("a", "b" * 9, "c " * 20)]
output.table(("A", "B", "C"), rows, below=("", "d"), widest=4)
output.text("one two three " * 3, "  ", "- ")
output.flush()
"""


def test_folding_on_a_terminal(monkeypatch):
    monkeypatch.setattr(command_line, "COMMAND", (sys.executable, "-c", WIDE))
    assert run_on_terminal(columns=30) == (
        "A  B  C\na  b  c\na  bbbbbbbbb\n"
        "      c c c c c c c c c c c c\n      c c c c c c c c\n      d\n"
        "  - one two three one two\n    three one two three\n"
    )


def test_nothing_reaches_stdout_before_flush(capsys):
    output = Output()
    output.line("x")
    assert capsys.readouterr().out == ""
    output.flush()
    output.flush()
    assert capsys.readouterr().out == "x\n"


def test_a_stdout_that_is_ascii():
    assert printed(lambda s: s.line("ü\x1b\udcff"), "ascii") == "\\xfc\\x1b\\udcff\n"


@given(st.dictionaries(st.text(max_size=4), texts | st.none() | st.integers()))
def test_yaml_says_what_json_says(content):
    def document(form):
        def add(output):
            output.form = form
            output.document("test", content)

        return printed(add)

    as_json = json.loads(document("json"))
    assert as_json == {"schema_version": 1, "kind": "test", **content}
    assert list(as_json)[:2] == ["schema_version", "kind"]
    assert yaml.safe_load(document("yaml")) == as_json


@pytest.mark.parametrize(
    ("number", "words"), [(0, "0 mounts"), (1, "1 mount"), (2, "2 mounts")]
)
def test_count(number, words):
    assert count(number, "mount") == words


REFUSED = ("nfs", "mount-options", "10.0.0.1:/e", "--facts", NO_RDMA, "--policy")


@pytest.fixture
def require(tmp_path, monkeypatch):
    """A policy with a short file name, because a longer one would be wrapped."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.yaml").write_text(
        "version: 1\nnfs:\n  rules:\n"
        "    - {server: 10.0.0.0/24, transport: require-rdma}\n"
    )
    return "p.yaml"


def test_long_text_is_folded_on_a_terminal_only(require):
    wide = run_process(*REFUSED, require).out
    narrow = run_on_terminal(*REFUSED, require)
    assert max(map(len, wide.splitlines())) > 80
    assert max(map(len, narrow.splitlines())) <= 80
    assert narrow.split() == wide.split()
    [folded] = [line for line in narrow.splitlines() if line.startswith("why ")]
    after = narrow.splitlines()[narrow.splitlines().index(folded) + 1]
    assert after.startswith(" " * folded.index("rule 1"))


def test_help_fits_the_terminal():
    for more in ({}, {"COLUMNS": "60"}):
        shown = run_on_terminal(
            "nfs", "list", "--help", columns=200 if more else 60, **more
        )
        options = shown[: shown.index("exit codes:")]
        assert 50 < max(map(len, options.splitlines())) <= 60


def test_an_option_string_stays_whole_on_a_narrow_terminal():
    words = ("nfs", "mount-options", "10.0.0.1:/e", "--facts", RXE)
    assert "soft,nosharecache,timeo=100,retrans=3,nolock" in run_on_terminal(
        *words, columns=30
    )


LIST = ("nfs", "list", "--facts", NO_RDMA, "--policy")


def test_colour_on_a_terminal(require):
    assert "\x1b[31mdegraded\x1b[0m  2023" in run_on_terminal(*LIST, require)


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_no_colour_where_it_is_not_wanted(require, environment):
    assert "\x1b" not in run_on_terminal(*LIST, require, **environment)


def test_no_colour_in_a_pipe(require):
    assert "\x1b" not in run_process(*LIST, require).out


def test_an_empty_no_color_counts_as_unset(require):
    assert "\x1b" in run_on_terminal(*LIST, require, NO_COLOR="")
