# SPDX-License-Identifier: GPL-2.0-or-later
"""Check which wording tools/plain_english.py reports, and what it does not read."""

from __future__ import annotations

from pathlib import Path, PurePath

import pytest

from tools.plain_english import HABITS, findings, main

# One for each entry of HABITS, in its order.
PHRASES = (
    "is to be had",
    "so many hosts at a time",
    "made anew",
    "of no use",
    "cannot be told",
    "does not stick",
    "held against the rule",
    "none held",
    "vdsmd does not run",
    "whose doing it is",
    "there are users",
    "stands still",
    "the same command goes on",
    "the hosts are apart",
    "no nic is called for by ib0",
    "the run is taken back",
    "the second gives way",
    "nobody notices",
    "put into force",
    "whatever becomes of it",
    "for want of permission",
    "the file is in order",
    "is left, and said",
    "a line a host",
    "mends it",
    "wrong words",
    "is not at work",
    "when the time is over",
    "its name will do.",
    "a prefix is to be given",
    "for the sake of host3",
    "of its own accord",
    "who would rather have the mount",
    "has to be made known",
)


def found(name, text):
    return [(line, words) for line, words, _ in findings(PurePath(name), text)]


def better(text):
    return [better for _, _, better in findings(PurePath("a.md"), text)]


@pytest.mark.parametrize(("phrase", "habit"), list(zip(PHRASES, HABITS)), ids=PHRASES)
def test_each_habit_is_found_with_what_to_write(phrase, habit):
    assert habit.better in better(f"Here {phrase}\n")


def test_markdown_without_code_comments_and_links():
    text = (
        "<!-- anew\n\nanew -->\n# A\n\n    $ make anew\n    anew\n\n"
        "Say `anew`, or [this](docs/anew.md):\n\n```text\nanew\n```\n\nThen anew.\n"
    )
    assert found("a.md", text) == [(15, "anew")]


def test_python_prose():
    text = (
        '"""Do it anew."""\n'
        "anew = 1  # made anew\n"
        'x = "held"\n'
        'y = f"begin {anew} anew"\n'
        'z = "a value that does not "\n'
    )
    assert found("a.py", text) == [(1, "anew"), (2, "anew"), (4, "anew")]


def test_main_reports_each_finding_and_counts_them(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("host/a.py", "docs/a.md", "b.md", "c.md"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text('"""Say it anew."""\n')
    Path("c.md").write_text("Say it again.\n")
    assert main(["c.md"]) == 0
    assert capsys.readouterr().out == ""
    assert main(["docs/a.md", "b.md", "c.md"]) == 1
    printed = capsys.readouterr().out.splitlines()
    assert [line.partition(" ")[0] for line in printed] == ["docs/a.md:1:", "b.md:1:"]
    assert all("write: again" in line for line in printed)
    assert main(["--count", "host/a.py", "docs/a.md", "b.md", "c.md"]) == 0
    counted = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert counted == [["1", "."], ["1", "docs"], ["1", "host"]]
