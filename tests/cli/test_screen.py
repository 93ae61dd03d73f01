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
from support.command_line import NO_RDMA, run_on_terminal, run_process

from ovirt_rdma.cli.output import Output, count
from tools.picture import PICTURES

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


NARROW = """\
import sys
from ovirt_rdma.cli.output import Output
output = Output()
rows = [
    ("tcp", "read", "1", "7", "-", "nas1:/vm"),
    ("tcp", "write", "1", "7", "up", "nas1:/iso"),
    ("rdma", "write", "2", "7", "", "nas2:/backup"),
]
output.table(("VIA", "LOAD", "CONN", "SAME", "LINK", "EXPORT"), rows, minor=MINOR)
output.flush()
"""


@pytest.mark.parametrize(
    ("minor", "columns", "shown"),
    [
        # What is the same in each row is said once, before anything else folds.
        (
            (),
            40,
            "VIA   LOAD   CONN  LINK  EXPORT\n"
            "tcp   read   1     -     nas1:/vm\n"
            "tcp   write  1     up    nas1:/iso\n"
            "rdma  write  2           nas2:/backup\n"
            "In each row: SAME 7.\n",
        ),
        # Then from right to left, first and last stay; empty cells are left out.
        (
            (),
            30,
            "VIA   LOAD   EXPORT\n"
            "tcp   read   nas1:/vm\n  CONN 1\n"
            "tcp   write  nas1:/iso\n  CONN 1, LINK up\n"
            "rdma  write  nas2:/backup\n  CONN 2\n"
            "In each row: SAME 7.\n",
        ),
        # A first column that folds heads its rows, with what all of them have.
        (
            ("VIA", "CONN", "NONE"),
            30,
            "LOAD   LINK  EXPORT\n"
            "tcp, CONN 1:\nread   -     nas1:/vm\nwrite  up    nas1:/iso\n"
            "rdma, CONN 2:\nwrite        nas2:/backup\n"
            "In each row: SAME 7.\n",
        ),
    ],
)
def test_columns_that_fold_on_a_narrow_terminal(monkeypatch, minor, columns, shown):
    script = NARROW.replace("MINOR", repr(minor))
    monkeypatch.setattr(command_line, "COMMAND", (sys.executable, "-c", script))
    assert run_on_terminal(columns=columns) == shown
    whole = run_process().out.splitlines()
    assert whole[0] == "VIA   LOAD   CONN  SAME  LINK  EXPORT"
    assert len(whole) == 4


MATRIX = """\
from ovirt_rdma.cli.engine.session import show_matrix
from ovirt_rdma.cli.output import Output
from ovirt_rdma.engine_sdk_tools.model import Axis, Cell, Matrix
names = ("host01", "host02")
verdicts = ("ok", "ok", "ok", "fail", "ok")
columns = tuple(Axis(f"column {n}") for n in range(len(verdicts)))
cells = tuple(
    tuple(Cell(v, f"{v}, {name}") for v in verdicts) for name in names
)
output = Output()
show_matrix(output, Matrix("hosts", tuple(map(Axis, names)), columns, cells))
output.flush()
"""


def test_the_worst_column_of_a_matrix_does_not_fold(monkeypatch):
    """In hosts check, a FAIL on the right is what an administrator looks for."""
    monkeypatch.setattr(command_line, "COMMAND", (sys.executable, "-c", MATRIX))
    heading, first, more, *_ = run_on_terminal(columns=46, NO_COLOR="1").splitlines()
    assert heading.split() == ["HOST", "COLUMN", "0", "COLUMN", "3"]
    assert first.endswith("FAIL fail, host01")
    assert more == "  COLUMN 1 ok, host01, COLUMN 2 ok, host01,"


@pytest.mark.parametrize("picture", PICTURES)
def test_what_a_picture_shows_fits_80_columns(picture):
    """All of a table: bench was 104 columns wide, and watch 84."""
    lines = PICTURES[picture][1]()
    assert max(map(len, lines)) <= 80, lines
    if picture == "bench":
        assert {"NFS 4.2 over RDMA:", "NFS 4.2 over TCP:"} < {*lines}


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


REFUSED = ("nfs", "mount-options", "10.0.0.1:/e", "--root", ".", "--policy")


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
    words = ("nfs", "mount-options", "10.0.0.1:/e")
    assert "soft,nosharecache,timeo=100,retrans=3,nolock" in run_on_terminal(
        *words, columns=30
    )


LIST = ("nfs", "list", "--facts", NO_RDMA, "--policy")


def test_colour_on_a_terminal(require):
    assert "\x1b[31mdegraded\x1b[0m  2023" in run_on_terminal(*LIST, require)


def test_an_empty_no_color_counts_as_unset(require):
    assert "\x1b" in run_on_terminal(*LIST, require, NO_COLOR="")
